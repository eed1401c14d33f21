"""Softmax and LogSoftmax: along one axis from opset 13, over the flattened rest before."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import FLOATS
from seamline_cpu.atomics import floats
from seamline_cpu.commands import command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.kernels.rows import (
    bind_rows,
    exp_in_place,
    exp_of_row,
    matrix,
    max_of_row,
    sum_of_row,
    threads_of,
)
from seamline_cpu.table import TABLE

__all__ = ["log_softmax_rows", "softmax_rows"]

f4 = np.float32
_BLOCK = 1024  # floats whose exponentials are made together
_LONG = 64  # floats from which a row fills the registers by itself


@jit
def _softmax_block(x: Any, y: Any, held: Any, flat: Any) -> None:
    """
    Write softmax of a few rows; ``held`` is scratch of their shape, ``flat`` it as one row.

    The exponential runs over all of them at once, so that rows shorter than a vector
    register do not leave it half empty. No loop reads ``x`` and writes ``y``: where they
    are one array it would not be made into vector code.
    """
    for i in range(x.shape[0]):
        most = max_of_row(x[i])
        for j in range(x.shape[1]):
            held[i, j] = x[i, j] - most
    exp_in_place(flat)
    for i in range(x.shape[0]):
        scale = f4(1.0) / sum_of_row(held[i])
        for j in range(x.shape[1]):
            y[i, j] = held[i, j] * scale


@jit
def _softmax_row(x: Any, y: Any) -> None:
    """Write softmax of a row that is long enough by itself; ``y`` may not be ``x``."""
    scale = f4(1.0) / exp_of_row(x, max_of_row(x), y)
    for j in range(x.shape[0]):
        y[j] *= scale


@command
def _softmax_rows(a: Any, share: int, shares: int) -> None:
    """Arguments: rows, n, addresses of x, y, and scratch for each share."""
    rows, n = a[0], a[1]
    first, end = rows * share // shares, rows * (share + 1) // shares
    step = max(1, _BLOCK // n)
    scratch = floats(a[4] + 4 * share * step * n)
    if n >= _LONG:
        held = matrix(scratch, 1, n)[0]
        x, y = matrix(floats(a[2]), rows, n), matrix(floats(a[3]), rows, n)
        for i in range(first, end):
            if a[2] != a[3]:
                _softmax_row(x[i], y[i])
            else:
                _softmax_row(x[i], held)
                for j in range(n):
                    y[i, j] = held[j]
        return
    for start in range(first, end, step):
        count, shift = min(step, end - start), 4 * n * start
        x, y = (
            matrix(floats(a[2] + shift), count, n),
            matrix(floats(a[3] + shift), count, n),
        )
        held, flat = matrix(scratch, count, n), matrix(scratch, 1, count * n)[0]
        _softmax_block(x, y, held, flat)


@command
def _log_softmax_rows(a: Any, share: int, shares: int) -> None:
    """Arguments: rows, n, addresses of x, y, and a row of scratch for each share."""
    rows, n = a[0], a[1]
    x, y = matrix(floats(a[2]), rows, n), matrix(floats(a[3]), rows, n)
    scratch = matrix(floats(a[4]), shares, n)[share]
    for i in range(rows * share // shares, rows * (share + 1) // shares):
        most = max_of_row(x[i])
        low = f4(np.log(exp_of_row(x[i], most, scratch)))
        if a[2] != a[3]:
            for j in range(n):
                y[i, j] = (x[i, j] - most) - low
        else:
            for j in range(n):
                scratch[j] = x[i, j]
            for j in range(n):
                y[i, j] = (scratch[j] - most) - low


def softmax_rows(x: Array, y: Array, threads: int) -> Run:
    """Bind softmax of the rows of a float32 matrix; ``y`` may be ``x``."""
    n = x.shape[1]
    arrays = (x, y, np.empty((threads, max(1, _BLOCK // n) * n), f4))
    return bind_rows(_softmax_rows, len(x), n, arrays, x.size * 4, threads)


def log_softmax_rows(x: Array, y: Array, threads: int) -> Run:
    """Bind log-softmax of the rows of a float32 matrix; ``y`` may be ``x``."""
    arrays = (x, y, np.empty((threads, x.shape[1]), f4))
    return bind_rows(_log_softmax_rows, len(x), x.shape[1], arrays, x.size * 4, threads)


def _softmax(x: Array, y: Array) -> None:
    """Write softmax along the middle axis of (outer, n, inner), in float32 or wider."""
    wide = x if x.itemsize > 2 else x.astype(np.float32)
    e = wide - wide.max(axis=1, keepdims=True)
    np.exp(e, out=e)
    e /= e.sum(axis=1, keepdims=True)
    y[...] = e


def _log_softmax(x: Array, y: Array) -> None:
    """Write log-softmax along the middle axis, in float32 or wider."""
    wide = x if x.itemsize > 2 else x.astype(np.float32)
    low = wide - wide.max(axis=1, keepdims=True)
    low -= np.log(np.exp(low).sum(axis=1, keepdims=True))
    y[...] = low


def _bind(call: Call, rows_of: Callable[..., Run], any_of: Callable[..., None]) -> Run:
    x, y = call.input(0), call.output(0)
    if x.size == 0:
        return lambda: None
    old = call.since < 13
    axis = call.attr("axis", 1 if old else -1)
    rank = x.ndim
    if not -rank <= axis <= (rank if old else max(rank, 1) - 1):
        raise ValueError(f"axis {axis} is outside rank {rank}")
    axis += rank if axis < 0 else 0
    outer = math.prod(x.shape[:axis])
    n = math.prod(x.shape[axis:]) if old else math.prod(x.shape[axis : axis + 1])
    inner = x.size // (outer * n)
    if inner == 1 and x.dtype == np.float32:
        rows = x.reshape(outer, n), y.reshape(outer, n)
        return rows_of(*rows, threads_of(call.options))
    shape = (outer, n, inner)
    return functools.partial(any_of, x.reshape(shape), y.reshape(shape))


@TABLE.kernel("Softmax", dtypes=FLOATS, aliases=((0, 0),), not_capturable=OF_FLOAT32)
def softmax(call: Call) -> Run:
    """Bind Softmax; the greatest value is subtracted first."""
    return _bind(call, softmax_rows, _softmax)


@TABLE.kernel("LogSoftmax", dtypes=FLOATS, aliases=((0, 0),), not_capturable=OF_FLOAT32)
def log_softmax(call: Call) -> Run:
    """Bind LogSoftmax, without taking the logarithm of a rounded softmax."""
    return _bind(call, log_softmax_rows, _log_softmax)
