"""Compiled float32 reductions: over the last axes, and over axes with others behind."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.atomics import floats, ints, longs
from seamline_cpu.commands import bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import bind_rows, matrix, max_of_row, sum_of_row, sums

__all__ = ["last_axes", "middle_axes", "whole_sums"]

f4, i4 = np.float32, np.int32
_SHARED_FROM = 1 << 16  #: integers from which more threads pay


@sums
def _squares_of_row(x: Any) -> Any:
    total = f4(0.0)
    for j in range(x.shape[0]):
        total += x[j] * x[j]
    return total


@sums
def _sizes_of_row(x: Any) -> Any:
    total = f4(0.0)
    for j in range(x.shape[0]):
        total += abs(x[j])
    return total


@jit
def _largest_of_row(x: Any) -> Any:
    """Give the greatest, or NaN where there is a NaN of either sign."""
    wrong = i4(0)
    for j in range(x.shape[0]):
        size = i4(f4(x[j]).view(np.int32) & i4(0x7FFFFFFF))
        wrong = size if size > wrong else wrong
    return f4(np.nan) if wrong > i4(0x7F800000) else max_of_row(x)


@jit
def _smallest_of_row(x: Any) -> Any:
    """Give the least, or NaN where there is a NaN of either sign."""
    least, wrong = i4(2147483647), i4(0)
    for j in range(x.shape[0]):
        b = f4(x[j]).view(np.int32)
        size = i4(b & i4(0x7FFFFFFF))
        key = i4(b ^ i4(i4(b >> i4(31)) & i4(0x7FFFFFFF)))
        least = key if key < least else least
        wrong = size if size > wrong else wrong
    found = i4(least ^ i4(i4(least >> i4(31)) & i4(0x7FFFFFFF)))
    return f4(np.nan) if wrong > i4(0x7F800000) else i4(found).view(np.float32)


SUM, MEAN, SUM_SQUARE, L1, L2, MAX, MIN = range(7)


@jit
def _reduced(which: int, x: Any) -> Any:
    if which == SUM:
        return sum_of_row(x)
    if which == MEAN:
        return f4(sum_of_row(x) / f4(x.shape[0]))
    if which == SUM_SQUARE:
        return _squares_of_row(x)
    if which == L1:
        return _sizes_of_row(x)
    if which == L2:
        return f4(np.sqrt(_squares_of_row(x)))
    if which == MAX:
        return _largest_of_row(x)
    return _smallest_of_row(x)


@command
def _last_axes(a: Any, share: int, shares: int) -> None:
    """Arguments: rows, n, addresses of x (rows, n), y (rows) and which reduction."""
    rows, n, which = a[0], a[1], longs(a[4])[0]
    x, y = matrix(floats(a[2]), rows, n), floats(a[3])
    for i in range(rows * share // shares, rows * (share + 1) // shares):
        y[i] = _reduced(which, x[i])


@command
def _middle_axes(a: Any, share: int, shares: int) -> None:
    """Arguments: outer, inner, x (outer, n, inner), y (outer, inner), which and n."""
    outer, inner, which, n = a[0], a[1], longs(a[4])[0], longs(a[4])[1]
    x, y = matrix(floats(a[2]), outer * n, inner), matrix(floats(a[3]), outer, inner)
    for i in range(outer * share // shares, outer * (share + 1) // shares):
        for j in range(inner):
            y[i, j] = x[i * n, j]
        for k in range(1, n):
            for j in range(inner):
                y[i, j] += x[i * n + k, j]
        if which == MEAN:
            for j in range(inner):
                y[i, j] /= f4(n)


_LAST = {
    "Sum": SUM, "Mean": MEAN, "SumSquare": SUM_SQUARE, "L1": L1, "L2": L2, "Max": MAX,
    "Min": MIN,
}  # fmt: skip
_MIDDLE = {"Sum": SUM, "Mean": MEAN}


def last_axes(name: str, x: Array, y: Array, threads: int) -> Run | None:
    """Bind ``Reduce<name>`` of (rows, n) to (rows); None where there is no kernel."""
    if name not in _LAST:
        return None
    arrays = (x, y, np.array([_LAST[name]], np.int64))
    rows, n = x.shape
    return bind_rows(_last_axes, rows, n, arrays, x.size, threads)


def middle_axes(name: str, x: Array, y: Array, threads: int) -> Run | None:
    """Bind ``Reduce<name>`` of (outer, n, inner) to (outer, inner), or give None."""
    outer, n, inner = x.shape
    if name not in _MIDDLE or inner < 8:
        return None
    arrays = (x, y, np.array([_MIDDLE[name], n], np.int64))
    return bind_rows(_middle_axes, outer, inner, arrays, x.size, threads)


@command
def _whole_rows(a: Any, share: int, shares: int) -> None:
    """Arguments: rows, n, addresses of x (rows, n) and y (rows), and bytes of an integer."""
    rows, n = a[0], a[1]
    for i in range(rows * share // shares, rows * (share + 1) // shares):
        if a[4] == 8:
            x, total = longs(a[2] + 8 * i * n), np.int64(0)
            for j in range(n):
                total += x[j]
            longs(a[3])[i] = total
        else:
            y, sum_of = ints(a[2] + 4 * i * n), i4(0)
            for j in range(n):
                sum_of = i4(sum_of + y[j])
            ints(a[3])[i] = sum_of


def whole_sums(x: Array, y: Array, threads: int) -> Run:
    """Bind ``ReduceSum`` of (rows, n) integers of 32 or 64 bits, which wrap."""
    rows, n = x.shape
    arguments = [rows, n, x.ctypes.data, y.ctypes.data, x.itemsize]
    shares = min(threads, rows) if x.size >= _SHARED_FROM else 1
    return bind(_whole_rows, arguments, shares, keep=(x, y))
