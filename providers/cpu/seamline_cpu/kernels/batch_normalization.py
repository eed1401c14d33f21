"""
Normalization by channel: Batch, Instance, Group, Lp, local response, mean and variance.

Arrays are (N, C, ...). Statistics are made in float32, or in float64 for float64.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import FLOATS
from seamline_cpu.atomics import floats, longs
from seamline_cpu.commands import command
from seamline_cpu.kernels.normalization_fitting import unfit_by_channel
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.kernels.rows import bind_rows, matrix, sums, threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

f4 = np.float32


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64) if dtype == np.float64 else np.dtype(f4)


@command
def _affine_planes(a: Any, share: int, shares: int) -> None:
    """Write ``x * scale + shift``; arguments: planes, size, x, y, scale, shift, channels."""
    planes, n, channels = a[0], a[1], longs(a[6])[0]
    x, y = matrix(floats(a[2]), planes, n), matrix(floats(a[3]), planes, n)
    scale, shift = floats(a[4]), floats(a[5])
    for i in range(planes * share // shares, planes * (share + 1) // shares):
        times, plus = scale[i % channels], shift[i % channels]
        for j in range(n):
            y[i, j] = x[i, j] * times + plus


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
    if x.dtype == f4:
        arrays = (x, y, factor, shift, np.array([count], np.int64))
        planes = flat.shape[0] * flat.shape[1]
        threads = threads_of(call.options)
        work: Run = bind_rows(
            _affine_planes, planes, flat.shape[2], arrays, x.size, threads
        )
    else:
        across, along = factor[:, None], shift[:, None]

        def apply() -> None:
            out[...] = flat.astype(wide, copy=False) * across + along

        work = apply
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


_REFUSE = all_of(_old_training, unfit_by_channel(1, 2, 3, 4))


@TABLE.kernel(
    "BatchNormalization",
    since=7,
    dtypes=FLOATS,
    when=_REFUSE,
    not_capturable=OF_FLOAT32,
)
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
def _standardize(block: Any, scale: Any, shift: Any, eps: Any, y: Any) -> None:
    """Normalize one (channels, size) group, then scale and shift each channel."""
    n = f4(block.size)
    total = f4(0.0)
    for c in range(block.shape[0]):
        for j in range(block.shape[1]):
            total += block[c, j]
    mean = f4(total / n)
    total = f4(0.0)
    for c in range(block.shape[0]):
        for j in range(block.shape[1]):
            d = block[c, j] - mean
            total += d * d
    inv = f4(1.0) / np.sqrt(f4(total / n) + eps)
    for c in range(block.shape[0]):
        times = scale[c] * inv
        for j in range(block.shape[1]):
            y[c, j] = (block[c, j] - mean) * times + shift[c]


@command
def _standardize_groups(a: Any, share: int, shares: int) -> None:
    """Arguments: groups, size, x, y, scale, shift, epsilon, (each, groups a sample)."""
    groups, n, each, cycle = a[0], a[1], longs(a[7])[0], longs(a[7])[1]
    eps = floats(a[6])[0]
    for i in range(groups * share // shares, groups * (share + 1) // shares):
        shift = 4 * i * each * n
        x, y = (
            matrix(floats(a[2] + shift), each, n),
            matrix(floats(a[3] + shift), each, n),
        )
        at = 4 * each * (i % cycle)
        scale = matrix(floats(a[4] + at), 1, each)[0]
        _standardize(x, scale, matrix(floats(a[5] + at), 1, each)[0], eps, y)


def _standardize_wide(
    x: Array, parts: list[Array], eps: float, shape: tuple[int, ...], y: Array
) -> None:
    """Normalize (N, groups, channels, size) of any dtype but float32."""
    wide = x.reshape(shape).astype(_wide(x.dtype))
    wide -= wide.mean(axis=(2, 3), keepdims=True)
    wide /= np.sqrt(
        np.square(wide).mean(axis=(2, 3), keepdims=True) + wide.dtype.type(eps)
    )
    scale, shift = (p.astype(wide.dtype).reshape(1, shape[1], -1, 1) for p in parts)
    y[...] = (wide * scale + shift).reshape(y.shape)


def _grouped(call: Call, groups: int, per_group: bool) -> Run:
    """Bind groups of channels; scale and shift are by channel, or (old) by group."""
    x, y, scale, shift = call.input(0), call.output(0), call.input(1), call.input(2)
    channels = x.shape[1]
    if groups < 1 or channels % groups:
        raise ValueError(f"{channels} channels do not divide into {groups} groups")
    if x.size == 0:
        return lambda: None
    each, size = channels // groups, math.prod(x.shape[2:])
    eps = float(call.attr("epsilon", 1e-5))
    if not all(v.dtype == f4 for v in (x, scale, shift)):
        shape = (x.shape[0], groups, each, size)
        return functools.partial(_standardize_wide, x, [scale, shift], eps, shape, y)
    laid = (scale, shift)
    if per_group:
        laid = (np.empty(channels, f4), np.empty(channels, f4))
    small, counts = np.array([eps], f4), np.array([each, groups], np.int64)
    arrays = (x, y, *laid, small, counts)
    threads = threads_of(call.options)
    rows = x.shape[0] * groups
    work = bind_rows(_standardize_groups, rows, size, arrays, x.size * 2, threads)
    if not per_group:
        return work

    def run() -> None:
        for value, spread in zip((scale, shift), laid, strict=True):
            spread.reshape(groups, each)[...] = value[:, None]
        work()

    return run


@TABLE.kernel(
    "InstanceNormalization", since=6, dtypes=FLOATS, when=unfit_by_channel(1, 2)
)
def instance_normalization(call: Call) -> Run:
    """Bind InstanceNormalization: every channel is a group."""
    return _grouped(call, call.input(0).shape[1], False)


@TABLE.kernel(
    "GroupNormalization", since=18, dtypes=FLOATS, when=unfit_by_channel(1, 2)
)
def group_normalization(call: Call) -> Run:
    """Bind GroupNormalization; before opset 21 scale and bias are by group."""
    return _grouped(call, int(call.attr("num_groups")), call.since < 21)


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
    return np.asarray(wide / (std + wide.dtype.type(1e-9)), x.dtype)
