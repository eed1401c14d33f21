"""
Normalization of trailing axes: LayerNormalization and RMSNormalization.

onnxruntime's SimplifiedLayerNormalization is here too, which its exporters also put in
ONNX's own domain; both with a skip connection added first are in :mod:`.skip_normalization`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import FLOATS
from seamline_cpu.atomics import floats
from seamline_cpu.commands import command
from seamline_cpu.kernels.normalization_fitting import unfit_trailing
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.kernels.rows import bind_rows, matrix, sums, threads_of
from seamline_cpu.table import TABLE

__all__ = ["bind_normalization", "layer_norm_row", "rms_norm_row"]

CONTRIB = "com.microsoft"
f4 = np.float32


# ``held`` keeps the row between the passes: a loop that reads x and writes y would not be
# made into vector code where they are one array.


@sums
def layer_norm_row(x: Any, w: Any, b: Any, eps: Any, y: Any, held: Any) -> Any:
    """Write ``(x - mean) / sqrt(var + eps) * w + b``; give mean and factor."""
    n = x.shape[0]
    total = f4(0.0)
    for j in range(n):
        total += x[j]
    mean = f4(total / f4(n))
    total = f4(0.0)
    for j in range(n):
        d = x[j] - mean
        held[j] = d
        total += d * d
    inv = f4(1.0) / np.sqrt(f4(total / f4(n)) + eps)
    for j in range(n):
        y[j] = held[j] * inv * w[j] + b[j]
    return mean, inv


@sums
def rms_norm_row(x: Any, w: Any, eps: Any, y: Any, held: Any) -> Any:
    """Write ``x / sqrt(mean(x * x) + eps) * w``; give the factor."""
    n = x.shape[0]
    total = f4(0.0)
    for j in range(n):
        held[j] = x[j]
        total += x[j] * x[j]
    inv = f4(1.0) / np.sqrt(f4(total / f4(n)) + eps)
    for j in range(n):
        y[j] = held[j] * inv * w[j]
    return inv


@command
def _layer_norm_rows(a: Any, share: int, shares: int) -> None:
    """Arguments: rows, n, addresses of x, w, b, epsilon, y, means, factors, scratch."""
    rows, n = a[0], a[1]
    x, y = matrix(floats(a[2]), rows, n), matrix(floats(a[6]), rows, n)
    w, b = matrix(floats(a[3]), 1, n)[0], matrix(floats(a[4]), 1, n)[0]
    eps, means, factors = floats(a[5])[0], floats(a[7]), floats(a[8])
    held = matrix(floats(a[9]), shares, n)[share]
    for i in range(rows * share // shares, rows * (share + 1) // shares):
        means[i], factors[i] = layer_norm_row(x[i], w, b, eps, y[i], held)


@command
def _rms_norm_rows(a: Any, share: int, shares: int) -> None:
    """Arguments: rows, n, addresses of x, w, epsilon, y, factors and scratch."""
    rows, n = a[0], a[1]
    x, y = matrix(floats(a[2]), rows, n), matrix(floats(a[5]), rows, n)
    w, eps, factors = matrix(floats(a[3]), 1, n)[0], floats(a[4])[0], floats(a[6])
    held = matrix(floats(a[7]), shares, n)[share]
    for i in range(rows * share // shares, rows * (share + 1) // shares):
        factors[i] = rms_norm_row(x[i], w, eps, y[i], held)


def _normalize(
    x: Array, shape: tuple[int, ...], w: Array | None, b: Array | None, eps: float,
    centred: bool, y: Array, mean: Array | None, inv: Array | None,
) -> None:  # fmt: skip
    """
    Normalize rows of any float dtype, in the wider of it and float32.

    ``w`` and ``b`` broadcast against ``shape``, that of ``y``; the rows are flat.
    """
    wide = np.promote_types(x.dtype, f4) if x.dtype.kind == "f" else np.dtype(f4)
    rows = x.astype(wide)
    if centred:
        middle = rows.mean(axis=1, keepdims=True)
        rows -= middle
        if mean is not None:
            mean[...] = middle[:, 0]
    scale = 1 / np.sqrt(np.square(rows).mean(axis=1, keepdims=True) + wide.type(eps))
    if inv is not None:
        inv[...] = scale[:, 0]
    rows *= scale
    rows = rows.reshape(shape)
    if w is not None:
        rows *= w.astype(wide)
    if b is not None:
        rows += b.astype(wide)
    y[...] = rows


def _fill(statistics: list[Array]) -> None:
    for one in statistics:
        one.fill(np.nan)


def _flat(array: Array | None) -> Array | None:
    return None if array is None else array.reshape(-1)


def bind_normalization(
    call: Call, x: Array, y: Array, w: Array | None, b: Array | None, axis: int,
    mean: Array | None, inv: Array | None, centred: bool, eps: float = 1e-5,
) -> Run:  # fmt: skip
    """Bind one normalization of the axes from ``axis`` on."""
    if not -x.ndim <= axis < max(x.ndim, 1):
        raise ValueError(f"axis {axis} is outside rank {x.ndim}")
    if x.size == 0:  # a statistic of nothing is no number
        return functools.partial(_fill, [v for v in (mean, inv) if v is not None])
    axis = axis % x.ndim if x.ndim else 0
    outer, n = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    rows, mean, inv = x.reshape(outer, n), _flat(mean), _flat(inv)
    eps = float(call.attr("epsilon", eps))
    floats = all(v is None or v.dtype == f4 for v in (x, y, w, b, mean, inv))
    plain = all(v is None or v.shape in ((n,), x.shape[axis:]) for v in (w, b))
    if not (floats and plain):
        shape = x.shape
        return functools.partial(
            _normalize, rows, shape, w, b, eps, centred, y, mean, inv
        )
    w = np.ones(n, f4) if w is None else w.reshape(n)
    mean = np.empty(outer, f4) if mean is None else mean
    inv = np.empty(outer, f4) if inv is None else inv
    out = y.reshape(outer, n)
    small, threads = np.array([eps], f4), threads_of(call.options)
    held = np.empty((threads, n), f4)
    if not centred:
        arrays = (rows, w, small, out, inv, held)
        return bind_rows(_rms_norm_rows, outer, n, arrays, x.size * 2, threads)
    b = np.zeros(n, f4) if b is None else b.reshape(n)
    every = (rows, w, b, small, out, mean, inv, held)
    return bind_rows(_layer_norm_rows, outer, n, every, x.size * 2, threads)


@TABLE.kernel(
    "LayerNormalization", since=17, dtypes={0: FLOATS, 1: FLOATS}, aliases=((0, 0),),
    when=unfit_trailing, not_capturable=OF_FLOAT32,
)  # fmt: skip
def layer_normalization(call: Call) -> Run:
    """Bind LayerNormalization; statistics are made in float32 or wider."""
    x, w, b = call.input(0), call.input(1), call.input(2)
    axis, mean, inv = call.attr("axis", -1), call.output(1), call.output(2)
    return bind_normalization(call, x, call.output(0), w, b, axis, mean, inv, True)


@TABLE.kernel(
    "RMSNormalization", since=23, dtypes={0: FLOATS, 1: FLOATS}, aliases=((0, 0),),
    when=unfit_trailing, not_capturable=OF_FLOAT32,
)  # fmt: skip
def rms_normalization(call: Call) -> Run:
    """Bind RMSNormalization; the mean of squares is made in float32 or wider."""
    x, axis = call.input(0), call.attr("axis", -1)
    return bind_normalization(
        call, x, call.output(0), call.input(1), None, axis, None, None, False
    )


@TABLE.kernel(
    "SimplifiedLayerNormalization", dtypes={0: FLOATS, 1: FLOATS}, aliases=((0, 0),),
    when=unfit_trailing, not_capturable=OF_FLOAT32,
)  # fmt: skip
@TABLE.kernel(
    "SimplifiedLayerNormalization", domain=CONTRIB, dtypes={0: FLOATS, 1: FLOATS},
    aliases=((0, 0),), when=unfit_trailing, not_capturable=OF_FLOAT32,
)  # fmt: skip
def simplified_layer_normalization(call: Call) -> Run:
    """Bind onnxruntime's name for RMS normalization, with the factor as output 1."""
    x, w, axis = call.input(0), call.input(1), call.attr("axis", -1)
    return bind_normalization(
        call, x, call.output(0), w, None, axis, None, call.output(1), False
    )
