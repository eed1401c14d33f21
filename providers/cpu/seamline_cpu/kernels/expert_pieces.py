"""
Commands of float32 products of experts that have some rows and more.

As in :mod:`.nbits_pieces`, a panel's piece of an expert's weights is unpacked once and
multiplied by all of its rows, which lie in pieces of K, in the order of their experts. The
tile is the taller of two heights, or the other where that leaves less to compute in vain.
"""

from __future__ import annotations

import functools
from typing import Any

from seamline_cpu.atomics import longs
from seamline_cpu.commands import Command, command
from seamline_cpu.jit import inlined
from seamline_cpu.kernels.expert_turns import SLOTS, in_turns
from seamline_cpu.kernels.nbits_activations import widener
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_operands import rows_by_piece, unpacked_at
from seamline_cpu.kernels.nbits_pieces import unpacker
from seamline_cpu.row_tiles import APART, HEIGHTS
from seamline_cpu.vectors import REGISTER

__all__ = ["FROM_ROWS", "HIGH", "in_pieces", "unpacked_products"]

#: Rows of an expert from which its weights are unpacked, by 32-bit lanes in a register.
FROM_ROWS = {16: 10, 8: 4, 4: 4}
HIGH = 192  #: rows that are multiplied by an unpacked piece before the next ones
(_X, _DEPTH, _SCRATCH, _STRIDE, _ORDER, _ROWS, _K, _A, _A_PITCH, _X_ROWS, _EXPERT,
 _B_PITCH) = (SLOTS.index(name) for name in (
    "x", "depth", "scratch", "stride", "order", "rows", "k", "a", "a_pitch", "x_rows",
    "expert", "b_pitch"))  # fmt: skip


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
def unpacked_products(variant: str, form: Form, piece: int, wide: int) -> Command:
    """Give the command that multiplies rows in pieces by their experts' weights."""
    lanes = REGISTER[variant]
    columns, pitch = wide * lanes, 4 * (piece + APART)
    groups, short, tall = columns // GROUP, min(HEIGHTS[lanes]), max(HEIGHTS[lanes])
    unpack = unpacked_at(unpacker(variant, form, 4 * columns), columns)
    by_short = rows_by_piece(variant, short, wide, pitch)
    by_tall = rows_by_piece(variant, tall, wide, pitch)

    @inlined
    def part(
        a: Any, share: int, e: int, low: int, high: int, first: int, last: int
    ) -> None:
        right, w, bias = (
            a[_SCRATCH] + share * a[_STRIDE],
            e * a[_EXPERT],
            e * a[_B_PITCH],
        )
        for row in range(low, high, HIGH):
            end = min(row + HIGH, high)
            m = end - row
            taller = (m + tall - 1) // tall * tall <= (m + short - 1) // short * short
            for start in range(0, a[_DEPTH], piece):
                deep = min(piece, a[_DEPTH] - start)
                left = a[_X] + (start // piece * a[_X_ROWS] + row) * pitch
                for group in range(first, last, groups):
                    unpack(a, w, group, start, deep, right)
                    if taller:
                        by_tall(a, left, right, start, deep, row, end, bias, group)
                    else:
                        by_short(a, left, right, start, deep, row, end, bias, group)

    return in_turns(groups, part)
