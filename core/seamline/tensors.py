"""
Element types, and the types of values: tensors, sequences, optionals.

An element type is a short lower-case string, the name that NumPy and ml_dtypes give it
(``float32``, ``bfloat16``, ``float8_e4m3fn``, ``int4``) or ``string``. Strings compare
fast, print well and go into JSON as they are. ONNX's own enumeration is met only here.
"""

from __future__ import annotations

import functools
import math
from typing import Any, TypeAlias

import attrs
import ml_dtypes
import numpy as np
import onnx_ir as ir

__all__ = [
    "ANY",
    "BOOL",
    "FLOATS",
    "FLOATS_8",
    "INDICES",
    "INTEGERS",
    "NUMBERS",
    "SIGNED",
    "STRING",
    "UNSIGNED",
    "Dim",
    "OptionalType",
    "SequenceType",
    "Shape",
    "TensorType",
    "ValueType",
    "dtype_name",
    "nbytes_of",
    "numpy_dtype",
    "onnx_dtype",
    "ort_type",
    "type_of_array",
    "unheld",
]

Dim: TypeAlias = int | str | None  #: a size, a symbol, or unknown
Shape: TypeAlias = tuple[Dim, ...]

FLOATS = ("float32", "float16", "float64", "bfloat16")
FLOATS_8 = (
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)
SIGNED = ("int32", "int64", "int8", "int16")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
INDICES = ("int64", "int32")
NUMBERS = FLOATS + INTEGERS
BOOL = ("bool",)
STRING = ("string",)
_SMALL = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")
_COMPLEX = ("complex64", "complex128")
ANY = NUMBERS + BOOL + STRING + FLOATS_8 + _SMALL + _COMPLEX

# ONNX's enumeration by our names. Packed types (int4, float4) are held unpacked, one
# element in a byte, as ml_dtypes does.
_ONNX: dict[ir.DataType, str] = {
    member: "string" if member == ir.DataType.STRING else member.numpy().name
    for member in ir.DataType
    if member != ir.DataType.UNDEFINED
}
_BY_NAME: dict[str, ir.DataType] = {name: member for member, name in _ONNX.items()}
_NUMPY: dict[str, np.dtype[Any]] = {
    name: np.dtype(object) if name == "string" else np.dtype(member.numpy())
    for member, name in _ONNX.items()
}
_RANK = 64
# onnxruntime spells types after C++.
_ORT_NAMES = {"float32": "float", "float64": "double", "bool": "bool"}


def dtype_name(kind: ir.DataType | np.dtype[Any] | type | str) -> str:
    """
    Give the element type's name, from ONNX's enumeration or a NumPy dtype.

    Raises
    ------
    TypeError
        ONNX has no such element type.

    Examples
    --------
    >>> dtype_name(ir.DataType.FLOAT), dtype_name(np.dtype("int8")), dtype_name("<U3")
    ('float32', 'int8', 'string')
    """
    if isinstance(kind, ir.DataType):
        return _ONNX[kind]
    return _name_of(np.dtype(kind))


@functools.cache  # NumPy makes up a dtype's name anew each time it is asked
def _name_of(dtype: np.dtype[Any]) -> str:
    if dtype.kind in "OUS":
        return "string"
    if dtype.name not in _NUMPY:
        raise TypeError(f"ONNX has no element type for NumPy's {dtype}")
    return dtype.name


def numpy_dtype(name: str) -> np.dtype[Any]:
    """
    Give the NumPy dtype that holds an element type; strings are held as objects.

    Examples
    --------
    >>> numpy_dtype("bfloat16").itemsize, numpy_dtype("string")
    (2, dtype('O'))
    """
    return _NUMPY[name]


def onnx_dtype(name: str) -> ir.DataType:
    """Give ONNX's enumeration member for an element type's name."""
    return _BY_NAME[name]


@attrs.frozen
class TensorType:
    """
    An element type, and a shape of sizes, symbols and unknowns (None: unknown rank).

    Examples
    --------
    >>> print(TensorType("float32", (1, "T", None)))
    float32[1, T, ?]
    >>> TensorType("int64", (2, 3)).is_sized
    True
    """

    dtype: str
    shape: Shape | None

    @property
    def is_sized(self) -> bool:
        """Tell whether every size is known."""
        if self.shape is None:
            return False
        for dim in self.shape:  # noqa: SIM110, a generator costs more than most shapes
            if type(dim) is not int:
                return False
        return True

    @property
    def sizes(self) -> tuple[int, ...]:
        """Give the shape as integers; only where ``is_sized`` holds."""
        if not self.is_sized:
            raise ValueError(f"{self} has sizes that are not known")
        return tuple(self.shape or ())  # type: ignore[arg-type]

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype}[...]"
        return f"{self.dtype}[{', '.join('?' if d is None else str(d) for d in self.shape)}]"


@attrs.frozen
class SequenceType:
    """A sequence of values of one type (None: element type unknown)."""

    element: TensorType | SequenceType | OptionalType | None

    def __str__(self) -> str:
        return f"sequence({self.element or '?'})"


@attrs.frozen
class OptionalType:
    """A value that may be absent."""

    element: TensorType | SequenceType | None

    def __str__(self) -> str:
        return f"optional({self.element or '?'})"


ValueType: TypeAlias = TensorType | SequenceType | OptionalType


def nbytes_of(kind: TensorType) -> int:
    """
    Give the bytes that a sized tensor takes in memory; a string counts as a pointer.

    Examples
    --------
    >>> nbytes_of(TensorType("float16", (2, 3)))
    12
    """
    return math.prod(kind.sizes) * _NUMPY[kind.dtype].itemsize


def unheld(kind: ValueType | None) -> str:
    """
    Say why no array can be of a type, or nothing; sizes that are not known are left out.

    NumPy has up to 64 dimensions, and counts bytes in 63 bits, empty dimensions as one.

    Examples
    --------
    >>> unheld(TensorType("float32", ("n", 2**62)))
    'it would take more than 2**63 - 1 bytes'
    """
    if not isinstance(kind, TensorType) or kind.shape is None:
        return ""
    if len(kind.shape) > _RANK:
        return f"it has {len(kind.shape)} dimensions; NumPy has up to {_RANK}"
    known = [dim or 1 for dim in kind.shape if isinstance(dim, int)]
    if any(dim < 0 for dim in known):
        return "it has a negative size"
    if math.prod(known) * _NUMPY[kind.dtype].itemsize >= 1 << 63:
        return "it would take more than 2**63 - 1 bytes"
    return ""


def type_of_array(array: np.ndarray[Any, Any]) -> TensorType:
    """Give the type of an array."""
    return TensorType(dtype_name(array.dtype), array.shape)


def ort_type(kind: ValueType | None) -> str:
    """
    Spell a type as onnxruntime does.

    Examples
    --------
    >>> ort_type(TensorType("float32", (1,))), ort_type(SequenceType(None))
    ('tensor(float)', 'seq(tensor(undefined))')
    """
    if kind is None:
        return "tensor(undefined)"
    if isinstance(kind, TensorType):
        name = kind.dtype.replace("_", "")
        return f"tensor({_ORT_NAMES.get(kind.dtype, name)})"
    word = "seq" if isinstance(kind, SequenceType) else "optional"
    return f"{word}({ort_type(kind.element)})"


# ml_dtypes registers bfloat16, float8 and int4 with NumPy by being imported.
_ = ml_dtypes
