"""
Streams: operations that run in order, by themselves, later than they were submitted.

Each stream is a thread. The caller goes on as soon as an operation is queued; what one
stream does is ordered against another only by events. An operation that fails ends what
was queued behind it, and its error is raised where somebody waits, as on a real device.
Waiting has a deadline: past it the operation is told to give up, and the stream is usable
again if it does.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import attrs
import numpy as np

from seamline.errors import DeadlineError, RunError

__all__ = [
    "Event",
    "Operation",
    "Range",
    "Stream",
    "WaitAbandonedError",
]

_PATIENCE = 0.005  #: seconds between two looks at the order to give up


class WaitAbandonedError(DeadlineError):
    """A stream gave up waiting for another; the other one knows why."""


@attrs.frozen
class Range:
    """
    Bytes of the device that an operation touches.

    Attributes
    ----------
    grows
        Only a first part of it has pages so far; kernels keep within that.
    """

    address: int
    nbytes: int
    grows: bool = False

    def overlaps(self, other: Range) -> bool:
        """Tell whether they share a byte."""
        return (
            self.address < other.address + other.nbytes
            and other.address < self.address + self.nbytes
        )


def _same(error: BaseException) -> BaseException:
    return error


@attrs.define(eq=False)
class Operation:
    """
    One piece of work for a stream.

    Attributes
    ----------
    what
        For messages: ``kernel 'node'``, ``copy of 16 bytes to twin:0``.
    run
        Does it; called while the device's memory can be touched.
    reads, writes
        What it touches; checked to be mapped right before it runs.
    delay
        Seconds that it takes beside the work itself.
    hangs
        It does not end until it is told to give up.
    named
        Turns whatever was raised into an error that says where.
    copies
        It fills ``writes``: whoever reads them before it is done reads poison.
    bare
        It runs with the device's pages hidden, since the host works meanwhile.
    """

    what: str
    run: Callable[[], object]
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()
    delay: float = 0.0
    hangs: bool = False
    named: Callable[[BaseException], BaseException] = _same
    copies: bool = False
    bare: bool = False
    number: int = 0


@attrs.define(eq=False)
class Event:
    """A point in a stream that others can wait for; ``error`` is what ended the work."""

    reached: threading.Event = attrs.field(factory=threading.Event)
    error: BaseException | None = None


@attrs.define(eq=False)
class Stream:
    """
    Operations in order, on a thread of its own that starts with the first.

    Attributes
    ----------
    execute
        Runs one operation of a stream; the device's.
    give_up
        Set while operations are told to end.
    """

    name: str
    execute: Callable[[Stream, Operation], None]
    give_up: threading.Event = attrs.field(factory=threading.Event)
    _queue: deque[Operation | Event] = attrs.field(factory=deque, init=False)
    _changed: threading.Condition = attrs.field(factory=threading.Condition, init=False)
    _now: str = attrs.field(default="", init=False)
    _busy: bool = attrs.field(default=False, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _error: BaseException | None = attrs.field(default=None, init=False)
    _thread: threading.Thread | None = attrs.field(default=None, init=False)

    def submit(self, operation: Operation) -> None:
        """Queue an operation; returns at once."""
        self._put(operation)

    def record(self) -> Event:
        """Give an event that is reached when everything queued so far is done."""
        event = Event()
        self._put(event)
        return event

    def wait_for(self, event: Event) -> None:
        """Let what is queued from now on wait for an event of another stream."""

        def wait() -> None:
            while not event.reached.wait(_PATIENCE):
                if self.give_up.is_set():
                    raise WaitAbandonedError(f"{self.name}: no event came")
            if event.error is not None:
                raise event.error

        self._put(Operation("wait for an event", wait))

    def pause(self, seconds: float | None) -> None:
        """Spend time on the stream's thread; None: until told to give up."""
        if self.give_up.wait(seconds):
            raise DeadlineError(f"{self._now} did not end in time and was given up")

    def settle(self, deadline: float) -> bool:
        """Wait until everything queued is done; tell whether it was done in time."""
        with self._changed:
            return self._changed.wait_for(self._idle, deadline)

    def taken_error(self) -> BaseException | None:
        """Give the error that ended the work, once."""
        with self._changed:
            error, self._error = self._error, None
            return error

    def doing(self) -> str:
        """Say what runs now."""
        return self._now

    def close(self, deadline: float) -> bool:
        """Finish what is queued and end the thread; tell whether it ended."""
        if not self.settle(deadline):
            self.give_up.set()
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(deadline)
        return self._thread is None or not self._thread.is_alive()

    # -- the thread ----------------------------------------------------------------------

    def _put(self, item: Operation | Event) -> None:
        with self._changed:
            if self._closed:
                raise RunError(f"the stream {self.name!r} is closed", provider="twin")
            self._queue.append(item)
            if self._thread is None:
                # A daemon: a hung simulation may not keep the interpreter from ending.
                self._thread = threading.Thread(
                    target=self._work, name=f"twin {self.name}", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def _idle(self) -> bool:
        return not self._queue and not self._busy

    def _work(self) -> None:
        with np.errstate(all="ignore"):
            while True:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._queue or self._closed)
                    if not self._queue:
                        return
                    item, self._busy = self._queue.popleft(), True
                self._one(item)

    def _one(self, item: Operation | Event) -> None:
        if isinstance(item, Event):
            item.error = self._error
            item.reached.set()
        elif self._error is None:
            self._now = item.what
            try:
                self.execute(self, item)
            except BaseException as error:
                self._error = item.named(error)
        self._now = ""
