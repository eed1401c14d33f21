"""
The gate between captures and memory calls, one for the process.

A stream that captures writes down what it is given instead of doing it. A call by another
thread that waits for that stream, or that the driver forbids while any capture is open,
ends the capture with an error that says nothing of who did it. So a capture and another
thread's memory call exclude each other: each waits here for the other to be over. The
capturing thread itself may go on to map memory, which the driver allows and a growing
cache needs, and is refused what cannot be recorded.

Memory calls do not exclude each other: one that drains may wait for work that ends only
when another thread got its memory. That is also why a waiting capture does not hold up
memory calls that come after it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import attrs

from seamline.errors import DeadlineError, RecordingError

__all__ = ["GATE", "Capturing", "Gate"]

_DEADLINE = 30.0  #: seconds; a capture takes milliseconds, a drain what a model takes


@attrs.define(eq=False)
class Capturing:
    """
    A capture under way, and at which node it is, for messages.

    Attributes
    ----------
    node
        The node whose work is being recorded.
    """

    segment: str
    node: str = ""
    thread: int = attrs.field(factory=threading.get_ident, init=False)

    def refuse(self, what: str) -> RecordingError:
        """Give the error for what the capturing thread may not do."""
        return RecordingError(
            f"it {what}, which cannot be recorded",
            provider="cuda",
            segment=self.segment,
            node=self.node,
        )


@attrs.define(eq=False)
class Gate:
    """
    Keeps memory calls and captures of different threads apart.

    Attributes
    ----------
    deadline
        Seconds that either waits for the other.
    """

    deadline: float = _DEADLINE
    #: Taken by itself where nobody has to be told: every copy passes here twice.
    _mutex: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _changed: threading.Condition = attrs.field(init=False)
    _calls: dict[int, int] = attrs.field(factory=dict, init=False)
    _capture: Capturing | None = attrs.field(default=None, init=False)
    _waiting: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._changed = threading.Condition(self._mutex)

    def mine(self) -> Capturing | None:
        """Give the calling thread's capture, if it has one open."""
        capture = self._capture
        is_mine = capture is not None and capture.thread == threading.get_ident()
        return capture if is_mine else None

    def legal(self, what: str) -> None:
        """
        Refuse, on the thread that captures, what cannot be recorded.

        Raises
        ------
        RecordingError
            Names the node whose launch did it.
        """
        capture = None if self._capture is None else self.mine()
        if capture is not None:
            raise capture.refuse(what)

    def memory_call(self, what: str) -> _MemoryCall:
        """
        Hold captures of other threads off for a ``with`` block.

        Raises
        ------
        DeadlineError
            Another thread's capture did not end.
        """
        return _MemoryCall(self, what)

    @contextlib.contextmanager
    def capture(self, segment: str) -> Iterator[Capturing]:
        """
        Hold memory calls and captures of other threads off while a segment is recorded.

        Raises
        ------
        RecordingError
            The thread captures already.
        DeadlineError
            What other threads do did not end.
        """
        self.legal("begins a capture")
        made = Capturing(segment)
        with self._changed:
            self._wait(
                lambda: self._capture is None and set(self._calls) <= {made.thread},
                f"a capture of {segment!r}",
            )
            self._capture = made
        try:
            yield made
        finally:
            with self._changed:
                self._capture = None
                self._changed.notify_all()

    def entered(self, what: str) -> None:
        """Count a memory call of this thread, once no other thread captures."""
        me = threading.get_ident()
        with self._mutex:
            if self._capture is not None:
                self._wait(lambda: self._capture in (None, self.mine()), what)
            self._calls[me] = self._calls.get(me, 0) + 1

    def left(self) -> None:
        """Count a memory call of this thread that is over."""
        me = threading.get_ident()
        with self._mutex:
            count = self._calls[me] - 1
            if count:
                self._calls[me] = count
            else:
                del self._calls[me]
            if self._waiting:
                self._changed.notify_all()

    def _wait(self, free: Callable[[], bool], what: str) -> None:
        self._waiting += 1
        try:
            is_free = self._changed.wait_for(free, self.deadline)
        finally:
            self._waiting -= 1
        if not is_free:
            holder = self._capture
            of = f"the capture of {holder.segment!r}" if holder else "memory calls"
            raise DeadlineError(
                f"{what} waited {self.deadline} s for {of} of another thread to end",
                provider="cuda",
            )

    def reset(self) -> None:
        """Forget who holds it: in a forked child those threads do not exist."""
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._calls.clear()
        self._capture, self._waiting = None, 0


@attrs.define(eq=False)
class _MemoryCall:
    """A memory call under way; plain, since every copy makes one."""

    gate: Gate
    what: str

    def __enter__(self) -> None:
        self.gate.entered(self.what)

    def __exit__(self, *_: object) -> None:
        self.gate.left()


GATE = Gate()  #: the process's own; captures of all devices pass it
os.register_at_fork(after_in_child=GATE.reset)
