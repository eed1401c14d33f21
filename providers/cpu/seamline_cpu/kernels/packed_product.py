"""
float32 products by register tiles, with the right matrix packed once where it is constant.

BLAS packs its right matrix anew in every call, which costs as much as the product when
the left one has few rows. Here a constant is packed for the session, in panels of
``COLUMNS`` columns; rows of the left matrix are packed a block at a time, so that a block
stays in a core's cache while every panel passes by. Stacks of small matrices are
divided among threads whole, which BLAS does not do.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import share_of
from seamline_cpu.pool import run_shares
from seamline_cpu.tiles import COLUMNS, ROWS, dot_tile

__all__ = ["pack_panels", "packed", "packed_nbytes", "stacked"]

f4 = np.float32
_BLOCK = 240 << 10  # bytes of the left matrix packed at once: half of a core's L2
#: Multiply-adds from which a second thread pays.
_SHARED_FROM = 1 << 20


@jit
def _pack_panel(b: Any, column: int, out: Any) -> None:
    """Write ``COLUMNS`` columns from ``column`` on as (K, COLUMNS), zeros past the end."""
    count = min(COLUMNS, b.shape[1] - column)
    if count == COLUMNS:
        for k in range(b.shape[0]):
            for j in range(COLUMNS):
                out[k, j] = b[k, column + j]
        return
    for k in range(b.shape[0]):
        for j in range(COLUMNS):
            out[k, j] = b[k, column + j] if j < count else f4(0.0)


@jit
def _pack_panels(b: Any, out: Any) -> None:
    for panel in range(out.shape[0]):
        _pack_panel(b, panel * COLUMNS, out[panel])


@jit
def _pack_rows(a: Any, first: int, out: Any) -> None:
    """Write rows from ``first`` on as (panels, K, ROWS), zeros past the end."""
    for panel in range(out.shape[0]):
        for r in range(ROWS):
            row = first + panel * ROWS + r
            if row < a.shape[0]:
                for k in range(a.shape[1]):
                    out[panel, k, r] = a[row, k]
            else:
                for k in range(a.shape[1]):
                    out[panel, k, r] = f4(0.0)


@jit
def _tiles(left: Any, right: Any, first: int, column: int, spare: Any, y: Any) -> None:
    """Write the tiles of packed rows, the first being row ``first``, and one panel."""
    m, n, depth = y.shape[0], y.shape[1], right.shape[0]
    zeros = spare.ctypes.data + 4 * ROWS * COLUMNS
    whole = column + COLUMNS <= n
    for panel in range(left.shape[0]):
        row = first + panel * ROWS
        a = left.ctypes.data + 4 * ROWS * depth * panel
        b = right.ctypes.data
        if whole and row + ROWS <= m:
            target = y.ctypes.data + 4 * (row * n + column)
            dot_tile(a, b, depth, zeros, target, 4 * n)
            continue
        dot_tile(a, b, depth, zeros, spare.ctypes.data, 4 * COLUMNS)
        for r in range(min(ROWS, m - row)):
            for j in range(min(COLUMNS, n - column)):
                y[row + r, column + j] = spare[r, j]


@jit
def _multiply_packed(
    a: Any, panels: Any, y: Any, first: int, end: int, first_panel: int, end_panel: int
) -> None:
    """Multiply row panels ``first`` to ``end`` by column panels of the packed matrix."""
    depth = a.shape[1]
    spare = np.zeros((ROWS + 1, COLUMNS), f4)
    block = max(1, min(_BLOCK // (4 * ROWS * max(depth, 1)), end - first))
    left = np.empty((block, depth, ROWS), f4)
    for start in range(first, end, block):
        part = left[: min(block, end - start)]
        _pack_rows(a, start * ROWS, part)
        for panel in range(first_panel, end_panel):
            _tiles(part, panels[panel], start * ROWS, panel * COLUMNS, spare, y)


@jit
def _multiply_stack(a: Any, b: Any, y: Any, first: int, end: int) -> None:
    """Multiply matrices ``first`` to ``end`` of two stacks."""
    depth = a.shape[2]
    spare = np.zeros((ROWS + 1, COLUMNS), f4)
    left = np.empty(((a.shape[1] + ROWS - 1) // ROWS, depth, ROWS), f4)
    right = np.empty((depth, COLUMNS), f4)
    for i in range(first, end):
        _pack_rows(a[i], 0, left)
        for column in range(0, y.shape[2], COLUMNS):
            _pack_panel(b[i], column, right)
            _tiles(left, right, 0, column, spare, y[i])


def packed_nbytes(b: Array) -> int:
    """Give the bytes that a packed matrix takes."""
    return 4 * b.shape[0] * COLUMNS * -(-b.shape[1] // COLUMNS)


def pack_panels(b: Array) -> Array:
    """Give (K, N) as (panels, K, COLUMNS), padded with zeros."""
    out = np.empty((-(-b.shape[1] // COLUMNS), b.shape[0], COLUMNS), f4)
    _pack_panels(b, out)
    return out


def packed(a: Array, panels: Array, y: Array, threads: int) -> Run:
    """Bind ``y = a @ b`` for (M, K), packed (K, N) and a contiguous (M, N)."""
    rows, columns = -(-a.shape[0] // ROWS), len(panels)
    if threads <= 1 or y.size * a.shape[1] < _SHARED_FROM:
        return functools.partial(_multiply_packed, a, panels, y, 0, rows, 0, columns)
    if rows >= 4 * threads or (rows >= threads and rows % threads == 0):

        def one(share: int, shares: int) -> None:
            part = share_of(share, shares, rows)
            _multiply_packed(a, panels, y, *part, 0, columns)
    else:

        def one(share: int, shares: int) -> None:
            part = share_of(share, shares, columns)
            _multiply_packed(a, panels, y, 0, rows, *part)

    return functools.partial(run_shares, one, threads)


def stacked(a: Array, b: Array, y: Array, threads: int) -> Run:
    """Bind ``y[i] = a[i] @ b[i]``; the strides of ``a`` and ``b`` may be any."""
    if threads <= 1 or y.size * a.shape[2] < _SHARED_FROM or len(y) < threads:
        return functools.partial(_multiply_stack, a, b, y, 0, len(y))

    def one(share: int, shares: int) -> None:
        _multiply_stack(a, b, y, *share_of(share, shares, len(y)))

    return functools.partial(run_shares, one, threads)
