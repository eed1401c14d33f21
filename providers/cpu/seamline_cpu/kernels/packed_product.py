"""
float32 products by register tiles, with a right matrix that is packed in panels already.

BLAS packs its right matrix anew in every call, which costs as much as the product when
the left one has few rows. Here a constant is packed for the session, in panels of
``COLUMNS`` columns. K is cut into pieces: a panel's piece fits into a core's first cache,
and the same piece of a block of left rows, which a thread copies to where rows are a
constant number of bytes apart (:mod:`seamline_cpu.row_tiles`), stays in its second cache
while every panel passes by. Threads divide the panels or the rows. These are commands: they
share the provider's workers, where BLAS brings its own, which spin and wait for each other
when cores are busy.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.commands import Command, bind, command
from seamline_cpu.folds import copy_floats
from seamline_cpu.huge_pages import huge
from seamline_cpu.jit import jit
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue, finish_rows
from seamline_cpu.row_tiles import APART, WIDEST, height, row_tile
from seamline_cpu.tiles import COLUMNS, LANES

__all__ = ["packed"]

f4 = np.float32
_PIECE = 256  # most floats of K taken at once
_PITCH = 4 * (_PIECE + APART)
_HIGH = 192  # rows in a block: their piece takes 200 KiB of a core's second cache
_LARGE = 1 << 20  # bytes of a right matrix that threads had better not all read
_ZEROS = 4 * COLUMNS  # bytes that sums begin with
_SHARED_FROM = 1 << 18  # multiply-adds from which more threads pay
(_A, _B, _Y, _M, _K, _N, _ACROSS, _LEFT, _STRIDE, _STEP, _PARTS, _DEEP, _BIAS, _FUNCTION,
 _NUMBERS, _MORE) = range(16)  # fmt: skip


@jit
def _finish(a: Any, row: int, rows: int, column: int, columns: int, block: int) -> None:
    """Do the epilogue of a part of the output."""
    shift = (row * a[_N] + column) * 4
    bias = a[_BIAS] + column * 4 if a[_BIAS] != 0 else 0
    more = a[_MORE] + shift if a[_MORE] != 0 else 0
    if bias != 0 or more != 0 or a[_FUNCTION] != 0:
        finish_rows(
            bias, a[_FUNCTION], a[_NUMBERS], more, a[_Y] + shift, rows, columns, a[_N],
            block, (a[_STRIDE] - _ZEROS - 64) // 4,
        )  # fmt: skip


@functools.cache
def _products(rows: int) -> Command:
    """Give the command whose tiles are so high; shares are of the rows, or of the panels."""
    tile = row_tile(WIDEST, rows, COLUMNS // LANES, _PITCH)

    def run(a: Any, share: int, shares: int) -> None:
        m, depth, n, deep = a[_M], a[_K], a[_N], a[_DEEP]
        panels, heights = (n + COLUMNS - 1) // COLUMNS, (m + rows - 1) // rows
        by_rows = a[_PARTS]
        first, end, low, high = 0, heights, 0, panels
        if by_rows:
            first, end = heights * share // shares, heights * (share + 1) // shares
        else:
            low, high = panels * share // shares, panels * (share + 1) // shares
        left = a[_LEFT] + share * a[_STRIDE]
        zeros = left + a[_STRIDE] - _ZEROS
        end, width = min(end * rows, m), min(high * COLUMNS, n) - low * COLUMNS
        for begin in range(first * rows, end, a[_STEP]):
            count = min(a[_STEP], end - begin)
            y = a[_Y] + 4 * begin * n
            for start in range(0, depth, deep):
                wide = min(deep, depth - start)
                for r in range(count):
                    source = a[_A] + 4 * ((begin + r) * a[_ACROSS] + start)
                    copy_floats(source, left + r * _PITCH, wide)
                for p in range(low, high):
                    right = a[_B] + 4 * COLUMNS * (p * depth + start)
                    for r in range(0, count, rows):
                        to = y + 4 * (r * n + p * COLUMNS)
                        given, pitch = (to, 4 * n) if start > 0 else (zeros, 0)
                        tile(left + r * _PITCH, right, wide, given, pitch, to, 4 * n,
                             count - r, n - p * COLUMNS)  # fmt: skip
            _finish(a, begin, count, low * COLUMNS, width, left)

    return command(run)


def _by_rows(heights: int, panels: int, nbytes: int, shares: int) -> bool:
    """Tell whether threads divide the rows: what takes least of the one that is last."""
    if shares == 1:
        return True
    rows, columns = (-(-n // shares) * shares / n for n in (heights, panels))
    # Either way something is read by all: the matrix, or rows that each thread copies.
    return rows * (1.1 if nbytes > _LARGE else 1.0) <= columns * 1.02


def packed(
    a: Array, panels: Array, y: Array, threads: int, epilogue: Epilogue = PLAIN
) -> Run:
    """Bind ``y = a @ b`` for (M, K), packed (K, N) and (M, N), with unit inner strides."""
    (m, depth), n = a.shape, y.shape[1]
    rows = height(m)
    heights = -(-m // rows)
    shares = threads if m * depth * n >= _SHARED_FROM else 1
    by_rows = _by_rows(heights, len(panels), panels.nbytes, shares)
    shares = min(shares, heights if by_rows else len(panels))
    most = heights * rows if not by_rows else -(-heights // shares) * rows
    step = -(-most // -(-most // _HIGH) // rows) * rows
    # Pieces are of about one length, in whole turns of the tile's loop.
    deep = -(-depth // -(-depth // _PIECE) // 4) * 4
    stride = step * _PITCH + _ZEROS + 64
    scratch = huge(shares * stride)
    arguments = [a.ctypes.data, panels.ctypes.data, y.ctypes.data, m, depth, n,
                 a.strides[0] // 4, scratch.ctypes.data, stride, step, int(by_rows), deep,
                 *epilogue.of_rows]  # fmt: skip
    return bind(
        _products(rows), arguments, shares, keep=(a, panels, y, scratch, epilogue)
    )
