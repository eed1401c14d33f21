"""
A value outside a session: a tensor, a sequence or an absent optional, on the host.

Names follow ONNX Runtime's ``OrtValue``. Memory is shared with NumPy and, by DLPack, with
any other library, both ways and without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from seamline import dlpack
from seamline.errors import FeedError
from seamline.tensors import (
    ANY,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
    dtype_name,
    nbytes_of,
    numpy_dtype,
    onnx_dtype,
    ort_type,
    type_of_array,
)
from seamline.unsupported import UnsupportedError

__all__ = ["OrtValue", "element_name", "require_host"]


_BY_ORT_NAME = {ort_type(TensorType(name, None)): name for name in ANY}


def element_name(element_type: Any) -> str:
    """
    Give the name of an element type from a NumPy dtype, its name, or ONNX's number.

    Examples
    --------
    >>> element_name(np.float32), element_name(16), element_name("tensor(int64)")
    ('float32', 'bfloat16', 'int64')
    """
    try:
        if isinstance(element_type, int) and not isinstance(element_type, bool):
            return dtype_name(ir.DataType(element_type))
        if isinstance(element_type, str) and element_type in _BY_ORT_NAME:
            return _BY_ORT_NAME[element_type]
        return dtype_name(element_type)  # pyright: ignore[reportArgumentType]
    except (KeyError, TypeError, ValueError) as error:
        raise FeedError(
            f"{element_type!r} is no element type; give a NumPy dtype such as np.float32, or "
            "a number of onnx.TensorProto"
        ) from error


def require_host(what: str, device_type: str, device_id: int = 0) -> None:
    """Refuse a device other than the host, where values outside of sessions live."""
    if device_type.lower() != "cpu" or device_id != 0:
        raise UnsupportedError(
            f"{what} on {device_type}:{device_id}",
            "values outside a session live on the host (device_type='cpu', device_id=0); "
            "the plan moves them to devices",
        )


class OrtValue:
    """
    A tensor, a sequence or an optional on the host.

    ``np.asarray(value)`` and ``np.from_dlpack(value)`` share its memory; :meth:`numpy`
    gives a copy, as in ONNX Runtime.

    Parameters
    ----------
    value
        An array that lies in C order, a list for a sequence, or None.
    kind
        Its type.

    Examples
    --------
    >>> value = OrtValue.ortvalue_from_numpy(np.ones((2, 3), np.float32))
    >>> value.data_type(), value.shape(), value.device_name()
    ('tensor(float)', [2, 3], 'cpu')
    """

    def __init__(self, value: Any, kind: ValueType | None) -> None:
        self._value = value
        self._kind = kind

    @classmethod
    def of(cls, value: Any, kind: ValueType | None = None) -> OrtValue:
        """Wrap an array, a list of arrays or None; an array in C order is shared."""
        if value is None:
            return cls(None, kind or OptionalType(None))
        if isinstance(value, (list, tuple)):
            element = type_of_array(np.asarray(value[0])) if value else None
            return cls(list(value), kind or SequenceType(_any_shape(element)))
        array = plain(np.asarray(value))
        return cls(array, type_of_array(array))

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, /, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """
        Wrap an array: shared if it lies in C order, aligned and of native byte order.

        Raises
        ------
        UnsupportedError
            A device other than the host.
        FeedError
            ONNX has no such element type.
        """
        require_host("an OrtValue", device_type, device_id)
        array = np.asarray(numpy_obj)
        try:
            return cls.of(array)
        except TypeError as error:
            raise FeedError(str(error)) from error

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(
        cls, data: Any, /, onnx_element_type: int
    ) -> OrtValue:
        """Wrap an array whose bytes are of another type: uint16 as bfloat16, say."""
        array = np.asarray(data)
        name = element_name(onnx_element_type)
        dtype = numpy_dtype(name)
        if array.dtype.hasobject or dtype.hasobject or array.itemsize != dtype.itemsize:
            raise FeedError(
                f"bytes of {array.dtype} cannot be read as {name}: an element takes "
                f"{array.itemsize} and {dtype.itemsize} bytes"
            )
        return cls.of(plain(array).view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
    ) -> OrtValue:
        """Allocate a tensor of zeros, or of empty strings."""
        require_host("an OrtValue", device_type, device_id)
        dtype = numpy_dtype(element_name(element_type))
        if dtype.hasobject:
            return cls.of(np.full(tuple(shape), "", dtype=object))
        return cls.of(np.zeros(tuple(shape), dtype=dtype))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """
        Share the memory of an object that speaks DLPack.

        Raises
        ------
        FeedError
            It lies on a device, or its element type is none of ONNX's.
        """
        try:
            return cls.of(dlpack.from_dlpack(data))
        except (BufferError, TypeError) as error:
            raise FeedError(f"{type(data).__name__} by DLPack: {error}") from error

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: object) -> OrtValue:
        """Refuse: values are dense."""
        raise UnsupportedError("a sparse OrtValue", "feed the dense array")

    @property
    def value(self) -> Any:
        """Give the array itself, the list of a sequence, or None."""
        return self._value

    @property
    def kind(self) -> ValueType | None:
        """Give the type, as seamline writes it."""
        return self._kind

    def __dlpack__(self, **request: Any) -> Any:
        """Give a capsule over the tensor's memory; takes the array API's keywords."""
        return dlpack.to_dlpack(self._tensor("__dlpack__"), **request)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Give DLPack's name for the host."""
        return dlpack.HOST_DEVICE

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        """Give the tensor as an array, shared unless a copy is asked for."""
        return np.array(self._tensor("__array__"), dtype=dtype, copy=copy)

    def numpy(self) -> Any:
        """Give a copy: an array, a list of arrays for a sequence, None for no value."""
        if isinstance(self._value, list):
            return [np.array(item) for item in self._value]
        return None if self._value is None else np.array(self._value)

    def shape(self) -> list[int]:
        """Give the sizes of a tensor."""
        return list(self._tensor("shape").shape)

    def data_type(self) -> str:
        """Give the type as ONNX Runtime spells it, such as ``tensor(float)``."""
        return ort_type(self._kind)

    def element_type(self) -> int:
        """Give ONNX's number of a tensor's element type."""
        return int(onnx_dtype(dtype_name(self._tensor("element_type").dtype)))

    def data_ptr(self) -> int:
        """Give the address of a tensor's first byte; strings have none."""
        array = self._tensor("data_ptr")
        if array.dtype.hasobject:
            raise UnsupportedError("data_ptr of strings", "use numpy()")
        return int(array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Give the bytes that a tensor takes; a string counts as a pointer."""
        return nbytes_of(type_of_array(self._tensor("tensor_size_in_bytes")))

    def device_name(self) -> str:
        """Give the device: always the host."""
        return "cpu"

    def has_value(self) -> bool:
        """Tell whether it is anything but an absent optional."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Tell whether it is a tensor."""
        return isinstance(self._value, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        """Tell that it is dense."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Tell whether it is a sequence."""
        return isinstance(self._value, list)

    def update_inplace(self, data: Any) -> None:
        """
        Write new elements into the memory that it holds.

        Raises
        ------
        FeedError
            Another shape or element type, or memory that cannot be written.
        """
        target, source = self._tensor("update_inplace"), np.asarray(data)
        if source.shape != target.shape or dtype_name(source.dtype) != dtype_name(
            target.dtype
        ):
            raise FeedError(
                f"update_inplace: {source.dtype}{list(source.shape)} was given, the value is "
                f"{target.dtype}{list(target.shape)}"
            )
        if not target.flags.writeable:
            raise FeedError(
                "update_inplace: the memory is read-only; wrap a writable array"
            )
        np.copyto(target, source)

    def _tensor(self, what: str) -> np.ndarray[Any, Any]:
        if not isinstance(self._value, np.ndarray):
            raise UnsupportedError(f"{what} of {self.data_type()}", "it needs a tensor")
        return self._value

    def __repr__(self) -> str:
        return f"OrtValue({self._kind})"


def plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Give an array's values in C order, aligned, in native byte order; copy if need be."""
    if array.dtype.kind in "US":
        array = array.astype(object)
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return array
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)


def _any_shape(kind: TensorType | None) -> TensorType | None:
    return None if kind is None else TensorType(kind.dtype, None)
