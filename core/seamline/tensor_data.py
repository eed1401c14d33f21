"""Declared shape and stored data of tensors, compared before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx
import onnx_ir as ir

from seamline.errors import ModelError, UnsafeModelError
from seamline.limits import LoadLimits

__all__ = ["TensorBudget", "check_stored", "check_text", "stored_nbytes"]

_KIND = ir.DataType
# The field of a TensorProto that holds an element type if raw_data does not, and how
# many entries an element takes there; what is not listed lies in int32_data.
_FIELDS = {
    _KIND.FLOAT: ("float_data", 1),
    _KIND.COMPLEX64: ("float_data", 2),
    _KIND.DOUBLE: ("double_data", 1),
    _KIND.COMPLEX128: ("double_data", 2),
    _KIND.INT64: ("int64_data", 1),
    _KIND.UINT64: ("uint64_data", 1),
    _KIND.UINT32: ("uint64_data", 1),
    _KIND.STRING: ("string_data", 1),
}
_DATA = (
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "double_data",
    "uint64_data",
)
_RANK = 64
# Packed types put as many elements into an entry as fit into a byte.
_PACKED = (2, 4)


def stored_nbytes(dtype: ir.DataType, count: int) -> int:
    """Give the bytes that elements take in a file; packed types fill bytes up."""
    return -(-count * dtype.bitwidth // 8)


class TensorBudget:
    """Counts the bytes that the tensors of one model declare, up to the limit."""

    def __init__(self, file: str, limits: LoadLimits) -> None:
        self._file = file
        self._limit = limits.max_nbytes
        self._spent = 0

    def spend(self, name: str | None, dtype: ir.DataType, dims: Sequence[int]) -> int:
        """
        Count a tensor, and give its bytes.

        Raises
        ------
        ModelError
            Its shape or type is none.
        UnsafeModelError
            It is one too many.
        """
        where = f"tensor {name!r}"
        if any(dim < 0 for dim in dims):
            raise ModelError(
                self._file, where, f"its shape {tuple(dims)} has a negative size"
            )
        if len(dims) > _RANK:
            raise ModelError(
                self._file,
                where,
                f"it has {len(dims)} dimensions; NumPy has up to {_RANK}",
            )
        if dtype == _KIND.UNDEFINED:
            raise ModelError(self._file, where, "its element type is undefined")
        nbytes = 0
        if dtype != _KIND.STRING:
            nbytes = stored_nbytes(dtype, math.prod(dims))
        self._spent += nbytes
        if self._spent > self._limit:
            raise UnsafeModelError(
                self._file,
                where,
                f"with it the tensors declare {self._spent} bytes and the limit is "
                f"{self._limit}; raise LoadLimits(max_nbytes=) if you trust the file",
            )
        return nbytes


def check_stored(
    file: str, tensor: onnx.TensorProto, nbytes: int, where: str = ""
) -> None:
    """
    Check that a tensor inside the model holds what it declares.

    Raises
    ------
    ModelError
        Names the tensor, and both numbers.
    """
    where = where or f"tensor {tensor.name!r}"
    dtype = ir.DataType(tensor.data_type)
    count = math.prod(tensor.dims)
    if tensor.HasField("segment"):
        raise ModelError(
            file, where, "it is one segment of a tensor; nothing reads those"
        )
    field, each = _FIELDS.get(dtype, ("int32_data", 1))
    if tensor.HasField("raw_data") and dtype != _KIND.STRING:
        field, found, wanted, what = (
            "",
            len(tensor.raw_data),
            nbytes,
            "bytes of raw_data",
        )
    else:
        found, wanted, what = len(getattr(tensor, field)), count * each, f"in {field}"
        if dtype != _KIND.STRING and dtype.bitwidth in _PACKED:
            wanted = nbytes
    if found != wanted:
        raise ModelError(
            file,
            where,
            f"{dtype.name}{list(tensor.dims)} needs {wanted} {what}; it has {found}",
        )
    if other := [
        name for name in _DATA if name != field and len(getattr(tensor, name))
    ]:
        raise ModelError(
            file, where, f"its type is {dtype.name} and {other[0]} holds data"
        )
    if dtype == _KIND.STRING:
        check_text(file, where, tensor.string_data)


def check_text(file: str, where: str, items: Sequence[bytes]) -> None:
    """Refuse strings that are not UTF-8."""
    for index, item in enumerate(items):
        try:
            item.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(file, where, f"string {index} is not UTF-8") from error
