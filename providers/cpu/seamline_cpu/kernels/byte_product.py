"""
Exact products of 8-bit matrices by a constant one, as compiled commands.

Rows of the left matrix are packed a block at a time (:mod:`~.byte_panels`), and every panel
of the right one passes over a block while it is in the cache. Sums are the product itself,
or end a stripe at a time as floats or bytes (:mod:`~.byte_endings`).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_cpu.atomics import ints, longs
from seamline_cpu.commands import Command, Native, bind, command
from seamline_cpu.integer_tiles import VARIANT, byte_tile
from seamline_cpu.jit import jit
from seamline_cpu.kernels.byte_endings import ROOM, Ending, end_stripe
from seamline_cpu.kernels.byte_panels import (
    BytePanels,
    pack_fours,
    pack_pairs_of_bytes,
)
from seamline_cpu.tiles import COLUMNS, ROWS

__all__ = ["bind_bytes", "product_row"]

_BLOCK = 192 << 10  # bytes of left rows packed at once
_STRIPE = 32 << 10  # bytes of sums that end together: what a first-level cache holds
_SHARED_FROM = 1 << 19  # multiply-adds from which more threads pay
_HEAD = 8 * ROWS  # bytes before a packed tile: its rows' sums and zero points

(_A, _B, _Y, _M, _K, _N, _SCRATCH, _STRIDE, _STEP, _BY_ROWS, _SIGN, _ZERO, _ZERO_STEP,
 _ZEROS, _TOTALS, _END, _ITEMS, _B_STEP, _TOTALS_STEP) = range(19)  # fmt: skip

_row_of_pairs = byte_tile(VARIANT.variant, 2, 1)


@jit
def product_row(left: int, right: int, pairs: int, minus: int, zeros: int, panels: int,
                out: int) -> None:  # fmt: skip
    """Multiply one row of packed pairs by every panel; ``out`` has room for whole panels."""
    for p in range(panels):
        _row_of_pairs(left, right + 2 * p * pairs * COLUMNS, pairs, minus,
                      zeros + 4 * p * COLUMNS, minus, zeros, out + 4 * p * COLUMNS,
                      4 * COLUMNS)  # fmt: skip


@jit
def _copy_out(spare: int, rows: int, columns: int, y: int, pitch: int) -> None:
    for r in range(rows):
        source, target = ints(spare + 4 * r * COLUMNS), ints(y + r * pitch)
        for j in range(columns):
            target[j] = source[j]


@functools.cache
def _packed(group: int) -> Any:
    """Give what packs a tile of rows: head first, words after it."""
    if group == 4:

        @jit
        def pack_four(
            a: int, down: int, rows: int, depth: int, tall: int, sign: int, zero: int,
            step: int, to: int,
        ) -> None:  # fmt: skip
            pack_fours(
                a, down, rows, depth, tall, sign, zero, step, to + _HEAD, to,
                to + 4 * ROWS,
            )  # fmt: skip

        return pack_four

    @jit
    def pack_two(
        a: int, down: int, rows: int, depth: int, tall: int, sign: int, zero: int,
        step: int, to: int,
    ) -> None:  # fmt: skip
        pack_pairs_of_bytes(
            a, down, rows, depth, tall, sign, zero, step, to + _HEAD, to
        )

    return pack_two


@functools.cache
def _multiplier(variant: str, group: int) -> Any:
    """Give what multiplies some tiles of rows of an item by some panels."""
    tile, row, pack = (
        byte_tile(variant, group, ROWS),
        byte_tile(variant, group, 1),
        _packed(group),
    )

    @jit
    def multiply(
        a: Any, item: int, first: int, end: int, low: int, high: int, room: int
    ) -> None:
        m, depth, n = a[_M], a[_K], a[_N]
        words = (depth + group - 1) // group
        stripe = room + ROOM
        left = stripe + 4 * a[_STEP] * ROWS * COLUMNS
        size = _HEAD + 4 * ROWS * words
        for start in range(first, end, a[_STEP]):
            stop = min(start + a[_STEP], end)
            for r in range(start, stop):
                tall = 1 if m - r * ROWS == 1 else ROWS
                at = item * m + r * ROWS
                pack(
                    a[_A] + at * depth, depth, m - r * ROWS, depth, tall, a[_SIGN],
                    a[_ZERO] + at * a[_ZERO_STEP], a[_ZERO_STEP], left + (r - start) * size,
                )  # fmt: skip
            for p in range(low, high):
                right = a[_B] + item * a[_B_STEP] + group * p * words * COLUMNS
                zeros = a[_ZEROS] + 4 * p * COLUMNS
                totals = a[_TOTALS] + item * a[_TOTALS_STEP] + 4 * p * COLUMNS
                columns = min(COLUMNS, n - p * COLUMNS)
                for r in range(start, stop):
                    here = left + (r - start) * size
                    count = min(ROWS, m - r * ROWS)
                    y = a[_Y] + 4 * ((item * m + r * ROWS) * n + p * COLUMNS)
                    whole = a[_END] == 0 and count == ROWS and columns == COLUMNS
                    to = y if whole else stripe + 4 * (r - start) * ROWS * COLUMNS
                    pitch = 4 * n if whole else 4 * COLUMNS
                    if m - r * ROWS == 1:
                        row(here + _HEAD, right, words, here, zeros, here + 4 * ROWS,
                            totals, to, pitch)  # fmt: skip
                    else:
                        tile(here + _HEAD, right, words, here, zeros, here + 4 * ROWS,
                             totals, to, pitch)  # fmt: skip
                    if a[_END] == 0 and not whole:
                        _copy_out(to, count, columns, y, 4 * n)
                if a[_END] != 0:
                    made = min(stop * ROWS, m) - start * ROWS
                    end_stripe(longs(a[_END]), stripe, item * m + start * ROWS, made,
                               p * COLUMNS, columns, room)  # fmt: skip

    return multiply


@functools.cache
def _product(variant: str, group: int) -> Command:
    """Give the command that multiplies; shares are of items, of rows, or of panels."""
    multiply = _multiplier(variant, group)

    def run(a: Any, share: int, shares: int) -> None:
        rows, panels = (a[_M] + ROWS - 1) // ROWS, (a[_N] + COLUMNS - 1) // COLUMNS
        begin, until, first, end, low, high = 0, a[_ITEMS], 0, rows, 0, panels
        if a[_ITEMS] >= shares:
            begin, until = until * share // shares, until * (share + 1) // shares
        elif a[_BY_ROWS] != 0:
            first, end = rows * share // shares, rows * (share + 1) // shares
        else:
            low, high = panels * share // shares, panels * (share + 1) // shares
        for item in range(begin, until):
            multiply(a, item, first, end, low, high, a[_SCRATCH] + share * a[_STRIDE])

    return command(run)


def bind_bytes(
    a: Array,
    zero: Array | None,
    panels: BytePanels,
    zeros: Array,
    y: Array | Ending,
    threads: int,
    variant: str = VARIANT.variant,
) -> Native:
    """
    Bind ``(a - zero) @ (b - zeros)`` in int32 that wraps, and what becomes of it.

    Parameters
    ----------
    a
        uint8 or int8, ``(M, K)``, C-contiguous; or ``(items, M, K)``, as many as panels
        are stacked.
    zero
        One zero point, or one a row, read in each run; None is 0.
    zeros
        Of :meth:`BytePanels.zeros`.
    y
        int32, ``(M, N)``, C-contiguous; or how the sums end. All items' rows follow one
        another.
    variant
        Of :data:`seamline_cpu.instruction_sets.INT8`; must suit the panels' group.
    """
    items = max(1, a.shape[0]) if a.ndim == 3 else 1
    (m, depth), n = a.shape[-2:], panels.columns
    rows, count = -(-m // ROWS), -(-n // COLUMNS)
    shares = threads if items * m * depth * n >= _SHARED_FROM else 1
    by_rows = rows >= 4 * shares or count < shares
    if items < shares:
        shares = min(shares, rows if by_rows else count)
    shares = max(1, shares)
    size = _HEAD + 4 * ROWS * -(-depth // panels.group)
    step = max(1, min(_BLOCK // size, rows))
    ending = y if isinstance(y, Ending) else None
    if ending is not None:
        step = min(step, _STRIPE // (4 * ROWS * COLUMNS))
    stride = -(-(ROOM + 4 * step * ROWS * COLUMNS + step * size) // 64) * 64
    scratch = np.zeros(shares * stride + 64, np.uint8)
    point = np.zeros(1, a.dtype) if zero is None else zero
    end = np.zeros(0, np.int64) if ending is None else ending.arguments()
    arguments = [
        a.ctypes.data, panels.codes.ctypes.data, 0 if ending else y.ctypes.data,  # type: ignore[union-attr]
        m, depth, n, scratch.ctypes.data + -scratch.ctypes.data % 64, stride, step, by_rows,
        128 if a.dtype == np.int8 else 0, point.ctypes.data, 0 if point.size == 1 else 1,
        zeros.ctypes.data, panels.totals.ctypes.data, end.ctypes.data if ending else 0,
        items, panels.codes.nbytes // items, panels.totals.nbytes // items,
    ]  # fmt: skip
    kept = (a, panels, zeros, y, scratch, point, end)
    return bind(_product(variant, panels.group), arguments, shares, keep=kept)
