"""
Commands of MatMulNBits: activations first, then products, which take turns at the weights.

A turn is a few panels of weights (:mod:`.nbits_turns`). Many rows of activations are taken in
blocks that stay in a core's cache; few of them each thread quantises for itself, which takes
less than it does to fetch what another core has written. The last panel of columns, and the
last tile of rows, begin earlier where they would be cut: what is computed twice is the same.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline_cpu.atomics import bytes_at, longs
from seamline_cpu.commands import Command, command
from seamline_cpu.jit import inlined
from seamline_cpu.kernels.nbits_activations import narrower, quantiser, widener
from seamline_cpu.kernels.nbits_layout import Form
from seamline_cpu.kernels.nbits_operands import SLOTS, float_at, int8_at
from seamline_cpu.kernels.nbits_turns import clear_turns, next_turn

__all__ = [
    "float_products",
    "gathered",
    "int8_products",
    "narrowed",
    "quantised",
    "walked",
    "widened",
]

(_TURNS_AT, _PARTS, _GROUPS, _PER, _BLOCKS, _STEPS, _X, _X_PITCH, _SCALE, _TOTAL, _S_PITCH,
 _M, _K, _A, _A_PITCH, _X_OWN, _S_OWN, _FACTOR, _ROWS) = (SLOTS.index(name) for name in (
    "turns_at", "parts", "groups", "per", "blocks", "steps", "x", "x_pitch", "scale", "total",
    "s_pitch", "m", "k", "a", "a_pitch", "x_own", "s_own", "factor", "rows"))  # fmt: skip


@functools.cache
def _quantising(variant: str, kind: str, step: int, planes: int) -> Any:
    """Make the function that quantises steps ``at`` to ``end`` of all rows for a share."""
    quantise = quantiser(variant, kind, step, planes)
    size = 4 if kind == "float32" else 2

    @inlined
    def steps_quantised(a: Any, share: int, at: int, end: int) -> None:
        steps, own = a[_BLOCKS] * a[_STEPS], share * a[_S_OWN]
        while at < end:
            row, first = at // steps, at % steps
            count = min(steps - first, end - at)
            quantise(
                a[_A] + row * a[_A_PITCH] + first * step * size, a[_K] - first * step,
                a[_X] + share * a[_X_OWN] + row * a[_X_PITCH] + first * step,
                a[_SCALE] + own + row * a[_S_PITCH] + first * 4,
                a[_TOTAL] + own + row * a[_S_PITCH] + first * 4, count, a[_FACTOR],
                step, 4,
            )  # fmt: skip
            at += count

    return steps_quantised


@functools.cache
def quantised(variant: str, kind: str, step: int, planes: int) -> Command:
    """Give the command that quantises activations and starts the turns anew."""
    quantise = _quantising(variant, kind, step, planes)

    def run(a: Any, share: int, shares: int) -> None:
        clear_turns(a[_TURNS_AT], a[_PARTS])
        every = a[_M] * a[_BLOCKS] * a[_STEPS]
        quantise(a, 0, every * share // shares, every * (share + 1) // shares)

    return command(run)


@functools.cache
def widened(variant: str, kind: str) -> Command:
    """Give the command that copies activations to float32 and starts the turns anew."""
    widen = widener(variant, kind)

    def run(a: Any, share: int, shares: int) -> None:
        clear_turns(a[_TURNS_AT], a[_PARTS])
        for row in range(a[_M] * share // shares, a[_M] * (share + 1) // shares):
            where = a[_X] + row * a[_X_PITCH]
            widen(a[_A] + row * a[_A_PITCH], a[_K], where, (a[_X_PITCH] // 64))

    return command(run)


@inlined
def _unprepared(a: Any, share: int) -> None:
    """Begin with nothing."""


def walked(groups: int, panel: Any, begun: Any = _unprepared) -> Command:
    """
    Give the command that does a panel of ``groups`` for each block of rows.

    Parameters
    ----------
    panel
        Compiled: arguments, share, the first group, rows from and to.
    begun
        Compiled: what each share does first, of arguments and share.
    """

    def run(a: Any, share: int, shares: int) -> None:
        begun(a, share)
        m, count, per = a[_M], a[_GROUPS], a[_PER] * groups
        spans = (count + per - 1) // per
        every = spans * ((m + a[_ROWS] - 1) // a[_ROWS])
        turn = next_turn(a[_TURNS_AT], share, shares, every)
        while turn >= 0:
            low, first = turn // spans * a[_ROWS], turn % spans * per
            high = min(low + a[_ROWS], m)
            for g in range(first, min(first + per, count), groups):
                panel(a, share, min(g, count - groups), low, high)
            turn = next_turn(a[_TURNS_AT], share, shares, every)

    return command(run)


@functools.cache
def int8_products(
    variant: str, form: Form, rows: int, groups: int, kind: str | None = None
) -> Command:
    """
    Give the command that multiplies quantised activations, ``rows`` at a time.

    With the ``kind`` of activations each thread quantises all of them for itself first.
    """
    tile = int8_at(variant, form, rows, groups)

    @inlined
    def panel(a: Any, share: int, g: int, low: int, high: int) -> None:
        x, scale = share * a[_X_OWN], share * a[_S_OWN]
        for row in range(low, high, rows):
            tile(a, min(row, a[_M] - rows), g, 0, 0, x, scale)

    if kind is None:
        return walked(groups, panel)
    quantise = _quantising(variant, kind, form.step, form.planes)

    @inlined
    def begun(a: Any, share: int) -> None:
        quantise(a, share, 0, a[_M] * a[_BLOCKS] * a[_STEPS])

    return walked(groups, panel, begun)


@functools.cache
def float_products(variant: str, form: Form, rows: int, groups: int) -> Command:
    """Give the command that multiplies float32 activations, ``rows`` at a time."""
    tile = float_at(variant, form, rows, groups)

    @inlined
    def panel(a: Any, share: int, g: int, low: int, high: int) -> None:
        for row in range(low, high, rows):
            tile(a, min(row, a[_M] - rows), g, 0, 0, 0, 0)

    return walked(groups, panel)


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
