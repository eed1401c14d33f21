"""Softmax and LogSoftmax: along one axis from opset 13, over the flattened rest before."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import FLOATS
from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import (
    exp_row,
    max_of_row,
    row_kernel,
    sum_of_row,
    threads_of,
)
from seamline_cpu.table import TABLE

__all__ = ["log_softmax_rows", "softmax_rows"]


@jit
def softmax_rows(x: Any, bits: Any, y: Any, first: int, end: int) -> None:
    """Write softmax of float32 rows; ``bits`` is ``x`` seen as int32."""
    for i in range(first, end):
        exp_row(x[i], max_of_row(bits[i]), y[i])
        scale = np.float32(1.0) / sum_of_row(y[i])
        for j in range(y.shape[1]):
            y[i, j] *= scale


@jit
def log_softmax_rows(x: Any, bits: Any, y: Any, first: int, end: int) -> None:
    """Write log-softmax of float32 rows; ``bits`` is ``x`` seen as int32."""
    row = np.empty(x.shape[1], np.float32)
    for i in range(first, end):
        most = max_of_row(bits[i])
        exp_row(x[i], most, row)
        low = np.log(sum_of_row(row))
        for j in range(y.shape[1]):
            y[i, j] = (x[i, j] - most) - low


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


def _bind(call: Call, rows_of: Any, any_of: Any) -> Run:
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
        x, y = x.reshape(outer, n), y.reshape(outer, n)
        arrays = (x, x.view(np.int32), y)
        return row_kernel(rows_of, arrays, outer, x.size * 4, threads_of(call.options))
    shape = (outer, n, inner)
    return functools.partial(any_of, x.reshape(shape), y.reshape(shape))


@TABLE.kernel("Softmax", dtypes=FLOATS, aliases=((0, 0),))
def softmax(call: Call) -> Run:
    """Bind Softmax; the greatest value is subtracted first."""
    return _bind(call, softmax_rows, _softmax)


@TABLE.kernel("LogSoftmax", dtypes=FLOATS, aliases=((0, 0),))
def log_softmax(call: Call) -> Run:
    """Bind LogSoftmax, without taking the logarithm of a rounded softmax."""
    return _bind(call, log_softmax_rows, _log_softmax)
