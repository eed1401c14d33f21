"""
The command of :mod:`seamline_cpu.kernels.convolution_winograd`, and its scratch.

A unit of work is a panel of tiles and a run of
output channels: the panel's inputs are transformed for all channels, 36 small matrix
products made, and the outputs written. Both the transformed inputs and the products stay
in the second-level cache, and only weights come from further away. A unit with an output
that is not finite is computed again, directly, since the transforms would spread it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import fetch_add, floats, ints, longs
from seamline_cpu.commands import command
from seamline_cpu.folds import copy_floats
from seamline_cpu.jit import jit
from seamline_cpu.kernels.epilogues import finish
from seamline_cpu.kernels.winograd_places import (
    ARGUMENTS,
    compute_anew,
    extent,
    inside,
    output_at,
    position,
)
from seamline_cpu.winograd import POINTS, TILE
from seamline_cpu.winograd_tiles import (
    BLOCKS,
    PANEL,
    QUAD,
    RUN,
    SUMS,
    gather_tiles,
    point_sums,
    spread_tiles,
)

__all__ = ["PRODUCTS", "QUADS", "READ", "unit_bytes", "winograd"]

QUADS = PANEL // QUAD  #: of a panel
PRODUCTS = POINTS * POINTS  #: of matrices
READ = 4 * BLOCKS  #: floats of a row that a quad reads

# A share's scratch, in bytes: tables, a row of zeros, copied rows, outputs that are cut.
_SOURCES = 64 + 4 * 4 * QUADS * RUN * TILE  # behind what an epilogue needs
_STEPS = _SOURCES + 8 * 16
_MASKS = _STEPS + 8 * 16
_ZEROS = _MASKS + 32 * BLOCKS + 32
_ASIDE = _ZEROS + 4 * READ + 48
_CUT = _ASIDE + 2 * POINTS * 4 * READ
_HEAD = -(-(_CUT + 2 * 4 * RUN * TILE) // 64) * 64

(_X, _POINTS, _B, _Y, _SCRATCH, _STRIDE, _IMAGES, _C, _OC, _H, _WIDTH, _OH, _OW, _PH, _PW,
 _ROWS, _COLUMNS, _SPLITS, _LIMITS, _W, _COUNTER, _FUNCTION, _NUMBERS, _MORE) = range(len(ARGUMENTS))  # fmt: skip


@jit
def _apart(rows: int) -> int:
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
    sources, steps = longs(corner + _SOURCES), longs(corner + _STEPS)
    masks = ints(corner + _MASKS)
    plane = a[_H] * a[_WIDTH] * 4
    base = a[_X] + image * a[_C] * plane + (column - a[_PW]) * 4
    end = a[_X] + a[_IMAGES] * a[_C] * plane
    unsafe = 0
    for r in range(POINTS):
        at = row - a[_PH] + r
        k = half * POINTS + r
        if at < 0 or at >= a[_H]:
            sources[k], steps[k] = corner + _ZEROS, 0
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
    sources, steps = longs(corner + _SOURCES), longs(corner + _STEPS)
    for k in range(2 * POINTS):
        sources[k] += first * steps[k]
    target = to + first * 4 * PANEL
    spread_tiles(
        corner + _SOURCES, corner + _STEPS, corner + _MASKS, last - first, target,
        _apart(a[_C]), 4 * PANEL,
    )  # fmt: skip


@jit
def _spread_aside(
    a: Any, corner: int, one: int, two: int, channel: int, to: int
) -> None:
    """Transform one channel of two quads, whose rows are copied first."""
    sources, steps = longs(corner + _SOURCES), longs(corner + _STEPS)
    for k in range(2 * POINTS):
        image, row, column = position(a, one if k < POINTS else two)
        here = corner + _ASIDE + k * 4 * READ
        at = row - a[_PH] + k % POINTS
        inside(a, image, channel, at, column - a[_PW], READ, here)
        sources[k], steps[k] = here, 0
    _spread(a, corner, 0, 1, to + channel * 4 * PANEL)


@jit
def _inputs(a: Any, corner: int, one: int, two: int, to: int) -> None:
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


@jit
def _outputs(a: Any, corner: int, one: int, two: int, count: int, low: int, high: int,
             sums: int, apart: int) -> int:  # fmt: skip
    """Write two quads, of which ``count`` are there; not 0 where one is not finite."""
    plane, pitch = a[_OH] * a[_OW] * 4, a[_OW] * 4
    cut, cut_pitch = corner + _CUT, 4 * RUN
    rows, columns = extent(a, one)
    more_rows, more_columns = extent(a, two)
    whole = rows == TILE and columns == RUN
    more_whole = count == 2 and more_rows == TILE and more_columns == RUN
    out, more_out = (
        a[_Y] + output_at(a, one, low) * 4,
        a[_Y] + output_at(a, two, low) * 4,
    )
    wrong = 0
    for m in range(low, high):
        wrong |= gather_tiles(
            sums + (m - low) * 4 * PANEL, apart, a[_B] + m * 4, a[_LIMITS],
            out if whole else cut, pitch if whole else cut_pitch,
            more_out if more_whole else cut + TILE * cut_pitch,
            pitch if more_whole else cut_pitch,
        )  # fmt: skip
        if not whole:
            for r in range(rows):
                copy_floats(cut + r * cut_pitch, out + r * pitch, columns)
        if count == 2 and not more_whole:
            for r in range(more_rows):
                at = cut + (TILE + r) * cut_pitch
                copy_floats(at, more_out + r * pitch, more_columns)
        out += plane
        more_out += plane
    return wrong


@jit
def _finish(a: Any, corner: int, quad: int, quads: int, low: int, high: int) -> None:
    """Do the epilogue of the quads from ``quad`` on, run by run along a row of tiles."""
    while quads > 0:
        _, row, column = position(a, quad)
        count = min(quads, a[_COLUMNS] - column // RUN)
        rows, n = min(TILE, a[_OH] - row), min(count * RUN, a[_OW] - column)
        for m in range(low, high):
            shift = output_at(a, quad, m) * 4
            more = a[_MORE] + shift if a[_MORE] != 0 else 0
            finish(
                a[_FUNCTION], a[_NUMBERS], more, a[_Y] + shift, rows, n, a[_OW], corner,
                (_SOURCES - 64) // 4,
            )  # fmt: skip
        quad += count
        quads -= count


@jit
def _unit(a: Any, corner: int, first: int, quads: int, low: int, high: int,
          held: bool) -> None:  # fmt: skip
    """Compute a panel of quads from ``first`` on; its inputs may be there already."""
    tiles = (a[_OC] + SUMS - 1) // SUMS
    inputs, apart = corner + _HEAD, _apart(a[_C])
    end = min(a[_OC], high * SUMS)
    sums, sums_apart = inputs + PRODUCTS * apart, _apart((high - low) * SUMS)
    if not held:
        for pair in range(0, QUADS, 2):
            # Quads that are not there repeat the last, so that nothing is left undefined.
            one, two = first + min(pair, quads - 1), first + min(pair + 1, quads - 1)
            _inputs(a, corner, one, two, inputs + pair * 4 * QUAD)
    for k in range(PRODUCTS):
        for t in range(low, high):
            left = a[_POINTS] + (k * tiles + t) * a[_C] * 4 * SUMS
            to = sums + k * sums_apart + (t - low) * SUMS * 4 * PANEL
            point_sums(left, inputs + k * apart, a[_C], to)
    wrong = 0
    for pair in range(0, quads, 2):
        count = min(2, quads - pair)
        one, here = first + pair, sums + pair * 4 * QUAD
        wrong |= _outputs(
            a, corner, one, one + count - 1, count, low * SUMS, end, here, sums_apart
        )
    if wrong != 0:
        for quad in range(first, first + quads):
            compute_anew(a, quad, low * SUMS, end, corner)
    if a[_FUNCTION] != 0 or a[_MORE] != 0:
        _finish(a, corner, first, quads, low * SUMS, end)


@command
def winograd(a: Any, share: int, shares: int) -> None:
    """Take units of a panel and a run of output channels, as :data:`ARGUMENTS` say."""
    quads = a[_IMAGES] * a[_ROWS] * a[_COLUMNS]
    panels = (quads + QUADS - 1) // QUADS
    tiles = (a[_OC] + SUMS - 1) // SUMS
    units = panels * a[_SPLITS]
    corner = a[_SCRATCH] + share * a[_STRIDE]
    zeros = floats(corner + _ZEROS)
    for i in range(READ):
        zeros[i] = np.float32(0)
    held = np.int64(-1)
    unit = fetch_add(a[_COUNTER], 1)
    while unit < units:
        split, panel = unit % a[_SPLITS], unit // a[_SPLITS]
        low, high = tiles * split // a[_SPLITS], tiles * (split + 1) // a[_SPLITS]
        first = panel * QUADS
        _unit(a, corner, first, min(QUADS, quads - first), low, high, panel == held)
        held = panel
        unit = fetch_add(a[_COUNTER], 1)


def unit_bytes(channels: int, each: int) -> int:
    """Give the bytes of scratch that one share needs."""
    rows = channels + 1 + -(-each // SUMS) * SUMS + 1
    return _HEAD + PRODUCTS * rows * 4 * PANEL
