"""
Commands of products of many experts by packed weights, rows of one expert at a time.

How many rows an expert has is known only when it runs, so a command holds tiles of three
heights, and takes an expert's rows by the tallest that does not pass them; the last tile
begins earlier where it would be cut.
"""

from __future__ import annotations

import functools
from typing import Any

from seamline_cpu.atomics import longs
from seamline_cpu.commands import Command, command
from seamline_cpu.jit import inlined
from seamline_cpu.kernels.expert_turns import SLOTS, in_turns
from seamline_cpu.kernels.nbits_activations import quantiser, widener
from seamline_cpu.kernels.nbits_layout import Form
from seamline_cpu.kernels.nbits_operands import float_at, int8_at
from seamline_cpu.vectors import REGISTER

__all__ = ["WIDE", "few_products", "quantised", "widened"]

(_BLOCKS, _STEPS, _X, _X_PITCH, _SCALE, _TOTAL, _S_PITCH, _ORDER, _ROWS, _K, _A, _A_PITCH,
 _FACTOR, _EXPERT, _B_PITCH) = (SLOTS.index(name) for name in (
    "blocks", "steps", "x", "x_pitch", "scale", "total", "s_pitch", "order", "rows", "k", "a",
    "a_pitch", "factor", "expert", "b_pitch"))  # fmt: skip
WIDE = 4  #: groups of weights that a turn takes, at least
#: For 32-bit lanes in a register: height of tiles and their groups, the lowest first.
_INT8 = {
    16: ((1, 4), (2, 4), (4, 2)),
    8: ((1, 4), (2, 2), (4, 1)),
    4: ((1, 2), (2, 1), (4, 1)),
}
#: Of float32 these are all that there are; more rows are in pieces (:mod:`.expert_pieces`).
_FLOAT = {
    16: ((1, 4), (2, 4), (3, 2)),
    8: ((1, 2), (2, 2), (3, 1)),
    4: ((1, 1), (2, 1), (3, 1)),
}


@functools.cache
def quantised(variant: str, kind: str, step: int, planes: int) -> Command:
    """Give the command that quantises rows in an order."""
    quantise = quantiser(variant, kind, step, planes)

    def run(a: Any, share: int, shares: int) -> None:
        order, steps = longs(a[_ORDER]), a[_BLOCKS] * a[_STEPS]
        for row in range(a[_ROWS] * share // shares, a[_ROWS] * (share + 1) // shares):
            quantise(
                a[_A] + order[row] * a[_A_PITCH], a[_K], a[_X] + row * a[_X_PITCH],
                a[_SCALE] + row * a[_S_PITCH], a[_TOTAL] + row * a[_S_PITCH], steps,
                a[_FACTOR], step, 4,
            )  # fmt: skip

    return command(run)


@functools.cache
def widened(variant: str, kind: str) -> Command:
    """Give the command that copies rows in an order to float32."""
    widen = widener(variant, kind)

    def run(a: Any, share: int, shares: int) -> None:
        order = longs(a[_ORDER])
        for row in range(a[_ROWS] * share // shares, a[_ROWS] * (share + 1) // shares):
            where = a[_X] + row * a[_X_PITCH]
            widen(a[_A] + order[row] * a[_A_PITCH], a[_K], where, a[_X_PITCH] // 64)

    return command(run)


@functools.cache
def few_products(variant: str, form: Form, int8: bool) -> Command:
    """
    Give the command that multiplies rows by their experts' weights.

    Parameters
    ----------
    int8
        Rows are quantised; float32 otherwise.
    """
    sizes, tile_at = (_INT8, int8_at) if int8 else (_FLOAT, float_at)
    (_, width_1), (height_2, width_2), (height_3, width_3) = sizes[REGISTER[variant]]
    tile_1 = tile_at(variant, form, 1, width_1)
    tile_2 = tile_at(variant, form, height_2, width_2)
    tile_3 = tile_at(variant, form, height_3, width_3)

    @inlined
    def part(
        a: Any, share: int, e: int, low: int, high: int, first: int, last: int
    ) -> None:
        m, w, bias = high - low, e * a[_EXPERT], e * a[_B_PITCH]
        height = height_3 if m >= height_3 else height_2 if m >= height_2 else 1
        width = width_3 if m >= height_3 else width_2 if m >= height_2 else width_1
        for panel in range(first, last, WIDE):
            end = min(panel + WIDE, last)
            for row in range(low, high, height):
                r = min(row, high - height)
                for group in range(panel, end, width):
                    g = min(group, last - width)
                    if height == 1:
                        tile_1(a, r, g, w, bias, 0, 0)
                    elif height == height_2:
                        tile_2(a, r, g, w, bias, 0, 0)
                    else:
                        tile_3(a, r, g, w, bias, 0, 0)

    return in_turns(WIDE, part)
