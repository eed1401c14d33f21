"""
Inputs of Winograd's tiles: where they are read, and their transform for all channels.

A quad reads rows in place where they lie inside the image. Where they do not, tables of
addresses, steps and masks send what is outside to a row of zeros, or rows are copied aside.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import ints, longs
from seamline_cpu.jit import jit
from seamline_cpu.kernels.winograd_places import ARGUMENTS, inside, position
from seamline_cpu.winograd import TILE
from seamline_cpu.winograd_tiles import (
    BLOCKS,
    PANEL,
    QUAD,
    RUN,
    spread_fives,
    spread_threes,
    spread_tiles,
)

__all__ = [
    "CUT",
    "HEAD",
    "QUADS",
    "READ",
    "SOURCES",
    "ZEROS",
    "apart_of",
    "read_inputs",
]

QUADS = PANEL // QUAD  #: of a panel
READ = 4 * BLOCKS  #: floats of a row that a quad reads
_MOST_ROWS = 6  # of inputs, that a quad needs

# A share's scratch, in bytes: tables, a row of zeros, copied rows, outputs that are cut.
SOURCES = 64 + 4 * 4 * QUADS * RUN * TILE  # behind what an epilogue needs
_STEPS = SOURCES + 8 * 16
_MASKS = _STEPS + 8 * 16
ZEROS = _MASKS + 32 * BLOCKS + 32
_ASIDE = ZEROS + 4 * READ + 48
CUT = _ASIDE + 2 * _MOST_ROWS * 4 * READ
HEAD = -(-(CUT + 2 * 4 * RUN * TILE) // 64) * 64

(_X, _IMAGES, _C, _H, _WIDTH, _PH, _PW, _DEEP, _DOWN, _ALONG) = (
    ARGUMENTS.index(name) for name in (
        "x", "images", "channels", "height", "width", "top", "left", "points_down",
        "taps_down", "taps_along"))  # fmt: skip


@jit
def apart_of(rows: int) -> int:
    """Give the bytes from point to point: odd in cache lines, which spreads over its sets."""
    return (rows + 1 - rows % 2) * 4 * PANEL


@jit
def _find(a: Any, corner: int, half: int, quad: int) -> int:
    """
    Fill one quad's half of the tables.

    Returns 1 where reads of the first channel may begin before the input, plus 2 where those
    of the last may end behind it.
    """
    image, row, column = position(a, quad)
    sources, steps = longs(corner + SOURCES), longs(corner + _STEPS)
    masks = ints(corner + _MASKS)
    plane = a[_H] * a[_WIDTH] * 4
    base = a[_X] + image * a[_C] * plane + (column - a[_PW]) * 4
    end = a[_X] + a[_IMAGES] * a[_C] * plane
    unsafe = 0
    for r in range(a[_DEEP]):
        at = row - a[_PH] + r
        k = half * a[_DEEP] + r
        if at < 0 or at >= a[_H]:
            sources[k], steps[k] = corner + ZEROS, 0
            continue
        source = base + at * a[_WIDTH] * 4
        sources[k], steps[k] = source, plane
        if source < a[_X]:
            unsafe |= 1
        if source + (a[_C] - 1) * plane + 4 * READ > end:
            unsafe |= 2
    for i in range(READ):
        at = column - a[_PW] + i
        taken = 0 <= at < a[_WIDTH]
        masks[i // 4 * 8 + half * 4 + i % 4] = np.int32(-1 if taken else 0)
    return unsafe


@jit
def _spread(a: Any, corner: int, first: int, last: int, to: int) -> None:
    """Transform channels ``first`` to ``last`` of the quads in the tables."""
    sources, steps = longs(corner + SOURCES), longs(corner + _STEPS)
    for k in range(2 * a[_DEEP]):
        sources[k] += first * steps[k]
    begins, moves, masks = corner + SOURCES, corner + _STEPS, corner + _MASKS
    target, apart, count = to + first * 4 * PANEL, apart_of(a[_C]), last - first
    if a[_DOWN] > 1:
        spread_tiles(begins, moves, masks, count, target, apart, 4 * PANEL)
    elif a[_ALONG] == 3:
        spread_threes(begins, moves, masks, count, target, apart, 4 * PANEL)
    else:
        spread_fives(begins, moves, masks, count, target, apart, 4 * PANEL)


@jit
def _spread_aside(
    a: Any, corner: int, one: int, two: int, channel: int, to: int
) -> None:
    """Transform one channel of two quads, whose rows are copied first."""
    sources, steps = longs(corner + SOURCES), longs(corner + _STEPS)
    for k in range(2 * a[_DEEP]):
        image, row, column = position(a, one if k < a[_DEEP] else two)
        here = corner + _ASIDE + k * 4 * READ
        at = row - a[_PH] + k % a[_DEEP]
        inside(a, image, channel, at, column - a[_PW], READ, here)
        sources[k], steps[k] = here, 0
    _spread(a, corner, 0, 1, to + channel * 4 * PANEL)


@jit
def read_inputs(a: Any, corner: int, one: int, two: int, to: int) -> None:
    """Transform two quads' inputs."""
    channels = a[_C]
    unsafe = _find(a, corner, 0, one) | _find(a, corner, 1, two)
    first = 1 if unsafe & 1 else 0
    last = channels - 1 if unsafe & 2 and channels > first else channels
    _spread(a, corner, first, last, to)
    if first > 0:
        _spread_aside(a, corner, one, two, 0, to)
    if last < channels:
        _spread_aside(a, corner, one, two, channels - 1, to)
