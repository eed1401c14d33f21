"""
Commands of float32 products of experts that have some rows and more.

As in :mod:`.nbits_pieces`, a panel's piece of an expert's weights is unpacked once and
multiplied by all of its rows, which lie in pieces of K, in the order of their experts. The
tile is the taller of two heights, or the other where that leaves less to compute in vain.
"""

from __future__ import annotations

import functools
from typing import Any

from seamline_cpu.atomics import fetch_add, longs
from seamline_cpu.commands import Command, command
from seamline_cpu.kernels.nbits_activations import widener
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_pieces import unpacker
from seamline_cpu.row_tiles import APART, HEIGHTS, row_tile
from seamline_cpu.vectors import REGISTER

__all__ = ["FROM_ROWS", "HIGH", "PIECE_SLOTS", "in_pieces", "unpacked_products"]

#: Rows of an expert from which its weights are unpacked, by 32-bit lanes in a register.
FROM_ROWS = {16: 10, 8: 4, 4: 4}
HIGH = 192  #: rows that are multiplied by an unpacked piece before the next ones
(_NEXT_AT, _STARTS, _ACTIVE, _ORDER, _ROWS, _K, _A, _A_PITCH, _X, _X_ROWS, _DEPTH, _W, _EXPERT,
 _ACROSS, _RECORD, _AFTER, _BLOCKS, _BLOCK, _STEPS, _BIAS, _B_PITCH, _Y, _N, _GROUPS, _PER,
 _SCRATCH, _STRIDE) = range(27)  # fmt: skip
#: Names of the arguments, in their order.
PIECE_SLOTS = (
    "next_at", "starts", "active", "order", "rows", "k", "a", "a_pitch", "x", "x_rows",
    "depth", "w", "expert", "across", "record", "after", "blocks", "block", "steps", "bias",
    "b_pitch", "y", "n", "groups", "per", "scratch", "stride",
)  # fmt: skip


@functools.cache
def in_pieces(variant: str, kind: str, piece: int) -> Command:
    """Give the command that copies rows in an order, in pieces."""
    widen, size = widener(variant, kind), 4 if kind == "float32" else 2
    pitch = 4 * (piece + APART)

    def run(a: Any, share: int, shares: int) -> None:
        m, depth, order = a[_ROWS], a[_DEPTH], longs(a[_ORDER])
        every = m * ((depth + piece - 1) // piece)
        for i in range(every * share // shares, every * (share + 1) // shares):
            start, row = i // m * piece, i % m
            source = a[_A] + order[row] * a[_A_PITCH] + start * size
            target = a[_X] + (i // m * a[_X_ROWS] + row) * pitch
            deep = min(piece, depth - start)
            widen(source, min(deep, a[_K] - start), target, deep // 16)

    return command(run)


@functools.cache
def unpacked_products(  # noqa: C901 - flat loops
    variant: str, form: Form, piece: int, wide: int
) -> Command:
    """Give the command that multiplies rows in pieces by their experts' weights."""
    lanes = REGISTER[variant]
    columns, pitch = wide * lanes, 4 * (piece + APART)
    groups, short, tall = columns // GROUP, min(HEIGHTS[lanes]), max(HEIGHTS[lanes])
    least = FROM_ROWS[lanes]
    unpack = unpacker(variant, form, 4 * columns)
    tile = row_tile(variant, short, wide, pitch)
    tall_tile = row_tile(variant, tall, wide, pitch)

    def run(a: Any, share: int, shares: int) -> None:  # noqa: C901 - flat loops
        n, depth, block = a[_N], a[_DEPTH], a[_BLOCK]
        starts, active = longs(a[_STARTS]), longs(a[_ACTIVE])
        panels = (a[_GROUPS] + groups - 1) // groups
        turns = (panels + a[_PER] - 1) // a[_PER]
        right = a[_SCRATCH] + share * a[_STRIDE]
        while True:
            turn = fetch_add(a[_NEXT_AT], 1)
            if turn >= turns * active[0]:
                return
            e, first = active[1 + turn // turns], turn % turns * a[_PER]
            begin, end, last = starts[e], starts[e + 1], min(first + a[_PER], panels)
            if end - begin < least:
                continue
            for low in range(begin, end, HIGH):
                high = min(low + HIGH, end)
                m = high - low
                by_short, by_tall = (m + short - 1) // short, (m + tall - 1) // tall
                rows = tall if by_tall * tall <= by_short * short else short
                for start in range(0, depth, piece):
                    deep = min(piece, depth - start)
                    left = a[_X] + start // piece * a[_X_ROWS] * pitch
                    for panel in range(first, last):
                        group = panel * groups
                        w = a[_W] + e * a[_EXPERT] + group * a[_ACROSS]
                        w += start // block * a[_RECORD]
                        for i in range(min(groups, a[_GROUPS] - group)):
                            unpack(
                                w + i * a[_ACROSS], a[_RECORD], a[_AFTER], deep // block,
                                a[_STEPS], right + 4 * GROUP * i,
                            )  # fmt: skip
                        y = a[_Y] + 4 * GROUP * group
                        given = a[_BIAS] + e * a[_B_PITCH] + 4 * GROUP * group
                        given_pitch = 0
                        if start > 0:
                            given, given_pitch = y + low * 4 * n, 4 * n
                        for row in range(low, high, rows):
                            begun = given + (row - low) * given_pitch
                            if rows == tall:
                                tall_tile(
                                    left + row * pitch, right, deep, begun, given_pitch,
                                    y + row * 4 * n, 4 * n, high - row, n - GROUP * group,
                                    right,
                                )  # fmt: skip
                            else:
                                tile(
                                    left + row * pitch, right, deep, begun, given_pitch,
                                    y + row * 4 * n, 4 * n, high - row, n - GROUP * group,
                                    right,
                                )  # fmt: skip

    return command(run)
