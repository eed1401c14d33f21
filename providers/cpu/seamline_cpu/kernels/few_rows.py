"""
float32 products of a few rows with a matrix that is read once, as one command.

Packing the matrix would cost more than these products; shares are runs of its columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.atomics import floats
from seamline_cpu.commands import bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue, finish_rows
from seamline_cpu.kernels.rows import sums

__all__ = ["few_rows"]

f4 = np.float32
_SHARED_FROM = 1 << 18  # multiply-adds from which more threads pay
(_A, _B, _Y, _M, _K, _N, _DOWN, _ALONG, _BLOCKS, _BIAS, _FUNCTION, _NUMBERS, _MORE) = (
    range(13)
)


@sums
def _dot(a: Any, b: Any, n: int) -> Any:
    total = f4(0.0)
    for k in range(n):
        total += a[k] * b[k]
    return total


@sums
def _add_scaled(x: Any, b: Any, down: int, count: int, n: int, y: Any) -> None:
    """Add ``count`` rows of ``b``, each times its value of ``x``, four at a time."""
    whole = count - count % 4
    for k in range(0, whole, 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        at = k * down
        for j in range(n):
            y[j] += (
                x0 * b[at + j]
                + x1 * b[at + down + j]
                + x2 * b[at + 2 * down + j]
                + x3 * b[at + 3 * down + j]
            )
    for k in range(whole, count):
        for j in range(n):
            y[j] += x[k] * b[k * down + j]


@jit
def _by_rows(a: Any, low: int, high: int) -> None:
    """Add rows of a matrix whose columns are neighbours."""
    m, depth, n = a[_M], a[_K], a[_N]
    for i in range(m):
        for j in range(low, high):
            floats(a[_Y])[i * n + j] = f4(0.0)
    for i in range(m):
        y = floats(a[_Y] + 4 * (i * n + low))
        x = floats(a[_A] + 4 * i * depth)
        _add_scaled(x, floats(a[_B] + 4 * low), a[_DOWN], depth, high - low, y)


@command
def _few_rows(a: Any, share: int, shares: int) -> None:
    m, depth, n, along = a[_M], a[_K], a[_N], a[_ALONG]
    low, high = n * share // shares, n * (share + 1) // shares
    if along == 1:
        _by_rows(a, low, high)
    else:
        for j in range(low, high):
            for i in range(m):
                x = floats(a[_A] + 4 * i * depth)
                floats(a[_Y])[i * n + j] = _dot(x, floats(a[_B] + 4 * j * along), depth)
    bias = a[_BIAS] + 4 * low if a[_BIAS] != 0 else 0
    more = a[_MORE] + 4 * low if a[_MORE] != 0 else 0
    if bias != 0 or more != 0 or a[_FUNCTION] != 0:
        finish_rows(
            bias, a[_FUNCTION], a[_NUMBERS], more, a[_Y] + 4 * low, m, high - low, n,
            a[_BLOCKS] + 64 * share, 0,
        )  # fmt: skip


def few_rows(
    a: Array, b: Array, y: Array, threads: int, epilogue: Epilogue = PLAIN
) -> Run:
    """Bind ``y = a @ b`` for a C-contiguous ``a``, and ``b`` of one unit stride."""
    m, depth = a.shape
    n = b.shape[1]
    shares = min(threads, n) if m * b.size >= _SHARED_FROM else 1
    blocks = np.zeros(8 * shares, np.int64)
    arguments = [
        a.ctypes.data, b.ctypes.data, y.ctypes.data, m, depth, n, b.strides[0] // 4,
        b.strides[1] // 4, blocks.ctypes.data, *epilogue.of_rows,
    ]  # fmt: skip
    return bind(_few_rows, arguments, shares, keep=(a, b, y, blocks, epilogue))
