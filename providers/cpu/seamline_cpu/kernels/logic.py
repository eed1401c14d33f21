"""Comparisons, and operators on truth values and bits; Where."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import ANY, BOOL, INTEGERS, NUMBERS, STRING
from seamline_cpu.kernels.pointwise import (
    MOVING_FROM,
    bind_ufunc,
    in_parallel,
    share_count,
    shared_out,
)
from seamline_cpu.kernels.recorded import moved, only
from seamline_cpu.kernels.typed_commands import COMPARED, bind_comparison, bind_where
from seamline_cpu.table import IN_PYTHON, TABLE

__all__: list[str] = []

_EITHER = ((0, 0), (0, 1))


def _of_ufunc(ufunc: Any, call: Call) -> Run:
    a, b, out = call.inputs[0], call.inputs[1], call.outputs[0]
    native = bind_comparison(call.view.op_type, call, a, b, out)
    return native or bind_ufunc(call, ufunc, a, b)


_UFUNCS: tuple[tuple[str, Any, int, tuple[str, ...]], ...] = (
    ("And", np.logical_and, 7, BOOL),
    ("Or", np.logical_or, 7, BOOL),
    ("Xor", np.logical_xor, 7, BOOL),
    ("BitwiseAnd", np.bitwise_and, 18, INTEGERS),
    ("BitwiseOr", np.bitwise_or, 18, INTEGERS),
    ("BitwiseXor", np.bitwise_xor, 18, INTEGERS),
    ("Equal", np.equal, 7, NUMBERS + BOOL + STRING),
    ("Greater", np.greater, 7, NUMBERS),
    ("GreaterOrEqual", np.greater_equal, 12, NUMBERS),
    ("Less", np.less, 7, NUMBERS),
    ("LessOrEqual", np.less_equal, 12, NUMBERS),
)
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_RECORDED = {
    **dict.fromkeys(_COMPARISONS, only(*COMPARED)),
    **dict.fromkeys(("And", "Or", "Xor"), only("bool")),
}

for _op, _ufunc, _since, _dtypes in _UFUNCS:
    _aliases = () if _op in _COMPARISONS else _EITHER
    _recorded = _RECORDED.get(_op, IN_PYTHON)
    TABLE.kernel(
        _op, since=_since, dtypes=_dtypes, aliases=_aliases, not_capturable=_recorded
    )(functools.partial(_of_ufunc, _ufunc))


@TABLE.kernel("BitShift", since=11, dtypes=INTEGERS, aliases=_EITHER)
def bit_shift(call: Call) -> Run:
    """
    Bind BitShift.

    NumPy's shifts do as opset 28 says: an amount below 0 or of all bits leaves the sign.
    """
    direction = call.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"direction is {direction!r}; it must be 'LEFT' or 'RIGHT'")
    ufunc = np.left_shift if direction == "LEFT" else np.right_shift
    return bind_ufunc(call, ufunc, call.inputs[0], call.inputs[1])


def _choose(condition: Array, x: Array, y: Array, out: Array) -> None:
    np.copyto(out, y)
    np.copyto(out, x, where=condition)


@TABLE.kernel(
    "Where", since=9, dtypes={0: BOOL, 1: ANY}, aliases=((0, 2),), not_capturable=moved
)
def where(call: Call) -> Run:
    """Bind Where: Y, and over it X where the condition holds; all three broadcast."""
    out = call.outputs[0]
    native = bind_where(call, call.inputs[0], call.inputs[1], call.inputs[2], out)
    if native is not None:
        return native
    count = share_count(call, out.size, MOVING_FROM)
    shares = shared_out(out, call.inputs[:3], count)
    return in_parallel([functools.partial(_choose, *share) for share in shares])
