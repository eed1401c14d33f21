"""
A GPU by definition: kernels' own text as plain Python, over a driver that is emulated.

Run one kernel over arrays, by blocks, barriers and shuffles::

    run_kernel(kernel, x, out, 1000, blocks=4, threads=128)

Run the whole provider, from claims to replays, over an emulated driver::

    with emulated() as driver:
        ...  # anything of seamline_cuda
"""

from __future__ import annotations

from tests.cuda.emulation.installing import emulated, install
from tests.cuda.emulation.launching import run_kernel
from tests.cuda.emulation.lockstep import DivergedError
from tests.cuda.emulation.pointers import IllegalAccessError

__all__ = ["DivergedError", "IllegalAccessError", "emulated", "install", "run_kernel"]
