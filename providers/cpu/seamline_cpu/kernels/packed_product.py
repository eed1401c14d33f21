"""
float32 products by register tiles, with a right matrix that is packed in panels already.

BLAS packs its right matrix anew in every call, which costs as much as the product when
the left one has few rows. Here a constant is packed for the session, in panels of
``COLUMNS`` columns. K is cut into pieces: a panel's piece fits into a core's first cache,
and the same piece of a block of left rows, which a thread copies to where rows are a
constant number of bytes apart (:mod:`seamline_cpu.row_tiles`), stays in its second cache
while panels pass by. Threads take turns at blocks of both. These are commands: they
share the provider's workers, where BLAS brings its own, which spin and wait for each other
when cores are busy.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.binding import in_order
from seamline_cpu.commands import Command, bind, command
from seamline_cpu.folds import copy_floats
from seamline_cpu.huge_pages import huge
from seamline_cpu.jit import jit
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue, finish_rows
from seamline_cpu.kernels.nbits_turns import counters, next_turn
from seamline_cpu.kernels.tile_turns import begun, divided
from seamline_cpu.row_tiles import APART, WIDEST, height, row_tile
from seamline_cpu.tiles import COLUMNS, LANES

__all__ = ["packed"]

f4 = np.float32
_PIECE = 256  # most floats of K taken at once
_PITCH = 4 * (_PIECE + APART)
#: Rows in a turn: their piece takes a part of a core's second cache, which is larger where
#: registers are.
_HIGH = 256 if LANES == 16 else 192
_MOST = 512 // COLUMNS  # panels in a turn, for which rows are copied once
_LINES = 16 * COLUMNS // 64  # lines of a panel in four of K
_ZEROS = 4 * COLUMNS  # bytes that sums begin with
_SHARED_FROM = 1 << 18  # multiply-adds from which more threads pay
(_TURNS_AT, _, _A, _B, _Y, _M, _K, _N, _ACROSS, _LEFT, _STRIDE, _PER, _HEIGHT, _DEEP, _BIAS,
 _FUNCTION, _NUMBERS, _MORE) = range(18)  # fmt: skip


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
def _products(rows: int, lines: int) -> Command:
    """Give the command whose tiles are so high, and ask for so many lines in a turn."""
    tile = row_tile(WIDEST, rows, COLUMNS // LANES, _PITCH, lines)

    def run(a: Any, share: int, shares: int) -> None:
        m, depth, n, deep, per = a[_M], a[_K], a[_N], a[_DEEP], a[_PER]
        panels = (n + COLUMNS - 1) // COLUMNS
        blocks = (m + a[_HEIGHT] - 1) // a[_HEIGHT]
        every = blocks * ((panels + per - 1) // per)
        left = a[_LEFT] + share * a[_STRIDE]
        zeros = left + a[_STRIDE] - _ZEROS
        turn = next_turn(a[_TURNS_AT], share, shares, every)
        while turn >= 0:
            begin, low = turn % blocks * a[_HEIGHT], turn // blocks * per
            count, high = min(a[_HEIGHT], m - begin), min(low + per, panels)
            y = a[_Y] + 4 * begin * n
            for start in range(0, depth, deep):
                wide = min(deep, depth - start)
                for r in range(count):
                    source = a[_A] + 4 * ((begin + r) * a[_ACROSS] + start)
                    copy_floats(source, left + r * _PITCH, wide)
                for p in range(low, high):
                    right = a[_B] + 4 * COLUMNS * (p * depth + start)
                    ahead = right + 4 * COLUMNS * depth
                    if p + 1 == high:
                        ahead = a[_B] + 4 * COLUMNS * (low * depth + start + deep)
                    for r in range(0, count, rows):
                        to = y + 4 * (r * n + p * COLUMNS)
                        given, pitch = (to, 4 * n) if start > 0 else (zeros, 0)
                        tile(left + r * _PITCH, right, wide, given, pitch, to, 4 * n,
                             count - r, n - p * COLUMNS, ahead)  # fmt: skip
                        ahead += 16 * lines * wide
                        if r + rows >= rows * _LINES // lines:
                            ahead = right  # what is there already: all was asked for
            width = min(high * COLUMNS, n) - low * COLUMNS
            _finish(a, begin, count, low * COLUMNS, width, left)
            turn = next_turn(a[_TURNS_AT], share, shares, every)

    return command(run)


def packed(
    a: Array, panels: Array, y: Array, threads: int, epilogue: Epilogue = PLAIN
) -> Run:
    """Bind ``y = a @ b`` for (M, K), packed (K, N) and (M, N), with unit inner strides."""
    (m, depth), n, rows = a.shape, y.shape[1], height(len(a))
    shares = threads if m * depth * n >= _SHARED_FROM else 1
    turns = divided(m, rows, len(panels), shares, most_rows=_HIGH, most_panels=_MOST)
    # Pieces are of about one length, in whole turns of the tile's loop.
    deep = -(-depth // -(-depth // _PIECE) // 4) * 4
    stride = turns.high * _PITCH + _ZEROS + 64
    scratch = huge(shares * stride)
    counted, turns_at = counters(shares)
    arguments = np.array(
        [turns_at, shares, a.ctypes.data, panels.ctypes.data, y.ctypes.data, m, depth, n,
         a.strides[0] // 4, scratch.ctypes.data, stride, turns.per, turns.high, deep,
         *epilogue.of_rows], np.int64,
    )  # fmt: skip
    keep = (a, panels, y, scratch, epilogue, counted)
    # So many lines of a panel's piece are asked for by each of the tiles that it is for.
    lines = 1 if turns.high >= rows * _LINES else 4
    multiply = bind(_products(rows, lines), arguments, shares, keep=keep)
    return in_order([bind(begun, arguments, 1, keep=keep), multiply])
