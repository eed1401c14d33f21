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

from collections.abc import Callable
from typing import Any

import numpy as np

from seamline_cpu.atomics import fetch_add, floats
from seamline_cpu.commands import bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.convolution_tiles import copy_tile, in_units
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue, finish
from seamline_cpu.kernels.windows import Window
from seamline_cpu.tiles import (
    COLUMNS,
    ROWS,
    copy_row,
    dot_tile,
    dot_tile_onto,
    tap_tile,
    tap_tile_onto,
)

__all__ = ["SLAB", "bind_pointwise", "pointwise_bytes", "suits_pointwise"]

_Array = np.ndarray[Any, Any]
SLAB = 256  #: channels: 16 KB of a panel, half of a first-level cache
_PANELS = 8  # of a unit: runs of 512 bytes, which a core fetches ahead
_TILE = 4 * ROWS * COLUMNS
_SCRATCH_BYTES = _TILE + _PANELS * (SLAB + 1) * 4 * COLUMNS
_DIRECT = 4  # row tiles up to which laying pixels out does not pay
_WORK = 30_000  # cycles that a unit takes at least: ten microseconds

(_X, _W, _B, _Y, _SCRATCH, _IMAGES, _GROUPS, _C, _OC, _PIXELS, _BLOCK, _SPLITS, _OFFSETS,
 _COUNTER, _FUNCTION, _NUMBERS, _MORE) = range(17)  # fmt: skip


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
def _tile(left: int, right: int, deep: int, bias: int, out: int, pitch: int, places: int,
          onto: bool) -> None:  # fmt: skip
    """Compute one tile, from pixels laid out, or where ``places`` finds them."""
    if places != 0:
        if onto:
            tap_tile_onto(left, right, deep, bias, out, pitch, places)
        else:
            tap_tile(left, right, deep, bias, out, pitch, places)
    elif onto:
        dot_tile_onto(left, right, deep, bias, out, pitch)
    else:
        dot_tile(left, right, deep, bias, out, pitch)


@jit
def _slab(a: Any, which: int, first: int, last: int, low: int, high: int, start: int,
          corner: int) -> None:  # fmt: skip
    """Add one slab of channels to the tiles of a unit."""
    pixels, depth, group = a[_PIXELS], a[_C], which % a[_GROUPS]
    tiles = (a[_OC] + ROWS - 1) // ROWS
    deep, pitch = min(SLAB, depth - start), pixels * 4
    laid = corner + _TILE
    x = a[_X] + (which * depth + start) * pitch
    whole = pixels // COLUMNS
    if a[_OFFSETS] == 0:
        _lay(x, pixels, first, last, deep, laid)
    elif last > whole:  # a vector must not reach past the input's end
        _lay(x, pixels, whole, last, deep, laid)
    for panel in range(first, last):
        columns = min(COLUMNS, pixels - panel * COLUMNS)
        direct = a[_OFFSETS] != 0 and columns == COLUMNS
        index = 0 if a[_OFFSETS] != 0 else panel - first
        right = laid + index * (SLAB + 1) * 4 * COLUMNS
        if direct:
            right = x + panel * 4 * COLUMNS
        for t in range(low, high):
            left = a[_W] + (group * depth + start) * tiles * 4 * ROWS
            left += t * deep * 4 * ROWS
            rows = min(ROWS, a[_OC] - t * ROWS)
            out = a[_Y] + ((which * a[_OC] + t * ROWS) * pixels + panel * COLUMNS) * 4
            bias = a[_B] + (group * tiles + t) * 4 * ROWS
            places = a[_OFFSETS] if direct else 0
            if rows < ROWS or columns < COLUMNS:
                if start > 0:
                    copy_tile(out, pitch, corner, 4 * COLUMNS, rows, columns)
                _tile(left, right, deep, bias, corner, 4 * COLUMNS, places, start > 0)
                copy_tile(corner, 4 * COLUMNS, out, pitch, rows, columns)
            else:
                _tile(left, right, deep, bias, out, pitch, places, start > 0)


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


def _division(images: int, panels: int, tiles: int, depth: int) -> tuple[int, int]:
    """Choose a unit's panels, and into how many parts the row tiles are cut."""
    blocks = -(-panels // _PANELS)
    block = -(-panels // blocks)
    cycles = ROWS * depth * tiles * block
    wanted = min(max(1, cycles // _WORK), max(1, 16 // (images * blocks)))
    return block, min(wanted, max(1, tiles // 4))


def bind_pointwise(
    x: _Array,
    packed: _Array,
    bias: _Array,
    out: _Array,
    groups: int,
    scratch: _Array,
    threads: int,
    epilogue: Epilogue = PLAIN,
) -> Callable[[], None]:
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
    block, splits = _division(images, -(-pixels // COLUMNS), tiles, channels)
    counter = np.zeros(8, np.int64)
    arguments = [
        x.ctypes.data, packed.ctypes.data, bias.ctypes.data, out.ctypes.data,
        scratch.ctypes.data + -scratch.ctypes.data % 64, images, groups, channels, count,
        pixels, block, splits, offsets.ctypes.data if direct else 0, counter.ctypes.data,
        *epilogue.arguments,
    ]  # fmt: skip
    shares = threads if out.size * channels > 60_000 else 1
    kept = (x, packed, bias, out, scratch, offsets, counter, epilogue)
    return in_units(bind(_pointwise, arguments, shares, keep=kept), counter)
