"""
Copies and fills.

Of pinned memory an asynchronous copy reads what is there when it is done, so a host that
changes it too early is seen. Pageable memory is read at once; a copy to it has ended when
the call returns. Neither can be captured.
"""

from __future__ import annotations

import ctypes

from tests.cuda.emulation.capturing import Event
from tests.cuda.emulation.timeline import Mark, Work


class Copies:
    """Calls of the driver that move bytes."""

    def cuMemcpyHtoDAsync(self, target, source, nbytes, stream):
        state, target, source = self.state, int(target), int(source)
        into = state.of("stream", stream)
        state.known(target, nbytes, "cuMemcpyHtoDAsync, target")
        data = None
        if not state.mapped.is_pinned(source):
            self._refuse_pageable(into)
            data = ctypes.string_at(source, nbytes)

        def act():
            there = state.host(target, nbytes, "cuMemcpyHtoDAsync, target")
            here = data
            if here is None:
                here = state.host(source, nbytes, "cuMemcpyHtoDAsync, source")
            ctypes.memmove(there, here, nbytes)

        into.submit(Work("copy to the device", act))

    def cuMemcpyDtoHAsync(self, target, source, nbytes, stream):
        state, target, source = self.state, int(target), int(source)
        into = state.of("stream", stream)
        state.known(source, nbytes, "cuMemcpyDtoHAsync, source")
        is_pinned = state.mapped.is_pinned(target)
        if not is_pinned:
            self._refuse_pageable(into)

        def act():
            there = target
            if is_pinned:
                there = state.host(target, nbytes, "cuMemcpyDtoHAsync, target")
            here = state.host(source, nbytes, "cuMemcpyDtoHAsync, source")
            ctypes.memmove(there, here, nbytes)

        into.submit(Work("copy to the host", act))
        if not is_pinned:
            self._waited(into)

    def cuMemcpyDtoDAsync(self, target, source, nbytes, stream):
        state, target, source = self.state, int(target), int(source)
        for what, at in (("target", target), ("source", source)):
            state.known(at, nbytes, f"cuMemcpyDtoDAsync, {what}")

        def act():
            there = state.host(target, nbytes, "cuMemcpyDtoDAsync, target")
            here = state.host(source, nbytes, "cuMemcpyDtoDAsync, source")
            ctypes.memmove(there, here, nbytes)

        state.of("stream", stream).submit(Work("copy on the device", act))

    def cuMemsetD8Async(self, address, value, count, stream):
        self._fill(address, bytes([int(value) & 0xFF]), count, stream)

    def cuMemsetD16Async(self, address, value, count, stream):
        self._fill(address, int(value).to_bytes(2, "little"), count, stream)

    def cuMemsetD32Async(self, address, value, count, stream):
        self._fill(address, int(value).to_bytes(4, "little"), count, stream)

    def cuMemcpyHtoD(self, target, source, nbytes):
        Copies.cuMemcpyHtoDAsync(self, target, source, nbytes, 0)
        self._waited(self.state.of("stream", 0))

    def cuMemcpyDtoH(self, target, source, nbytes):
        Copies.cuMemcpyDtoHAsync(self, target, source, nbytes, 0)
        self._waited(self.state.of("stream", 0))

    def _fill(self, address, pattern, count, stream):
        nbytes = len(pattern) * count
        state, address = self.state, int(address)
        state.known(address, nbytes, "a fill")

        def act():
            there = state.host(address, nbytes, "a fill")
            ctypes.memmove(there, pattern * count, nbytes)

        state.of("stream", stream).submit(Work("fill", act))

    def _waited(self, stream):
        """Wait for what was submitted to a stream so far."""
        event = Event(is_timed=False, mark=Mark())
        stream.record(event)
        self.state.timeline.wait(lambda: event.is_reached)

    @staticmethod
    def _refuse_pageable(stream):
        if stream.capture is not None:
            raise stream.capture.refuse("a copy of pageable memory")
