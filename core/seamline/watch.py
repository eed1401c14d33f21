"""
Calls that may never return, made on a thread that can be given up.

Nothing can stop a call that hangs in a driver or in compiled code; all that a caller can
do is not to wait for it. So a provider whose calls have a deadline is called on a thread
of its own. A call that does not return in time is given up, and the provider with it: it
is not called any more, since it may be in any state and holds that thread. What it was to
give back is given back by the same thread, should the call ever return.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

import attrs

from seamline.errors import DeadlineError

__all__ = ["Watch"]

T = TypeVar("T")


@attrs.define(eq=False)
class _Job:
    """A call, and what came of it; ``close`` gives back a result that nobody awaits."""

    function: Callable[[], Any]
    close: Callable[[Any], object] | None = None
    ended: threading.Event = attrs.field(factory=threading.Event)
    result: Any = None
    error: BaseException | None = None
    _given_up: bool = False
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def run(self) -> None:
        try:
            self.result = self.function()
        except BaseException as error:
            self.error = error
        with self._lock:
            self.ended.set()
            late = self._given_up
        if late:
            self._undo()

    def give_up(self) -> bool:
        """Await it no more; tell whether it had not ended."""
        with self._lock:
            self._given_up = not self.ended.is_set()
            return self._given_up

    def _undo(self) -> None:
        if self.close is not None and self.error is None:
            with suppress(Exception):  # there is nobody left to tell
                self.close(self.result)


class Watch:
    """
    A thread for one provider's calls.

    Parameters
    ----------
    provider
        Its name, for messages.
    seconds
        What one call may take, waiting for those before it included.

    Raises
    ------
    ValueError
        It is no time at all.

    Attributes
    ----------
    lost
        Why the provider is not called any more; empty while it is.

    Examples
    --------
    >>> watch = Watch("mine", seconds=5.0)
    >>> watch.call("adding", lambda a, b: a + b, 1, 2)
    3
    >>> watch.end()
    """

    def __init__(self, provider: str, seconds: float) -> None:
        if not seconds > 0:
            raise ValueError(f"a deadline is in seconds, above 0; this is {seconds!r}")
        self.provider = provider
        self.seconds = seconds
        self.lost: str = ""
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._work, name=f"seamline calls on {provider}", daemon=True
        )
        self._thread.start()

    def call(
        self,
        what: str,
        function: Callable[..., T],
        *given: Any,
        segment: str = "",
        close: Callable[[T], object] | None = None,
        calls: int = 1,
    ) -> T:
        """
        Make a call and wait for it.

        Parameters
        ----------
        what
            The call, for messages.
        close
            Gives back what the call gives, should it return when nobody waits any more.
        calls
            How many calls it stands for: it has the deadline once for each.

        Raises
        ------
        DeadlineError
            It did not return in time, or an earlier one did not.
        """
        if threading.current_thread() is self._thread:  # a provider that calls back
            return function(*given)
        if self.lost:
            raise self._error(f"{what} was not called: {self.lost}", segment)
        # NumPy's treatment of overflow and the like travels with the context.
        job = _Job(partial(contextvars.copy_context().run, function, *given), close)
        self._jobs.put(job)
        try:
            job.ended.wait(self.seconds * calls)
        except BaseException:
            if job.give_up():
                self.lost = f"{what} was interrupted and may still run"
            raise
        if job.give_up():
            self.lost = f"{what} did not return within {self.seconds * calls:g} s"
            raise self._error(f"{self.lost}; it is not called any more", segment)
        if job.error is not None:
            raise job.error
        return cast("T", job.result)

    def give_back(self, what: str, function: Callable[[], object]) -> None:
        """Make a call that closes; of a lost provider, when its last call has returned."""
        if self.lost:
            self._jobs.put(_Job(function))
        else:
            self.call(what, function)

    def end(self) -> None:
        """End the thread once it has made the calls that it was given; wait unless lost."""
        self._jobs.put(None)
        if not self.lost and threading.current_thread() is not self._thread:
            self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job  # or the last call's results would live until the next

    def _error(self, why: str, segment: str) -> DeadlineError:
        return DeadlineError(why, provider=self.provider, segment=segment)
