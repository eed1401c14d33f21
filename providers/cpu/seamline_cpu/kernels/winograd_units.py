"""
The command of :mod:`seamline_cpu.kernels.convolution_winograd`, and its scratch.

A unit of work is a panel of tiles and a run of output channels: the panel's inputs are
transformed for all channels, a small matrix product is made for each point, and the outputs
are written. Both the transformed inputs and the products stay in the second-level cache, and
only weights come from further away. A unit with an output that is not finite is computed
again, directly, since the transforms would spread it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import fetch_add, floats
from seamline_cpu.commands import command
from seamline_cpu.folds import copy_floats
from seamline_cpu.jit import jit
from seamline_cpu.kernels.epilogues import finish
from seamline_cpu.kernels.winograd_inputs import (
    CUT,
    HEAD,
    QUADS,
    READ,
    SOURCES,
    ZEROS,
    apart_of,
    read_inputs,
)
from seamline_cpu.kernels.winograd_places import (
    ARGUMENTS,
    compute_anew,
    extent,
    output_at,
    position,
)
from seamline_cpu.winograd import TILE
from seamline_cpu.winograd_tiles import (
    PANEL,
    QUAD,
    RUN,
    SUMS,
    gather_fives,
    gather_threes,
    gather_tiles,
    point_sums,
)

__all__ = ["unit_bytes", "winograd"]

(_POINTS, _B, _Y, _SCRATCH, _STRIDE, _IMAGES, _C, _OC, _OH, _OW, _ROWS, _COLUMNS, _SPLITS,
 _LIMITS, _COUNTER, _TILE, _PRODUCTS, _DOWN, _ALONG, _FUNCTION, _NUMBERS, _MORE) = (
    ARGUMENTS.index(name) for name in (
        "points", "bias", "y", "scratch", "stride", "images", "channels", "outputs",
        "down", "across", "rows", "columns", "splits", "limits", "counter", "tile",
        "products", "taps_down", "taps_along", "function", "numbers", "more"))  # fmt: skip


@jit
def _gather(a: Any, source: int, apart: int, m: int, low: int, low_pitch: int, high: int,
            high_pitch: int) -> Any:  # fmt: skip
    """Make the outputs of two quads of channel ``m``."""
    bias, limits = a[_B] + m * 4, a[_LIMITS]
    if a[_DOWN] > 1:
        return gather_tiles(
            source, apart, bias, limits, low, low_pitch, high, high_pitch
        )
    if a[_ALONG] == 3:
        return gather_threes(
            source, apart, bias, limits, low, low_pitch, high, high_pitch
        )
    return gather_fives(source, apart, bias, limits, low, low_pitch, high, high_pitch)


@jit
def _outputs(a: Any, corner: int, one: int, two: int, count: int, low: int, high: int,
             sums: int, apart: int) -> int:  # fmt: skip
    """Write two quads, of which ``count`` are there; not 0 where one is not finite."""
    plane, pitch = a[_OH] * a[_OW] * 4, a[_OW] * 4
    cut, cut_pitch = corner + CUT, 4 * RUN
    rows, columns = extent(a, one)
    more_rows, more_columns = extent(a, two)
    whole = rows == a[_TILE] and columns == RUN
    more_whole = count == 2 and more_rows == a[_TILE] and more_columns == RUN
    out, more_out = (
        a[_Y] + output_at(a, one, low) * 4,
        a[_Y] + output_at(a, two, low) * 4,
    )
    wrong = 0
    for m in range(low, high):
        wrong |= _gather(
            a, sums + (m - low) * 4 * PANEL, apart, m,
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
        rows, n = min(a[_TILE], a[_OH] - row), min(count * RUN, a[_OW] - column)
        for m in range(low, high):
            shift = output_at(a, quad, m) * 4
            more = a[_MORE] + shift if a[_MORE] != 0 else 0
            finish(
                a[_FUNCTION], a[_NUMBERS], more, a[_Y] + shift, rows, n, a[_OW], corner,
                (SOURCES - 64) // 4,
            )  # fmt: skip
        quad += count
        quads -= count


@jit
def _unit(a: Any, corner: int, first: int, quads: int, low: int, high: int,
          held: bool) -> None:  # fmt: skip
    """Compute a panel of quads from ``first`` on; its inputs may be there already."""
    tiles = (a[_OC] + SUMS - 1) // SUMS
    inputs, apart = corner + HEAD, apart_of(a[_C])
    end = min(a[_OC], high * SUMS)
    sums, sums_apart = inputs + a[_PRODUCTS] * apart, apart_of((high - low) * SUMS)
    if not held:
        for pair in range(0, QUADS, 2):
            # Quads that are not there repeat the last, so that nothing is left undefined.
            one, two = first + min(pair, quads - 1), first + min(pair + 1, quads - 1)
            read_inputs(a, corner, one, two, inputs + pair * 4 * QUAD)
    for k in range(a[_PRODUCTS]):
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
    zeros = floats(corner + ZEROS)
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


def unit_bytes(products: int, channels: int, each: int) -> int:
    """Give the bytes of scratch that one share needs, for so many points."""
    rows = channels + 1 + -(-each // SUMS) * SUMS + 1
    return HEAD + products * rows * 4 * PANEL
