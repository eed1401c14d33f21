"""Bytes of a GPU's memory: a buffer of the arena, and a typed look at one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from seamline import dlpack
from seamline.off_host import OffHost
from seamline.provider import Device
from seamline.tensors import TensorType, nbytes_of, numpy_dtype

if TYPE_CHECKING:
    from seamline_cuda.memory import CudaMemory

__all__ = ["CudaBuffer", "CudaView"]

_NO_WAIT, _LEGACY = -1, 1  #: DLPack's words for no stream and for the default one


@attrs.define(eq=False)
class CudaBuffer:
    """Bytes of the arena at an address that does not move; implements ``Buffer``."""

    owner: CudaMemory
    address: int
    nbytes: int
    is_open: bool = True

    @property
    def device(self) -> Device:
        """Say which device."""
        return self.owner.device

    def close(self) -> None:
        """Give the bytes back; a second call does nothing."""
        if self.is_open:
            self.is_open = False
            self.owner.gave_back(self)


@attrs.frozen(eq=False)
class CudaView(OffHost):
    """
    Bytes of a GPU under a type, C-contiguous.

    Other libraries read it by DLPack, or by ``__cuda_array_interface__`` where NumPy has a
    name for its element type. Nothing is copied: they see later runs write there, and they
    wait for what was submitted before.
    """

    buffer: CudaBuffer
    address: int
    kind: TensorType

    @property
    def device(self) -> Device:
        """Say which device."""
        return self.buffer.device

    @property
    def nbytes(self) -> int:
        """Give its length in bytes."""
        return nbytes_of(self.kind)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.device.index

    def __dlpack__(self, *, stream: int | None = None, **request: Any) -> Any:
        made = dlpack.lent(
            self.address, self.kind, self.__dlpack_device__(), self, **request
        )
        self.buffer.owner.gpu.is_lent = True
        if stream != _NO_WAIT:
            self.buffer.owner.gpu.let_wait(stream or _LEGACY)
        return made

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        dtype = numpy_dtype(self.kind.dtype)
        if dtype.kind == "V":
            raise AttributeError(f"NumPy has no name for {self.kind.dtype}")
        gpu = self.buffer.owner.gpu
        gpu.is_lent = True
        return {
            "shape": self.kind.sizes,
            "typestr": dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": int(gpu.compute.handle),
            "version": 3,
        }
