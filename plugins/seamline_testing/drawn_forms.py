"""How the inputs of each operator are drawn; see :mod:`seamline_testing.drawing`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from seamline.provider import Array
from seamline_testing.drawing import Drawer, Drawn, Inputs

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


def _ints(*values: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def _unary(d: Drawer) -> Inputs:
    least = 1 if d.operator == "NonZero" else 0
    # Whether a default such as 0.01 is that number or the float32 nearest to it is left
    # open, and shows in float64 alone; what a model says itself is a float32.
    said = {"alpha": 0.3} if d.dtype == np.float64 and d.operator in _INEXACT else {}
    return [d.values(d.shape(least))], said


def _binary(d: Drawer) -> Inputs:
    first, second = d.broadcasting(2)
    x = d.values(first)
    attributes = {"fmod": 1} if d.operator == "Mod" and d.dtype.kind not in "iu" else {}
    again = d.draw(st.booleans())  # the same array twice
    return [x, x if again else d.values(second)], attributes


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
    inputs = [d.values(shape)] + ([_ints(*chosen)] if chosen else [])
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
    m, k, n = (int(d.draw(st.integers(0, 6))) for _ in range(3))
    left, right = d.broadcasting(2)
    left, right = left[-2:], right[-2:]
    kind = d.pick("both", "row", "column", "dot")
    first = (k,) if kind in ("row", "dot") else (*left, m, k)
    second = (k,) if kind in ("column", "dot") else (*right, k, n)
    return [d.values(first), d.values(second)], {}


def _gemm(d: Drawer) -> Inputs:
    m, k, n = (int(d.draw(st.integers(1, 6))) for _ in range(3))
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


def _transpose(d: Drawer) -> Inputs:
    shape = d.shape()
    perm = list(d.draw(st.permutations(range(len(shape)))))
    return [d.values(shape)], {"perm": perm} if perm else {}


def _reshape(d: Drawer) -> Inputs:
    shape = d.shape(smallest=1)
    x = d.values(shape)
    to = d.pick((x.size,), (-1,), (1, -1), (*shape[::-1],), (*shape, 1))
    return [x, _ints(*to)], {}


def _flatten(d: Drawer) -> Inputs:
    shape = d.shape()
    return [d.values(shape)], {
        "axis": int(d.draw(st.integers(-len(shape), len(shape))))
    }


def _squeeze(d: Drawer) -> Inputs:
    shape = d.shape(1)
    axes = [axis for axis, size in enumerate(shape) if size == 1]
    return [d.values(shape), *([_ints(*axes)] if axes else [])], {}


def _unsqueeze(d: Drawer) -> Inputs:
    shape = d.shape(most=3)
    return [d.values(shape), _ints(d.axis(len(shape) + 1))], {}


def _concat(d: Drawer) -> Inputs:
    shape = list(d.shape(1))
    axis = d.axis(len(shape))
    inputs: list[Array | None] = []
    for size in d.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)):
        shape[axis] = size
        inputs.append(d.values(tuple(shape)))
    return inputs, {"axis": axis}


def _split(d: Drawer) -> Inputs:
    shape = list(d.shape(1))
    axis = d.axis(len(shape))
    sizes = d.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    shape[axis] = sum(sizes)
    return [d.values(tuple(shape)), _ints(*sizes)], {"axis": axis}


def _slice(d: Drawer) -> Inputs:
    shape = d.shape(1)
    axes = sorted(d.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    bounds = st.one_of(st.integers(-7, 7), st.sampled_from([-(2**63), 2**63 - 1]))
    ends = [[d.draw(bounds) for _ in axes] for _ in range(2)]
    steps = [d.draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in axes]
    return [d.values(shape), *(_ints(*one) for one in (*ends, axes, steps))], {}


def _gather(d: Drawer) -> Inputs:
    shape = d.shape(1, smallest=1)
    axis = d.axis(len(shape))
    return [d.values(shape), d.indices(d.shape(most=2), shape[axis])], {"axis": axis}


def _gather_elements(d: Drawer) -> Inputs:
    shape = d.shape(1, smallest=1)
    axis = d.axis(len(shape))
    wanted = list(shape)
    wanted[axis] = int(d.draw(st.integers(1, 4)))
    return [d.values(shape), d.indices(tuple(wanted), shape[axis])], {"axis": axis}


def _expand(d: Drawer) -> Inputs:
    shape, to = d.broadcasting(2)
    return [d.values(shape), _ints(*to)], {}


def _tile(d: Drawer) -> Inputs:
    shape = d.shape()
    repeats = [int(d.draw(st.integers(0, 3))) for _ in shape]
    return [d.values(shape), _ints(*repeats)], {}


def _pad(d: Drawer) -> Inputs:
    shape = d.shape(1, 3, 2)
    pads = [int(d.draw(st.integers(0, 1))) for _ in range(2 * len(shape))]
    mode = d.pick("constant", "edge", "reflect", "wrap")
    fill = [d.values(())] if mode == "constant" and d.draw(st.booleans()) else []
    return [d.values(shape), _ints(*pads), *fill], {"mode": mode}


def _topk(d: Drawer) -> Inputs:
    shape = d.shape(1, smallest=1)
    axis = d.axis(len(shape))
    k = int(d.draw(st.integers(0, shape[axis])))
    return [d.values(shape), _ints(k)], {"axis": axis, "largest": d.pick(0, 1)}


def _trilu(d: Drawer) -> Inputs:
    k = np.asarray(d.draw(st.integers(-4, 4)), np.int64)
    return [d.values(d.shape(2)), k], {"upper": d.pick(0, 1)}


def _layer_normalization(d: Drawer) -> Inputs:
    shape = d.shape(1, smallest=1)
    axis = int(d.draw(st.integers(0, len(shape) - 1)))
    if int(np.prod(shape[axis:])) < 2:  # one element has no spread to divide by
        shape = (*shape[:-1], 5)
    inputs = [d.values(shape), d.values(shape[axis:])]
    if d.operator == "LayerNormalization" and d.draw(st.booleans()):
        inputs.append(d.values(shape[axis:]))
    return list(inputs), {"axis": axis, "epsilon": 0.01}


def _depth(d: Drawer) -> Inputs:
    b, (n, c, h, w) = (
        d.pick(1, 2, 3),
        (int(d.draw(st.integers(0, 3))) for _ in range(4)),
    )
    deep = d.operator == "DepthToSpace"
    shape = (n, c * b * b, h, w) if deep else (n, c, h * b, w * b)
    attributes = (
        {"blocksize": b, "mode": d.pick("DCR", "CRD")} if deep else {"blocksize": b}
    )
    return [d.values(shape)], attributes


#: Operator -> how its inputs are drawn.
FORMS: Mapping[str, Drawn] = {
    **dict.fromkeys(_UNARY.split(), _unary), **dict.fromkeys(_BINARY.split(), _binary),
    **dict.fromkeys(_REDUCTIONS.split(), _reduction), "ArgMax": _place, "ArgMin": _place,
    "Max": _variadic, "Min": _variadic, "Sum": _variadic, "Mean": _variadic,
    "Where": _where, "PRelu": _prelu, "Clip": _clip, "Softmax": _along,
    "LogSoftmax": _along, "Hardmax": _along, "CumSum": _cumsum, "MatMul": _matmul,
    "Gemm": _gemm, "Transpose": _transpose, "Reshape": _reshape, "Flatten": _flatten,
    "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Concat": _concat, "Split": _split,
    "Slice": _slice, "Gather": _gather, "GatherElements": _gather_elements,
    "Expand": _expand, "Tile": _tile, "Pad": _pad, "TopK": _topk, "Trilu": _trilu,
    "LayerNormalization": _layer_normalization, "RMSNormalization": _layer_normalization,
    "DepthToSpace": _depth, "SpaceToDepth": _depth,
}  # fmt: skip
