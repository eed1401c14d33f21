"""
Stacks of float32 products by register tiles, both sides packed as each is multiplied.

Stacks of small matrices are divided among threads whole; left rows are packed in stacks of
``ROWS``, the right matrix in panels of ``COLUMNS`` columns, one panel at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.atomics import floats
from seamline_cpu.commands import bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.panels import pack_panel
from seamline_cpu.tiles import COLUMNS, ROWS, dot_tile

__all__ = ["pack_rows", "stacked"]

f4 = np.float32
_SHARED_FROM = 1 << 18  # multiply-adds from which more threads pay
_SPARE = ROWS * COLUMNS + ROWS  # floats: a tile that is cut, and zeros to start from
(_A, _B, _Y, _M, _K, _N, _LEFT, _STRIDE, _COUNT, _RIGHT, _A_0, _A_1, _A_2, _B_0, _B_1,
 _B_2) = range(16)  # fmt: skip


@jit
def pack_rows(a: Any, down: int, along: int, rows: int, depth: int, out: Any) -> None:
    """Write up to ``ROWS`` rows of ``a`` as (depth, ROWS), zeros past the end."""
    if rows >= ROWS and along == 1:
        for k in range(depth):
            for r in range(ROWS):  # unrolled: a run of neighbours is written
                out[k * ROWS + r] = a[r * down + k]
        return
    for r in range(ROWS):
        if r >= rows:
            for k in range(depth):
                out[k * ROWS + r] = f4(0.0)
        elif along == 1:
            for k in range(depth):
                out[k * ROWS + r] = a[r * down + k]
        else:
            for k in range(depth):
                out[k * ROWS + r] = a[r * down + k * along]


@jit
def _tile(left: int, right: int, depth: int, rows: int, columns: int, spare: int, y: int,
          pitch: int) -> None:  # fmt: skip
    """Write one tile at address ``y``, cut to ``rows`` and ``columns``."""
    zeros = spare + 4 * ROWS * COLUMNS
    if rows >= ROWS and columns >= COLUMNS:
        dot_tile(left, right, depth, zeros, y, pitch)
        return
    dot_tile(left, right, depth, zeros, spare, 4 * COLUMNS)
    for r in range(min(rows, ROWS)):
        source, target = floats(spare + 4 * r * COLUMNS), floats(y + r * pitch)
        for j in range(min(columns, COLUMNS)):
            target[j] = source[j]


@command
def _stacked(a: Any, share: int, shares: int) -> None:
    """Multiply matrix by matrix of two stacks."""
    m, depth, n, count = a[_M], a[_K], a[_N], a[_COUNT]
    left = a[_LEFT] + share * a[_STRIDE]
    right, spare = left + a[_RIGHT], left + a[_STRIDE] - 4 * _SPARE
    size = 4 * ROWS * depth
    rows = (m + ROWS - 1) // ROWS
    for i in range(count * share // shares, count * (share + 1) // shares):
        for r in range(rows):
            source = floats(a[_A] + 4 * (i * a[_A_0] + r * ROWS * a[_A_1]))
            pack_rows(
                source, a[_A_1], a[_A_2], m - r * ROWS, depth, floats(left + r * size)
            )
        for column in range(0, n, COLUMNS):
            source = a[_B] + 4 * (i * a[_B_0] + column * a[_B_2])
            pack_panel(source, a[_B_1], a[_B_2], n - column, depth, right)
            for r in range(rows):
                y = a[_Y] + 4 * ((i * m + r * ROWS) * n + column)
                _tile(
                    left + r * size,
                    right,
                    depth,
                    m - r * ROWS,
                    n - column,
                    spare,
                    y,
                    4 * n,
                )


def _strides(x: Array) -> list[int]:
    return [s // 4 for s in x.strides]


def stacked(a: Array, b: Array, y: Array, threads: int) -> Run:
    """Bind ``y[i] = a[i] @ b[i]``; the strides of ``a`` and ``b`` may be any."""
    count, m, depth = a.shape
    n = b.shape[2]
    shares = min(threads, count) if a.size * n >= _SHARED_FROM else 1
    right = -(-m // ROWS) * ROWS * depth
    stride = right + depth * COLUMNS + _SPARE
    scratch = np.zeros((shares, stride), f4)
    arguments = [a.ctypes.data, b.ctypes.data, y.ctypes.data, m, depth, n,
                 scratch.ctypes.data, 4 * stride, count, 4 * right, *_strides(a),
                 *_strides(b)]  # fmt: skip
    return bind(_stacked, arguments, shares, keep=(a, b, y, scratch))
