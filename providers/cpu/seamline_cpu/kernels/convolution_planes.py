"""
Convolution of windows larger than one pixel, float32: tiles read padded planes in place.

Nothing is laid out per window position: a tile of weights runs over neighbouring pixels,
and each tap is an offset into the planes of a block of output rows. A unit of work is such
a block and a run of row tiles. It goes over the channels in slabs, so small that what a
panel of pixels sees stays in the first-level cache while every row tile passes over it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.windows import Window
from seamline_cpu.atomics import fetch_add
from seamline_cpu.block_moves import fill_floats
from seamline_cpu.commands import bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.convolution_tiles import copy_tile, in_units, limited
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue, finish
from seamline_cpu.kernels.padded_planes import Planes, fill_planes, planes_of
from seamline_cpu.pixel_tiles import (
    narrow_tap_tile,
    narrow_tap_tile_onto,
    placed_tile,
    placed_tile_onto,
)
from seamline_cpu.tiles import COLUMNS, LANES, ROWS

__all__ = ["bind_planes", "planes_bytes", "slab_of", "suits_planes"]

_Array = np.ndarray[Any, Any]
_CACHE = 112 << 10  # bytes of planes: weights pass through the second-level cache too
_FEW_TILES = 8
_TAPS_HELD = (288, 1152)  # of a slab, under few row tiles and under many
_ROWS_WANTED = 4  # of a block: those between two blocks are spread for both
_LEAST_SLAB = 8
_TILE = 4 * ROWS * COLUMNS
_ROOM = 1024  # floats for what an epilogue lays side by side; planes keep their padding
_HEAD = _TILE + 4 * _ROOM

(_X, _W, _B, _Y, _SCRATCH, _STRIDE, _IMAGES, _GROUPS, _C, _OC, _H, _WIDTH, _OH, _OW, _SH,
 _SW, _PH, _PW, _ROWS, _HELD, _PITCH, _PLANE, _OFFSETS, _TAPS, _SPLITS, _FLAT, _SLAB,
 _COUNTER, _LIMITS, _HELD_SUMS, _FUNCTION, _NUMBERS, _MORE) = range(33)  # fmt: skip


@jit
def _edge(a: Any, out: int, row: int, limit: int, column: int, rows: int, columns: int,
          sums: int) -> None:  # fmt: skip
    """Copy a tile that runs over ends of rows to the output, piece by piece."""
    width, begin = a[_OW], 0
    while begin < columns and row < limit:
        wide = min(columns - begin, width - column)
        to = out + (row * width + column) * 4
        copy_tile(sums + begin * 4, 4 * columns, to, a[_OH] * width * 4, rows, wide)
        begin += a[_PITCH] - column
        row += 1
        column = 0


@jit
def _tile(left: int, right: int, deep: int, bias: int, out: int, pitch: int, limits: int,
          offsets: int, onto: bool, count: int) -> None:  # fmt: skip
    """Compute a tile of one row tile, or a narrow one of two."""
    if count == 2:
        apart = deep * 4 * ROWS
        if onto:
            narrow_tap_tile_onto(
                left, right, deep, bias, out, pitch, limits, offsets, apart
            )
        else:
            narrow_tap_tile(left, right, deep, bias, out, pitch, limits, offsets, apart)
    elif onto:
        placed_tile_onto(left, right, deep, bias, out, pitch, limits, offsets)
    else:
        placed_tile(left, right, deep, bias, out, pitch, limits, offsets)


@jit
def _panel(a: Any, which: int, right: int, first: int, row: int, limit: int, column: int,
           columns: int, low: int, high: int, start: int, held: int) -> None:  # fmt: skip
    """
    Add one slab to a panel, which begins at a row and column of the block.

    ``columns`` is how many pixels there are, those between rows among them. Tiles that are
    cut are at ``held`` until their last slab.
    """
    pixels, width = a[_OH] * a[_OW], a[_OW]
    tiles = (a[_OC] + ROWS - 1) // ROWS
    group = which % a[_GROUPS]
    deep = min(a[_SLAB], a[_C] - start) * a[_TAPS]
    weights = a[_W] + (group * a[_C] + start) * a[_TAPS] * tiles * 4 * ROWS
    biases = a[_B] + group * tiles * 4 * ROWS
    last = start + a[_SLAB] >= a[_C]
    limits = a[_LIMITS] + (8 if last else 0)
    t = low
    while t < high:
        count = 2 if columns <= LANES and t + 1 < high else 1
        wide = COLUMNS // count
        left = weights + t * deep * 4 * ROWS
        bias = biases + t * 4 * ROWS
        rows = min(count * ROWS, a[_OC] - t * ROWS)
        out = a[_Y] + ((which * a[_OC] + t * ROWS) * pixels + first * width) * 4
        whole = rows == count * ROWS and column + wide <= width
        to = out + (row * width + column) * 4 if whole else held + (t - low) * _TILE
        pitch = pixels * 4 if whole else 4 * wide
        _tile(left, right, deep, bias, to, pitch, limits, a[_OFFSETS], start > 0, count)
        if last and not whole:
            _edge(a, out, row, limit, column, rows, wide, to)
        t += count


@jit
def _slab(
    a: Any, which: int, first: int, low: int, high: int, start: int, corner: int
) -> None:
    """Add one slab of channels to the tiles of a unit."""
    base, held = corner + _HEAD, corner + a[_HELD_SUMS]
    for c in range(min(a[_SLAB], a[_C] - start)):
        fill_planes(
            a[_X] + (which * a[_C] + start + c) * a[_H] * a[_WIDTH] * 4,
            base + c * a[_PLANE] * 4, a[_H], a[_WIDTH], a[_SH], a[_SW], a[_PH],
            a[_PW], first, a[_HELD], a[_PITCH], np.float32(0),
        )  # fmt: skip
    rows, pitch, width = min(a[_ROWS], a[_OH] - first), a[_PITCH], a[_OW]
    if a[_FLAT] != 0:
        length = (rows - 1) * pitch + width
        for q in range(0, length, COLUMNS):
            _panel(
                a, which, base + q * 4, first, q // pitch, rows, q % pitch,
                min(COLUMNS, length - q), low, high, start, held,
            )  # fmt: skip
            held += (high - low) * _TILE
        return
    alone = a[_SLAB] >= a[_C] and width >= COLUMNS
    for row in range(rows):
        for q in range(0, width, COLUMNS):
            # The last tile of a row overlaps the one before, unless sums are added to.
            at = min(q, width - COLUMNS) if alone else q
            _panel(
                a, which, base + (row * pitch + at) * 4, first, row, row + 1, at,
                min(COLUMNS, width - at), low, high, start, held,
            )  # fmt: skip
            held += (high - low) * _TILE


@jit
def _finish(a: Any, which: int, first: int, low: int, high: int, corner: int) -> None:
    """Do the epilogue of a unit whose sums are complete."""
    width, row = a[_OW], low * ROWS
    shift = ((which * a[_OC] + row) * a[_OH] + first) * width * 4
    rows = min(high * ROWS, a[_OC]) - row
    more = a[_MORE] + shift if a[_MORE] != 0 else 0
    count = min(a[_ROWS], a[_OH] - first) * width
    finish(
        a[_FUNCTION],
        a[_NUMBERS],
        more,
        a[_Y] + shift,
        rows,
        count,
        a[_OH] * width,
        corner,
        _ROOM,
    )


@command
def _planes(a: Any, share: int, shares: int) -> None:
    tiles = (a[_OC] + ROWS - 1) // ROWS
    blocks = (a[_OH] + a[_ROWS] - 1) // a[_ROWS]
    units = a[_IMAGES] * blocks * a[_SPLITS]
    corner = a[_SCRATCH] + share * a[_STRIDE]
    fill_floats(corner + _HEAD, (a[_HELD_SUMS] - _HEAD) // 4, np.float32(0))
    unit = fetch_add(a[_COUNTER], 1)
    while unit < units:
        split, place = unit % a[_SPLITS], unit // a[_SPLITS]
        first = place % blocks * a[_ROWS]
        low, high = tiles * split // a[_SPLITS], tiles * (split + 1) // a[_SPLITS]
        for start in range(0, max(1, a[_C]), a[_SLAB]):
            _slab(a, place // blocks, first, low, high, start, corner)
        if a[_FUNCTION] != 0 or a[_MORE] != 0:
            _finish(a, place // blocks, first, low, high, corner)
        unit = fetch_add(a[_COUNTER], 1)


def suits_planes(window: Window) -> bool:
    """Tell whether a window of three axes is one that planes serve well."""
    flat = window.kernel[0] == 1 and window.sizes[0] == 1 and window.outs[0] == 1
    small = window.strides[1] * window.strides[2] <= 4
    return flat and small and window.begins[0] == 0 and max(window.kernel) > 1


def slab_of(window: Window, each: int) -> int:
    """Give how many channels make a slab, for ``each`` outputs in a group."""
    # The planes of a stride are several times as large; long slabs would leave few rows.
    long = each > _FEW_TILES * ROWS and window.strides[1] * window.strides[2] == 1
    slab = max(1, _TAPS_HELD[long] // int(np.prod(window.kernel)))
    wanted = min(_ROWS_WANTED, window.outs[1])
    while slab > _LEAST_SLAB and planes_of(window, slab, _CACHE, 1).rows < wanted:
        slab //= 2
    return slab


def _chosen(window: Window, channels: int, each: int) -> Planes:
    held = min(channels, slab_of(window, each))
    return planes_of(window, held, _CACHE, max(1, window.outs[1] // 8))


def _sums_at(window: Window, channels: int, each: int) -> int:
    """Give how far into a share's scratch the planes end, and tiles that are cut begin."""
    held = max(1, min(channels, slab_of(window, each)))
    return _HEAD + _chosen(window, channels, each).stride * held * 4


def planes_bytes(window: Window, channels: int, each: int, shares: int) -> int:
    """Give the bytes of scratch that ``shares`` shares need."""
    planes, width = _chosen(window, channels, each), window.outs[2]
    panels = planes.rows * -(-max(planes.pitch, width) // COLUMNS)
    tiles = -(-each // ROWS) * panels
    return shares * (_sums_at(window, channels, each) + tiles * _TILE) + 64


def bind_planes(
    x: _Array,
    packed: _Array,
    bias: _Array,
    out: _Array,
    window: Window,
    groups: int,
    scratch: _Array,
    threads: int,
    epilogue: Epilogue = PLAIN,
) -> Callable[[], None]:
    """Bind a convolution over weights in slabs of ``slab_of`` channels."""
    channels, count = x.shape[1] // groups, out.shape[1] // groups
    planes, slab = _chosen(window, channels, count), slab_of(window, count)
    taps = int(np.prod(window.kernel))
    offsets = planes.offsets(min(channels, slab))
    images, tiles = x.shape[0] * groups, -(-count // ROWS)
    units = images * -(-window.outs[1] // planes.rows)
    splits = max(1, min(tiles // 4, -(-8 // max(1, units))))
    shares = threads if out.size * channels * taps > 60_000 else 1
    # A tile takes 6 cycles a tap; cutting one at the ends of rows some 100 more.
    deep = max(1, offsets.size)
    by_rows = -(-window.outs[2] // COLUMNS) * COLUMNS * 6 * deep
    in_one = planes.pitch * (6 * deep + 100)
    counter, (limits, rest) = np.zeros(8, np.int64), limited(epilogue)
    arguments = [
        x.ctypes.data, packed.ctypes.data, bias.ctypes.data, out.ctypes.data,
        scratch.ctypes.data + -scratch.ctypes.data % 64,
        planes_bytes(window, channels, count, 1) - 64, images, groups, channels, count,
        *window.sizes[1:], *window.outs[1:], *window.strides[1:], *window.begins[1:],
        planes.rows, planes.held, planes.pitch, planes.stride, offsets.ctypes.data,
        taps, splits, in_one < by_rows, slab, counter.ctypes.data, limits.ctypes.data,
        _sums_at(window, channels, count), *rest,
    ]  # fmt: skip
    kept = (x, packed, bias, out, scratch, offsets, counter, limits, epilogue)
    return in_units(bind(_planes, arguments, shares, keep=kept), counter)
