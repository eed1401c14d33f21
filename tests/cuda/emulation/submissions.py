"""Streams, events and graphs: what orders work, and what records it."""

from __future__ import annotations

import ctypes
import time

from tests.cuda.emulation.capturing import Event, Stream
from tests.cuda.emulation.results import require
from tests.cuda.emulation.timeline import Mark, Work

_NO_TIMING = 2
_COMPARED = {
    0: lambda found, value: (found - value) % 2**32 < 2**31,
    1: lambda found, value: found == value,
    2: lambda found, value: bool(found & value),
    3: lambda found, value: (~(found | value)) % 2**32 != 0,
}  #: of cuStreamWaitValue32, by its flags


class Submissions:
    """Calls of the driver on streams, events and graphs."""

    def cuStreamCreate(self, flags):
        made = Stream(0, self.state.timeline)
        made.handle = self.state.add("stream", made)
        return made.handle

    def cuStreamDestroy(self, stream):
        found = self.state.drop("stream", stream)
        self.state.timeline.wait(lambda: self.state.timeline.is_idle(found.handle))
        self.state.timeline.forget(found.handle)

    def cuStreamSynchronize(self, stream):
        found = self.state.of("stream", stream)
        found.look()
        self._waited(found)

    def cuStreamQuery(self, stream):
        found = self.state.of("stream", stream)
        found.look()
        require(self.state.timeline.is_idle(found.handle), "CUDA_ERROR_NOT_READY")

    def cuStreamWaitEvent(self, stream, event, flags):
        self.state.of("stream", stream).wait_for(self.state.of("event", event))

    def cuStreamBeginCapture(self, stream, mode):
        require(int(stream) not in self.state.streams, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")  # fmt: skip
        self.state.of("stream", stream).begin(mode)

    def cuStreamEndCapture(self, stream):
        return self.state.add("graph", self.state.of("stream", stream).end())

    def cuStreamIsCapturing(self, stream):
        capture = self.state.of("stream", stream).capture
        status = self.CUstreamCaptureStatus
        if capture is None:
            return status.CU_STREAM_CAPTURE_STATUS_NONE
        if capture.invalid:
            return status.CU_STREAM_CAPTURE_STATUS_INVALIDATED
        return status.CU_STREAM_CAPTURE_STATUS_ACTIVE

    def cuStreamWriteValue32(self, stream, address, value, flags):
        state, address = self.state, int(address)

        def act():
            there = state.host(address, 4, "a written value")
            ctypes.c_uint32.from_address(there).value = int(value)

        state.of("stream", stream).submit(Work("write value", act))

    def cuStreamWaitValue32(self, stream, address, value, flags):
        there = self.state.known(int(address), 4, "a value that is waited for")
        is_so, word = _COMPARED[int(flags) & 3], ctypes.c_uint32.from_address(there)
        self.state.of("stream", stream).submit(
            Work(
                "wait value", is_ready=lambda: is_so(word.value, int(value)), polls=True
            )
        )

    # -- events --------------------------------------------------------------------------

    def cuEventCreate(self, flags):
        return self.state.add("event", Event(not flags & _NO_TIMING))

    def cuEventDestroy(self, event):
        self.state.drop("event", event)

    def cuEventRecord(self, event, stream):
        self.state.of("stream", stream).record(self.state.of("event", event))

    def cuEventQuery(self, event):
        require(self.state.of("event", event).is_reached, "CUDA_ERROR_NOT_READY")

    def cuEventSynchronize(self, event):
        found = self.state.of("event", event)
        found.usable()
        self.state.timeline.wait(lambda: found.is_reached)

    def cuEventElapsedTime(self, start, end):
        begun, ended = (self.state.of("event", e) for e in (start, end))
        are_timed = begun.is_timed and ended.is_timed and begun.mark and ended.mark
        require(are_timed, "CUDA_ERROR_INVALID_HANDLE", "not timed, or not recorded")
        require(begun.is_reached and ended.is_reached, "CUDA_ERROR_NOT_READY")
        assert isinstance(begun.mark, Mark)
        return (ended.mark.time - begun.mark.time) * 1000

    # -- graphs --------------------------------------------------------------------------

    def cuGraphGetNodes(self, graph, count):
        works = self.state.of("graph", graph)
        return [] if not count else list(range(len(works)))[:count], len(works)

    def cuGraphDestroy(self, graph):
        self.state.drop("graph", graph)

    def cuGraphInstantiate(self, graph, flags):
        return self.state.add("exec", self.state.of("graph", graph))

    def cuGraphUpload(self, made, stream):
        self.state.of("exec", made)

    def cuGraphExecDestroy(self, made):
        self.state.drop("exec", made)

    def cuGraphLaunch(self, made, stream):
        works, into = self.state.of("exec", made), self.state.of("stream", stream)
        if into.capture is not None:  # a graph inside a graph
            for work in works:
                into.submit(work)
            return

        def act():
            for work in works:
                while not work.is_ready():
                    time.sleep(0.0005)
                work.act()

        name = works[0].name if len(works) == 1 else f"graph of {len(works)}"
        into.submit(Work(name, act))
