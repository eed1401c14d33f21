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

from typing import Any

import attrs
import numpy as np

from seamline_cpu.atomics import bytes_at, fetch_add, ints
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.integer_tiles import word_tap_tile
from seamline_cpu.integer_transforms import LARGEST, Nested, nested
from seamline_cpu.jit import jit
from seamline_cpu.kernels.convolution_tiles import copy_tile, in_units
from seamline_cpu.kernels.convolution_words import even_parts, fill_row, suits_words
from seamline_cpu.kernels.windows import Window
from seamline_cpu.tiles import COLUMNS, LANES, ROWS
from seamline_cpu.transform_tiles import (
    gathered_3,
    gathered_4,
    gathered_5,
    gathered_7,
    gathered_11,
    spread_3,
    spread_4,
    spread_5,
    spread_7,
    spread_11,
)

__all__ = [
    "bind_transformed",
    "pack_transformed",
    "suits_transformed",
    "sums_fit",
    "transformed_bytes",
]

_Array = np.ndarray[Any, Any]
_CACHE = 320 << 10  # bytes of planes: what a 512 KB cache holds beside weights and sums
_TILE = 4 * ROWS * COLUMNS
_TALL = 4  # tiles of weights that a panel of pixels meets at once
_UNITS = 8  # units wanted, so that threads end together
#: Channels, outputs of a group and of a row from which transforms cost little beside products.
_LEAST = (8, 12, 16)
_LEAST_PIXELS = 256  # or the larger weights take longer to read than the products

(_X, _W, _B, _Y, _SCRATCH, _STRIDE, _IMAGES, _GROUPS, _C, _OC, _H, _WIDTH, _OH, _OW, _PH,
 _PW, _D, _ROWS, _RUNS, _HELD, _PITCH, _PLANE, _OFFSETS, _DEPTH, _SPLITS, _TAPS, _POINTS,
 _OUTPUTS, _ZERO, _SIGN, _ZEROS, _COUNTER) = range(32)  # fmt: skip


@jit
def _spread(
    taps: int, source: int, pitch: int, target: int, apart: int, n: int
) -> None:
    if taps == 3:
        spread_3(source, pitch, target, apart, n)
    elif taps == 5:
        spread_5(source, pitch, target, apart, n)
    elif taps == 4 or taps > 12:
        spread_4(source, pitch, target, apart, n)
    elif taps <= 8:
        spread_7(source, pitch, target, apart, n)
    else:
        spread_11(source, pitch, target, apart, n)


@jit
def _gather(taps: int, source: int, bias: int, target: int) -> None:
    if taps == 3:
        gathered_3(source, bias, target)
    elif taps == 5:
        gathered_5(source, bias, target)
    elif taps == 4 or taps > 12:
        gathered_4(source, bias, target)
    elif taps <= 8:
        gathered_7(source, bias, target)
    else:
        gathered_11(source, bias, target)


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


@jit
def _fill(a: Any, which: int, first: int, start: int, base: int, stage: int,
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
                _spread(
                    a[_TAPS], stage, 4 * (a[_PITCH] + 2 * LANES), target, apart, vectors
                )
            target += 4 * a[_PITCH]


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


@jit
def _tiles(a: Any, which: int, low: int, high: int, first: int, start: int, sums: int,
           made: int, planes: int) -> None:  # fmt: skip
    deep, points = a[_DEPTH], a[_POINTS]
    lines = min(a[_ROWS], a[_OH] - first) * a[_D]
    every = ((a[_OW] + a[_D] - 1) // a[_D] + a[_OUTPUTS] - 1) // a[_OUTPUTS]
    runs = min(a[_RUNS], every - start)
    count = (a[_OC] + ROWS - 1) // ROWS
    apart = 4 * ((a[_C] + 1) // 2) * a[_PLANE]
    group = which % a[_GROUPS]
    for block in range(low, high, _TALL):
        for q in range(0, (lines - 1) * a[_PITCH] + runs, COLUMNS):
            # A point's pixels stay in the first-level cache for several tiles of weights.
            for k in range(points):
                for t in range(block, min(high, block + _TALL)):
                    weights = (
                        a[_W] + ((group * count + t) * points + k) * deep * 4 * ROWS
                    )
                    word_tap_tile(
                        weights, planes + k * apart + 4 * q, deep, a[_ZEROS],
                        sums + ((t - block) * points + k) * _TILE, 4 * COLUMNS,
                        a[_OFFSETS],
                    )  # fmt: skip
            for t in range(block, min(high, block + _TALL)):
                bias = a[_B] + (group * count + t) * 4 * ROWS
                rows = min(ROWS, a[_OC] - t * ROWS)
                out = (
                    a[_Y] + 4 * ((which * a[_OC] + t * ROWS) * a[_OH] + first) * a[_OW]
                )
                _gather(a[_TAPS], sums + (t - block) * points * _TILE, bias, made)
                _copy_out(a, made, out, q, lines, runs, start, rows)


@command
def _transformed(a: Any, share: int, shares: int) -> None:
    count = (a[_OC] + ROWS - 1) // ROWS
    downs = (a[_OH] + a[_ROWS] - 1) // a[_ROWS]
    every = ((a[_OW] + a[_D] - 1) // a[_D] + a[_OUTPUTS] - 1) // a[_OUTPUTS]
    across = (every + a[_RUNS] - 1) // a[_RUNS]
    units = a[_IMAGES] * downs * across * a[_SPLITS]
    sums = a[_SCRATCH] + share * a[_STRIDE]
    made = sums + _TALL * a[_POINTS] * _TILE
    stage = made + a[_OUTPUTS] * _TILE
    planes = stage + 4 * a[_OUTPUTS] * (a[_PITCH] + 2 * LANES)
    sign = a[_SIGN]
    zero = np.int64(bytes_at(a[_ZERO])[0] ^ sign)  # flipped, as the pixels are
    held = np.int64(-1)
    unit = fetch_add(a[_COUNTER], 1)
    while unit < units:
        split, place = unit % a[_SPLITS], unit // a[_SPLITS]
        block, which = place % (downs * across), place // (downs * across)
        first, start = block // across * a[_ROWS], block % across * a[_RUNS]
        if place != held:
            _fill(a, which, first, start, zero, stage, planes)
            held = place
        low, high = count * split // a[_SPLITS], count * (split + 1) // a[_SPLITS]
        _tiles(a, which, low, high, first, start, sums, made, planes)
        unit = fetch_add(a[_COUNTER], 1)


def suits_transformed(window: Window, channels: int, each: int) -> bool:
    """Tell whether a window of three axes gains by the transform."""
    height, width = window.outs[1:]
    narrow = width // window.dilations[2] < _LEAST[2] or height * width < _LEAST_PIXELS
    small = channels < _LEAST[0] or each < _LEAST[1] or narrow
    plain = window.strides[1:] == (1, 1) and window.kernel[2] >= 3
    return plain and not small and suits_words(window)


def sums_fit(weights: _Array, window: Window) -> bool:
    """Tell whether no output of int16 weights can leave the bits that a shift keeps."""
    largest = np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(1).max()
    return int(largest) * LARGEST < 1 << (31 - nested(window.kernel[2]).shift)


def pack_transformed(weights: _Array, groups: int, window: Window) -> _Array:
    """Lay int16 ``(M, C, ...)`` out as ``(groups, tiles, points, taps, ROWS, 2)``."""
    (count, depth), (high, wide) = weights.shape[:2], window.kernel[1:]
    form = nested(wide)
    inner, outer = form.inner, form.outer
    filters, each = form.filters * outer.taps, count // groups
    tiles, pairs = -(-each // ROWS), -(-depth // 2)
    padded = np.zeros(
        (groups, tiles * ROWS, pairs * 2, high, filters * inner.taps), np.int32
    )
    padded[:, :each, :depth, :, :wide] = weights.reshape(
        groups, each, depth, high, wide
    )
    cut = padded.reshape(
        groups, tiles, ROWS, pairs, 2, high, form.filters, outer.taps, inner.taps
    )
    near, far = (np.asarray(one.weights, np.int32) for one in (inner, outer))
    valued = np.einsum("gtrpchfos,ks,jo->gtjkphfrc", cut, near, far, optimize=True)
    shape = (groups, tiles, form.points, pairs, high, form.filters, ROWS, 2)
    return np.ascontiguousarray(valued.astype(np.int16)).reshape(shape)


@attrs.frozen
class _Blocks:
    """
    How the output is cut, and where a block's transformed pixels lie.

    Attributes
    ----------
    rows, runs
        Of the output, in a block: rows, and groups of neighbours along each phase of a row.
    held, pitch
        Rows of pixels that are kept, and words of a plane's row.
    stride
        Words between pairs of channels: never a multiple of the cache's way size.
    """

    window: Window
    pairs: int
    rows: int
    runs: int
    held: int
    pitch: int
    stride: int

    @classmethod
    def of(cls, window: Window, channels: int) -> _Blocks:
        """Choose blocks whose planes of all channels stay in the cache."""
        form, pairs = nested(window.kernel[2]), -(-channels // 2)
        height, width = window.outs[1:]
        d = window.dilations[2]
        every = -(-width // (d * form.outputs))
        below = (window.kernel[1] - 1) * window.dilations[1]
        beside = form.filters - 1
        words = _CACHE // (4 * pairs * form.points * d)
        rows, runs = words // (every + beside) - below, every
        if rows < 1:
            rows = 1
            most = max(COLUMNS, words // (1 + below) - beside)
            runs = even_parts(every, most // COLUMNS * COLUMNS, COLUMNS)
        else:
            rows = even_parts(height, min(rows, max(1, -(-height // _UNITS))), 1)
        held, pitch = rows + below, runs + beside
        stride = held * d * pitch + COLUMNS + LANES
        stride += -stride % 16
        stride += 16 if stride // 16 % 2 == 0 else 0
        return cls(window, pairs, rows, runs, held, pitch, stride)

    @property
    def form(self) -> Nested:
        """Give how a row of the window is cut."""
        return nested(self.window.kernel[2])

    @property
    def count(self) -> int:
        height, width = self.window.outs[1:]
        every = -(-width // (self.window.dilations[2] * self.form.outputs))
        return -(-height // self.rows) * -(-every // self.runs)

    @property
    def nbytes(self) -> int:
        """Give the scratch of one share: tiles, outputs, a staged row and the planes."""
        points, outputs = self.form.points, self.form.outputs
        words = points * self.pairs * self.stride + outputs * (self.pitch + 2 * LANES)
        return -(-((_TALL * points + outputs) * _TILE + 4 * words) // 64) * 64

    def offsets(self) -> _Array:
        """Give each tap's place in bytes, by pair of channels, row and short filter."""
        (dh, dw), kh = self.window.dilations[1:], self.window.kernel[1]
        down = np.arange(kh)[:, None] * (dh * dw * self.pitch)
        taps = down + np.arange(self.form.filters)
        whole = np.arange(self.pairs)[:, None, None] * self.stride + taps
        return np.ascontiguousarray(whole.ravel() * 4, np.int64)


def transformed_bytes(window: Window, channels: int, shares: int) -> int:
    """Give the bytes of scratch that ``shares`` shares need."""
    return shares * _Blocks.of(window, channels).nbytes + 64


def bind_transformed(
    x: _Array,
    packed: _Array,
    bias: _Array,
    out: _Array,
    window: Window,
    scratch: _Array,
    threads: int,
    zero: _Array | None,
) -> Native:
    """Bind int32 sums, as :func:`~.convolution_words.bind_words` does."""
    groups, tiles = packed.shape[:2]
    channels, count = x.shape[1] // groups, out.shape[1] // groups
    blocks = _Blocks.of(window, channels)
    form, offsets = blocks.form, blocks.offsets()
    images = x.shape[0] * groups
    splits = max(1, min(tiles // 4, -(-_UNITS // max(1, images * blocks.count))))
    point = np.zeros(1, x.dtype) if zero is None else zero
    zeros, counter = np.zeros(ROWS, np.int32), np.zeros(8, np.int64)
    arguments = [
        x.ctypes.data, packed.ctypes.data, bias.ctypes.data, out.ctypes.data,
        scratch.ctypes.data + -scratch.ctypes.data % 64, blocks.nbytes, images, groups,
        channels, count, *window.sizes[1:], *window.outs[1:], *window.begins[1:],
        window.dilations[2], blocks.rows, blocks.runs, blocks.held, blocks.pitch,
        blocks.stride, offsets.ctypes.data, offsets.size, splits, window.kernel[2],
        form.points, form.outputs, point.ctypes.data, 128 if x.dtype == np.int8 else 0,
        zeros.ctypes.data, counter.ctypes.data,
    ]  # fmt: skip
    kept = (x, packed, bias, out, scratch, offsets, counter, point, zeros)
    return in_units(bind(_transformed, arguments, threads, keep=kept), counter)
