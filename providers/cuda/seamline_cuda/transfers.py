"""
Copies between the host and one GPU: through pinned memory, on a stream of their own.

The driver can copy by itself only from and to pinned memory; from other memory it would
wait, and copy through pinned memory of its own. So bytes pass through a few slots of ours:
while one is copied by the device, the next is filled by the host. An event before each
transfer lets it wait for the kernels that were submitted earlier, and one after it lets
those that follow wait for it.

Each copy is counted with its bytes, and with the time between two events around it on the
stream, never the time that it took to submit it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np

from seamline.provider import Array
from seamline_cuda.device import Gpu
from seamline_cuda.driver import call, check, prepared
from seamline_cuda.errors import CudaError
from seamline_cuda.gate import GATE, Gate
from seamline_cuda.streams import Event

__all__ = ["Transfers"]

SLOT = 4 << 20  #: bytes; a copy of that size runs at the link's full rate
_SLOTS = 4
_IN, _OUT = "in", "out"


@attrs.define(eq=False)
class _Slot:
    """Pinned bytes, and the copy that uses them."""

    address: int
    begun: Event
    done: Event
    way: str = ""

    def close(self) -> None:
        self.begun.close()
        self.done.close()


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
    """

    gpu: Gpu
    slot: int = SLOT
    gate: Gate = GATE
    _lock: threading.RLock = attrs.field(factory=threading.RLock, init=False)
    _slots: list[_Slot] = attrs.field(factory=list, init=False)
    _next: int = attrs.field(default=0, init=False)
    _order: Event | None = attrs.field(default=None, init=False)
    _pinned: int = attrs.field(default=0, init=False)
    _counts: dict[str, float] = attrs.field(factory=dict, init=False)
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
        flat = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        with self._moving(f"writes {flat.nbytes} bytes from the host"):
            start = flat.ctypes.data
            for offset in range(0, flat.nbytes, self.slot):
                size = min(self.slot, flat.nbytes - offset)
                slot = self._taken()
                ctypes.memmove(slot.address, start + offset, size)
                self._copy(
                    slot, _IN, size, "cuMemcpyHtoDAsync", address + offset, slot.address
                )
            self._after()

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
        with self._moving(f"reads {raw.nbytes} bytes to the host"):
            start, waiting = raw.ctypes.data, list[tuple[_Slot, int, int]]()
            for offset in range(0, raw.nbytes, self.slot):
                size = min(self.slot, raw.nbytes - offset)
                if len(waiting) == len(self._slots):
                    self._landed(*waiting.pop(0))
                slot = self._taken()
                self._copy(
                    slot,
                    _OUT,
                    size,
                    "cuMemcpyDtoHAsync",
                    slot.address,
                    address + offset,
                )
                waiting.append((slot, start + offset, size))
            for landing in waiting:
                self._landed(*landing)
        if flat is not target:
            np.copyto(target, flat)

    def counts(self) -> Mapping[str, float]:
        """
        Count what was copied so far.

        Returns
        -------
        dict
            ``copies_in``, ``bytes_in`` and ``seconds_in``, to the device, and the same
            with ``out``, from it. Seconds are of copies that are done.
        """
        with self._lock, self.gpu.here():
            for slot in self._slots:
                if slot.way and slot.done.is_reached():
                    self._timed(slot)
            return dict(self._counts)

    def close(self) -> None:
        """Give events and pinned memory back, once no copy uses them; once."""
        with self._lock:
            self._slots.clear()
            self._stack.close()

    # -- a piece -------------------------------------------------------------------------

    def _moving(self, what: str) -> ExitStack:
        """Hold what holds around a transfer, which waits for kernels submitted so far."""
        self.gate.legal(what)
        self.gpu.usable()
        with ExitStack() as stack:
            stack.enter_context(self.gate.memory_call(what))
            stack.enter_context(self._lock)
            stack.enter_context(self.gpu.here())
            self._open()
            order = self._order
            assert order is not None
            self.gpu.compute.record(order)
            self.gpu.copies.wait_for(order)
            return stack.pop_all()

    def _after(self) -> None:
        """Let kernels submitted from now on wait for the copies."""
        order = self._order
        assert order is not None
        self.gpu.copies.record(order)
        self.gpu.compute.wait_for(order)

    def _taken(self) -> _Slot:
        """Give a slot that no copy uses."""
        slot = self._slots[self._next]
        self._next = (self._next + 1) % len(self._slots)
        if slot.way:
            self._noticing(slot.done.synchronize)
            self._timed(slot)
        return slot

    def _copy(self, slot: _Slot, way: str, size: int, name: str, *places: int) -> None:
        copies = self.gpu.copies
        copies.record(slot.begun)
        self._noticing(
            lambda: check(name, prepared(name)(*places, size, copies.handle))
        )
        copies.record(slot.done)
        slot.way = way
        for what, more in ((f"copies_{way}", 1), (f"bytes_{way}", size)):
            self._counts[what] = self._counts.get(what, 0) + more

    def _landed(self, slot: _Slot, place: int, size: int) -> None:
        self._noticing(slot.done.synchronize)
        ctypes.memmove(place, slot.address, size)
        self._timed(slot)

    def _timed(self, slot: _Slot) -> None:
        if slot.way:
            what = f"seconds_{slot.way}"
            spent = slot.done.since(slot.begun)
            self._counts[what] = self._counts.get(what, 0.0) + spent
            slot.way = ""

    def _noticing(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except CudaError as error:
            self.gpu.noticed(error)
            raise

    def _open(self) -> None:
        if self._slots:
            return
        with ExitStack() as stack:
            self._order = Event.open()
            stack.callback(self._order.close)
            start = int(call("cuMemHostAlloc", _SLOTS * self.slot, 0))
            stack.callback(call, "cuMemFreeHost", start)
            slots = []
            for index in range(_SLOTS):
                place = start + index * self.slot
                slots.append(
                    _Slot(place, Event.open(timed=True), Event.open(timed=True))
                )
                stack.callback(slots[-1].close)
            self._slots = slots
            self._stack = _here(self.gpu, stack.pop_all())


def _here(gpu: Gpu, inner: ExitStack) -> ExitStack:
    """Close with the device current, and after its work."""
    outer = ExitStack()

    def close() -> None:
        gpu.drain()
        with gpu.here():
            inner.close()

    outer.callback(close)
    return outer
