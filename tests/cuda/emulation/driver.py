"""
The driver's functions, over the emulation; stands in the place of ``cuda.bindings.driver``.

As there, a function gives a tuple: its result, then what it gives beside it. Enumerations
and structures are the real ones. A function that is not here is an AttributeError that
says so; add it where it belongs.

``fail("cuMemCreate", nth=2)`` makes the second call from then on fail, before it does
anything.
"""

from __future__ import annotations

import threading
from collections import Counter

from tests.cuda.emulation.contexts import Contexts
from tests.cuda.emulation.copies import Copies
from tests.cuda.emulation.launches import Launches
from tests.cuda.emulation.pages import PageCalls
from tests.cuda.emulation.results import SENTENCES, Code, RefusedError, real
from tests.cuda.emulation.state import State
from tests.cuda.emulation.submissions import Submissions

#: Need no context, and work on a device that is lost.
_FREE = {
    "cuInit", "cuDriverGetVersion", "cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName",
    "cuDeviceGetAttribute", "cuDeviceTotalMem", "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxGetState", "cuCtxPushCurrent",
    "cuCtxPopCurrent", "cuCtxGetCurrent", "cuCtxSetCurrent",
}  # fmt: skip
#: What a thread may not do while it captures, in other modes than the relaxed one.
_UNSAFE = {
    "cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost", "cuCtxSynchronize",
    "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD", "cuModuleLoadData",
    "cuModuleUnload",
}  # fmt: skip


class EmulatedDriver(Contexts, PageCalls, Copies, Launches, Submissions):
    """
    One machine with one GPU.

    Attributes
    ----------
    state
        Memory, streams, and all else that calls change.
    calls
        Counts calls by name.
    may_leave
        Whether something may be left open: a device that hangs gives nothing back.
    """

    def __init__(self, seed=0):
        self.state = State(seed)
        self.calls = Counter()
        self.may_leave = False
        self._failures = {}
        self._lock = threading.Lock()

    def fail(self, name, nth=1, code="CUDA_ERROR_OUT_OF_MEMORY"):
        """Make the nth call of a function from now on give another result."""
        with self._lock:
            self._failures[name] = (self.calls[name] + nth, getattr(Code, code))

    def clear(self):
        """Make nothing fail any more."""
        with self._lock:
            self._failures.clear()

    def left(self):
        """Count what was opened and not closed, by kind."""
        return self.state.left()

    def close(self):
        """Stop the device and give its memory back."""
        self.state.timeline.stop()
        self.state.mapped.close()

    def cuGetErrorString(self, code):
        name = Code(code).name
        said = SENTENCES.get(name, name)
        detail = self.state.details.get(threading.get_ident(), "")
        return Code.CUDA_SUCCESS, f"{said}{': ' if detail else ''}{detail}".encode()

    def __getattr__(self, name):
        if name.startswith("CU"):
            return getattr(real, name)
        raise AttributeError(f"the emulated driver has no {name} yet: add it")

    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        if name[:2] != "cu" or name == "cuGetErrorString":
            return found

        def call(*given):
            return self._called(name, found, given)

        return call

    def _called(self, name, function, given):
        with self._lock:
            self.calls[name] += 1
            nth, code = self._failures.get(name, (0, None))
            if nth == self.calls[name]:
                del self._failures[name]
                self.state.details[threading.get_ident()] = "made to fail"
                if name == "cuStreamEndCapture":  # which ends it, whatever comes of it
                    self.state.of("stream", given[0]).end()
                return code, None
        try:
            if name not in _FREE:
                self.state.enter(name, unsafe=name in _UNSAFE)
            values = function(*given)
        except RefusedError as error:
            self.state.details[threading.get_ident()] = error.detail
            return error.code, None
        if values is None:
            return (Code.CUDA_SUCCESS,)
        return Code.CUDA_SUCCESS, *(values if isinstance(values, tuple) else (values,))
