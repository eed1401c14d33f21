"""
The simulated device itself: pages, two streams, and what holds between them.

Between two operations the host cannot touch the device's pages: they are mapped without
access, so that a stray pointer ends the process instead of being right by luck. While an
operation runs they are opened, and its ranges are checked to be mapped first.

A copy to the device is under way from the moment it is submitted. An operation that was
submitted later and runs before the copy is done reads poison (all bits set: NaN, or -1),
whatever lay there: a missing event shows in the result every time, not now and then.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator

import attrs
import numpy as np

from seamline.devices import VirtualMemoryError
from seamline.errors import RunError
from seamline.provider import Array, Device
from seamline.tensors import TensorType, numpy_dtype
from seamline_testing.twin.capture import Capture
from seamline_testing.twin.faults import Faults, InjectedError, Step
from seamline_testing.twin.host_virtual_memory import HostVirtualMemory
from seamline_testing.twin.streams import (
    Operation,
    Range,
    Stream,
    WaitAbandonedError,
)

__all__ = ["POISON", "Machine"]

_GRACE = 1.0  #: seconds for work to end that was told to
POISON = 0xFF  #: a byte of a value that is not there: NaN in floats, -1 in integers


@attrs.define(eq=False)
class Machine:
    """
    One simulated device.

    Attributes
    ----------
    copy_delay
        Seconds that each copy takes beside its work.
    deadline
        Seconds that the host waits for the device.
    answers
        Seconds that the device waits for the host.
    limit
        Most bytes that it has.
    counts
        Operations done, copies and bytes each way, by name.
    gate
        Held during a capture, so that other threads' memory calls stay out of it.
    """

    device: Device
    faults: Faults
    copy_delay: float = 0.0
    deadline: float = 10.0
    granule: int = 1 << 16
    limit: int | None = None
    answers: float = 10.0
    counts: Counter[str] = attrs.field(factory=Counter, init=False)
    gate: threading.RLock = attrs.field(factory=threading.RLock, init=False)
    pages: HostVirtualMemory = attrs.field(init=False)
    compute: Stream = attrs.field(init=False)
    copies: Stream = attrs.field(init=False)
    capture: Capture | None = attrs.field(default=None, init=False)
    lost: str = attrs.field(default="", init=False)
    _users: int = attrs.field(default=0, init=False)
    _lock: threading.RLock = attrs.field(factory=threading.RLock, init=False)
    _under_way: dict[int, Operation] = attrs.field(factory=dict, init=False)
    _submitted: int = attrs.field(default=0, init=False)
    _process: int = attrs.field(factory=os.getpid, init=False)

    def __attrs_post_init__(self) -> None:
        self.pages = HostVirtualMemory(
            self.device, self.granule, self.limit, self.drain, self._verb
        )
        self.pages.show(visible=False)
        self.compute = Stream("compute", self._execute)
        self.copies = Stream("copies", self._execute)

    # -- what a caller may do ------------------------------------------------------------

    def usable(self) -> None:
        """
        Refuse calls to a device that is gone.

        Raises
        ------
        RunError
            It hung and did not give up, or the process was forked since.
        """
        if os.getpid() != self._process:
            # The threads stayed in the parent, and the pages are shared with it.
            self._gone("the process was forked after it was opened; to fix: use spawn")
        if self.lost:
            self._gone(self.lost)

    def _gone(self, why: str) -> None:
        said = f"{self.device} is lost: {why}; close the session"
        raise RunError(said, provider=self.device.kind)

    def legal(self, what: str) -> None:
        """Refuse, on the thread that captures, what cannot be recorded."""
        self.usable()
        if self.capture is not None and self.capture.is_mine():
            self.capture.refuse(what)

    def submit(self, stream: Stream, operation: Operation) -> None:
        """Queue an operation, or record it where this thread captures."""
        self.usable()
        with self.gate:
            if self.capture is not None and stream is self.compute:
                self.capture.operations.append(operation)
                return
            with self._lock:
                self._submitted += 1
                operation.number = self._submitted
                if operation.copies:
                    self._under_way[operation.number] = operation
            stream.submit(operation)

    # -- waiting -------------------------------------------------------------------------

    def synchronize(self) -> None:
        """
        Wait for all work; give what went wrong in it.

        Raises
        ------
        RunError
            Names the operation that failed; what was queued behind it did not run.
        DeadlineError
            It did not end in time. The device is usable again if it gave up.
        """
        self.legal("synchronises")
        self.drain()
        errors = [error for s in self._streams if (error := s.taken_error())]
        with self._lock:  # copies that an earlier failure kept from running
            self._under_way.clear()
        self.usable()
        # What waited in vain says less than what it waited for.
        errors.sort(key=lambda error: isinstance(error, WaitAbandonedError))
        if errors:
            raise errors[0]

    @property
    def _streams(self) -> tuple[Stream, Stream]:
        return self.copies, self.compute

    def drain(self) -> None:
        """Wait until nothing is in flight; leave errors to whoever synchronises."""
        if os.getpid() != self._process or self.lost:
            return
        end = time.monotonic() + self.deadline
        if self._settled(end):
            return
        doing = [said for s in self._streams if (said := s.doing())]
        for stream in self._streams:
            stream.give_up.set()
        if self._settled(time.monotonic() + _GRACE):
            for stream in self._streams:
                stream.give_up.clear()
            return
        self.lost = f"{' and '.join(doing)} did not end within {self.deadline} s"

    def _settled(self, end: float) -> bool:
        return all(s.settle(max(end - time.monotonic(), 0.0)) for s in self._streams)

    # -- work on the streams' threads ----------------------------------------------------

    def _execute(self, stream: Stream, operation: Operation) -> None:
        if operation.delay or operation.hangs:
            stream.pause(None if operation.hangs else operation.delay)
        try:
            with contextlib.nullcontext() if operation.bare else self.shown():
                self.perform(operation, operation.number)
        finally:
            with self._lock:
                self._under_way.pop(operation.number, None)

    def perform(self, operation: Operation, number: int) -> None:
        """
        Run an operation at once; only on a stream's thread, with the pages shown.

        ``number`` is its place among all that was submitted, or its replay's.
        """
        for part in (*operation.reads, *operation.writes):
            self.names(part)
        self._poison_what_is_under_way(operation, number)
        operation.run()
        self.counts[operation.what.split(" ", 1)[0]] += 1

    def _poison_what_is_under_way(self, operation: Operation, number: int) -> None:
        with self._lock:
            late = [o for o in self._under_way.values() if o.number < number]
        for copy in late:
            for target in copy.writes:
                if copy is not operation and any(map(target.overlaps, operation.reads)):
                    self.poison(target)

    # -- bytes ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Open the device's pages to this process; nests, over threads too."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self.pages.show(visible=True)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self.pages.show(visible=False)

    def array(self, place: Range, kind: TensorType) -> Array:
        """Give device bytes as an array, to be touched by operations only."""
        dtype = numpy_dtype(kind.dtype)
        if not place.nbytes:
            return np.empty(kind.sizes, dtype)
        raw = (ctypes.c_uint8 * place.nbytes).from_address(place.address)
        return np.ctypeslib.as_array(raw).view(dtype).reshape(kind.sizes)

    def poison(self, place: Range) -> None:
        """Fill bytes with poison; only while the pages are shown."""
        if place.nbytes:
            ctypes.memset(place.address, POISON, place.nbytes)

    def names(self, place: Range) -> tuple[int, ...]:
        """
        Name the mappings that hold a range.

        Raises
        ------
        VirtualMemoryError
            Some of it has no pages, or none of it where it grows.
        """
        if not place.nbytes:
            return ()
        nbytes = 1 if place.grows else place.nbytes
        names = self.pages.serials(place.address, nbytes)
        if not place.grows:
            return names
        return tuple(n for *_, n in self.pages.mapped(place.address, place.nbytes))

    def saved(self, place: Range) -> list[tuple[int, bytes]]:
        """Give the bytes of a range that have pages; only while they are shown."""
        parts = self.pages.mapped(place.address, place.nbytes)
        return [(start, ctypes.string_at(start, nbytes)) for start, nbytes, _ in parts]

    def restore(self, saved: list[tuple[int, bytes]]) -> None:
        """Put bytes back; only while the pages are shown."""
        for start, content in saved:
            ctypes.memmove(start, content, len(content))

    # -- the end -------------------------------------------------------------------------

    def close(self) -> None:
        """
        End the threads and give every page back; a second call does nothing.

        Raises
        ------
        RunError
            Work that hung still runs. Its pages stay: without them it would crash.
        """
        alive = []
        if os.getpid() == self._process:
            alive = [s.name for s in self._streams if not s.close(self.deadline)]
        if alive:
            self._gone(f"its {' and '.join(alive)} did not end, and keep their pages")
        self.pages.close()

    def _verb(self, verb: str) -> None:
        if verb == "unmap":
            self.legal("unmaps, which waits for work in flight")
        try:
            self.faults.check(Step(verb))
        except InjectedError as error:
            held = self.pages.gauges()
            raise VirtualMemoryError(self.device, verb, 0, str(error), held) from error
