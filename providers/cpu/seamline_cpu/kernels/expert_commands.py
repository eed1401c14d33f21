"""
Commands of products of many experts by packed weights, rows of one expert at a time.

How many rows an expert has is known only when it runs, so a command holds tiles of three
heights, and takes an expert's rows by the tallest that does not pass them; the last tile
begins earlier where it would be cut. Work is handed out by a counter that the
routing starts anew: some panels of weights of one expert that has rows. Experts without rows are not looked at.
"""

from __future__ import annotations

import functools
from typing import Any

from seamline_cpu.atomics import fetch_add, longs
from seamline_cpu.commands import Command, command
from seamline_cpu.kernels.nbits_activations import quantiser, widener
from seamline_cpu.kernels.nbits_float import float_tile
from seamline_cpu.kernels.nbits_int8 import int8_tile
from seamline_cpu.kernels.nbits_layout import Form
from seamline_cpu.vectors import REGISTER

__all__ = ["SLOTS", "WIDE", "float_products", "int8_products", "quantised", "widened"]

(_NEXT_AT, _STARTS, _ACTIVE, _ORDER, _ROWS, _K, _A, _A_PITCH, _X, _X_PITCH, _SCALE,
 _TOTAL, _S_PITCH, _FACTOR, _W, _EXPERT, _ACROSS, _RECORD, _AFTER, _BLOCKS, _STEPS, _BIAS,
 _B_PITCH, _Y, _Y_PITCH, _N, _GROUPS, _PER, _MOST) = range(29)  # fmt: skip
#: Names of the arguments, in their order. Experts of more than ``most`` rows are passed by.
SLOTS = (
    "next_at", "starts", "active", "order", "rows", "k", "a", "a_pitch", "x",
    "x_pitch", "scale", "total", "s_pitch", "factor", "w", "expert", "across", "record",
    "after", "blocks", "steps", "bias", "b_pitch", "y", "y_pitch", "n", "groups", "per",
    "most",
)  # fmt: skip
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
                a[_FACTOR],
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
def int8_products(variant: str, form: Form) -> Command:
    """Give the command that multiplies quantised rows by their experts' weights."""
    (_, width_1), (height_2, width_2), (height_3, width_3) = _INT8[REGISTER[variant]]
    tile_1 = int8_tile(variant, form, 1, width_1)
    tile_2 = int8_tile(variant, form, height_2, width_2)
    tile_3 = int8_tile(variant, form, height_3, width_3)

    def run(a: Any, share: int, shares: int) -> None:
        starts, active = longs(a[_STARTS]), longs(a[_ACTIVE])
        count, per = a[_GROUPS], a[_PER] * WIDE
        turns = (count + per - 1) // per
        while True:
            turn = fetch_add(a[_NEXT_AT], 1)
            if turn >= turns * active[0]:
                return
            e, first = active[1 + turn // turns], turn % turns * per
            low, high = starts[e], starts[e + 1]
            m, w, bias = high - low, a[_W] + e * a[_EXPERT], a[_BIAS] + e * a[_B_PITCH]
            if m > a[_MOST]:
                continue
            height = height_3 if m >= height_3 else height_2 if m >= height_2 else 1
            width = width_3 if m >= height_3 else width_2 if m >= height_2 else width_1
            for panel in range(first, min(first + per, count), WIDE):
                for row in range(low, high, height):
                    r = min(row, high - height)
                    x, y = a[_X] + r * a[_X_PITCH], a[_Y] + r * a[_Y_PITCH]
                    scale, total = (
                        a[_SCALE] + r * a[_S_PITCH],
                        a[_TOTAL] + r * a[_S_PITCH],
                    )
                    for group in range(panel, min(panel + WIDE, count), width):
                        g = min(group, count - width)
                        codes, columns = w + g * a[_ACROSS], a[_N] - 16 * g
                        if height == 1:
                            tile_1(
                                codes, a[_ACROSS], a[_RECORD], a[_AFTER], x, a[_X_PITCH],
                                scale, total, a[_S_PITCH], a[_BLOCKS], a[_STEPS],
                                bias + 64 * g, y + 64 * g, a[_Y_PITCH], columns,
                            )  # fmt: skip
                        elif height == height_2:
                            tile_2(
                                codes, a[_ACROSS], a[_RECORD], a[_AFTER], x, a[_X_PITCH],
                                scale, total, a[_S_PITCH], a[_BLOCKS], a[_STEPS],
                                bias + 64 * g, y + 64 * g, a[_Y_PITCH], columns,
                            )  # fmt: skip
                        else:
                            tile_3(
                                codes, a[_ACROSS], a[_RECORD], a[_AFTER], x, a[_X_PITCH],
                                scale, total, a[_S_PITCH], a[_BLOCKS], a[_STEPS],
                                bias + 64 * g, y + 64 * g, a[_Y_PITCH], columns,
                            )  # fmt: skip

    return command(run)


@functools.cache
def float_products(variant: str, form: Form) -> Command:
    """Give the command that multiplies float32 rows by their experts' weights."""
    (_, width_1), (height_2, width_2), (height_3, width_3) = _FLOAT[REGISTER[variant]]
    tile_1 = float_tile(variant, form, 1, width_1)
    tile_2 = float_tile(variant, form, height_2, width_2)
    tile_3 = float_tile(variant, form, height_3, width_3)

    def run(a: Any, share: int, shares: int) -> None:
        starts, active = longs(a[_STARTS]), longs(a[_ACTIVE])
        count, per = a[_GROUPS], a[_PER] * WIDE
        turns = (count + per - 1) // per
        while True:
            turn = fetch_add(a[_NEXT_AT], 1)
            if turn >= turns * active[0]:
                return
            e, first = active[1 + turn // turns], turn % turns * per
            low, high = starts[e], starts[e + 1]
            m, w, bias = high - low, a[_W] + e * a[_EXPERT], a[_BIAS] + e * a[_B_PITCH]
            if m > a[_MOST]:
                continue
            height = height_3 if m >= height_3 else height_2 if m >= height_2 else 1
            width = width_3 if m >= height_3 else width_2 if m >= height_2 else width_1
            for panel in range(first, min(first + per, count), WIDE):
                for row in range(low, high, height):
                    r = min(row, high - height)
                    x, y = a[_X] + r * a[_X_PITCH], a[_Y] + r * a[_Y_PITCH]
                    for group in range(panel, min(panel + WIDE, count), width):
                        g = min(group, count - width)
                        codes, columns = w + g * a[_ACROSS], a[_N] - 16 * g
                        if height == 1:
                            tile_1(
                                codes, a[_ACROSS], a[_RECORD], a[_AFTER], x, a[_X_PITCH],
                                a[_BLOCKS], a[_STEPS], bias + 64 * g, y + 64 * g,
                                a[_Y_PITCH], columns,
                            )  # fmt: skip
                        elif height == height_2:
                            tile_2(
                                codes, a[_ACROSS], a[_RECORD], a[_AFTER], x, a[_X_PITCH],
                                a[_BLOCKS], a[_STEPS], bias + 64 * g, y + 64 * g,
                                a[_Y_PITCH], columns,
                            )  # fmt: skip
                        else:
                            tile_3(
                                codes, a[_ACROSS], a[_RECORD], a[_AFTER], x, a[_X_PITCH],
                                a[_BLOCKS], a[_STEPS], bias + 64 * g, y + 64 * g,
                                a[_Y_PITCH], columns,
                            )  # fmt: skip

    return command(run)
