"""What calls of the emulated driver change: contexts, memory, streams, handles."""

from __future__ import annotations

import itertools
import threading

from tests.cuda.emulation.capturing import Stream
from tests.cuda.emulation.mapped import Mapped
from tests.cuda.emulation.pointers import IllegalAccessError
from tests.cuda.emulation.results import RefusedError, require
from tests.cuda.emulation.timeline import Timeline

_RELAXED = 2  # the mode of a capture that forbids nothing
DEFAULT_STREAMS = (0, 1, 2)  #: by their numbers: legacy, legacy, one for each thread


class State:
    """All of one emulated machine."""

    def __init__(self, seed):
        self.timeline = Timeline(seed)
        self.mapped = Mapped()
        self.is_initialized = False
        self.retained = 0
        self.details = {}
        self.objects = {
            kind: {}
            for kind in ("stream", "event", "module", "function", "graph", "exec")
        }
        self.allocations = {}
        legacy = Stream(0, self.timeline)
        self.streams = dict.fromkeys(DEFAULT_STREAMS, legacy)
        self._numbers = itertools.count(0x5000_0000, 0x10)
        self._mine = threading.local()

    @property
    def contexts(self):
        """Give the calling thread's stack of contexts."""
        if not hasattr(self._mine, "stack"):
            self._mine.stack = []
        return self._mine.stack

    def enter(self, name, *, unsafe):
        """Refuse a call without a context, on a lost device, or inside a capture."""
        require(self.is_initialized, "CUDA_ERROR_NOT_INITIALIZED")
        require(self.contexts and self.retained, "CUDA_ERROR_INVALID_CONTEXT")
        if self.timeline.broken is not None:
            raise self.timeline.broken
        capture = self._own_capture() if unsafe else None
        if capture is not None and capture.mode != _RELAXED:
            raise capture.refuse(f"{name} inside a capture")

    def _own_capture(self):
        for stream in list(self.objects["stream"].values()):
            if stream.capture and stream.capture.thread == threading.get_ident():
                return stream.capture
        return None

    def add(self, kind, value):
        """Give a handle for something that was opened."""
        handle = next(self._numbers)
        self.objects[kind][handle] = value
        return handle

    def of(self, kind, handle):
        """Give what a handle stands for."""
        if kind == "stream" and int(handle or 0) in self.streams:
            return self.streams[int(handle or 0)]
        found = self.objects[kind].get(int(handle or 0))
        require(found is not None, "CUDA_ERROR_INVALID_HANDLE", f"no {kind} {handle}")
        return found

    def drop(self, kind, handle):
        found = self.of(kind, handle)
        del self.objects[kind][int(handle)]
        return found

    def host(self, address, nbytes, what):
        """Give the host's address of mapped bytes, for work under way."""
        return self.mapped.host(address, nbytes, what)

    def known(self, address, nbytes, what):
        """Refuse an address that a copy is given and that is nothing of the device's."""
        try:
            return self.mapped.host(address, nbytes, what)
        except IllegalAccessError as error:
            raise RefusedError("CUDA_ERROR_INVALID_VALUE", str(error)) from error

    def left(self):
        counts = {k: len(v) for k, v in self.objects.items() if k != "function"}
        counts |= {"context": self.retained, "allocation": len(self.allocations)}
        return {k: n for k, n in counts.items() if n} | self.mapped.left()
