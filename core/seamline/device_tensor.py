"""
Tensors of other libraries that lie on a device, fed as they are.

A fed tensor stays its owner's. Its bytes are copied on the device to the program's own
place, whose address a recording may hold, and never through the host. Work that its owner
submitted before is waited for on the device, and what the owner submits later waits for
the copy, so that neither side has to synchronise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

import attrs
import numpy as np

from seamline import dlpack
from seamline.devices import Array, Device, Memory, View
from seamline.errors import FeedError
from seamline.foreign import check_dtype
from seamline.tensors import TensorType, dtype_name, numpy_dtype

__all__ = ["DeviceTensor", "TakesTensors", "lent", "taking"]

_LEGACY = 1  #: the default stream, in DLPack's words and in the driver's


@attrs.frozen(eq=False)
class DeviceTensor:
    """
    A tensor of somebody else's in a device's memory, C-contiguous.

    Attributes
    ----------
    stream
        The driver's number of the stream whose work it is ready after; None where it is
        ready.
    owner
        Keeps the memory alive.
    """

    device: Device
    address: int
    kind: TensorType
    stream: int | None
    owner: object

    @property
    def shape(self) -> tuple[int, ...]:
        """Give the sizes."""
        return self.kind.sizes

    @property
    def ndim(self) -> int:
        """Give the rank."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Give NumPy's element type."""
        return numpy_dtype(self.kind.dtype)


class TakesTensors(Protocol):
    """What a device's memory has beside the contract where tensors can be fed to it."""

    @property
    def takes_tensors(self) -> bool:
        """Say that it has the other two; a memory without this has not."""
        ...

    def take(self, target: View, source: DeviceTensor) -> None:
        """Copy on the device, in order with its work and with the owner's."""
        ...

    def fetch(self, source: DeviceTensor, target: Array) -> None:
        """Copy to the host, once the owner's work is done."""
        ...


def taking(memory: object) -> TakesTensors | None:
    """Give a device's memory as one that tensors can be fed to; None where it is not."""
    if not getattr(memory, "takes_tensors", False):
        return None
    return cast("TakesTensors", memory)


def lent(
    value: object, memories: Mapping[Device, Memory], wanted: str, where: str
) -> DeviceTensor | None:
    """
    Give what was fed as a tensor on one of the session's devices; None where it is not.

    Parameters
    ----------
    value
        Anything; one that speaks DLPack or has ``__cuda_array_interface__`` may be.
    wanted
        Its element type by the model.
    where
        Which input, for messages.

    Raises
    ------
    FeedError
        It lies on such a device, and its element type or layout is not what is wanted.
    """
    cuda = [
        d for d, m in memories.items() if d.kind == "cuda" and taking(m) is not None
    ]
    if not cuda or isinstance(value, (np.ndarray, np.generic)):
        return None
    try:
        if hasattr(value, "__dlpack_device__"):
            code, index = dlpack.device_of(value)
            if code != dlpack.CUDA or Device("cuda", index) not in cuda:
                return None
            return _by_dlpack(value, Device("cuda", index), wanted, where)
        if hasattr(value, "__cuda_array_interface__"):
            # It does not say which device; one address space holds them all.
            return _by_interface(value, cuda[0], wanted, where)
    except FeedError:
        raise
    except Exception as error:  # whatever the other library raises
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        raise FeedError(f"{where}: {name} does not lend its memory: {error}") from error
    return None


def _by_dlpack(value: Any, device: Device, wanted: str, where: str) -> DeviceTensor:
    # A capsule that nobody consumes gives the memory back when it goes.
    capsule = value.__dlpack__(stream=_LEGACY)
    address, name, shape, steps = dlpack.described(capsule)
    check_dtype(numpy_dtype(name), wanted, where)
    _check_layout(shape, steps, where)
    return DeviceTensor(device, address, TensorType(name, shape), _LEGACY, capsule)


def _by_interface(value: Any, device: Device, wanted: str, where: str) -> DeviceTensor:
    given = value.__cuda_array_interface__
    dtype, shape = np.dtype(given["typestr"]), tuple(given["shape"])
    check_dtype(dtype, wanted, where)
    if given.get("mask") is not None:
        raise FeedError(f"{where}: a mask hides elements; feed the values alone")
    strides = given.get("strides")
    steps = None if strides is None else tuple(s // dtype.itemsize for s in strides)
    _check_layout(shape, steps, where)
    # Before version 3 nothing is said of a stream: then it is the default one.
    stream = given.get("stream") if given["version"] >= 3 else _LEGACY
    kind = TensorType(dtype_name(dtype), shape)
    return DeviceTensor(device, int(given["data"][0]), kind, stream, value)


def _check_layout(
    shape: tuple[int, ...], steps: tuple[int, ...] | None, where: str
) -> None:
    if steps is None or 0 in shape:
        return
    step = 1
    for size, found in zip(reversed(shape), reversed(steps), strict=True):
        if size != 1 and found != step:
            raise FeedError(
                f"{where}: steps of {list(steps)} elements over {list(shape)} are not "
                "C-contiguous, as a tensor that is fed on its device has to be; feed "
                "x.contiguous() or a copy"
            )
        step *= size
