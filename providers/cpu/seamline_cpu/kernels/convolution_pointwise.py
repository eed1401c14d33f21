"""
Convolution with windows of one pixel and a stride of one: a product of two matrices.

A unit of work is a few panels of neighbouring pixels and a run of row tiles. It goes over
the channels in slabs: a panel's slab stays in the first-level cache while every row tile
passes over it, and the weights' slab in the second-level cache from panel to panel. Laying
a panel out costs as much as a third of a row tile, so under a few row tiles the pixels are
read where they lie. Units are taken one by one from a counter: a thread that is held up
delays one unit, not half of the work.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.windows import Window
from seamline_cpu.atomics import fetch_add, floats
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.convolution_tiles import copy_tile, in_units, limited
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue, finish
from seamline_cpu.pixel_tiles import (
    laid_tile,
    laid_tile_onto,
    narrow_tile,
    narrow_tile_onto,
    placed_tile,
    placed_tile_onto,
)
from seamline_cpu.tiles import COLUMNS, LANES, ROWS, copy_row

__all__ = ["SLAB", "bind_pointwise", "pointwise_bytes", "suits_pointwise"]

_Array = np.ndarray[Any, Any]
SLAB = 256  #: channels: 16 KB of a panel, half of a first-level cache
_PANELS = 4  # of a unit: with longer ones, sums pass out of the first-level cache
_TILE = 4 * ROWS * COLUMNS
_SCRATCH_BYTES = _TILE + _PANELS * (SLAB + 1) * 4 * COLUMNS
_DIRECT = 4  # row tiles up to which laying pixels out does not pay
_UNITS = 3  # for a thread, at least where that costs little: threads then end together

(_X, _W, _B, _Y, _SCRATCH, _IMAGES, _GROUPS, _C, _OC, _PIXELS, _BLOCK, _SPLITS, _OFFSETS,
 _COUNTER, _LIMITS, _FUNCTION, _NUMBERS, _MORE) = range(18)  # fmt: skip


@jit
def _lay(x: int, pixels: int, first: int, last: int, deep: int, to: int) -> None:
    """Lay out panels ``first`` to ``last``, one after the other, from ``deep`` channels."""
    # One row more than a slab has keeps panels off each other's places in the cache.
    size = (SLAB + 1) * 4 * COLUMNS
    whole = min(last, pixels // COLUMNS)
    for k in range(deep):
        row = x + k * pixels * 4
        at = to + k * 4 * COLUMNS
        for panel in range(first, whole):
            copy_row(at + (panel - first) * size, row + panel * 4 * COLUMNS)
        if whole < last:
            source = floats(row + whole * 4 * COLUMNS)
            target = floats(at + (whole - first) * size)
            for i in range(COLUMNS):
                inside = whole * COLUMNS + i < pixels
                target[i] = source[i] if inside else np.float32(0)


@jit
def _tile(left: int, right: int, deep: int, bias: int, out: int, pitch: int, limits: int,
          places: int, onto: bool) -> None:  # fmt: skip
    """Compute one tile, from pixels laid out, or where ``places`` finds them."""
    if places != 0:
        if onto:
            placed_tile_onto(left, right, deep, bias, out, pitch, limits, places)
        else:
            placed_tile(left, right, deep, bias, out, pitch, limits, places)
    elif onto:
        laid_tile_onto(left, right, deep, bias, out, pitch, limits)
    else:
        laid_tile(left, right, deep, bias, out, pitch, limits)


@jit
def _narrow(left: int, right: int, deep: int, bias: int, out: int, pitch: int, limits: int,
            onto: bool) -> None:  # fmt: skip
    """Compute a narrow tile of two row tiles, from pixels laid out."""
    apart = deep * 4 * ROWS
    if onto:
        narrow_tile_onto(left, right, deep, bias, out, pitch, limits, apart)
    else:
        narrow_tile(left, right, deep, bias, out, pitch, limits, apart)


@jit
def _panel(a: Any, which: int, panel: int, right: int, places: int, low: int, high: int,
           start: int, corner: int) -> None:  # fmt: skip
    """Add one slab of channels to the tiles of one panel of pixels."""
    pixels, depth, group = a[_PIXELS], a[_C], which % a[_GROUPS]
    tiles = (a[_OC] + ROWS - 1) // ROWS
    deep, pitch, onto = min(SLAB, depth - start), pixels * 4, start > 0
    columns = min(COLUMNS, pixels - panel * COLUMNS)
    limits = a[_LIMITS] + (8 if start + deep == depth else 0)
    weights = a[_W] + (group * depth + start) * tiles * 4 * ROWS
    t = low
    while t < high:
        count = 2 if columns <= LANES and t + 1 < high else 1
        width = COLUMNS // count
        rows = min(count * ROWS, a[_OC] - t * ROWS)
        out = a[_Y] + ((which * a[_OC] + t * ROWS) * pixels + panel * COLUMNS) * 4
        bias = a[_B] + (group * tiles + t) * 4 * ROWS
        left = weights + t * deep * 4 * ROWS
        whole = rows == count * ROWS and columns == width
        to, apart = (out, pitch) if whole else (corner, 4 * width)
        if onto and not whole:
            copy_tile(out, pitch, to, apart, rows, columns)
        if count == 2:
            _narrow(left, right, deep, bias, to, apart, limits, onto)
        else:
            _tile(left, right, deep, bias, to, apart, limits, places, onto)
        if not whole:
            copy_tile(to, apart, out, pitch, rows, columns)
        t += count


@jit
def _slab(a: Any, which: int, first: int, last: int, low: int, high: int, start: int,
          corner: int) -> None:  # fmt: skip
    """Add one slab of channels to the tiles of a unit."""
    pixels, laid = a[_PIXELS], corner + _TILE
    x = a[_X] + (which * a[_C] + start) * pixels * 4
    whole = pixels // COLUMNS
    deep = min(SLAB, a[_C] - start)
    if a[_OFFSETS] == 0:
        _lay(x, pixels, first, last, deep, laid)
    elif last > whole:  # a vector must not reach past the input's end
        _lay(x, pixels, whole, last, deep, laid)
    for panel in range(first, last):
        if a[_OFFSETS] != 0 and panel < whole:
            at, places = x + panel * 4 * COLUMNS, a[_OFFSETS]
        else:
            index = 0 if a[_OFFSETS] != 0 else panel - first
            at, places = laid + index * (SLAB + 1) * 4 * COLUMNS, 0
        _panel(a, which, panel, at, places, low, high, start, corner)


@jit
def _finish(
    a: Any, which: int, first: int, last: int, low: int, high: int, corner: int
) -> None:
    """Do the epilogue of a unit whose sums are complete."""
    pixels, begin, row = a[_PIXELS], first * COLUMNS, low * ROWS
    shift = ((which * a[_OC] + row) * pixels + begin) * 4
    rows = min(high * ROWS, a[_OC]) - row
    more = a[_MORE] + shift if a[_MORE] != 0 else 0
    count = min(last * COLUMNS, pixels) - begin
    room = (_SCRATCH_BYTES - 64) // 4
    finish(
        a[_FUNCTION],
        a[_NUMBERS],
        more,
        a[_Y] + shift,
        rows,
        count,
        pixels,
        corner,
        room,
    )


@command
def _pointwise(a: Any, share: int, shares: int) -> None:
    tiles = (a[_OC] + ROWS - 1) // ROWS
    panels = (a[_PIXELS] + COLUMNS - 1) // COLUMNS
    blocks = (panels + a[_BLOCK] - 1) // a[_BLOCK]
    units = a[_IMAGES] * blocks * a[_SPLITS]
    corner = a[_SCRATCH] + share * _SCRATCH_BYTES
    unit = fetch_add(a[_COUNTER], 1)
    while unit < units:
        split, place = unit % a[_SPLITS], unit // a[_SPLITS]
        block, which = place % blocks, place // blocks
        first, last = block * a[_BLOCK], min(panels, (block + 1) * a[_BLOCK])
        low, high = tiles * split // a[_SPLITS], tiles * (split + 1) // a[_SPLITS]
        for start in range(0, a[_C], SLAB):
            _slab(a, which, first, last, low, high, start, corner)
        if a[_FUNCTION] != 0 or a[_MORE] != 0:
            _finish(a, which, first, last, low, high, corner)
        unit = fetch_add(a[_COUNTER], 1)


def suits_pointwise(window: Window, channels: int) -> bool:
    """Tell whether a window is one pixel that moves by one, over ``channels`` inputs."""
    ones = {1}
    return (
        channels > 0
        and set(window.kernel) == ones
        and set(window.strides) == ones
        and not any(window.begins)
        and window.sizes == window.outs
    )


def pointwise_bytes(shares: int) -> int:
    """Give the bytes of scratch that ``shares`` shares need."""
    return shares * _SCRATCH_BYTES + 64


def _division(images: int, panels: int, tiles: int, threads: int) -> tuple[int, int]:
    """Choose a unit's panels, and into how many parts the row tiles are cut."""
    blocks = -(-panels // _PANELS)
    block = -(-panels // blocks)
    # Each part lays the pixels out again, which costs a third of a row tile.
    wanted = 1 if threads == 1 else -(-_UNITS * threads // (images * blocks))
    return block, max(1, min(wanted, tiles // 8))


def bind_pointwise(
    x: _Array,
    packed: _Array,
    bias: _Array,
    out: _Array,
    groups: int,
    scratch: _Array,
    threads: int,
    epilogue: Epilogue = PLAIN,
) -> Native:
    """
    Bind a convolution over weights in slabs of ``SLAB`` channels.

    Parameters
    ----------
    bias
        As ``pack_bias`` lays it out.
    """
    pixels = int(np.prod(x.shape[2:]))
    channels, count = x.shape[1] // groups, out.shape[1] // groups
    tiles, images = -(-count // ROWS), x.shape[0] * groups
    # Rows that are a multiple of 512 bytes apart share eight of the cache's sets or fewer.
    direct = tiles <= _DIRECT and pixels * 4 % 512 != 0
    offsets = np.arange(SLAB, dtype=np.int64) * pixels * 4
    shares = threads if out.size * channels > 60_000 else 1
    block, splits = _division(images, -(-pixels // COLUMNS), tiles, shares)
    counter, (limits, rest) = np.zeros(8, np.int64), limited(epilogue)
    arguments = [
        x.ctypes.data, packed.ctypes.data, bias.ctypes.data, out.ctypes.data,
        scratch.ctypes.data + -scratch.ctypes.data % 64, images, groups, channels, count,
        pixels, block, splits, offsets.ctypes.data if direct else 0, counter.ctypes.data,
        limits.ctypes.data, *rest,
    ]  # fmt: skip
    kept = (x, packed, bias, out, scratch, offsets, counter, limits, epilogue)
    return in_units(bind(_pointwise, arguments, shares, keep=kept), counter)
