"""
Convolution of bytes by fewer products, exact; see :mod:`seamline_cpu.integer_transforms`.

A row of the window is cut into short filters of three to five taps, and the output into
groups of four or eight neighbours. The input of a group is transformed to one value a
point; what is left is, for each point, a convolution over groups, as wide as there are
filters that stay apart: the same tiles over the same kind of planes as
:mod:`seamline_cpu.kernels.convolution_words`, and fewer of them. With a dilation of d the
outputs d apart are neighbours: each of the d phases is a row of its own.
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
from seamline_cpu.kernels.transformed_blocks import TALL, Blocks
from seamline_cpu.kernels.word_blocks import TILE, splits_of
from seamline_cpu.kernels.word_rows import fill_row
from seamline_cpu.tiles import COLUMNS, LANES, ROWS
from seamline_cpu.transform_tiles import gather_tile, spread_tile

__all__ = [
    "bind_transformed",
    "transformed_bytes",
]

_Array = np.ndarray[Any, Any]
(_X, _W, _B, _Y, _SCRATCH, _STRIDE, _IMAGES, _GROUPS, _C, _OC, _H, _WIDTH, _OH, _OW, _PH,
 _PW, _D, _ROWS, _RUNS, _HELD, _PITCH, _PLANE, _OFFSETS, _DEPTH, _SPLITS, _POINTS,
 _OUTPUTS, _ZERO, _SIGN, _ZEROS, _COUNTER, _END, _PLANES) = range(33)  # fmt: skip

_pairs_tile = tap_tile_of_words(VARIANT.variant, 2)


@jit
def _stage(a: Any, first: int, second: int, target: int, shift: int, base: int) -> None:
    """Write the phases of a row, whose input 0 is pixel ``shift``; zeros outside."""
    step, width = a[_OUTPUTS] * a[_D], a[_WIDTH]
    count = a[_PITCH] + 2 * LANES
    for i in range(a[_OUTPUTS]):
        at = shift + i * a[_D]
        begin = min(count, max(0, (-at + step - 1) // step))
        end = min(count, max(begin, (width - at + step - 1) // step))
        to = ints(target)
        for j in range(begin):
            to[j] = np.int32(0)
        near = at + begin * step
        other = second + near if second != 0 else second
        fill_row(
            first + near, other, target + 4 * begin, a[_SIGN], base, step, end - begin
        )
        for j in range(end, count):
            to[j] = np.int32(0)
        target += 4 * count


@functools.cache
def _filler(taps: int, joined: int) -> Any:
    """Give what transforms the inputs of a block, for :meth:`Nested.of` these."""
    spread = spread_tile(taps, joined)

    @jit
    def fill(a: Any, which: int, first: int, start: int, base: int, stage: int,
              planes: int) -> None:  # fmt: skip
        """Transform the inputs of a block: output rows ``first`` on, runs ``start`` on."""
        image = a[_H] * a[_WIDTH]
        pairs = (a[_C] + 1) // 2
        vectors = (a[_PITCH] + LANES - 1) // LANES
        apart = 4 * pairs * a[_PLANE]
        for pair in range(pairs):
            one = a[_X] + (which * a[_C] + 2 * pair) * image
            two = one + image if 2 * pair + 1 < a[_C] else 0
            target = planes + 4 * pair * a[_PLANE]
            for line in range(a[_HELD] * a[_D]):
                h, phase = first + line // a[_D] - a[_PH], line % a[_D]
                if h < 0 or h >= a[_H]:
                    for k in range(a[_POINTS]):
                        to = ints(target + k * apart)
                        for j in range(a[_PITCH]):
                            to[j] = np.int32(0)
                else:
                    other = two + h * a[_WIDTH] if two != 0 else two
                    shift = phase - a[_PW] + a[_D] * a[_OUTPUTS] * start
                    _stage(a, one + h * a[_WIDTH], other, stage, shift, base)
                    spread(stage, 4 * (a[_PITCH] + 2 * LANES), target, apart, vectors)
                target += 4 * a[_PITCH]

    return fill


@jit
def _copy_out(a: Any, made: int, out: int, q: int, lines: int, runs: int, start: int,
              rows: int) -> None:  # fmt: skip
    """Copy a panel of runs, which begins at place ``q`` of the block, to the output."""
    begin, line, t, step = 0, q // a[_PITCH], q % a[_PITCH], a[_D]
    apart = 4 * a[_OH] * a[_OW]
    while begin < COLUMNS and line < lines:
        phase = line % step
        left = (a[_OW] - phase + step - 1) // step - a[_OUTPUTS] * (start + t)
        count = min(a[_OUTPUTS] * min(COLUMNS - begin, runs - t), left)
        source = made + 4 * a[_OUTPUTS] * begin
        place = line // step * a[_OW] + phase + step * a[_OUTPUTS] * (start + t)
        if count > 0 and step == 1:
            copy_tile(
                source, 4 * a[_OUTPUTS] * COLUMNS, out + 4 * place, apart, rows, count
            )
        elif count > 0:
            for r in range(rows):
                values = ints(source + 4 * r * a[_OUTPUTS] * COLUMNS)
                to = ints(out + r * apart + 4 * place)
                for j in range(count):
                    to[j * step] = values[j]
        begin += a[_PITCH] - t
        line += 1
        t = 0


@functools.cache
def _tiler(taps: int, joined: int) -> Any:
    """Give what runs tiles of weights over a block, and makes outputs of them."""
    gather = gather_tile(taps, joined)

    @jit
    def run_tiles(a: Any, which: int, low: int, high: int, first: int, start: int, sums: int,
               made: int, planes: int) -> None:  # fmt: skip
        deep, points = a[_DEPTH], a[_POINTS]
        lines = min(a[_ROWS], a[_OH] - first) * a[_D]
        every = ((a[_OW] + a[_D] - 1) // a[_D] + a[_OUTPUTS] - 1) // a[_OUTPUTS]
        runs = min(a[_RUNS], every - start)
        count = (a[_OC] + ROWS - 1) // ROWS
        apart = 4 * ((a[_C] + 1) // 2) * a[_PLANE]
        group = which % a[_GROUPS]
        for block in range(low, high, TALL):
            for q in range(0, (lines - 1) * a[_PITCH] + runs, COLUMNS):
                # A point's pixels stay in the first-level cache for several tiles of weights.
                for k in range(points):
                    for t in range(block, min(high, block + TALL)):
                        weights = (
                            a[_W] + ((group * count + t) * points + k) * deep * 4 * ROWS
                        )
                        _pairs_tile(
                            weights, planes + k * apart + 4 * q, deep, a[_ZEROS],
                            sums + ((t - block) * points + k) * TILE, 4 * COLUMNS,
                            a[_OFFSETS],
                        )  # fmt: skip
                for t in range(block, min(high, block + TALL)):
                    bias = a[_B] + (group * count + t) * 4 * ROWS
                    rows = min(ROWS, a[_OC] - t * ROWS)
                    out = (
                        a[_Y]
                        + 4 * ((which * a[_OC] + t * ROWS) * a[_OH] + first) * a[_OW]
                    )
                    gather(sums + (t - block) * points * TILE, bias, made)
                    _copy_out(a, made, out, q, lines, runs, start, rows)

    return run_tiles


@functools.cache
def _transformed(taps: int, joined: int) -> Command:
    fill, run_tiles = _filler(taps, joined), _tiler(taps, joined)

    def run(a: Any, share: int, shares: int) -> None:
        count = (a[_OC] + ROWS - 1) // ROWS
        downs = (a[_OH] + a[_ROWS] - 1) // a[_ROWS]
        every = ((a[_OW] + a[_D] - 1) // a[_D] + a[_OUTPUTS] - 1) // a[_OUTPUTS]
        across = (every + a[_RUNS] - 1) // a[_RUNS]
        units = a[_IMAGES] * downs * across * a[_SPLITS]
        sums = a[_SCRATCH] + share * a[_STRIDE]
        made = sums + TALL * a[_POINTS] * TILE
        stage = made + a[_OUTPUTS] * TILE
        planes = stage + 4 * a[_OUTPUTS] * (a[_PITCH] + 2 * LANES)
        sign = a[_SIGN]
        zero = bytes_at(a[_ZERO])[0] ^ sign  # flipped, as the pixels are
        held = np.int64(-1)
        unit = fetch_add(a[_COUNTER], 1)
        while unit < units:
            split, place = unit % a[_SPLITS], unit // a[_SPLITS]
            block, which = place % (downs * across), place // (downs * across)
            first, start = block // across * a[_ROWS], block % across * a[_RUNS]
            if place != held:
                fill(a, which, first, start, zero, stage, planes)
                held = place
            low, high = count * split // a[_SPLITS], count * (split + 1) // a[_SPLITS]
            for t in range(low, high, TALL):
                end = min(t + TALL, high)
                run_tiles(a, which, t, end, first, start, sums, made, planes)
                if a[_END] != 0:
                    run_of = a[_OUTPUTS] * a[_D]
                    end_block(
                        longs(a[_END]), which, t * ROWS, min(end * ROWS, a[_OC]), first,
                        min(a[_ROWS], a[_OH] - first), start * run_of,
                        min(a[_RUNS] * run_of, a[_OW] - start * run_of),
                        sums + a[_PLANES],
                    )  # fmt: skip
            unit = fetch_add(a[_COUNTER], 1)

    return command(run)


def transformed_bytes(window: Window, channels: int, each: int, shares: int) -> int:
    """Give the bytes of scratch that ``shares`` shares need, without their endings."""
    return shares * Blocks.of(window, channels, each).nbytes


def bind_transformed(
    x: _Array,
    packed: _Array,
    bias: _Array,
    out: _Array,
    window: Window,
    scratch: _Array,
    threads: int,
    zero: _Array | None,
    ending: ConvolutionEnding | None = None,
) -> Native:
    """Bind int32 sums, as :func:`~.convolution_words.bind_words` does."""
    groups, tiles = packed.shape[:2]
    channels, count = x.shape[1] // groups, out.shape[1] // groups
    blocks = Blocks.of(window, channels, count)
    form, offsets = blocks.form, blocks.offsets()
    images = x.shape[0] * groups
    splits = splits_of(tiles, images * blocks.count)
    end = None if ending is None else ending.arguments(groups, window.outs[2])
    point = np.zeros(1, x.dtype) if zero is None else zero
    zeros, counter = np.zeros(ROWS, np.int32), np.zeros(8, np.int64)
    what = _transformed(form.inner.taps, form.outer.taps)
    arguments = [
        x.ctypes.data, packed.ctypes.data, bias.ctypes.data, out.ctypes.data,
        scratch.ctypes.data + -scratch.ctypes.data % 64, blocks.nbytes + ENDING_BYTES,
        images, groups, channels, count, *window.sizes[1:], *window.outs[1:], *window.begins[1:],
        window.dilations[2], blocks.rows, blocks.runs, blocks.held, blocks.pitch,
        blocks.stride, offsets.ctypes.data, offsets.size, splits,
        form.points, form.outputs, point.ctypes.data, 128 if x.dtype == np.int8 else 0,
        zeros.ctypes.data, counter.ctypes.data, 0 if end is None else end.ctypes.data,
        blocks.nbytes,
    ]  # fmt: skip
    kept = (x, packed, bias, out, scratch, offsets, counter, point, zeros, ending, end)
    return in_units(bind(what, arguments, threads, keep=kept), counter)
