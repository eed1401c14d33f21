"""
A GPU by definition: kernels' own text as plain Python, over a driver that is emulated.

Run one kernel over arrays, by blocks, barriers and shuffles::

    run_kernel(kernel, x, out, 1000, blocks=4, threads=128)

Run the whole provider, from claims to replays, over an emulated driver::

    with emulated() as driver:
        ...  # anything of seamline_cuda

Hold a model to its definition, eager and captured and replayed with other inputs::

    text = "g (float[3,4] x) => (float[3,4] y) { y = Relu(x) }"
    check(text, drawn(text))
    check(text, drawn(text), oracle=peer, providers=("cuda", "cpu"), opset=17)

``opened(text)`` gives the pipeline itself, for what ``check`` does not ask. An intrinsic that
is new gets its definition in ``definitions.py``.
"""

from __future__ import annotations

from tests.cuda.emulation.installing import emulated, install
from tests.cuda.emulation.launching import run_kernel
from tests.cuda.emulation.lockstep import DivergedError
from tests.cuda.emulation.pointers import IllegalAccessError
from tests.cuda.emulation.sessions import check, defined, drawn, opened, peer
from tests.cuda.emulation.sharing import RaceError

__all__ = [
    "DivergedError",
    "IllegalAccessError",
    "RaceError",
    "check",
    "defined",
    "drawn",
    "emulated",
    "install",
    "opened",
    "peer",
    "run_kernel",
]
