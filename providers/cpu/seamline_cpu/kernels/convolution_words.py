"""
Convolution of bytes, exact: tiles read planes of words in place; see :mod:`~.word_blocks`.

**Pairs.** A word holds two channels as int16 less the zero point, so padding is zero.

**Fours.** With VNNI a word holds four channels as unsigned bytes, and padding is the zero
point itself. Every sum has then the zero point times all weights of its channel too much,
at the ends of rows as well; it is what a tile's sums begin with.

A unit of work is a block, or a part of the tiles of weights over a block. What follows the
sums (:mod:`~.convolution_endings`) is done at the end of each.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline.windows import Window
from seamline_cpu.atomics import bytes_at, fetch_add, ints, longs
from seamline_cpu.commands import Command, Native, bind, command
from seamline_cpu.integer_tiles import VARIANT, tap_tile_of_words
from seamline_cpu.jit import jit
from seamline_cpu.kernels.convolution_endings import (
    ENDING_BYTES,
    ConvolutionEnding,
    end_block,
)
from seamline_cpu.kernels.convolution_tiles import copy_tile, in_units
from seamline_cpu.kernels.word_blocks import HEAD, TILE, WordBlocks, splits_of
from seamline_cpu.kernels.word_rows import filler
from seamline_cpu.tiles import COLUMNS, ROWS

__all__ = ["bind_words"]

_Array = np.ndarray[Any, Any]
_ENDED = 96 << 10  # bytes of sums that end together, while they are in the cache
_SHARED_FROM = 60_000  # multiply-adds from which more threads pay

(_X, _W, _B, _Y, _SCRATCH, _STRIDE, _IMAGES, _GROUPS, _C, _OC, _H, _WIDTH, _OH, _OW, _SH,
 _SW, _PH, _PW, _ROWS, _COLS, _HELD, _PITCH, _PLANE, _OFFSETS, _DEPTH, _SPLITS, _FLAT,
 _ZERO, _SIGN, _COUNTER, _TOTALS, _END, _PLANES, _CHUNK) = range(34)  # fmt: skip


@functools.cache
def _planes(group: int) -> Any:
    """Give what spreads some channels over their planes, from an output place on."""
    fill = filler(group)

    @jit
    def fill_planes(a: Any, first: int, there: int, target: int, row: int, column: int,
                    base: int) -> None:  # fmt: skip
        sh, sw, pitch, width = a[_SH], a[_SW], a[_PITCH], a[_WIDTH]
        blank = np.int32(base * 0x01010101) if group == 4 else np.int32(0)
        for down in range(sh):
            for right in range(sw):
                # Word i is input column ``i * sw + shift``.
                shift = column * sw + right - a[_PW]
                begin = min(pitch, max(0, (-shift + sw - 1) // sw))
                end = min(pitch, max(begin, (width - shift + sw - 1) // sw))
                for j in range(a[_HELD]):
                    h = (row + j) * sh + down - a[_PH]
                    to = ints(target)
                    inside = 0 <= h < a[_H]
                    for i in range(begin if inside else pitch):
                        to[i] = blank
                    if inside:
                        at = h * width + begin * sw + shift
                        fill(first + at, a[_H] * width, there, target + 4 * begin,
                             a[_SIGN], base, sw, end - begin)  # fmt: skip
                        for i in range(end, pitch):
                            to[i] = blank
                    target += 4 * pitch

    return fill_planes


@jit
def _copy_back(a: Any, out: int, row: int, limit: int, column: int, width: int, rows: int,
               corner: int) -> None:  # fmt: skip
    """Copy a tile that runs over ends of rows to the output, piece by piece."""
    begin = 0
    while begin < COLUMNS and row < limit:
        wide = min(COLUMNS - begin, width - column)
        to = out + (row * a[_OW] + column) * 4
        copy_tile(corner + begin * 4, 4 * COLUMNS, to, a[_OH] * a[_OW] * 4, rows, wide)
        begin += a[_PITCH] - column
        row += 1
        column = 0


@jit
def _begin(bias: int, totals: int, base: int, out: int) -> None:
    """Write what a tile's rows begin with: the bias less the zero point times the weights."""
    first, whole, to = ints(bias), ints(totals), ints(out)
    for r in range(ROWS):
        to[r] = np.int32(first[r] - np.int32(np.int32(base) * whole[r]))


@functools.cache
def _tiles(variant: str, group: int) -> Any:
    """Give what runs tiles of weights over a block of rows and columns."""
    tile = tap_tile_of_words(variant, group)

    @jit
    def run_tiles(a: Any, which: int, low: int, high: int, first: int, start: int,
                  corner: int, base: int) -> None:  # fmt: skip
        pixels, deep, pitch = a[_OH] * a[_OW], a[_DEPTH], a[_PITCH]
        rows, width = min(a[_ROWS], a[_OH] - first), min(a[_COLS], a[_OW] - start)
        if pitch == a[_OW]:  # nothing lies between rows: they are one
            rows, width = 1, rows * width
            pitch = width
        count = (a[_OC] + ROWS - 1) // ROWS
        lines = 1 if a[_FLAT] != 0 else rows
        length = (rows - 1) * pitch + width if a[_FLAT] != 0 else width
        for t in range(low, high):
            place = which % a[_GROUPS] * count + t
            left = a[_W] + place * deep * 4 * ROWS
            bias = a[_B] + place * 4 * ROWS
            if group == 4:
                _begin(bias, a[_TOTALS] + place * 4 * ROWS, base, corner + TILE)
                bias = corner + TILE
            whole = min(ROWS, a[_OC] - t * ROWS)
            out = a[_Y] + 4 * (
                (which * a[_OC] + t * ROWS) * pixels + first * a[_OW] + start
            )
            for line in range(lines):
                for q in range(0, length, COLUMNS):
                    at = line * pitch + q
                    if lines == rows and width >= COLUMNS:
                        # The last tile of a row overlaps the one before.
                        at = line * pitch + min(q, width - COLUMNS)
                    row, column = at // pitch, at % pitch
                    right = corner + HEAD + at * 4
                    if whole == ROWS and column + COLUMNS <= width:
                        to = out + (row * a[_OW] + column) * 4
                        tile(left, right, deep, bias, to, pixels * 4, a[_OFFSETS])
                        continue
                    tile(left, right, deep, bias, corner, 4 * COLUMNS, a[_OFFSETS])
                    limit = row + 1 if a[_FLAT] == 0 else rows
                    _copy_back(a, out, row, limit, column, width, whole, corner)

    return run_tiles


@functools.cache
def _words(variant: str, group: int) -> Command:
    fill_planes, run_tiles = _planes(group), _tiles(variant, group)

    def run(a: Any, share: int, shares: int) -> None:
        count = (a[_OC] + ROWS - 1) // ROWS
        downs = (a[_OH] + a[_ROWS] - 1) // a[_ROWS]
        across = (a[_OW] + a[_COLS] - 1) // a[_COLS]
        units = a[_IMAGES] * downs * across * a[_SPLITS]
        corner = a[_SCRATCH] + share * a[_STRIDE]
        sign = a[_SIGN]
        base = np.int64(bytes_at(a[_ZERO])[0]) ^ sign  # flipped, as the pixels are
        held = np.int64(-1)
        unit = fetch_add(a[_COUNTER], 1)
        while unit < units:
            split, place = unit % a[_SPLITS], unit // a[_SPLITS]
            block, which = place % (downs * across), place // (downs * across)
            first, start = block // across * a[_ROWS], block % across * a[_COLS]
            if place != held:
                for c in range(0, a[_C], group):
                    source = a[_X] + (which * a[_C] + c) * a[_H] * a[_WIDTH]
                    to = corner + HEAD + c // group * a[_PLANE] * 4
                    fill_planes(
                        a, source, min(group, a[_C] - c), to, first, start, base
                    )
                held = place
            low, high = count * split // a[_SPLITS], count * (split + 1) // a[_SPLITS]
            for t in range(low, high, a[_CHUNK]):
                end = min(t + a[_CHUNK], high)
                run_tiles(a, which, t, end, first, start, corner, base)
                if a[_END] != 0:
                    end_block(
                        longs(a[_END]), which, t * ROWS, min(end * ROWS, a[_OC]), first,
                        min(a[_ROWS], a[_OH] - first), start,
                        min(a[_COLS], a[_OW] - start), corner + a[_PLANES],
                    )  # fmt: skip
            unit = fetch_add(a[_COUNTER], 1)

    return command(run)


def bind_words(
    x: _Array,
    packed: _Array,
    bias: _Array,
    out: _Array,
    window: Window,
    scratch: _Array,
    threads: int,
    zero: _Array | None,
    ending: ConvolutionEnding | None = None,
    totals: _Array | None = None,
    variant: str = VARIANT.variant,
) -> Native:
    """
    Bind int32 sums over weights of :func:`~.word_blocks.pack_channels`.

    Parameters
    ----------
    x
        uint8 or int8; all arrays must keep their addresses.
    bias
        int32, as :func:`~.convolution_tiles.pack_bias` lays it out.
    scratch
        For each share of ``words_bytes``, and ``ENDING_BYTES``; and 64 bytes.
    zero
        The zero point of ``x``, one element, read in each run.
    ending
        What becomes of the sums in ``out``, or None.
    totals
        Of weights in fours, the sum of each channel's, laid out as the bias.
    """
    groups, tiles = packed.shape[:2]
    group = packed.shape[-1]
    channels, count = x.shape[1] // groups, out.shape[1] // groups
    blocks = WordBlocks.of(window, channels, count, group)
    offsets = blocks.offsets()
    images = x.shape[0] * groups
    splits = splits_of(tiles, images * blocks.count)
    multiplied = out.size * channels * int(np.prod(window.kernel))
    shares = threads if multiplied > _SHARED_FROM else 1
    point = np.zeros(1, x.dtype) if zero is None else zero
    # A tile takes 6 cycles a tap; cutting one at the ends of rows some 100 more.
    by_rows = -(-blocks.columns // COLUMNS) * COLUMNS * 6 * offsets.size
    in_one = blocks.pitch * (6 * offsets.size + 100)
    counter = np.zeros(8, np.int64)
    end = None if ending is None else ending.arguments(groups, window.outs[2])
    chunk = max(1, tiles if end is None else _ENDED // (4 * ROWS * blocks.pixels))
    addresses = [0 if one is None else one.ctypes.data for one in (totals, end)]
    arguments = [
        x.ctypes.data, packed.ctypes.data, bias.ctypes.data, out.ctypes.data,
        scratch.ctypes.data + -scratch.ctypes.data % 64, blocks.nbytes + ENDING_BYTES,
        images, groups, channels, count, *window.sizes[1:], *window.outs[1:],
        *window.strides[1:], *window.begins[1:], blocks.rows, blocks.columns, blocks.held,
        blocks.pitch, blocks.stride, offsets.ctypes.data, offsets.size, splits,
        in_one < by_rows, point.ctypes.data, 128 if x.dtype == np.int8 else 0,
        counter.ctypes.data, *addresses, blocks.nbytes, chunk,
    ]  # fmt: skip
    kept = (x, packed, bias, out, scratch, offsets, counter, point, ending, end, totals)
    return in_units(bind(_words(variant, group), arguments, shares, keep=kept), counter)
