"""Definitions of operators that move elements: exact, whatever the type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_testing.operands import NotDefinedError, Operands, define

__all__: list[str] = []


def _moved(op: Operands) -> Array:
    """Give the first input in its own type: a move keeps every bit."""
    value = op.raw[0]
    if value is None:
        raise NotDefinedError("nothing to move")
    return value


@define("Identity")
def _identity(op: Operands) -> Array:
    return _moved(op).copy()


@define("Shape")
def _shape(op: Operands) -> Array:
    shape = np.asarray(_moved(op).shape, np.int64)
    return shape[op.get("start", 0) : op.get("end", None)]


@define("Size")
def _size(op: Operands) -> Array:
    return np.asarray(_moved(op).size, np.int64)


@define("Transpose")
def _transpose(op: Operands) -> Array:
    return np.transpose(_moved(op), op.get("perm", None))


@define("Reshape")
def _reshape(op: Operands) -> Array:
    x, to = _moved(op), op.ints(1, "shape") or []
    if not op.get("allowzero", 0):
        to = [x.shape[i] if size == 0 else size for i, size in enumerate(to)]
    if -1 in to:
        rest = math.prod(size for size in to if size != -1)
        to[to.index(-1)] = x.size // rest if rest else 0
    return x.reshape(to)


@define("Flatten")
def _flatten(op: Operands) -> Array:
    x, axis = _moved(op), int(op.get("axis", 1))
    axis += x.ndim if axis < 0 else 0
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@define("Squeeze")
def _squeeze(op: Operands) -> Array:
    axes = op.ints(1, "axes")
    return np.squeeze(_moved(op), None if axes is None else tuple(axes))


@define("Unsqueeze")
def _unsqueeze(op: Operands) -> Array:
    return np.expand_dims(_moved(op), tuple(op.ints(1, "axes") or ()))


@define("Concat")
def _concat(op: Operands) -> Array:
    if op.version < 4:
        raise NotDefinedError("Concat before version 4")
    values = [value for value in op.raw if value is not None]
    return np.concatenate(values, int(op.get("axis", 0)))


@define("Split")
def _split(op: Operands) -> list[Array]:
    x, axis = _moved(op), int(op.get("axis", 0))
    sizes = op.ints(1, "split")
    if sizes is None:
        parts = int(op.get("num_outputs", op.outputs))
        each = -(-x.shape[axis] // parts)
        sizes = [each] * (parts - 1) + [x.shape[axis] - each * (parts - 1)]
    if min(sizes) < 0:
        raise NotDefinedError("a last part of negative size")
    return np.split(x, np.cumsum(sizes)[:-1], axis)


@define("Slice")
def _slice(op: Operands) -> Array:
    x = _moved(op)
    starts, ends = op.ints(1, "starts") or [], op.ints(2, "ends") or []
    axes = op.ints(3, "axes") or list(range(len(starts)))
    steps = op.ints(4, "steps") or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        x = np.take(x, _walk(x.shape[axis], start, end, step), axis)
    return x


def _walk(n: int, start: int, end: int, step: int) -> list[int]:
    """Walk from start by step while before end, both clamped as the standard says."""
    start, end = start + n * (start < 0), end + n * (end < 0)
    if step > 0:
        return list(range(min(max(start, 0), n), min(max(end, 0), n), step))
    return list(range(min(max(start, 0), n - 1), min(max(end, -1), n - 1), step))


@define("Gather")
def _gather(op: Operands) -> Array:
    return np.take(_moved(op), op[1], int(op.get("axis", 0)))


@define("GatherElements")
def _gather_elements(op: Operands) -> Array:
    x, axis = _moved(op), int(op.get("axis", 0))
    at = op[1].astype(np.int64)
    at = np.where(at < 0, at + x.shape[axis], at)
    if x.shape[:axis] == at.shape[:axis] and at.size:
        index: list[Any] = list(np.indices(at.shape))
        index[axis] = at
        return np.asarray(x[tuple(index)])
    raise NotDefinedError("indices of another shape")


@define("Expand")
def _expand(op: Operands) -> Array:
    x, to = _moved(op), tuple(op.ints(1, "shape") or ())
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, to)).copy()


@define("Tile")
def _tile(op: Operands) -> Array:
    if op.version < 6:
        raise NotDefinedError("Tile before version 6")
    return np.tile(_moved(op), op.ints(1, "repeats") or [])


@define("Pad")
def _pad(op: Operands) -> Array:
    x, pads = _moved(op), op.ints(1, "pads") or []
    axes = op.ints(3, "axes") or list(range(x.ndim))
    mode = str(op.get("mode", "constant"))
    if min(pads, default=0) < 0:
        raise NotDefinedError("negative pads")
    around = [(0, 0)] * x.ndim
    for position, axis in enumerate(axes):
        around[axis] = (pads[position], pads[len(axes) + position])
    if mode == "constant":
        value = op.raw[2] if len(op.raw) > 2 else None
        if value is None and x.dtype.hasobject:
            return np.pad(x, around, constant_values="")
        fill = op.get("value", 0.0) if value is None else value.ravel()[0]
        return np.pad(x, around, constant_values=x.dtype.type(fill))
    if mode not in ("edge", "wrap", "reflect") or not x.size:
        raise NotDefinedError(f"pads of mode {mode}")
    return np.pad(x, around, mode=mode)  # type: ignore[call-overload, no-any-return]


@define("DepthToSpace", "SpaceToDepth")
def _depth(op: Operands) -> Array:
    x, b = _moved(op), int(op.get("blocksize", 1))
    n, c, h, w = x.shape
    if op.op_type == "SpaceToDepth":
        order = (
            (0, 3, 5, 1, 2, 4) if op.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
        )
        parts = x.reshape(n, c, h // b, b, w // b, b).transpose(order)
        return parts.reshape(n, c * b * b, h // b, w // b)
    if op.get("mode", "DCR") == "DCR":
        parts = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // (b * b), h * b, w * b)


@define("Trilu")
def _trilu(op: Operands) -> Array:
    if _moved(op).dtype.hasobject:
        raise NotDefinedError("zero among text")
    k = op.maybe(1)
    keep = np.triu if op.get("upper", 1) else np.tril
    ones = np.ones(_moved(op).shape[-2:], bool)
    shape = keep(ones, 0 if k is None else int(k.ravel()[0]))
    return np.where(shape, _moved(op), _moved(op).dtype.type(0))


@define("NonZero")
def _non_zero(op: Operands) -> Array:
    x = op[0]
    if x.dtype == object or not x.ndim:
        raise NotDefinedError("the places of text, and of a scalar")
    return np.asarray(np.nonzero(x), np.int64)
