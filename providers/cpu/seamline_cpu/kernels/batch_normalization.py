"""
Normalization by channel: Batch, Instance, Group, Lp, local response, mean and variance.

Arrays are (N, C, ...). Statistics are made in float32, or in float64 for float64.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import FLOATS
from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import row_kernel, sums, threads_of
from seamline_cpu.table import TABLE

__all__ = ["affine_planes"]

f4 = np.float32


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64) if dtype == np.float64 else np.dtype(f4)


@jit
def affine_planes(x: Any, scale: Any, shift: Any, y: Any, first: int, end: int) -> None:
    """Write ``x * scale + shift`` of (planes, size), one factor for each channel."""
    channels = scale.shape[0]
    for i in range(first, end):
        a, b = scale[i % channels], shift[i % channels]
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * a + b


def _folded(parts: list[Array], eps: float) -> list[Array]:
    """Fold the statistics into one factor and one shift, in float64."""
    s, b, m, v = (np.asarray(p, np.float64) for p in parts)
    factor = s / np.sqrt(v + eps)
    return [factor, b - m * factor]


def _inference(call: Call, eps: float) -> Run:
    x, y, parts = call.input(0), call.output(0), [call.input(i) for i in range(1, 5)]
    wide = _wide(x.dtype)
    channels = x.shape[1] if x.ndim > 1 else 1
    spatial = call.since >= 9 or call.attr("spatial", 1)
    shape = (x.shape[0], -1, math.prod(x.shape[2:])) if spatial else (x.shape[0], -1, 1)
    if x.size == 0:
        return lambda: None
    flat, out = x.reshape(shape), y.reshape(shape)
    count = channels if spatial else flat.shape[1]
    factor, shift = np.empty(count, wide), np.empty(count, wide)
    fixed = all(call.constant(i) is not None for i in range(1, 5))

    def fold() -> None:
        factor[...], shift[...] = (p.ravel() for p in _folded(parts, eps))

    if fixed:
        fold()
    if x.dtype != wide:
        across, along = factor[:, None], shift[:, None]

        def apply() -> object:
            out[...] = flat.astype(wide) * across + along
            return out

        work: Run = apply
    else:
        planes = (flat.shape[0] * flat.shape[1], flat.shape[2])
        arrays = (x.reshape(planes), factor, shift, y.reshape(planes))
        threads = threads_of(call.options)
        work = row_kernel(affine_planes, arrays, planes[0], x.size, threads)
    if fixed:
        return work

    def run() -> None:
        fold()
        work()

    return run


def _train(
    x: Array, parts: list[Array], eps: float, momentum: float, outs: list[Array | None]
) -> None:
    """
    Normalize by the batch; outputs 1 and 2 are the running mean and variance.

    BatchNormalization-15: ``running = input * momentum + batch * (1 - momentum)``, with
    the population's variance; Y does not depend on the momentum.
    """
    scale, bias, mean, var = parts
    axes = (0, *range(2, x.ndim))
    wide = x.astype(np.float64)
    now, spread = wide.mean(axis=axes), wide.var(axis=axes)
    running = [
        p.astype(np.float64) * momentum + q * (1 - momentum)
        for p, q in ((mean, now), (var, spread))
    ]
    factor, shift = _folded([scale, bias, now, spread], eps)
    across = (slice(None), *(None,) * (x.ndim - 2))
    for out, value in zip(
        outs, (wide * factor[across] + shift[across], *running), strict=False
    ):
        if out is not None:
            out[...] = value


def _old_training(view: NodeView) -> str | None:
    more = [i for i in range(1, 5) if view.has_output(i)]
    if view.since_version < 14 and more:
        return (
            "more than one output asks for training mode, whose running statistics "
            "opset 14 redefined; convert the model to opset 15"
        )
    return None


@TABLE.kernel("BatchNormalization", since=7, dtypes=FLOATS, when=_old_training)
def batch_normalization(call: Call) -> Run:
    """Bind BatchNormalization: one multiplication and one addition an element."""
    eps = float(call.attr("epsilon", 1e-5))
    if not call.attr("training_mode", 0):
        return _inference(call, eps)
    momentum = float(call.attr("momentum", 0.9))
    parts = [call.input(i) for i in range(1, 5)]
    outs = [call.output(i) for i in range(3)]
    return functools.partial(_train, call.input(0), parts, eps, momentum, outs)


@sums
def _standardize_rows(
    x: Any, scale: Any, shift: Any, eps: float, y: Any, first: int, end: int
) -> None:
    """Normalize each (channels, size) group, then scale and shift each channel."""
    groups = scale.shape[0]
    for i in range(first, end):
        block, n = x[i], x.shape[1] * x.shape[2]
        total = block[0, 0] * 0
        for c in range(block.shape[0]):
            for j in range(block.shape[1]):
                total += block[c, j]
        mean = total / n
        total = mean * 0
        for c in range(block.shape[0]):
            for j in range(block.shape[1]):
                d = block[c, j] - mean
                total += d * d
        inv = 1 / np.sqrt(total / n + eps)
        for c in range(block.shape[0]):
            a = scale[i % groups, c] * inv
            b = shift[i % groups, c]
            for j in range(block.shape[1]):
                y[i, c, j] = (block[c, j] - mean) * a + b


def _grouped(call: Call, groups: int, per_group: bool) -> Run:
    """Bind groups of channels; scale and shift are by channel, or (old) by group."""
    x, y, scale, shift = call.input(0), call.output(0), call.input(1), call.input(2)
    channels = x.shape[1]
    if groups < 1 or channels % groups:
        raise ValueError(f"{channels} channels do not divide into {groups} groups")
    if x.size == 0:
        return lambda: None
    each, wide = channels // groups, _wide(x.dtype)
    shape = (x.shape[0] * groups, each, math.prod(x.shape[2:]))
    eps = float(call.attr("epsilon", 1e-5))
    rows = (groups, each)

    def laid(value: Array) -> Array:
        value = value.astype(wide)
        return (
            np.repeat(value, each).reshape(rows) if per_group else value.reshape(rows)
        )

    def run() -> None:
        given = x.reshape(shape).astype(wide, copy=False)
        out = y.reshape(shape) if y.dtype == wide else np.empty(shape, wide)
        arrays = (given, laid(scale), laid(shift), wide.type(eps), out)
        threads = threads_of(call.options)
        row_kernel(_standardize_rows, arrays, shape[0], x.size * 2, threads)()
        if out.base is not y and out.dtype != y.dtype:
            y.reshape(shape)[...] = out

    return run


@TABLE.kernel("InstanceNormalization", since=6, dtypes=FLOATS)
def instance_normalization(call: Call) -> Run:
    """Bind InstanceNormalization: every channel is a group."""
    return _grouped(call, call.input(0).shape[1], False)


@TABLE.kernel("GroupNormalization", since=18, dtypes=FLOATS)
def group_normalization(call: Call) -> Run:
    """Bind GroupNormalization; before opset 21 scale and bias are by group."""
    return _grouped(call, int(call.attr("num_groups")), call.since < 21)


@TABLE.simple("LRN", dtypes=FLOATS)
def lrn(
    x: Array, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Array:
    """Divide by a power of the squares of ``size`` neighbouring channels."""
    wide = x.astype(_wide(x.dtype))
    squares = np.square(wide)
    before, after = (size - 1) // 2, size // 2
    total = np.zeros_like(wide)
    for offset in range(-before, after + 1):
        low, high = max(0, -offset), min(x.shape[1], x.shape[1] - offset)
        if low < high:
            total[:, low:high] += squares[:, low + offset : high + offset]
    power = (bias + (alpha / size) * total) ** beta
    return (wide / power).astype(x.dtype)


@TABLE.simple("LpNormalization", dtypes=FLOATS)
def lp_normalization(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    """Divide by the L1 or L2 norm along an axis; where the norm is zero, give zero."""
    if p not in (1, 2):
        raise ValueError(f"p is {p}; the norm is of order 1 or 2")
    wide = x.astype(_wide(x.dtype))
    norm = np.abs(wide) if p == 1 else np.square(wide)
    norm = norm.sum(axis=axis, keepdims=True)
    norm = norm if p == 1 else np.sqrt(norm)
    return np.asarray(np.where(norm == 0, 0, wide / norm), x.dtype)


@TABLE.simple("MeanVarianceNormalization", since=9, dtypes=FLOATS)
def mean_variance_normalization(
    x: Array, *, axes: tuple[int, ...] = (0, 2, 3)
) -> Array:
    """Subtract the mean and divide by the standard deviation, plus 1e-9 as ONNX says."""
    wide = x.astype(_wide(x.dtype))
    wide -= wide.mean(axis=tuple(axes), keepdims=True)
    std = np.sqrt(np.square(wide).mean(axis=tuple(axes), keepdims=True))
    return (wide / (std + wide.dtype.type(1e-9))).astype(x.dtype)
