"""Compiled float32 reductions: over the last axes, and over axes with others behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import max_of_row, sum_of_row, sums

__all__ = ["LAST_AXES", "MIDDLE_AXIS"]

f4, i4 = np.float32, np.int32


@jit
def _sum(x: Any, y: Any, first: int, end: int) -> None:
    for i in range(first, end):
        y[i] = sum_of_row(x[i])


@jit
def _mean(x: Any, y: Any, first: int, end: int) -> None:
    for i in range(first, end):
        y[i] = sum_of_row(x[i]) / f4(x.shape[1])


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
def _sum_square(x: Any, y: Any, first: int, end: int) -> None:
    for i in range(first, end):
        y[i] = _squares_of_row(x[i])


@jit
def _l1(x: Any, y: Any, first: int, end: int) -> None:
    for i in range(first, end):
        y[i] = _sizes_of_row(x[i])


@jit
def _l2(x: Any, y: Any, first: int, end: int) -> None:
    for i in range(first, end):
        y[i] = np.sqrt(_squares_of_row(x[i]))


@jit
def _negative_nan(bits: Any) -> Any:
    """Tell whether a row of int32 bits holds a float32 NaN with its sign set."""
    least = i4(0)
    for j in range(bits.shape[0]):
        # Bits of -inf are 0xFF800000; NaNs with the sign lie above it, as unsigned.
        v = i4(bits[j] ^ i4(-2147483648))
        least = v if v > least else least
    return least > i4(0x7F800000)


@jit
def _max(bits: Any, y: Any, first: int, end: int) -> None:
    for i in range(first, end):
        y[i] = f4(np.nan) if _negative_nan(bits[i]) else max_of_row(bits[i])


@jit
def _min(bits: Any, y: Any, first: int, end: int) -> None:
    for i in range(first, end):
        row = bits[i]
        least, wrong = i4(2147483647), i4(0)
        for j in range(row.shape[0]):
            b = row[j]
            size = i4(b & i4(0x7FFFFFFF))
            key = i4(b ^ i4(i4(b >> i4(31)) & i4(0x7FFFFFFF)))
            least = key if key < least else least
            wrong = size if size > wrong else wrong
        if wrong > i4(0x7F800000):
            y[i] = f4(np.nan)
        else:
            found = i4(least ^ i4(i4(least >> i4(31)) & i4(0x7FFFFFFF)))
            y[i] = i4(found).view(np.float32)


@jit
def _add_middle(x: Any, y: Any, first: int, end: int) -> None:
    for i in range(first, end):
        for j in range(y.shape[1]):
            y[i, j] = x[i, 0, j]
        for k in range(1, x.shape[1]):
            for j in range(y.shape[1]):
                y[i, j] += x[i, k, j]


@jit
def _mean_middle(x: Any, y: Any, first: int, end: int) -> None:
    _add_middle(x, y, first, end)
    for i in range(first, end):
        for j in range(y.shape[1]):
            y[i, j] /= f4(x.shape[1])


#: (rows, n) -> rows; Max and Min take the rows' bits as int32.
LAST_AXES: dict[str, Callable[..., None]] = {
    "Sum": _sum, "Mean": _mean, "SumSquare": _sum_square, "L1": _l1, "L2": _l2,
    "Max": _max, "Min": _min,
}  # fmt: skip
#: (outer, n, inner) -> (outer, inner)
MIDDLE_AXIS: dict[str, Callable[..., None]] = {"Sum": _add_middle, "Mean": _mean_middle}
