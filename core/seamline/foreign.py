"""
Arrays from whatever a caller has: Python numbers, text, other libraries' tensors.

A value keeps its element type. Only Python's own numbers have none to keep, and take the
one that is wanted where nothing but rounding can be lost: an int fits integers and floats,
a float fits floats, as in NumPy's own rules (NEP 50).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline import dlpack
from seamline.errors import FeedError
from seamline.ortvalue import OrtValue
from seamline.tensors import STRING, TensorType, ValueType, dtype_name, numpy_dtype

__all__ = ["as_array", "check_dtype"]

_UNPACKED = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")


def as_array(value: Any, kind: ValueType | None, where: str) -> np.ndarray[Any, Any]:
    """
    Give a fed value as an array of the type that is wanted.

    Parameters
    ----------
    value
        An array, a NumPy scalar, Python numbers or text in lists, or an object with
        ``__dlpack__``, ``__array_interface__`` or ``__array__``.
    kind
        The type; None where any will do. Its shape is not looked at.
    where
        Which input, for messages.

    Returns
    -------
    ndarray
        Of any layout; strings have dtype object and elements ``str``.

    Raises
    ------
    FeedError
        The element type is another, the value is on a device, or it is no array at all.
    """
    wanted = kind.dtype if isinstance(kind, TensorType) else None
    if _is_python(value):
        return _from_python(value, wanted, where)
    array = _from_library(value, where)
    if array.dtype.kind in "OUST" and wanted in (None, "string"):
        return _as_text(array, where)
    check_dtype(array.dtype, wanted, where)
    return array


def _is_python(value: Any) -> bool:
    if isinstance(value, np.generic):
        return False
    return isinstance(value, (bool, int, float, complex, str, bytes, list, tuple))


def _from_python(value: Any, wanted: str | None, where: str) -> np.ndarray[Any, Any]:
    if wanted in STRING or isinstance(value, (str, bytes)):
        array = np.array(value, dtype=object)
        if wanted not in (None, *STRING):
            check_dtype(array.dtype, wanted, where)
        return _as_text(array, where)
    try:
        if isinstance(value, (list, tuple)):
            value = _opened(value)
        natural = np.asarray(value)
        if wanted is None or (natural.size and not _fits(natural.dtype, wanted)):
            check_dtype(natural.dtype, wanted, where)
            return natural
        return _narrowed(natural, value, wanted)
    except FeedError:
        raise
    except (ValueError, OverflowError, TypeError, RuntimeError) as error:
        raise FeedError(
            f"{where}: no {wanted or 'array'} can be made of it: {error}"
        ) from error


def _opened(value: Any) -> Any:
    """Take the arrays out of OrtValues inside lists."""
    if isinstance(value, (list, tuple)):
        return [_opened(item) for item in value]
    return value.value if isinstance(value, OrtValue) else value


def _fits(natural: np.dtype[Any], wanted: str) -> bool:
    """Tell whether Python numbers that NumPy reads as one type may become another."""
    target = numpy_dtype(wanted)
    if natural == target:
        return True
    # ml_dtypes' own types are of kind V, all of them numbers: floats unless named int.
    kind = target.kind
    if kind == "V":
        kind = "i" if "int" in wanted else "f"
    accepts = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc"}.get(kind, "")
    return natural.kind in accepts and natural.name in _PYTHON_DTYPES


def _narrowed(
    natural: np.ndarray[Any, Any], value: Any, wanted: str
) -> np.ndarray[Any, Any]:
    """Give Python numbers their type; an integer that it cannot hold is an error."""
    array = np.asarray(value, dtype=numpy_dtype(wanted))
    # NumPy looks at the range of its own integers, ml_dtypes wraps around.
    if wanted in _UNPACKED[:4] and not np.array_equal(array.astype(np.int64), natural):
        raise OverflowError(f"a value is out of the range of {wanted}")
    return array


_PYTHON_DTYPES = ("bool", "int64", "uint64", "float64", "complex128")


def _from_library(value: Any, where: str) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise FeedError(f"{where}: a masked array hides elements; feed x.filled(...)")
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if hasattr(value, "__cuda_array_interface__") and not hasattr(value, "__dlpack__"):
        raise FeedError(
            f"{where}: {name} lies on a CUDA device; bring it to the host first"
        )
    try:
        if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
            return dlpack.from_dlpack(value)
        if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
            return np.asarray(value)
    except Exception as error:  # whatever the other library raises
        raise FeedError(f"{where}: {name} gives no host array: {error}") from error
    raise FeedError(
        f"{where}: {name} is no array; feed a NumPy array, an OrtValue, or anything with "
        "__dlpack__ or __array__"
    )


def _as_text(array: np.ndarray[Any, Any], where: str) -> np.ndarray[Any, Any]:
    """Give an object array whose elements are all ``str``; bytes are read as UTF-8."""
    if array.dtype.kind != "O":
        array = array.astype(object)
    flat = array.ravel()
    if all(isinstance(item, str) for item in flat):
        return array
    text = np.empty(flat.size, dtype=object)
    for index, item in enumerate(flat):
        if isinstance(item, bytes):
            try:
                item = item.decode("utf-8")
            except UnicodeDecodeError as error:
                raise FeedError(
                    f"{where}: element {index} is not UTF-8: {error}"
                ) from error
        if not isinstance(item, str):
            raise FeedError(
                f"{where}: element {index} of an object array is {type(item).__name__}; only "
                "text can be fed as dtype object"
            )
        text[index] = item
    return text.reshape(array.shape)


def check_dtype(dtype: np.dtype[Any], wanted: str | None, where: str) -> None:
    """
    Refuse an element type other than the one that is wanted.

    Raises
    ------
    FeedError
        Says how to make the wanted one of it.
    """
    try:
        got = dtype_name(dtype)
    except TypeError:
        got = str(dtype)
        if wanted is None:
            raise FeedError(
                f"{where}: ONNX has no element type for NumPy's {got}"
            ) from None
    if wanted is not None and got != wanted:
        raise FeedError(
            f"{where}: element type {got} was fed, {wanted} is expected; "
            f"{_remedy(dtype, wanted)}"
        )


def _remedy(dtype: np.dtype[Any], wanted: str) -> str:
    target = numpy_dtype(wanted)
    if wanted == "string":
        return "feed an array of str"
    if dtype.kind == "O":
        return f"an object array is read as text; give it a dtype: x.astype({wanted!r})"
    if wanted in _UNPACKED:
        return f"feed one element to a byte: x.astype(ml_dtypes.{wanted})"
    if target.kind == "V" or wanted.startswith(("bfloat", "float8")):
        if dtype.kind in "uV" and dtype.itemsize == target.itemsize:
            return f"if these are its bits, feed x.view(ml_dtypes.{wanted})"
        return f"feed x.astype(ml_dtypes.{wanted})"
    return f"feed x.astype(np.{'bool_' if wanted == 'bool' else wanted})"
