"""
Normalization of trailing axes: LayerNormalization, RMSNormalization and their fusions.

onnxruntime's forms are here too: SimplifiedLayerNormalization (which its exporters also
put in ONNX's own domain), and both with a skip connection added first.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import FLOATS
from seamline_cpu.kernels.rows import row_kernel, sums, threads_of
from seamline_cpu.table import TABLE

__all__ = ["layer_norm_rows", "rms_norm_rows"]

CONTRIB = "com.microsoft"
f4 = np.float32


@sums
def layer_norm_rows(
    x: Any,
    w: Any,
    b: Any,
    eps: float,
    y: Any,
    mean: Any,
    inv: Any,
    first: int,
    end: int,
) -> None:
    """Write ``(x - mean) / sqrt(var + eps) * w + b`` of float32 rows, and statistics."""
    n = x.shape[1]
    for i in range(first, end):
        total = f4(0.0)
        for j in range(n):
            total += x[i, j]
        m = f4(total / f4(n))
        total = f4(0.0)
        for j in range(n):
            d = x[i, j] - m
            total += d * d
        s = f4(1.0) / np.sqrt(f4(total / f4(n)) + f4(eps))
        mean[i] = m
        inv[i] = s
        for j in range(n):
            y[i, j] = (x[i, j] - m) * s * w[j] + b[j]


@sums
def rms_norm_rows(
    x: Any, w: Any, eps: float, y: Any, inv: Any, first: int, end: int
) -> None:
    """Write ``x / sqrt(mean(x * x) + eps) * w`` of float32 rows, and the factor."""
    n = x.shape[1]
    for i in range(first, end):
        total = f4(0.0)
        for j in range(n):
            total += x[i, j] * x[i, j]
        s = f4(1.0) / np.sqrt(f4(total / f4(n)) + f4(eps))
        inv[i] = s
        for j in range(n):
            y[i, j] = x[i, j] * s * w[j]


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


def _flat(array: Array | None) -> Array | None:
    return None if array is None else array.reshape(-1)


def _bind(
    call: Call, x: Array, y: Array, w: Array | None, b: Array | None, axis: int,
    mean: Array | None, inv: Array | None, centred: bool, eps: float = 1e-5,
) -> Run:  # fmt: skip
    """Bind one normalization of the axes from ``axis`` on."""
    if not -x.ndim <= axis < max(x.ndim, 1):
        raise ValueError(f"axis {axis} is outside rank {x.ndim}")
    if x.size == 0:
        return lambda: None
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
    arrays: tuple[Any, ...] = (rows, w, f4(eps), out, inv)
    if centred:
        b = np.zeros(n, f4) if b is None else b.reshape(n)
        arrays = (rows, w, b, f4(eps), out, mean, inv)
    kernel = layer_norm_rows if centred else rms_norm_rows
    return row_kernel(kernel, arrays, outer, x.size * 2, threads_of(call.options))


@TABLE.kernel(
    "LayerNormalization", since=17, dtypes={0: FLOATS, 1: FLOATS}, aliases=((0, 0),)
)  # fmt: skip
def layer_normalization(call: Call) -> Run:
    """Bind LayerNormalization; statistics are made in float32 or wider."""
    x, w, b = call.input(0), call.input(1), call.input(2)
    axis, mean, inv = call.attr("axis", -1), call.output(1), call.output(2)
    return _bind(call, x, call.output(0), w, b, axis, mean, inv, True)


@TABLE.kernel(
    "RMSNormalization", since=23, dtypes={0: FLOATS, 1: FLOATS}, aliases=((0, 0),)
)  # fmt: skip
def rms_normalization(call: Call) -> Run:
    """Bind RMSNormalization; the mean of squares is made in float32 or wider."""
    x, axis = call.input(0), call.attr("axis", -1)
    return _bind(call, x, call.output(0), call.input(1), None, axis, None, None, False)


@TABLE.kernel(
    "SimplifiedLayerNormalization", dtypes={0: FLOATS, 1: FLOATS}, aliases=((0, 0),)
)  # fmt: skip
@TABLE.kernel(
    "SimplifiedLayerNormalization", domain=CONTRIB, dtypes={0: FLOATS, 1: FLOATS},
    aliases=((0, 0),),
)  # fmt: skip
def simplified_layer_normalization(call: Call) -> Run:
    """Bind onnxruntime's name for RMS normalization, with the factor as output 1."""
    x, w, axis = call.input(0), call.input(1), call.attr("axis", -1)
    return _bind(call, x, call.output(0), w, None, axis, None, call.output(1), False)


def _skip(
    call: Call, w: Array, b: Array | None, bias: Array | None, centred: bool
) -> Run:
    x, skip, total = call.input(0), call.input(1), call.output(3)
    if total is None:
        total = np.empty(x.shape, x.dtype)
    skip = skip.reshape((1,) * (x.ndim - skip.ndim) + skip.shape)
    mean = call.output(1) if centred else None
    y, inv = call.output(0), call.output(2)
    norm = _bind(call, total, y, w, b, -1, mean, inv, centred, 1e-12)

    def run() -> None:
        np.add(x, skip, out=total)
        if bias is not None:
            np.add(total, bias, out=total)
        norm()

    return run


@TABLE.kernel("SkipLayerNormalization", domain=CONTRIB, dtypes=FLOATS)
def skip_layer_normalization(call: Call) -> Run:
    """Bind ``LayerNormalization(input + skip + bias)``; output 3 is the sum."""
    return _skip(call, call.input(2), call.input(3), call.input(4), True)


@TABLE.kernel("SkipSimplifiedLayerNormalization", domain=CONTRIB, dtypes=FLOATS)
def skip_simplified_layer_normalization(call: Call) -> Run:
    """Bind ``RMSNormalization(input + skip + bias)``; output 3 is the sum."""
    return _skip(call, call.input(2), None, call.input(3), False)
