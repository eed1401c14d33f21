"""
Puts the emulated driver where ``seamline_cuda`` calls NVIDIA's.

The seam is two names: :func:`seamline_cuda.driver._driver`, which gives the bindings'
module, and the compiler that :mod:`seamline_cuda.loading` calls, in whose place a kernel's
text itself becomes the image that is loaded. Everything above is what runs on a GPU.
"""

from __future__ import annotations

import contextlib

from tests.cuda.emulation.driver import EmulatedDriver
from tests.cuda.emulation.launches import image_of

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
    return made


@contextlib.contextmanager
def emulated(seed=0):
    """
    Emulate inside a ``with`` block; gives the driver.

    What the block leaves open is an assertion, unless the device was lost.
    """
    names = seamline_cuda.driver, seamline_cuda.loading
    before = names[0]._driver, names[1].compiled, dict(names[0]._state)
    made = install(seed)
    try:
        yield made
        left = {} if made.state.timeline.broken else made.left()
        assert not left, f"not given back: {left}"
    finally:
        names[0]._driver, names[1].compiled = before[:2]
        names[0]._state.update(before[2])
        made.close()
