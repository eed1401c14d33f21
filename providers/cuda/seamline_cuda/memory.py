"""The memory of one GPU as the core sees it: buffers in the arena, views of them, copies."""

from __future__ import annotations

import attrs

from seamline.device_tensor import DeviceTensor
from seamline.errors import ContractError, ResidencyError
from seamline.provider import Array, Buffer, Device, Gauges, View
from seamline.tensors import TensorType, nbytes_of, numpy_dtype
from seamline_cuda.arena import Arena
from seamline_cuda.complaints import Complaints
from seamline_cuda.device import Gpu
from seamline_cuda.driver import call
from seamline_cuda.gate import GATE, Gate
from seamline_cuda.growing import GrowingRange
from seamline_cuda.transfers import Transfers
from seamline_cuda.views import CudaBuffer, CudaView
from seamline_cuda.virtual_memory import CudaVirtualMemory

__all__ = ["CudaBuffer", "CudaMemory", "CudaView"]

#: Addresses are reserved for so many times what the device has: a range that grows takes
#: its addresses at once, and there are plenty.
_ROOM = 8
_LEGACY = 1  #: the driver's number of the default stream


@attrs.define(eq=False)
class CudaMemory:
    """
    Implements :class:`~seamline.devices.Memory` on a GPU.

    Attributes
    ----------
    virtual
        Its virtual memory; the arena takes its pages from it, and so may others.
    arena
        Where buffers lie; what grows takes its room from it too.
    transfers
        Copies from and to the host, counted.
    complaints
        What kernels say of wrong data; raised by whoever waits.
    """

    gpu: Gpu
    virtual: CudaVirtualMemory
    arena: Arena
    transfers: Transfers
    complaints: Complaints
    gate: Gate = GATE

    @classmethod
    def open(cls, gpu: Gpu, *, limit: int | None, pool_nbytes: int) -> CudaMemory:
        """
        Make the memory of an open device; takes no bytes yet.

        Parameters
        ----------
        limit
            Most bytes that it may own; None for what the device has.
        pool_nbytes
            Bytes of pages kept between two uses.
        """
        pages = CudaVirtualMemory(gpu, limit)
        arena = Arena.over(pages, _ROOM * gpu.total, pool_nbytes)
        return cls(gpu, pages, arena, Transfers(gpu), Complaints(gpu))

    @property
    def device(self) -> Device:
        """Say which device."""
        return self.gpu.device

    def allocate(self, nbytes: int) -> Buffer:
        """
        Allocate bytes; their first contents are undefined.

        Raises
        ------
        VirtualMemoryError
            The device has no more; names what was asked, what is free and what is owned.
        RecordingError
            The calling thread captures.
        """
        self.gate.legal(f"allocates {nbytes} bytes")
        self.gpu.usable()
        return CudaBuffer(self, self.arena.allocate(nbytes), nbytes)

    def reserve(self, nbytes: int) -> GrowingRange:
        """
        Reserve addresses for a buffer that grows; takes no pages yet.

        Raises
        ------
        VirtualMemoryError
            There are no more addresses.
        RecordingError
            The calling thread captures.
        """
        self.gate.legal(f"reserves {nbytes} bytes")
        self.gpu.usable()
        return GrowingRange(self.arena, max(nbytes, 1), self._is_lost)

    def _is_lost(self) -> bool:
        return not self.gpu.is_open or bool(self.gpu.lost)

    def gave_back(self, buffer: CudaBuffer) -> None:
        """Take a closed buffer's bytes back, where the device can still be used."""
        if not self._is_lost():
            self.arena.free(buffer.address)

    def view(self, buffer: Buffer, offset: int, kind: TensorType) -> View:
        """Show bytes of a buffer as a tensor."""
        if isinstance(buffer, GrowingRange):
            return self._within(buffer, offset, kind)
        if not isinstance(buffer, CudaBuffer) or buffer.owner is not self:
            why = f"a {type(buffer).__name__} is no buffer of {self.device}"
            raise ResidencyError(self.device.kind, why)
        if kind.dtype == "string":
            raise ContractError(self.device.kind, "strings lie on the host only")
        if not buffer.is_open or not 0 <= offset <= buffer.nbytes - nbytes_of(kind):
            why = f"{kind} at {offset} is not within an open buffer of {buffer.nbytes} bytes"
            raise ContractError(self.device.kind, why)
        return CudaView(buffer, buffer.address + offset, kind)

    def _within(self, buffer: GrowingRange, offset: int, kind: TensorType) -> CudaView:
        inside = 0 <= offset <= buffer.nbytes - nbytes_of(kind)
        if not buffer.is_open or not inside or buffer.device != self.device:
            why = (
                f"{kind} at {offset} is not within an open buffer of {buffer.nbytes} bytes "
                f"on {buffer.device}"
            )
            raise ContractError(self.device.kind, why)
        return self.at(buffer.address + offset, kind)

    def at(self, address: int, kind: TensorType) -> CudaView:
        """Show bytes of :attr:`virtual` that the caller mapped, or will, as a tensor."""
        return CudaView(CudaBuffer(self, address, nbytes_of(kind)), address, kind)

    def write(self, target: View, source: Array) -> None:
        """Copy from the host; returns when ``source`` may be changed."""
        view = self._like(target, source)
        self.transfers.write(view.address, source)

    def read(self, source: View, target: Array) -> None:
        """
        Copy to the host, once everything that was submitted before is done.

        Raises
        ------
        KernelError
            A kernel before it met data that it refuses; names the node.
        CudaError
            Work before it failed, or the copy did.
        """
        view = self._like(source, target)
        self.transfers.read(view.address, target)
        self.complaints.check()

    @property
    def gives_arrays(self) -> bool:
        """Say that it gives arrays for results."""
        return True

    def array(self, kind: TensorType) -> Array:
        """
        Give an array of the host that :meth:`read` fills quickly, the caller's to keep.

        Raises
        ------
        RecordingError
            The calling thread captures.
        """
        return self.transfers.array(kind.sizes, numpy_dtype(kind.dtype))

    @property
    def takes_tensors(self) -> bool:
        """Say that other libraries' tensors can be fed to it."""
        return True

    def take(self, target: View, source: DeviceTensor) -> None:
        """
        Copy somebody else's tensor on the device, after their work and before their next.

        Raises
        ------
        CudaError
            The driver refused it, or work before it failed.
        RecordingError
            The calling thread captures.
        """
        view = self.checked(target)
        self.gate.legal("takes a tensor")
        self.gpu.usable()
        with self.gate.memory_call("a tensor that was fed"), self.gpu.here():
            if source.stream is not None:
                self.gpu.wait_for(source.stream)
            if view.nbytes:
                name = "cuMemcpyDtoDAsync"
                call(name, view.address, source.address, view.nbytes, self.gpu.compute.handle)  # fmt: skip
            self.gpu.let_wait(_LEGACY if source.stream is None else source.stream)

    def fetch(self, source: DeviceTensor, target: Array) -> None:
        """Copy somebody else's tensor to the host, once their work is done."""
        if source.stream is not None:
            self.gpu.wait_for(source.stream)
        self.transfers.read(source.address, target)

    def synchronize(self) -> None:
        """
        Wait for everything that was submitted.

        Raises
        ------
        KernelError
            A kernel met data that it refuses; names the node.
        CudaError
            Some of it failed.
        RecordingError
            The calling thread captures.
        """
        self.gate.legal("synchronises")
        with self.gate.memory_call("synchronize"):
            self.gpu.synchronize()
        self.complaints.check()

    def gauges(self) -> Gauges:
        """Give bytes of open buffers, bytes mapped, and bytes held."""
        return self.arena.gauges()

    def checked(self, view: object) -> CudaView:
        """
        Give a view of this memory.

        Raises
        ------
        ResidencyError
            It is something else, such as an array of the host.
        """
        if not isinstance(view, CudaView) or view.buffer.owner is not self:
            what = type(view).__name__
            why = (
                f"was handed a {what} that does not lie in the memory of {self.device}"
            )
            raise ResidencyError(self.device.kind, why)
        return view

    def close(self) -> None:
        """Give everything back; a second call does nothing, nor one on a lost device."""
        if not self._is_lost():
            self.transfers.close()
            self.complaints.close()
            self.arena.close()
            self.virtual.close()

    def _like(self, given: object, array: Array) -> CudaView:
        view = self.checked(given)
        kind = view.kind
        if array.shape != kind.sizes or array.dtype != numpy_dtype(kind.dtype):
            why = f"a copy between {kind} and {array.dtype}{list(array.shape)}"
            raise ContractError(self.device.kind, why)
        return view
