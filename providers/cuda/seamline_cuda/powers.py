"""
Pow: the result has the base's type, and the exponent any number's.

What a constant exponent makes of it is a product or a root, in which the exponents of
models mostly are: 2, 3, 0.5. Exponents that float32 does not hold are computed with in
float64, and integers by integers alone.
"""

from __future__ import annotations

import numpy as np

from seamline.provider import NodeView
from seamline.tensors import INTEGERS
from seamline_cuda.formula import (
    FLOATS64,
    Formula,
    called,
    computed,
    dtype_of,
    number,
    product,
)

__all__ = ["POWER"]

_NARROW = ("int8", "int16", "uint8", "uint16")  # exact in float32


def _root(node: NodeView) -> str:
    # pow(-inf, 0.5) is inf and pow(-0.0, 0.5) is 0; a root gives NaN and -0.0.
    name = "dsqrt_rn" if computed(node) == "float64" else "fsqrt_rn"
    lowest = f"{{0}} == 0 or {{0}} == np.{computed(node)}(-np.inf)"
    return f"libdevice.{name}({called(node, 'fabs')} if {lowest} else {{0}})"


def _special(node: NodeView) -> str | None:
    known = node.constant(1)
    if known is None or known.size != 1:
        return None
    square = product(node, "{0}", "{0}")
    return {
        0.0: number(node, 1),  # of NaN too, by IEEE 754
        1.0: "{0}",
        2.0: square,
        3.0: product(node, square, "{0}"),
        0.5: _root(node),
        -1.0: f"{number(node, 1)} / {{0}}",
        -0.5: f"{number(node, 1)} / {_root(node)}",
    }.get(float(np.asarray(known, np.float64).reshape(())))


def _power(node: NodeView) -> str:
    base, exponent = dtype_of(node), dtype_of(node, 1)
    wide = "libdevice.pow(np.float64({0}), np.float64({1}))"
    if base in INTEGERS:
        if exponent in INTEGERS:
            return "whole_power(np.int64({0}), np.int64({1}))"
        return f"np.int64({wide})"
    special = _special(node)
    if special is not None:
        return special
    if computed(node) == "float64":
        return wide
    if computed(node, 1) == "float32" or exponent in _NARROW:
        return "libdevice.powf({0}, np.float32({1}))"
    return f"np.float32({wide})"


def _fits(node: NodeView) -> str | None:
    exponent = node.tensor(1)
    accepted = (*FLOATS64, *INTEGERS)
    if exponent is None or exponent.dtype not in accepted:
        return f"an exponent of {exponent or 'unknown type'} is no number"
    if dtype_of(node) in INTEGERS and exponent.dtype == "uint64":
        return "an integer to the power of uint64 is not implemented, only of int64"
    return None


POWER = Formula.of(7, (*FLOATS64, "int32", "int64"), _power, when=_fits)
