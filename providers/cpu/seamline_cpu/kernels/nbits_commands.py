"""
Commands of MatMulNBits: activations first, then products, which take turns at the weights.

Work is handed out by a counter, a few panels of weights at a time, so that a thread which
was held up leaves more to the others. Many rows of activations are taken in blocks that
stay in a core's cache. The last panel of columns, and the last tile of rows, begin earlier
where they would be cut: what is computed twice is the same.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline_cpu.atomics import bytes_at, fetch_add, longs
from seamline_cpu.commands import Command, command
from seamline_cpu.kernels.nbits_activations import narrower, quantiser, widener
from seamline_cpu.kernels.nbits_float import float_tile
from seamline_cpu.kernels.nbits_int8 import int8_tile
from seamline_cpu.kernels.nbits_layout import Form

__all__ = [
    "SLOTS",
    "float_products",
    "gathered",
    "int8_products",
    "narrowed",
    "quantised",
    "widened",
]

(_NEXT_AT, _NEXT, _M, _K, _A, _A_PITCH, _W, _ACROSS, _RECORD, _AFTER, _X, _X_PITCH, _SCALE,
 _TOTAL, _S_PITCH, _BLOCKS, _STEPS, _FACTOR, _BIAS, _Y, _Y_PITCH, _N, _GROUPS, _PER,
 _ROWS) = range(25)  # fmt: skip
#: Names of the arguments, in their order.
SLOTS = (
    "next_at", "next", "m", "k", "a", "a_pitch", "w", "across", "record", "after", "x",
    "x_pitch", "scale", "total", "s_pitch", "blocks", "steps", "factor", "bias", "y",
    "y_pitch", "n", "groups", "per", "rows",
)  # fmt: skip


@functools.cache
def quantised(variant: str, kind: str, step: int, planes: int) -> Command:
    """Give the command that quantises activations and starts the counter anew."""
    quantise = quantiser(variant, kind, step, planes)
    size = 4 if kind == "float32" else 2

    def run(a: Any, share: int, shares: int) -> None:
        a[_NEXT] = 0
        steps = a[_BLOCKS] * a[_STEPS]
        every = a[_M] * steps
        at, end = every * share // shares, every * (share + 1) // shares
        while at < end:
            row, first = at // steps, at % steps
            count = min(steps - first, end - at)
            quantise(
                a[_A] + row * a[_A_PITCH] + first * step * size, a[_K] - first * step,
                a[_X] + row * a[_X_PITCH] + first * step,
                a[_SCALE] + row * a[_S_PITCH] + first * 4,
                a[_TOTAL] + row * a[_S_PITCH] + first * 4, count, a[_FACTOR],
            )  # fmt: skip
            at += count

    return command(run)


@functools.cache
def widened(variant: str, kind: str) -> Command:
    """Give the command that copies activations to float32 and starts the counter anew."""
    widen = widener(variant, kind)

    def run(a: Any, share: int, shares: int) -> None:
        a[_NEXT] = 0
        for row in range(a[_M] * share // shares, a[_M] * (share + 1) // shares):
            where = a[_X] + row * a[_X_PITCH]
            widen(a[_A] + row * a[_A_PITCH], a[_K], where, (a[_X_PITCH] // 64))

    return command(run)


@functools.cache
def int8_products(variant: str, form: Form, rows: int, groups: int) -> Command:
    """Give the command that multiplies quantised activations, ``rows`` at a time."""
    tile = int8_tile(variant, form, rows, groups)

    def run(a: Any, share: int, shares: int) -> None:
        m, count, per = a[_M], a[_GROUPS], a[_PER]
        turns = (count + per * groups - 1) // (per * groups)
        every = turns * ((m + a[_ROWS] - 1) // a[_ROWS])
        while True:
            turn = fetch_add(a[_NEXT_AT], 1)
            if turn >= every:
                return
            low = turn // turns * a[_ROWS]
            high, first = min(low + a[_ROWS], m), turn % turns * per * groups
            for panel in range(first, min(first + per * groups, count), groups):
                g = min(panel, count - groups)
                for row in range(low, high, rows):
                    r = min(row, m - rows)
                    tile(
                        a[_W] + g * a[_ACROSS], a[_ACROSS], a[_RECORD], a[_AFTER],
                        a[_X] + r * a[_X_PITCH], a[_X_PITCH],
                        a[_SCALE] + r * a[_S_PITCH], a[_TOTAL] + r * a[_S_PITCH],
                        a[_S_PITCH], a[_BLOCKS], a[_STEPS], a[_BIAS] + 64 * g,
                        a[_Y] + r * a[_Y_PITCH] + 64 * g, a[_Y_PITCH], a[_N] - 16 * g,
                    )  # fmt: skip

    return command(run)


@functools.cache
def float_products(variant: str, form: Form, rows: int, groups: int) -> Command:
    """Give the command that multiplies float32 activations, ``rows`` at a time."""
    tile = float_tile(variant, form, rows, groups)

    def run(a: Any, share: int, shares: int) -> None:
        m, count, per = a[_M], a[_GROUPS], a[_PER]
        turns = (count + per * groups - 1) // (per * groups)
        every = turns * ((m + a[_ROWS] - 1) // a[_ROWS])
        while True:
            turn = fetch_add(a[_NEXT_AT], 1)
            if turn >= every:
                return
            low = turn // turns * a[_ROWS]
            high, first = min(low + a[_ROWS], m), turn % turns * per * groups
            for panel in range(first, min(first + per * groups, count), groups):
                g = min(panel, count - groups)
                for row in range(low, high, rows):
                    r = min(row, m - rows)
                    tile(
                        a[_W] + g * a[_ACROSS], a[_ACROSS], a[_RECORD], a[_AFTER],
                        a[_X] + r * a[_X_PITCH], a[_X_PITCH], a[_BLOCKS], a[_STEPS],
                        a[_BIAS] + 64 * g, a[_Y] + r * a[_Y_PITCH] + 64 * g,
                        a[_Y_PITCH], a[_N] - 16 * g,
                    )  # fmt: skip

    return command(run)


@command
def gathered(a: Any, share: int, shares: int) -> None:
    """
    Put activations in the order of the packed codes, with zeros where there is none.

    Arguments: rows, places, from, to, columns of each, and bytes of an element.
    """
    places, size = longs(a[1]), a[6]
    for row in range(a[0] * share // shares, a[0] * (share + 1) // shares):
        source, target = (
            bytes_at(a[2] + row * a[4] * size),
            bytes_at(a[3] + row * a[5] * size),
        )
        for i in range(a[5]):
            for byte in range(size):
                at = places[i] * size + byte
                target[i * size + byte] = source[at] if at >= 0 else np.uint8(0)


@functools.cache
def narrowed(variant: str, kind: str) -> Command:
    """Give the command that narrows ``a[1]`` floats at ``a[0]`` to ``a[2]``."""
    narrow = narrower(variant, kind)

    def run(a: Any, share: int, shares: int) -> None:
        low, high = a[1] * share // shares, a[1] * (share + 1) // shares
        narrow(a[0] + 4 * low, high - low, a[2] + 2 * low)

    return command(run)
