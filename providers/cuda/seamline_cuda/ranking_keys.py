"""
Numbers whose order is that of an element type's values, made of the bits in memory.

A key is a signed integer of the element's width: the greater, the earlier in the result. NaN
counts as the greatest value, and the two zeros as one. Elements are only copied; nothing is
converted, so that an int64 never passes through a float.
"""

from __future__ import annotations

from seamline.tensors import numpy_dtype

__all__ = ["bits_of", "key_lines", "least_key", "pointer_of"]

#: The bits of infinity, by element type; what is above is NaN.
_INFINITY = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F800000,
    "float64": 0x7FF0000000000000,
}


def bits_of(dtype: str) -> int:
    """Give the width of a key."""
    return numpy_dtype(dtype).itemsize * 8


def pointer_of(dtype: str) -> str:
    """Give the type of a parameter that is an address of elements, read as their bits."""
    return f"int{bits_of(dtype)}*"


def least_key(dtype: str) -> str:
    """Give the expression of the key that no element is behind."""
    # A literal of -2**63 would be taken for the negative of an unsigned number.
    return f"np.int64({-((1 << (bits_of(dtype) - 1)) - 1)} - 1)"


def key_lines(dtype: str, bits: str, key: str, *, largest: bool) -> list[str]:
    """
    Write the lines that make a key.

    Parameters
    ----------
    bits
        The expression that reads the element.
    key
        The name to make.
    largest
        Whether greater values come first; else smaller ones, and NaN last.
    """
    lines = [f"{key} = np.int64({bits})"]
    if dtype in _INFINITY:
        whole = (1 << (bits_of(dtype) - 1)) - 1
        lines += [
            f"{key}_size = {key} & {whole}",
            f"{key}_size = {key}_size if {key}_size <= {_INFINITY[dtype]} else np.int64({whole})",
            f"{key} = {key}_size if {key} >= 0 or {key}_size == {whole} else -{key}_size",
        ]
    elif dtype.startswith("uint"):
        lines.append(f"{key} = {key} ^ {least_key(dtype)}")
    if not largest:
        lines.append(f"{key} = -1 - {key}")
    return lines
