"""Values of ONNX's suites as a session takes and gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from seamline.provider import Array

__all__ = ["false_bytes", "few", "plain", "strings_of", "widened"]


def plain(value: Any) -> Any:
    """
    Turn a value of the suite into what a session takes: an array, a list, or None.

    Small types (float8, int4) are stored as ``TensorProto``; arrays of text become
    object arrays of ``str``.
    """
    if isinstance(value, onnx.TensorProto):
        return plain(onnx.numpy_helper.to_array(value))
    if isinstance(value, onnx.SequenceProto):
        return plain(onnx.numpy_helper.to_list(value))
    if isinstance(value, onnx.OptionalProto):
        return plain(onnx.numpy_helper.to_optional(value))
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None:
        return None
    array = np.asarray(value)
    return strings_of(array) if array.dtype.kind in "OUS" else array


def strings_of(array: Array) -> Array:
    """Give text as an object array of ``str``, whatever held it."""
    held = np.empty(array.size, object)
    for index, item in enumerate(array.ravel()):
        held[index] = item.decode() if isinstance(item, bytes) else str(item)
    return held.reshape(array.shape)


def widened(array: Array) -> Array:
    """Give floats of any width as float64 (complex128), and everything else as it is."""
    if array.dtype.kind in "biuOM":
        return array
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64)


def false_bytes(array: Array) -> str:
    """
    Say which bytes of a bool array are neither 0 nor 1, or nothing.

    NumPy compares such an element as true, and whoever reads the byte as a number, an
    index or a mask gets another value.
    """
    if array.dtype != np.bool_:
        return ""
    held = array.view(np.uint8)
    odd = np.asarray(held > 1)
    if not odd.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(odd)[0])
    return (
        f"{int(odd.sum())} of {odd.size} bools are neither byte 0 nor 1, the first at "
        f"{list(at)}: {int(held[at])}"
    )


def few(array: Array, count: int = 6) -> str:
    """Show the first elements for a message."""
    shown = ", ".join(str(item) for item in array.ravel()[:count].tolist())
    return f"[{shown}{', ...' if array.size > count else ''}]"
