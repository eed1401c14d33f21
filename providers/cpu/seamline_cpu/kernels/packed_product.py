"""
float32 products by register tiles, with the right matrix packed once where it is constant.

BLAS packs its right matrix anew in every call, which costs as much as the product when
the left one has few rows. Here a constant is packed for the session, in panels of
``COLUMNS`` columns; rows of the left matrix are packed a block at a time, so that a block
stays in a core's cache while every panel passes by. Stacks of small matrices are
divided among threads whole. These are commands: they share the provider's workers, where
BLAS brings its own, which spin and wait for each other when cores are busy.
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
from seamline_cpu.kernels.panels import pack_panel, pack_panels, packed_nbytes
from seamline_cpu.tiles import COLUMNS, ROWS, dot_tile

__all__ = [
    "SPARE",
    "pack_left",
    "pack_panels",
    "pack_rows",
    "packed",
    "packed_nbytes",
    "stacked",
    "tile",
]

f4 = np.float32
_BLOCK = 240 << 10  # bytes of left rows packed at once: half of a core's second cache
_SHARED_FROM = 1 << 18  # multiply-adds from which more threads pay
SPARE = ROWS * COLUMNS + ROWS  # floats: a tile that is cut, and zeros to start from
(_A, _B, _Y, _M, _K, _N, _ACROSS, _LEFT, _STRIDE, _STEP, _BY_ROWS, _COUNT, _RIGHT, _A_0, _A_1,
 _A_2, _B_0, _B_1, _B_2, _BIAS, _FUNCTION, _NUMBERS, _MORE) = range(23)  # fmt: skip


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
def tile(left: int, right: int, depth: int, rows: int, columns: int, spare: int, y: int,
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


@jit
def _finish(a: Any, row: int, rows: int, column: int, columns: int, block: int) -> None:
    """Do the epilogue of a part of the output."""
    shift = (row * a[_N] + column) * 4
    bias = a[_BIAS] + column * 4 if a[_BIAS] != 0 else 0
    more = a[_MORE] + shift if a[_MORE] != 0 else 0
    if bias != 0 or more != 0 or a[_FUNCTION] != 0:
        finish_rows(
            bias, a[_FUNCTION], a[_NUMBERS], more, a[_Y] + shift, rows, columns, a[_N],
            block, (a[_STRIDE] - 64) // 4 - SPARE,
        )  # fmt: skip


@command
def _packed(a: Any, share: int, shares: int) -> None:
    """Multiply rows by a packed matrix; shares are of the rows, or of the panels."""
    m, depth, n = a[_M], a[_K], a[_N]
    rows, panels = (m + ROWS - 1) // ROWS, (n + COLUMNS - 1) // COLUMNS
    first, end, low, high = 0, rows, 0, panels
    if a[_BY_ROWS]:
        first, end = rows * share // shares, rows * (share + 1) // shares
    else:
        low, high = panels * share // shares, panels * (share + 1) // shares
    left = a[_LEFT] + share * a[_STRIDE]
    spare = left + a[_STRIDE] - 4 * SPARE
    size = 4 * ROWS * depth
    for start in range(first, end, a[_STEP]):
        stop = min(start + a[_STEP], end)
        for r in range(start, stop):
            source = floats(a[_A] + 4 * r * ROWS * a[_ACROSS])
            pack_rows(
                source,
                a[_ACROSS],
                1,
                m - r * ROWS,
                depth,
                floats(left + (r - start) * size),
            )
        for p in range(low, high):
            right = a[_B] + 4 * p * depth * COLUMNS
            for r in range(start, stop):
                y = a[_Y] + 4 * (r * ROWS * n + p * COLUMNS)
                tile(left + (r - start) * size, right, depth, m - r * ROWS,
                      n - p * COLUMNS, spare, y, 4 * n)  # fmt: skip
        begin, column = start * ROWS, low * COLUMNS
        if begin < m and column < n:
            height, width = min(stop * ROWS, m) - begin, min(high * COLUMNS, n) - column
            _finish(a, begin, height, column, width, left)


@command
def _stacked(a: Any, share: int, shares: int) -> None:
    """Multiply matrix by matrix of two stacks."""
    m, depth, n, count = a[_M], a[_K], a[_N], a[_COUNT]
    left = a[_LEFT] + share * a[_STRIDE]
    right, spare = left + a[_RIGHT], left + a[_STRIDE] - 4 * SPARE
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
                tile(
                    left + r * size,
                    right,
                    depth,
                    m - r * ROWS,
                    n - column,
                    spare,
                    y,
                    4 * n,
                )


@jit
def _pack_left(a: int, down: int, m: int, depth: int, out: int) -> None:
    for row in range(0, m, ROWS):
        target = floats(out + 4 * row * depth)
        pack_rows(floats(a + 4 * row * down), down, 1, m - row, depth, target)


def pack_left(a: Array, out: Array) -> None:
    """Write (M, K), of unit inner stride, as (panels, K, ROWS), padded with zeros."""
    m, depth = a.shape
    _pack_left(a.ctypes.data, a.strides[0] // 4, m, depth, out.ctypes.data)


def _strides(x: Array) -> list[int]:
    return [s // 4 for s in x.strides]


def packed(
    a: Array, panels: Array, y: Array, threads: int, epilogue: Epilogue = PLAIN
) -> Run:
    """Bind ``y = a @ b`` for (M, K), packed (K, N) and (M, N), with unit inner strides."""
    (m, depth), n = a.shape, y.shape[1]
    rows = -(-m // ROWS)
    shares = threads if m * depth * n >= _SHARED_FROM else 1
    by_rows = rows >= 4 * shares or (rows >= shares and rows % shares == 0)
    shares = min(shares, rows if by_rows else len(panels))
    step = max(
        1, min(_BLOCK // (4 * ROWS * depth), -(-rows // shares) if by_rows else rows)
    )
    stride = step * ROWS * depth + SPARE
    scratch = np.zeros((shares, stride), f4)
    arguments = [a.ctypes.data, panels.ctypes.data, y.ctypes.data, m, depth, n, _strides(a)[0],
                 scratch.ctypes.data, 4 * stride, step, int(by_rows), *[0] * 8,
                 *epilogue.of_rows]  # fmt: skip
    return bind(_packed, arguments, shares, keep=(a, panels, y, scratch, epilogue))


def stacked(a: Array, b: Array, y: Array, threads: int) -> Run:
    """Bind ``y[i] = a[i] @ b[i]``; the strides of ``a`` and ``b`` may be any."""
    count, m, depth = a.shape
    n = b.shape[2]
    shares = min(threads, count) if a.size * n >= _SHARED_FROM else 1
    right = -(-m // ROWS) * ROWS * depth
    stride = right + depth * COLUMNS + SPARE
    scratch = np.zeros((shares, stride), f4)
    arguments = [a.ctypes.data, b.ctypes.data, y.ctypes.data, m, depth, n, 0,
                 scratch.ctypes.data, 4 * stride, 0, 0, count, 4 * right, *_strides(a),
                 *_strides(b)]  # fmt: skip
    return bind(_stacked, arguments, shares, keep=(a, b, y, scratch))
