"""
How the inputs of each operator are drawn; see :mod:`seamline_testing.drawing`.

Operators that move elements are in :mod:`seamline_testing.drawn_moves`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from seamline_testing.drawing import Drawer, Drawn, Form, Inputs
from seamline_testing.drawn_moves import MOVES, ints

__all__ = ["FORMS"]

_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor "
    "Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal "
    "Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh "
    "ThresholdedRelu NonZero Shape Size"
)
_BINARY = (
    "Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
    "LessOrEqual Mod Mul Or Pow Sub Xor"
)
_REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
    "ReduceProd ReduceSum ReduceSumSquare"
)

#: Operators with a default that float32 does not hold.
_INEXACT = frozenset({"HardSigmoid", "LeakyRelu"})


_BLOCKS = (67, 129, 35)  #: rows, terms and columns just past the blocks of a product


def _blocks(d: Drawer) -> tuple[int, int, int]:
    return (2, 3, 5) if d.form is Form.DEEP else _BLOCKS


def _unary(d: Drawer) -> Inputs:
    least = 1 if d.operator == "NonZero" else 0
    # Whether a default such as 0.01 is that number or the float32 nearest to it is left
    # open, and shows in float64 alone; what a model says itself is a float32.
    said = {"alpha": 0.3} if d.dtype == np.float64 and d.operator in _INEXACT else {}
    return [d.values(d.shape(least))], said


def _binary(d: Drawer) -> Inputs:
    first, second = d.broadcasting(2)
    x = d.values(first)
    if d.operator in ("Div", "Mod"):
        whole = d.operator == "Mod" and d.dtype.kind in "iu"
        attributes = {"fmod": d.pick(0, 1) if whole else 1}
        said = attributes if d.operator == "Mod" else {}
        return [x, d.divisors(second)], said
    again = d.draw(st.booleans())  # the same array twice
    return [x, x if again else d.values(second)], {}


def _variadic(d: Drawer) -> Inputs:
    shapes = d.broadcasting(int(d.draw(st.integers(1, 4))))
    return [d.values(shape) for shape in shapes], {}


def _where(d: Drawer) -> Inputs:
    c, x, y = d.broadcasting(3)
    return [d.values(c, np.bool_), d.values(x), d.values(y)], {}


def _prelu(d: Drawer) -> Inputs:
    shape = d.shape()
    slope = tuple(d.pick(1, size) for size in shape)
    cut = d.draw(st.integers(0, len(slope)))
    return [d.values(shape), d.values(slope[cut:])], {}


def _clip(d: Drawer) -> Inputs:
    low, high = np.asarray(0, d.dtype), np.asarray(2, d.dtype)
    given = d.pick((low, high), (low,), (None, high), ())
    return [d.values(d.shape()), *given], {}


def _reduction(d: Drawer) -> Inputs:
    shape = d.shape(smallest=0 if d.operator == "ReduceSum" else 1)
    axes = sorted(
        d.draw(st.sets(st.integers(0, max(0, len(shape) - 1)))) if shape else []
    )
    back = bool(d.draw(st.booleans()))
    chosen = [axis - len(shape) * back for axis in axes]
    attributes = {"keepdims": d.pick(0, 1)}
    if not chosen:
        attributes["noop_with_empty_axes"] = d.pick(0, 1)
    inputs = [d.values(shape)] + ([ints(*chosen)] if chosen else [])
    return list(inputs), attributes


def _place(d: Drawer) -> Inputs:
    shape = d.shape(1, smallest=1)
    attributes = {
        "axis": d.axis(len(shape)), "keepdims": d.pick(0, 1),
        "select_last_index": d.pick(0, 1),
    }  # fmt: skip
    return [d.values(shape)], attributes


def _along(d: Drawer) -> Inputs:
    shape = d.shape(1)
    return [d.values(shape)], {"axis": d.axis(len(shape))}


def _cumsum(d: Drawer) -> Inputs:
    shape = d.shape(1)
    attributes = {"exclusive": d.pick(0, 1), "reverse": d.pick(0, 1)}
    return [d.values(shape), np.asarray(d.axis(len(shape)), np.int64)], attributes


def _matmul(d: Drawer) -> Inputs:
    m, k, n = (d.formed(st.integers(0, 6), formed) for formed in _blocks(d))
    left, right = d.broadcasting(2)
    left, right = left[-2:], right[-2:]
    if d.form is not Form.DRAWN:
        left, right = ((2, 3, 1, 3), (3, 1)) if d.form is Form.DEEP else ((), ())
    kind = d.pick("both", "row", "column", "dot")
    first = (k,) if kind in ("row", "dot") else (*left, m, k)
    second = (k,) if kind in ("column", "dot") else (*right, k, n)
    return [d.values(first), d.values(second)], {}


def _gemm(d: Drawer) -> Inputs:
    m, k, n = (d.formed(st.integers(1, 6), formed) for formed in _blocks(d))
    flips = d.pick(0, 1), d.pick(0, 1)
    scales = (
        {}
        if d.dtype.kind in "iu"
        else {"alpha": d.pick(1.0, 0.5), "beta": d.pick(1.0, 2.0)}
    )
    a = d.values((k, m) if flips[0] else (m, k))
    b = d.values((n, k) if flips[1] else (k, n))
    c = d.pick(None, (), (n,), (m, 1), (m, n))
    extra = [] if c is None else [d.values(c)]
    return [a, b, *extra], {"transA": flips[0], "transB": flips[1], **scales}


def _layer_normalization(d: Drawer) -> Inputs:
    shape = d.shape(1, smallest=1)
    axis = int(d.draw(st.integers(0, len(shape) - 1)))
    if int(np.prod(shape[axis:])) < 2:  # one element has no spread to divide by
        shape = (*shape[:-1], 5)
    inputs = [d.values(shape), d.values(shape[axis:])]
    if d.operator == "LayerNormalization" and d.draw(st.booleans()):
        inputs.append(d.values(shape[axis:]))
    return list(inputs), {"axis": axis, "epsilon": 0.01}


#: Operator -> how its inputs are drawn.
FORMS: Mapping[str, Drawn] = {
    **dict.fromkeys(_UNARY.split(), _unary), **dict.fromkeys(_BINARY.split(), _binary),
    **dict.fromkeys(_REDUCTIONS.split(), _reduction), "ArgMax": _place, "ArgMin": _place,
    "Max": _variadic, "Min": _variadic, "Sum": _variadic, "Mean": _variadic,
    "Where": _where, "PRelu": _prelu, "Clip": _clip, "Softmax": _along,
    "LogSoftmax": _along, "Hardmax": _along, "CumSum": _cumsum, "MatMul": _matmul,
    "Gemm": _gemm, "LayerNormalization": _layer_normalization,
    "RMSNormalization": _layer_normalization, **MOVES,
}  # fmt: skip
