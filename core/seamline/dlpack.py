"""
DLPack for host arrays, with the element types that NumPy's own DLPack does not know.

NumPy neither gives nor takes bfloat16 and float8 by DLPack, which other libraries do. The
bytes are the same as those of an unsigned integer of that width, so NumPy passes them as
integers, and the element type in the capsule is rewritten on the way. Nothing is copied.

Source: DLPack 1.1, ``dlpack.h`` (structures, type codes and device codes).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from seamline.tensors import TensorType, dtype_name, nbytes_of, numpy_dtype

__all__ = [
    "CUDA",
    "HOST_DEVICE",
    "described",
    "device_of",
    "from_dlpack",
    "lent",
    "to_dlpack",
]

HOST_DEVICE = (1, 0)  #: (kDLCPU, 0)
CUDA = 2  #: kDLCUDA
# Pinned host memory of CUDA and ROCm is host memory to read.
_HOST_CODES = (1, 3, 11)
_DEVICE_NAMES = {
    2: "cuda",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    10: "rocm",
    13: "cuda managed",
}
_UINT = 1
_CODES = {
    4: {16: "bfloat16"},
    10: {8: "float8_e4m3fn"},
    11: {8: "float8_e4m3fnuz"},
    12: {8: "float8_e5m2"},
    13: {8: "float8_e5m2fnuz"},
    14: {8: "float8_e8m0fnu"},
}
_PLAIN = {0: "int", 1: "uint", 2: "float", 5: "complex", 6: "bool"}
_CODE_OF = {name: code for code, widths in _CODES.items() for name in widths.values()}


class _DataType(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _tensor_in(capsule: object) -> _Tensor:
    """Give the tensor that a capsule carries, as a view into it."""
    if _is_valid(capsule, b"dltensor_versioned"):
        address = _get_pointer(capsule, b"dltensor_versioned")
        return _Versioned.from_address(address).tensor  # type: ignore[no-any-return]
    return _Tensor.from_address(_get_pointer(capsule, b"dltensor"))


def _dtype_in(capsule: object) -> _DataType:
    return _tensor_in(capsule).dtype  # type: ignore[no-any-return]


def described(
    capsule: object,
) -> tuple[int, str, tuple[int, ...], tuple[int, ...] | None]:
    """
    Give what a capsule carries; it is not consumed, and keeps the memory alive.

    Returns
    -------
    tuple
        Address, element type by ONNX's name, sizes, and steps in elements (None where it
        is C-contiguous).

    Raises
    ------
    BufferError
        ONNX has no such element type.
    """
    tensor = _tensor_in(capsule)
    kind, rank = tensor.dtype, tensor.ndim
    name = _CODES.get(kind.code, {}).get(kind.bits, "")
    if not name and kind.code in _PLAIN:
        name = (
            "bool" if _PLAIN[kind.code] == "bool" else f"{_PLAIN[kind.code]}{kind.bits}"
        )
    if not name or kind.lanes != 1:
        raise BufferError(f"DLPack's element type {kind.code} of {kind.bits} bits")
    sizes, steps = (
        tuple((ctypes.c_int64 * rank).from_address(place)) if place and rank else ()
        for place in (tensor.shape, tensor.strides)
    )
    address = (tensor.data or 0) + tensor.byte_offset
    return address, name, sizes, steps if tensor.strides else None


def to_dlpack(array: np.ndarray[Any, Any], **request: Any) -> Any:
    """
    Give a capsule over an array's memory.

    Parameters
    ----------
    request
        What the consumer asks: ``stream``, ``max_version``, ``dl_device``, ``copy``.

    Raises
    ------
    BufferError
        The element type has no form in DLPack, or NumPy refuses the request.
    """
    name = dtype_name(array.dtype)
    if name in _CODE_OF:
        capsule = array.view(f"u{array.itemsize}").__dlpack__(**request)
        _dtype_in(capsule).code = _CODE_OF[name]
        return capsule
    if array.dtype.kind not in "biufc":
        raise BufferError(
            f"DLPack has no form for {name} held one element to {array.itemsize} B"
        )
    return array.__dlpack__(**request)


def lent(
    address: int,
    kind: TensorType,
    device: tuple[int, int],
    owner: object,
    **request: Any,
) -> Any:
    """
    Give a capsule over memory of a device, which stays its owner's.

    Parameters
    ----------
    kind
        The tensor that lies there, C-contiguous.
    device
        DLPack's code and number of the device.
    owner
        Kept alive for as long as the consumer holds the memory.
    request
        What the consumer asks, as for :func:`to_dlpack`; a copy is refused.

    Raises
    ------
    BufferError
        The element type has no form in DLPack, or another device or a copy was asked for.
    """
    if request.get("copy") or request.get("dl_device") not in (None, device):
        raise BufferError("it is lent where it lies, on its device and uncopied")
    # NumPy makes the capsule over the bare address, and looks at no byte behind it.
    raw = (ctypes.c_uint8 * max(nbytes_of(kind), 1)).from_address(address or 1)
    vars(raw)["owner"] = owner
    array = np.ctypeslib.as_array(raw)[: nbytes_of(kind)]
    array = array.view(numpy_dtype(kind.dtype)).reshape(kind.sizes)
    capsule = to_dlpack(array, max_version=request.get("max_version"))
    tensor = _tensor_in(capsule)
    tensor.device_type, tensor.device_id = device
    return capsule


class _Producer:
    """Another library's array, which tells NumPy that it holds integers."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.name = ""

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._source.__dlpack_device__()  # type: ignore[no-any-return]

    def __dlpack__(self, **request: Any) -> Any:
        capsule = self._source.__dlpack__(**request)
        kind = _dtype_in(capsule)
        self.name = _CODES.get(kind.code, {}).get(kind.bits, "")
        if self.name:
            kind.code = _UINT
        return capsule


def from_dlpack(source: Any) -> np.ndarray[Any, Any]:
    """
    Give an array over the memory of an object that speaks DLPack.

    Raises
    ------
    BufferError
        The memory is not the host's, or the producer refuses.
    """
    kind, index = device_of(source)
    if kind not in _HOST_CODES:
        name = _DEVICE_NAMES.get(kind, f"DLPack device {kind}")
        raise BufferError(f"it lies on {name}:{index}; bring it to the host first")
    producer = _Producer(source)
    try:
        array = np.from_dlpack(producer)
    except RuntimeError as error:  # NumPy's word for element types that it lacks
        raise BufferError(str(error)) from error
    return array.view(numpy_dtype(producer.name)) if producer.name else array


def device_of(source: Any) -> tuple[int, int]:
    """Give DLPack's code and number of the device that an object lies on."""
    kind, index = source.__dlpack_device__()
    return int(kind), int(index)
