"""
Copies between the host and one GPU: through pinned memory, in order with the kernels.

The driver can copy by itself only from and to pinned memory. So bytes pass through a few
pinned slots: a write returns when the last byte is in one, and what is in flight then does
not have to end first.

What fits a slot is copied on the stream of the kernels, whose order is all that it needs.
More than that goes on the stream of copies, slot after slot; events order it
against the kernels. Where more than a slot is read, the driver's own way to pageable memory
is the quicker one, and the caller waits in any case, so that is taken. Arrays of
:mod:`seamline_cuda.result_arrays` that are pinned are copied to directly.

Each copy is counted with its bytes. Those that are not small are counted with the time
between two events around them on the stream as well, never with the time that it took to
submit them; the bytes of those are counted apart, so that a rate can be told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np

from seamline.provider import Array
from seamline_cuda.copy_counts import CopyCounts
from seamline_cuda.device import Gpu
from seamline_cuda.driver import check, prepared
from seamline_cuda.errors import CudaError
from seamline_cuda.gate import GATE, Gate
from seamline_cuda.result_arrays import ResultArrays
from seamline_cuda.staging_slots import Slot, opened_slots
from seamline_cuda.streams import Event, Stream

__all__ = ["SLOT", "Transfers"]

SLOT = 4 << 20  #: bytes; a copy of that size runs at the link's full rate
_SLOTS = 4
_SMALL = 1 << 16  # bytes of a copy that takes less time than two events around it
_IN, _OUT = "in", "out"
_TO_DEVICE, _TO_HOST = "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"


@attrs.define(eq=False)
class Transfers:
    """
    Moves bytes between host arrays and device addresses, in order with the kernels.

    Attributes
    ----------
    gpu
        The open device; it outlives this.
    slot
        Bytes of one piece.
    made
        Counts of copies, those of recordings among them.
    arrays
        What results are read into.
    """

    gpu: Gpu
    slot: int = SLOT
    gate: Gate = GATE
    made: CopyCounts = attrs.field(factory=CopyCounts, init=False)
    arrays: ResultArrays = attrs.field(factory=ResultArrays)
    _lock: threading.RLock = attrs.field(factory=threading.RLock, init=False)
    _slots: list[Slot] = attrs.field(factory=list, init=False)
    _next: int = attrs.field(default=0, init=False)
    _order: Event | None = attrs.field(default=None, init=False)
    _stack: ExitStack = attrs.field(factory=ExitStack, init=False)

    def write(self, address: int, source: Array) -> None:
        """
        Copy an array to device memory; ``source`` may be changed on return.

        Kernels submitted later see it. What goes wrong on the way is raised by whoever
        waits next.

        Raises
        ------
        RecordingError
            The calling thread captures.
        """
        raw = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        with _Moving(self, "writes from the host"):
            if raw.nbytes <= self.slot:
                if raw.nbytes:
                    self._put(self.gpu.compute, address, raw)
                return
            self._ordered(self.gpu.compute, self.gpu.copies)
            for offset in range(0, raw.nbytes, self.slot):
                piece = raw[offset : offset + self.slot]
                self._put(self.gpu.copies, address + offset, piece)
            self._ordered(self.gpu.copies, self.gpu.compute)

    def read(self, address: int, target: Array) -> None:
        """
        Copy device memory to an array, once everything submitted before is done.

        Raises
        ------
        CudaError
            Work before it failed, or the copy did.
        RecordingError
            The calling thread captures.
        """
        flat = target if target.flags.c_contiguous else np.empty_like(target, order="C")
        raw = flat.reshape(-1).view(np.uint8)
        with _Moving(self, "reads to the host"):
            if self.arrays.holds(target):
                self._get_directly(raw, address)
            elif raw.nbytes <= self.slot:
                self._get(raw, address)
            else:
                self._get_many(raw, address)
        if flat is not target:
            np.copyto(target, flat)

    def array(self, sizes: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """
        Give an array that :meth:`read` fills quickly; the caller's own to keep.

        Raises
        ------
        RecordingError
            The calling thread captures.
        """
        with _Moving(self, "makes an array for a result"):
            return self.arrays.array(sizes, dtype)

    def counts(self) -> Mapping[str, float]:
        """
        Count what was copied so far.

        Returns
        -------
        dict
            ``copies_in`` and ``bytes_in``, to the device, and the same with ``out``, from
            it; ``seconds_in`` of copies that were timed and are done, ``timed_in`` their
            bytes. Those of recordings are among them, and not timed.
        """
        with self._lock, self.gpu.here():
            for slot in self._slots:
                if slot.way and slot.done.is_reached():
                    self._timed(slot)
        return self.made.all()

    def close(self) -> None:
        """Give events and pinned memory back, once no copy uses them; once."""
        with self._lock:
            self._slots.clear()
            stack, self._stack = self._stack, ExitStack()
            self.gpu.drain()
            with self.gpu.here():
                self.arrays.close()
                stack.close()

    # -- a piece -------------------------------------------------------------------------

    def entered(self) -> None:
        """Have the slots ready; the lock is held and the device current."""
        if not self._slots:
            self._open()

    def _put(self, stream: Stream, address: int, piece: Array) -> None:
        slot = self._free_slot()
        slot.bytes[: piece.nbytes] = piece
        self._copy(slot, stream, _IN, piece.nbytes, _TO_DEVICE, address, slot.address)

    def _get(self, raw: Array, address: int) -> None:
        if raw.nbytes:
            slot, stream = self._free_slot(), self.gpu.compute
            self._copy(slot, stream, _OUT, raw.nbytes, _TO_HOST, slot.address, address)
            self._reached(slot)
            raw[...] = slot.bytes[: raw.nbytes]

    def _get_many(self, raw: Array, address: int) -> None:
        slot, stream = self._free_slot(), self.gpu.copies
        if self.gpu.deadline is not None:  # the driver waits inside the copy
            self.gpu.waited(self.gpu.compute.synchronize)
        self._ordered(self.gpu.compute, stream)
        self._copy(slot, stream, _OUT, raw.nbytes, _TO_HOST, raw.ctypes.data, address)
        self._reached(slot)

    def _get_directly(self, raw: Array, address: int) -> None:
        slot, stream = self._free_slot(), self.gpu.compute
        place = raw.ctypes.data
        self._copy(slot, stream, _OUT, raw.nbytes, _TO_HOST, place, address)
        self._reached(slot)

    def _ordered(self, first: Stream, then: Stream) -> None:
        """Let what one stream is given from now on wait for what the other has."""
        order = self._order
        assert order is not None
        first.record(order)
        then.wait_for(order)

    def _free_slot(self) -> Slot:
        """Give a slot that no copy uses."""
        slot = self._slots[self._next]
        self._next = (self._next + 1) % len(self._slots)
        if slot.way:
            self._reached(slot)
        return slot

    def _reached(self, slot: Slot) -> None:
        """Wait for a slot's copy."""
        self.gpu.waited(slot.done.synchronize)
        self._timed(slot)

    def _copy(
        self, slot: Slot, stream: Stream, way: str, size: int, name: str, *places: int
    ) -> None:
        slot.nbytes = size if size > _SMALL else 0
        if slot.nbytes:
            stream.record(slot.begun)
        self._noticing(
            lambda: check(name, prepared(name)(*places, size, stream.handle))
        )
        stream.record(slot.done)
        slot.way = way
        self.made.add(f"copies_{way}", 1)
        self.made.add(f"bytes_{way}", size)

    def _timed(self, slot: Slot) -> None:
        """Count the time of a slot's copy, which is done, where it was taken."""
        if slot.nbytes:
            spent = slot.done.since(slot.begun)
            self.made.add(f"seconds_{slot.way}", spent)
            self.made.add(f"timed_{slot.way}", slot.nbytes)
        slot.way = ""

    def _noticing(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except CudaError as error:
            self.gpu.noticed(error)
            raise

    def _open(self) -> None:
        with ExitStack() as stack:
            self._order = Event.open()
            stack.callback(self._order.close)
            self._slots = opened_slots(_SLOTS, self.slot, stack)
            self._stack = stack.pop_all()


@attrs.define(eq=False)
class _Moving:
    """What holds around a transfer: the gate, the lock, the device."""

    transfers: Transfers
    what: str

    def __enter__(self) -> None:
        its = self.transfers
        its.gate.legal(self.what)
        its.gpu.usable()
        its.gate.entered(self.what)
        its._lock.acquire()
        try:
            its.gpu.enter()
        except BaseException:
            its._lock.release()
            its.gate.left()
            raise
        try:
            its.entered()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        its = self.transfers
        its.gpu.leave()
        its._lock.release()
        its.gate.left()
