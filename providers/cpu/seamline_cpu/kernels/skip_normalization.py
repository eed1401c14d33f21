"""
onnxruntime's normalizations of a sum: a skip connection and a bias are added first.

``SkipLayerNormalization`` is ``LayerNormalization(input + skip + bias)``, the simplified one
``RMSNormalization`` of it; output 3 is the sum. In float32 a row is added and normalized
while it is in the cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import FLOATS
from seamline_cpu.atomics import floats
from seamline_cpu.commands import bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.layer_normalization import (
    bind_normalization,
    layer_norm_row,
    rms_norm_row,
)
from seamline_cpu.kernels.normalization_fitting import unfit_skip
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.kernels.rows import elementwise, matrix, threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

CONTRIB = "com.microsoft"
f4 = np.float32
_SHARED_FROM = 8192  # elements from which more threads pay
(_ROWS, _N, _X, _SKIP, _PERIOD, _BIAS, _W, _B, _NUMBERS, _TOTAL, _Y, _MEANS, _FACTORS, _HELD,
 _CENTRED) = range(15)  # fmt: skip


@elementwise
def _add(x: Any, skip: Any, total: Any) -> None:
    for j in range(total.size):
        total[j] = x[j] + skip[j]


@elementwise
def _add_onto(bias: Any, total: Any) -> None:
    for j in range(total.size):
        total[j] = total[j] + bias[j]


@jit
def _line(base: int, row: int, n: int) -> Any:
    return matrix(floats(base + 4 * row * n), 1, n)[0]


@command
def _skip_rows(a: Any, share: int, shares: int) -> None:
    rows, n = a[_ROWS], a[_N]
    w, b = _line(a[_W], 0, n), _line(a[_B], 0, n)
    eps, means, factors = floats(a[_NUMBERS])[0], floats(a[_MEANS]), floats(a[_FACTORS])
    held, spare = _line(a[_HELD], 2 * share, n), _line(a[_HELD], 2 * share + 1, n)
    for i in range(rows * share // shares, rows * (share + 1) // shares):
        total = _line(a[_TOTAL], i, n) if a[_TOTAL] != 0 else spare
        _add(_line(a[_X], i, n), _line(a[_SKIP], i % a[_PERIOD], n), total)
        if a[_BIAS] != 0:
            _add_onto(_line(a[_BIAS], 0, n), total)
        y = _line(a[_Y], i, n)
        if a[_CENTRED] != 0:
            means[i], factors[i] = layer_norm_row(total, w, b, eps, y, held)
        else:
            factors[i] = rms_norm_row(total, w, eps, y, held)


def _native(
    call: Call, w: Array, b: Array | None, bias: Array | None, centred: bool
) -> Run | None:
    """Bind the command; None where NumPy has to add."""
    x, skip, y, total = call.input(0), call.input(1), call.output(0), call.output(3)
    mean, inv = call.output(1) if centred else None, call.output(2)
    given = (x, skip, w, b, bias, y, total, mean, inv)
    plain = all(v is None or (v.dtype == f4 and v.flags.c_contiguous) for v in given)
    n = x.shape[-1]
    if not (plain and x.size) or skip.shape not in (
        x.shape,
        x.shape[1:],
        (1, *x.shape[1:]),
    ):
        return None
    rows, threads = math.prod(x.shape[:-1]), threads_of(call.options)
    shares = min(threads, rows) if x.size >= _SHARED_FROM else 1
    b = np.zeros(n, f4) if b is None else b
    mean = np.empty(rows, f4) if mean is None else mean
    inv = np.empty(rows, f4) if inv is None else inv
    held = np.empty((2 * shares, n), f4)
    numbers = np.array([call.attr("epsilon", 1e-12)], f4)
    arguments = [
        rows, n, x.ctypes.data, skip.ctypes.data, skip.size // n,
        0 if bias is None else bias.ctypes.data, w.ctypes.data, b.ctypes.data,
        numbers.ctypes.data, 0 if total is None else total.ctypes.data, y.ctypes.data,
        mean.ctypes.data, inv.ctypes.data, held.ctypes.data, int(centred),
    ]  # fmt: skip
    kept = (*given, b, mean, inv, held, numbers)
    return bind(_skip_rows, arguments, shares, keep=kept)


def _skip(
    call: Call, w: Array, b: Array | None, bias: Array | None, centred: bool
) -> Run:
    if (native := _native(call, w, b, bias, centred)) is not None:
        return native
    x, skip, total = call.input(0), call.input(1), call.output(3)
    if total is None:
        total = np.empty(x.shape, x.dtype)
    skip = skip.reshape((1,) * (x.ndim - skip.ndim) + skip.shape)
    mean = call.output(1) if centred else None
    y, inv = call.output(0), call.output(2)
    norm = bind_normalization(call, total, y, w, b, -1, mean, inv, centred, 1e-12)

    def run() -> None:
        np.add(x, skip, out=total)
        if bias is not None:
            np.add(total, bias, out=total)
        norm()

    return run


@TABLE.kernel(
    "SkipLayerNormalization",
    domain=CONTRIB,
    dtypes=FLOATS,
    when=unfit_skip,
    not_capturable=OF_FLOAT32,
)
def skip_layer_normalization(call: Call) -> Run:
    """Bind ``LayerNormalization(input + skip + bias)``; output 3 is the sum."""
    return _skip(call, call.input(2), call.input(3), call.input(4), True)


@TABLE.kernel(
    "SkipSimplifiedLayerNormalization",
    domain=CONTRIB,
    dtypes=FLOATS,
    when=unfit_skip,
    not_capturable=OF_FLOAT32,
)
def skip_simplified_layer_normalization(call: Call) -> Run:
    """Bind ``RMSNormalization(input + skip + bias)``; output 3 is the sum."""
    return _skip(call, call.input(2), None, call.input(3), False)
