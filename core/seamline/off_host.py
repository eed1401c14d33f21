"""
Views of memory that the host cannot read, which say so when it tries.

A view of a device is no array. Whatever would make one of it (NumPy, DLPack, a buffer, an
index) raises and says which device it lies on, so a host kernel that was handed device
memory fails where it touches it, and never computes with it.
"""

from __future__ import annotations

from typing import Any, NoReturn

from seamline.devices import Device
from seamline.errors import ResidencyError
from seamline.tensors import TensorType

__all__ = ["OffHost"]


class OffHost:
    """
    What a device's view inherits, to be refused wherever an array is wanted.

    Attributes
    ----------
    kind
        The tensor's type.
    """

    __slots__ = ()
    kind: TensorType

    @property
    def device(self) -> Device:
        """Say where it lies."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """Give the sizes."""
        return self.kind.sizes

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        device = self.device
        why = f"the host touched {self.kind} in the memory of {device}; copy it first"
        raise ResidencyError(device.kind, why)

    __array__: Any = _refuse
    __array_ufunc__: Any = _refuse
    __array_function__: Any = _refuse
    __array_interface__: Any = property(_refuse)
    __array_struct__: Any = property(_refuse)
    __getitem__: Any = _refuse
    __setitem__: Any = _refuse
    __iter__: Any = _refuse
    __len__: Any = _refuse
    __buffer__: Any = _refuse
    __float__: Any = _refuse
    __bool__: Any = _refuse
    # A device that lends its memory has these two of its own.
    __dlpack__: Any = _refuse
    __dlpack_device__: Any = _refuse
