"""
Puts the emulated driver where ``seamline_cuda`` calls NVIDIA's.

The seam is four names: :func:`seamline_cuda.driver._driver`, which gives the bindings'
module, the compiler that :mod:`seamline_cuda.loading` calls, in whose place a kernel's
text itself becomes the image that is loaded, and :func:`seamline_cuda.blaslt._library`,
which gives the bindings of cuBLASLt, and ``_by_ctypes`` of the driver, for one function
that the bindings do not serve. Everything above is what runs on a GPU.
"""

from __future__ import annotations

import contextlib

from tests.cuda.emulation.blas import EmulatedLt
from tests.cuda.emulation.driver import EmulatedDriver
from tests.cuda.emulation.launches import image_of

import seamline_cuda.blaslt
import seamline_cuda.driver
import seamline_cuda.loading
from seamline_cuda.compiler import Compiled


def _compiled(kernel, capability):
    return Compiled(image_of(kernel), kernel.name, None, 0)


def install(seed=0):
    """Emulate from now on; for a process of its own."""
    made = EmulatedDriver(seed)
    seamline_cuda.driver._driver = lambda: made
    seamline_cuda.loading.compiled = _compiled
    made.blas = EmulatedLt(made.state)
    seamline_cuda.blaslt._library = lambda: made.blas
    seamline_cuda.driver._by_ctypes = lambda name: _without_values(made, name)
    return made


def _without_values(made, name):
    return lambda *given: int(getattr(made, name)(*given)[0])


@contextlib.contextmanager
def emulated(seed=0):
    """
    Emulate inside a ``with`` block; gives the driver.

    What the block leaves open is an assertion, unless the device was lost.
    """
    names = seamline_cuda.driver, seamline_cuda.loading, seamline_cuda.blaslt
    before = (
        names[0]._driver, names[1].compiled, names[2]._library, names[0]._by_ctypes,
    )  # fmt: skip
    state = dict(names[0]._state)
    made = install(seed)
    try:
        yield made
        left = (
            {}
            if made.state.timeline.broken or made.may_leave
            else made.left() | made.blas.left()
        )
        assert not left, f"not given back: {left}"
    finally:
        names[0]._driver, names[1].compiled, names[2]._library = before[:3]
        names[0]._by_ctypes = before[3]
        names[0]._state.update(state)
        made.close()
