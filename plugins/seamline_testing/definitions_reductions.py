"""Definitions of operators that work along axes: reductions, places, softmax, sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_testing.operands import NotDefinedError, Operands, define

__all__: list[str] = []


def _axes(op: Operands) -> tuple[int, ...] | None:
    """Give the axes of a reduction; an empty tuple where it reduces nothing."""
    axes = op.ints(1, "axes")
    if axes:
        return tuple(axes)
    if op.get("noop_with_empty_axes", 0):
        return ()
    return None


@define("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")
def _plain(op: Operands) -> Array:
    x, axes = op[0], _axes(op)
    kept: dict[str, Any] = {"axis": axes, "keepdims": bool(op.get("keepdims", 1))}
    if op.op_type == "ReduceSum":
        return np.asarray(np.sum(x, dtype=x.dtype, **kept))
    if op.op_type == "ReduceProd":
        return np.asarray(np.prod(x, dtype=x.dtype, **kept))
    if not x.size:
        raise NotDefinedError("the largest of nothing")
    return np.asarray((np.max if op.op_type == "ReduceMax" else np.min)(x, **kept))


@define(
    "ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
    "ReduceSumSquare",
)  # fmt: skip
def _of_floats(op: Operands) -> Array:
    x, axes = op[0], _axes(op)
    if not op.is_float:
        return _of_integers(op.op_type, x, axes, bool(op.get("keepdims", 1)))
    if not x.size and op.op_type in ("ReduceMean", "ReduceLogSumExp"):
        raise NotDefinedError("the mean of nothing")
    kept: dict[str, Any] = {"axis": axes, "keepdims": bool(op.get("keepdims", 1))}
    if op.op_type == "ReduceMean":
        return np.asarray(np.mean(x, **kept))
    if op.op_type == "ReduceL1":
        return np.asarray(np.sum(np.abs(x), **kept))
    if op.op_type == "ReduceLogSum":
        return np.asarray(np.log(np.sum(x, **kept)))
    if op.op_type == "ReduceLogSumExp":
        return np.asarray(np.logaddexp.reduce(x, **kept))
    squares = np.sum(x * x, **kept)
    return np.asarray(np.sqrt(squares) if op.op_type == "ReduceL2" else squares)


def _of_integers(
    kind: str, x: Array, axes: tuple[int, ...] | None, keepdims: bool
) -> Array:
    if kind not in ("ReduceL1", "ReduceSumSquare"):
        raise NotDefinedError(f"{kind} of integers rounds as it likes")
    terms = np.abs(x) if kind == "ReduceL1" else x * x
    return np.asarray(np.sum(terms, axis=axes, keepdims=keepdims, dtype=x.dtype))


@define("ArgMax", "ArgMin")
def _place(op: Operands) -> Array:
    x, axis = op[0], int(op.get("axis", 0))
    if not x.shape or not x.shape[axis]:
        raise NotDefinedError("the place of the largest of nothing")
    keys = -x if op.op_type == "ArgMin" and x.dtype.kind == "f" else x
    pick = np.argmax if op.op_type == "ArgMax" or x.dtype.kind == "f" else np.argmin
    if op.get("select_last_index", 0):
        place = x.shape[axis] - 1 - pick(np.flip(keys, axis), axis)
    else:
        place = pick(keys, axis)
    kept = np.expand_dims(place, axis) if op.get("keepdims", 1) else place
    return np.asarray(kept, np.int64)


@define("Softmax", "LogSoftmax", "Hardmax")
def _softmax(op: Operands) -> Array:
    x = op[0]
    if op.version >= 13:
        return _softmax_along(op.op_type, x, int(op.get("axis", -1)))
    axis = int(op.get("axis", 1))
    axis += x.ndim if axis < 0 else 0
    rows = int(np.prod(x.shape[:axis]))  # every axis from this one on is one
    flat = x.reshape(rows, -1) if x.size else x.reshape(rows, 0)
    return _softmax_along(op.op_type, flat, -1).reshape(x.shape)


def _softmax_along(kind: str, x: Array, axis: int) -> Array:
    if not x.size:
        return x.copy()
    if kind == "Hardmax":
        first = np.expand_dims(np.argmax(x, axis), axis)
        out = np.zeros_like(x)
        np.put_along_axis(out, first, 1, axis)
        return out
    shifted = x - np.max(x, axis, keepdims=True)
    total = np.sum(np.exp(shifted), axis, keepdims=True)
    if kind == "LogSoftmax":
        return np.asarray(shifted - np.log(total))
    return np.asarray(np.exp(shifted) / total)


@define("CumSum")
def _cumsum(op: Operands) -> Array:
    x, axis = op[0], int(op[1].ravel()[0])
    backwards = bool(op.get("reverse", 0))
    if backwards:
        x = np.flip(x, axis)
    total = np.cumsum(x, axis, dtype=x.dtype)
    if op.get("exclusive", 0):
        total = np.roll(total, 1, axis)
        if total.shape[axis]:
            first = [slice(None)] * total.ndim
            first[axis] = slice(0, 1)
            total[tuple(first)] = 0
    return np.asarray(np.flip(total, axis) if backwards else total)


@define("TopK")
def _topk(op: Operands) -> tuple[Array, Array]:
    x, axis = op[0], int(op.get("axis", -1))
    k = int(op.get("k", 0)) if op.version < 10 else int(op[1].ravel()[0])
    largest = bool(op.get("largest", 1))
    if x.dtype.kind == "f" and np.isnan(x).any():
        raise NotDefinedError("the order of NaN")
    # Sorted by value, then by index upwards, for largest and smallest alike: an
    # ascending stable sort of ranks, so that unsigned and lowest values need no negation.
    ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape).astype(np.int64)
    order = np.argsort(-ranks if largest else ranks, axis, kind="stable")
    place = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, place, axis), place.astype(np.int64)
