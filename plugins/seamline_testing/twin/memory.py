"""The twin's memory: buffers of whole granules, and views that the host cannot read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import attrs
import numpy as np

from seamline.devices import VirtualMemoryError
from seamline.errors import (
    ContractError,
    DeadlineError,
    KernelError,
    ResidencyError,
)
from seamline.growing import GrowingBuffer
from seamline.off_host import OffHost
from seamline.provider import Array, Buffer, Device, Gauges, View
from seamline.tensors import TensorType, nbytes_of, numpy_dtype
from seamline_testing.twin.faults import How, InjectedError, Step
from seamline_testing.twin.growing_pages import GrowingPages
from seamline_testing.twin.host_virtual_memory import HostVirtualMemory
from seamline_testing.twin.machine import POISON, Machine
from seamline_testing.twin.streams import Operation, Range

__all__ = ["TwinBuffer", "TwinMemory", "TwinView"]


@attrs.define(eq=False)
class TwinBuffer:
    """Whole granules at an address that does not move; implements ``Buffer``."""

    owner: TwinMemory
    address: int
    nbytes: int
    _undo: list[Callable[[], object]] = attrs.field(factory=list)
    is_open: bool = True

    @property
    def device(self) -> Device:
        """Say that it is the twin."""
        return self.owner.device

    def close(self) -> None:
        """Unmap once nothing in flight reads it, and give pages and addresses back."""
        self.is_open = False
        if self._undo and self.owner.is_lost():
            # What hangs may still touch the pages: they go with the device.
            self._undo.clear()
            self.owner.counted(-self.nbytes)
        # A step that fails is tried again by the next call, or by the device's end.
        while self._undo:
            self._undo[-1]()
            self._undo.pop()


@attrs.frozen(eq=False)
class TwinView(OffHost):
    """Bytes of the twin under a type; only the twin itself can look at them."""

    buffer: TwinBuffer | GrowingBuffer
    place: Range
    kind: TensorType

    @property
    def address(self) -> int:
        """Give the first byte's address on the device."""
        return self.place.address

    @property
    def device(self) -> Device:
        """Say that it is the twin."""
        return self.buffer.device


class TwinMemory:
    """Implements :class:`~seamline.provider.Memory` on a :class:`Machine`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._content = 0

    @property
    def device(self) -> Device:
        """Say that it is the twin."""
        return self._machine.device

    @property
    def virtual(self) -> HostVirtualMemory:
        """Give its virtual memory, whose mappings are device memory as well."""
        return self._machine.pages

    def allocate(self, nbytes: int) -> Buffer:
        """
        Allocate poisoned bytes.

        Raises
        ------
        VirtualMemoryError
            The device has no more, or a step failed; whatever was taken is given back.
        RecordingError
            The calling thread records.
        """
        machine = self._machine
        machine.legal("allocates")
        with machine.gate:
            try:
                short = machine.faults.check(Step.ALLOCATE)
            except InjectedError as error:
                held = self.gauges()
                raise VirtualMemoryError(
                    self.device, "allocate", nbytes, str(error), held
                ) from error
            buffer = self._allocated(max(nbytes, 1), nbytes)
            if short:
                buffer.nbytes = nbytes // 2
            return buffer

    def _allocated(self, at_least: int, nbytes: int) -> TwinBuffer:
        pages = self._machine.pages
        size = -(-at_least // pages.granularity) * pages.granularity
        address = pages.reserve(size)
        buffer = TwinBuffer(self, address, nbytes)
        undo = buffer._undo
        undo.append(lambda: pages.free(address, size))
        self.counted(nbytes)
        undo.append(lambda: self.counted(-nbytes))
        try:
            handle = pages.create(size)
            undo.append(lambda: pages.release(handle))
            pages.map(address, handle)
            undo.append(lambda: pages.unmap(address, size))
            with self._machine.shown():
                self._machine.poison(Range(address, size))
        except BaseException:
            buffer.close()
            raise
        return buffer

    def reserve(self, nbytes: int) -> GrowingBuffer:
        """
        Reserve addresses without pages, for a buffer that grows.

        Raises
        ------
        RunError
            There are no more addresses, or the calling thread records.
        """
        machine, granule = self._machine, self._machine.granule
        machine.legal("reserves")
        size = -(-max(nbytes, 1) // granule) * granule
        address = machine.pages.reserve(size)
        return GrowingBuffer(
            self.device, address, nbytes, GrowingPages(machine, self.counted),
            lambda: machine.pages.free(address, size), self.is_lost,
        )  # fmt: skip

    def counted(self, nbytes: int) -> None:
        """Count bytes that became live, or no longer are."""
        self._content += nbytes

    def is_lost(self) -> bool:
        """Tell whether the device hung and did not give up."""
        return bool(self._machine.lost)

    def view(self, buffer: Buffer, offset: int, kind: TensorType) -> View:
        """Show bytes of a buffer as a tensor."""
        self._machine.faults.check(Step.VIEW)
        if not self._owns(buffer):
            why = f"a {type(buffer).__name__} is no buffer of {self.device}"
            raise ResidencyError(self.device.kind, why)
        if kind.dtype == "string":
            raise ContractError(self.device.kind, "strings lie on the host only")
        nbytes = nbytes_of(kind)
        if not buffer.is_open or not 0 <= offset <= buffer.nbytes - nbytes:
            why = f"{kind} at {offset} is not within an open buffer of {buffer.nbytes} bytes"
            raise ContractError(self.device.kind, why)
        grows = isinstance(buffer, GrowingBuffer)
        return TwinView(buffer, Range(buffer.address + offset, nbytes, grows), kind)

    def at(self, address: int, kind: TensorType, *, grows: bool = False) -> View:
        """
        Show bytes of :attr:`virtual` as a tensor.

        Parameters
        ----------
        grows
            Only a first part of it has pages so far; its kernels keep within that.
        """
        nbytes = nbytes_of(kind)
        lent = TwinBuffer(self, address, nbytes)
        return TwinView(lent, Range(address, nbytes, grows), kind)

    def write(self, target: View, source: Array) -> None:
        """Copy from the host and wait, so that what goes wrong is known here."""
        self.submit_write(target, source)
        self._machine.synchronize()

    def submit_write(self, target: View, source: Array) -> None:
        """
        Copy from the host in the device's own time; ``source`` is free on return.

        Ordered after all work before it and before all work after it; what goes wrong is
        raised where somebody waits.
        """
        machine, view = self._machine, self.checked(target)
        machine.legal("writes from the host")
        staged = np.array(source, order="C")
        self._check_like(view, staged)

        def copy() -> None:
            machine.array(view.place, view.kind)[...] = staged

        with machine.gate:
            # After the work that still reads what lies there, before all that follows.
            machine.copies.wait_for(machine.compute.record())
            self._copy(view, "to", copy, writes=(view.place,))
            machine.compute.wait_for(machine.copies.record())
        machine.counts["bytes in"] += view.place.nbytes

    def read(self, source: View, target: Array) -> None:
        """Copy to the host; waits for everything that was submitted before."""
        machine, view = self._machine, self.checked(source)
        machine.legal("reads to the host")
        self._check_like(view, target)
        got = np.full(max(view.place.nbytes, 1), POISON, np.uint8)

        def copy() -> None:
            raw = machine.array(view.place, TensorType("uint8", (view.place.nbytes,)))
            got[: view.place.nbytes] = raw

        with machine.gate:
            machine.copies.wait_for(machine.compute.record())
            self._copy(view, "from", copy, reads=(view.place,))
        machine.synchronize()
        filled = got[: view.place.nbytes].view(target.dtype).reshape(target.shape)
        np.copyto(target, filled)
        machine.counts["bytes out"] += view.place.nbytes

    def synchronize(self) -> None:
        """Wait for all work; give what went wrong in it."""
        self._machine.synchronize()

    def gauges(self) -> Gauges:
        """Give bytes of open buffers, and what virtual memory says."""
        return attrs.evolve(self._machine.pages.gauges(), content=self._content)

    def checked(self, view: object) -> TwinView:
        """
        Give a view of this memory.

        Raises
        ------
        ResidencyError
            It is something else, such as an array of the host.
        """
        if not isinstance(view, TwinView) or not self._owns(view.buffer):
            what = type(view).__name__
            why = (
                f"was handed a {what} that does not lie in the memory of {self.device}"
            )
            raise ResidencyError(self.device.kind, why)
        return view

    def _owns(self, buffer: Buffer) -> TypeGuard[TwinBuffer | GrowingBuffer]:
        if isinstance(buffer, GrowingBuffer):
            pages = buffer.pages
            return isinstance(pages, GrowingPages) and pages.machine is self._machine
        return isinstance(buffer, TwinBuffer) and buffer.owner is self

    def _check_like(self, view: TwinView, array: Any) -> None:
        kind = view.kind
        if array.shape != kind.sizes or array.dtype != numpy_dtype(kind.dtype):
            why = f"a copy between {kind} and {array.dtype}{list(array.shape)}"
            raise ContractError(self.device.kind, why)

    def _copy(
        self, view: TwinView, way: str, copy: Callable[[], None], **ranges: Any
    ) -> None:
        machine = self._machine
        how = machine.faults.meet(Step.COPY)
        number = machine.faults.counts[Step.COPY]
        what = f"copy of {view.place.nbytes} bytes {way} {self.device}"

        def run() -> None:
            if how is How.FAIL:
                raise InjectedError(f"copy number {number} was made to fail")
            copy()

        def named(error: BaseException) -> BaseException:
            kind = DeadlineError if isinstance(error, DeadlineError) else KernelError
            return kind(f"{what}: {error}", provider=self.device.kind)

        machine.submit(
            machine.copies,
            Operation(what, run, delay=machine.copy_delay, hangs=how is How.HANG,
                      named=named, copies=way == "to", **ranges),
        )  # fmt: skip
