"""
Streams and events as the driver has them: submission, order, and capture.

A stream that captures writes down what it is given. Waiting for an event that was recorded
in a capture draws another stream into it; at its end every such stream must have been
waited for again. What cannot be written down makes the capture invalid.
"""

from __future__ import annotations

import threading

import attrs
from tests.cuda.emulation.results import RefusedError, require
from tests.cuda.emulation.timeline import Mark, Work

UNSUPPORTED = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
INVALIDATED = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"


@attrs.define(eq=False)
class Capture:
    """A capture under way; ``invalid`` says what ended it."""

    origin: Stream
    mode: int
    thread: int = attrs.field(factory=threading.get_ident)
    works: list = attrs.field(factory=list)
    streams: list = attrs.field(factory=list)
    invalid: str = ""

    def refuse(self, why):
        """Make it invalid, and give the error for who did that."""
        self.invalid = self.invalid or why
        return RefusedError(UNSUPPORTED, why)


@attrs.define(eq=False)
class Event:
    """An event; ``mark`` is its last recording, ``capture`` where that was captured."""

    is_timed: bool
    mark: Mark | None = None
    capture: Capture | None = None
    stream: Stream | None = None

    def usable(self):
        require(self.capture is None, "CUDA_ERROR_CAPTURED_EVENT")
        return self.mark

    @property
    def is_reached(self):
        mark = self.usable()
        return mark is None or mark.reached


@attrs.define(eq=False)
class Stream:
    """A stream of the timeline."""

    handle: int
    timeline: object
    capture: Capture | None = None
    is_unjoined: bool = False

    def submit(self, work):
        """Queue work, or write it down."""
        capture = self.capture
        if capture is None:
            self.timeline.submit(self.handle, work)
            return
        require(not capture.invalid, INVALIDATED, capture.invalid)
        capture.works.append(work)
        self.is_unjoined = self is not capture.origin

    def record(self, event):
        event.stream, event.capture = self, self.capture
        if self.capture is None:
            mark = event.mark = Mark()
            self.timeline.submit(self.handle, Work("event", mark.reach))

    def wait_for(self, event):
        theirs, own = event.capture, self.capture
        if theirs is None:
            if own is not None:
                own.invalid = "it waits for an event that was not captured"
                raise RefusedError("CUDA_ERROR_STREAM_CAPTURE_ISOLATION", own.invalid)
            mark = event.mark
            if mark is not None and not mark.reached:
                self.timeline.submit(
                    self.handle, Work("wait", is_ready=lambda: mark.reached)
                )
            return
        require(theirs.origin.capture is theirs, "CUDA_ERROR_CAPTURED_EVENT")
        if own is None:
            self.capture = theirs
            theirs.streams.append(self)
        require(self.capture is theirs, "CUDA_ERROR_STREAM_CAPTURE_MERGE")
        if event.stream is not self:
            event.stream.is_unjoined = False

    def look(self):
        """Refuse to be looked at while it captures."""
        if self.capture is not None:
            raise self.capture.refuse("a stream that captures was waited for")

    def begin(self, mode):
        require(self.capture is None, "CUDA_ERROR_ILLEGAL_STATE")
        self.capture = Capture(self, int(mode))
        self.capture.streams.append(self)

    def end(self):
        """End the capture; give what was written down."""
        capture = self.capture
        require(capture is not None, "CUDA_ERROR_ILLEGAL_STATE")
        require(capture.origin is self, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED")
        mine = capture.thread == threading.get_ident()
        require(mine or capture.mode == 2, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD")
        unjoined = any(s.is_unjoined for s in capture.streams if s is not self)
        for stream in capture.streams:
            stream.capture, stream.is_unjoined = None, False
        require(not capture.invalid, INVALIDATED, capture.invalid)
        require(not unjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED")
        return tuple(capture.works)
