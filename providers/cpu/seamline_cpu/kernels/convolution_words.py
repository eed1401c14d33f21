"""
Convolution of bytes, exact: tiles read planes of 16-bit pairs in place.

Two channels are spread over one padded plane: each of its 32-bit words is the same pixel
of both, as int16 less the zero point, so padding is zero. A tap of the window is then an
offset into the planes, whatever the kernel, stride and dilation, and nothing is laid out
per position of the window. A unit of work is a block of output rows, or of a row's columns
where rows are long: its planes stay in the second-level cache while every tile of weights
passes over them.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from seamline_cpu.atomics import bytes_at, fetch_add, ints
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.integer_tiles import word_tap_tile
from seamline_cpu.jit import jit
from seamline_cpu.kernels.convolution_tiles import copy_tile, in_units
from seamline_cpu.kernels.windows import Window
from seamline_cpu.tiles import COLUMNS, ROWS

__all__ = [
    "TILE_STEP",
    "bind_words",
    "even_parts",
    "fill_row",
    "pack_pairs",
    "rows_of",
    "suits_words",
    "words_bytes",
]

_Array = np.ndarray[Any, Any]
_CACHE = 192 << 10  # bytes of planes: what a 512 KB cache holds beside weights and sums
_TILE = 4 * ROWS * COLUMNS
_SHARED_FROM = 60_000  # multiply-adds from which more threads pay
TILE_STEP = 7  #: cycles that a tile takes for a pair of channels and a tap, about
_FILL = 4  # cycles that a word of a plane takes to be filled, about
_UNITS = 8  # units wanted, so that threads end together

(_X, _W, _B, _Y, _SCRATCH, _STRIDE, _IMAGES, _GROUPS, _C, _OC, _H, _WIDTH, _OH, _OW, _SH,
 _SW, _PH, _PW, _ROWS, _COLS, _HELD, _PITCH, _PLANE, _OFFSETS, _DEPTH, _SPLITS, _FLAT,
 _ZERO, _SIGN, _COUNTER) = range(30)  # fmt: skip


@jit
def fill_row(first: int, second: int, target: int, sign: int, base: int, step: int,
              count: int) -> None:  # fmt: skip
    """Write ``count`` words of every ``step``-th byte of two rows; no second where it is 0."""
    to, one = ints(target), bytes_at(first)
    flip, minus = np.int32(sign), np.int32(base)
    if second == 0:
        for i in range(count):
            low = np.int32(np.int32(one[i * step]) ^ flip) - minus
            to[i] = np.int32(low) & np.int32(0xFFFF)
        return
    other = bytes_at(second)
    if step == 1:
        for i in range(count):
            low = np.int32(np.int32(np.int32(one[i]) ^ flip) - minus)
            high = np.int32(np.int32(np.int32(other[i]) ^ flip) - minus)
            to[i] = np.int32(low & np.int32(0xFFFF)) | np.int32(high << np.int32(16))
        return
    for i in range(count):
        low = np.int32(np.int32(np.int32(one[i * step]) ^ flip) - minus)
        high = np.int32(np.int32(np.int32(other[i * step]) ^ flip) - minus)
        to[i] = np.int32(low & np.int32(0xFFFF)) | np.int32(high << np.int32(16))


@jit
def _fill_planes(a: Any, first: int, second: int, target: int, row: int, column: int,
                 base: int) -> None:  # fmt: skip
    """Spread two channels over their planes, from an output row and column on."""
    sh, sw, pitch, width = a[_SH], a[_SW], a[_PITCH], a[_WIDTH]
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
                    to[i] = np.int32(0)
                if inside:
                    at = h * width + begin * sw + shift
                    other = second + at if second != 0 else second
                    fill_row(first + at, other, target + 4 * begin, a[_SIGN], base, sw,
                              end - begin)  # fmt: skip
                    for i in range(end, pitch):
                        to[i] = np.int32(0)
                target += 4 * pitch


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
def _tiles(a: Any, which: int, low: int, high: int, first: int, start: int,
           corner: int) -> None:  # fmt: skip
    """Run tiles of weights over a block of rows ``first`` on and columns ``start`` on."""
    pixels, deep, pitch = a[_OH] * a[_OW], a[_DEPTH], a[_PITCH]
    rows, width = min(a[_ROWS], a[_OH] - first), min(a[_COLS], a[_OW] - start)
    count = (a[_OC] + ROWS - 1) // ROWS
    group = which % a[_GROUPS]
    base = corner + _TILE
    lines = 1 if a[_FLAT] != 0 else rows
    length = (rows - 1) * pitch + width if a[_FLAT] != 0 else width
    for t in range(low, high):
        left = a[_W] + (group * count + t) * deep * 4 * ROWS
        bias = a[_B] + (group * count + t) * 4 * ROWS
        whole = min(ROWS, a[_OC] - t * ROWS)
        out = (
            a[_Y] + ((which * a[_OC] + t * ROWS) * pixels + first * a[_OW] + start) * 4
        )
        for line in range(lines):
            for q in range(0, length, COLUMNS):
                at = line * pitch + q
                if lines == rows and width >= COLUMNS:
                    # The last tile of a row overlaps the one before.
                    at = line * pitch + min(q, width - COLUMNS)
                row, column = at // pitch, at % pitch
                right = base + at * 4
                if whole == ROWS and column + COLUMNS <= width:
                    to = out + (row * a[_OW] + column) * 4
                    word_tap_tile(left, right, deep, bias, to, pixels * 4, a[_OFFSETS])
                    continue
                word_tap_tile(left, right, deep, bias, corner, 4 * COLUMNS, a[_OFFSETS])
                limit = row + 1 if a[_FLAT] == 0 else rows
                _copy_back(a, out, row, limit, column, width, whole, corner)


@command
def _words(a: Any, share: int, shares: int) -> None:
    count = (a[_OC] + ROWS - 1) // ROWS
    downs = (a[_OH] + a[_ROWS] - 1) // a[_ROWS]
    across = (a[_OW] + a[_COLS] - 1) // a[_COLS]
    units = a[_IMAGES] * downs * across * a[_SPLITS]
    corner = a[_SCRATCH] + share * a[_STRIDE]
    image = a[_H] * a[_WIDTH]
    sign = a[_SIGN]
    zero = bytes_at(a[_ZERO])[0] ^ sign  # flipped, as the pixels are
    held = np.int64(-1)
    unit = fetch_add(a[_COUNTER], 1)
    while unit < units:
        split, place = unit % a[_SPLITS], unit // a[_SPLITS]
        block, which = place % (downs * across), place // (downs * across)
        first, start = block // across * a[_ROWS], block % across * a[_COLS]
        if place != held:
            for c in range(0, a[_C], 2):
                one = a[_X] + (which * a[_C] + c) * image
                two = one + image if c + 1 < a[_C] else 0
                to = corner + _TILE + c // 2 * a[_PLANE] * 4
                _fill_planes(a, one, two, to, first, start, zero)
            held = place
        low, high = count * split // a[_SPLITS], count * (split + 1) // a[_SPLITS]
        _tiles(a, which, low, high, first, start, corner)
        unit = fetch_add(a[_COUNTER], 1)


def suits_words(window: Window) -> bool:
    """Tell whether a window of three axes is one that planes serve well."""
    flat = window.kernel[0] == 1 and window.sizes[0] == 1 and window.outs[0] == 1
    small = window.strides[1] * window.strides[2] <= 4
    return flat and small and window.begins[0] == 0


@attrs.frozen
class _Blocks:
    """
    How the output is cut, and where a block's pixels lie.

    Attributes
    ----------
    rows, columns
        Of the output, in a block.
    held, pitch
        Rows of a plane, and words in one of them.
    stride
        Words between pairs of channels: never a multiple of the cache's way size.
    """

    window: Window
    pairs: int
    rows: int
    columns: int
    held: int
    pitch: int
    stride: int

    @classmethod
    def of(cls, window: Window, channels: int, each: int) -> _Blocks:
        """Choose blocks whose planes of all channels stay in the cache."""
        (sh, sw), (dh, dw) = window.strides[1:], window.dilations[1:]
        height, width = window.outs[1:]
        pairs = max(1, -(-channels // 2))
        below = (window.kernel[1] - 1) * dh // sh
        beside = (window.kernel[2] - 1) * dw // sw
        words = _CACHE // (4 * pairs * sh * sw)
        rows = words // (width + beside) - below
        columns = width
        if rows < 1:
            rows = 1
            most = max(COLUMNS, words // (1 + below) - beside)
            columns = even_parts(width, most // COLUMNS * COLUMNS, COLUMNS)
        else:
            tiled = -(-each // ROWS) * pairs * int(np.prod(window.kernel)) * TILE_STEP
            filled = sh * sw * (width + beside) * pairs * _FILL
            rows = rows_of(height, rows, below, width + beside, tiled, filled)
        held, pitch = rows + below, columns + beside
        stride = sh * sw * held * pitch + COLUMNS
        stride += -stride % 16
        stride += 16 if stride // 16 % 2 == 0 else 0
        return cls(window, pairs, rows, columns, held, pitch, stride)

    @property
    def count(self) -> int:
        """Give the number of blocks of an image."""
        height, width = self.window.outs[1:]
        return -(-height // self.rows) * -(-width // self.columns)

    @property
    def nbytes(self) -> int:
        """Give the scratch of one share: a tile that is cut, and the planes."""
        return -(-(_TILE + 4 * self.pairs * self.stride) // 64) * 64

    def offsets(self) -> _Array:
        """Give each tap's place in bytes, by pair of channels and window position."""
        (sh, sw), (dh, dw) = self.window.strides[1:], self.window.dilations[1:]
        kh, kw = self.window.kernel[1:]
        down, right = np.arange(kh)[:, None] * dh, np.arange(kw) * dw
        plane = (down % sh) * sw + right % sw
        taps = (plane * self.held + down // sh) * self.pitch + right // sw
        whole = np.arange(self.pairs)[:, None, None] * self.stride + taps
        return np.ascontiguousarray(whole.ravel() * 4, np.int64)


def even_parts(total: int, most: int, step: int) -> int:
    """Give the size of parts of one size, none above ``most``, in steps."""
    parts = max(1, -(-total // max(1, most)))
    return max(step, -(-total // parts // step) * step)


def rows_of(
    height: int, most: int, below: int, pitch: int, tiled: int, filled: int
) -> int:
    """
    Choose the output rows of a block, at most ``most``, so that all takes least.

    Few rows leave a panel's columns idle and fill the ``below`` rows of the next block
    too.

    Parameters
    ----------
    pitch
        Columns of a row, those between rows among them.
    tiled, filled
        Cycles that a panel's tiles take, and a row's planes.
    """
    every = {
        even_parts(height, rows, 1) for rows in range(1, max(1, min(most, height)) + 1)
    }

    def cost(rows: int) -> int:
        panels = -(-rows * pitch // COLUMNS)
        return -(-height // rows) * (panels * tiled + (rows + below) * filled)

    return min(sorted(every), key=cost)


def words_bytes(window: Window, channels: int, each: int, shares: int) -> int:
    """Give the bytes of scratch that ``shares`` shares need."""
    return shares * _Blocks.of(window, channels, each).nbytes + 64


def pack_pairs(weights: _Array, groups: int) -> _Array:
    """Lay int16 ``(M, C, ...)`` out as ``(groups, tiles, pairs of C, taps, ROWS, 2)``."""
    each, depth = weights.shape[0] // groups, weights.shape[1]
    tiles, pairs = -(-each // ROWS), -(-depth // 2)
    flat = weights.reshape(groups, each, depth, -1)
    padded = np.zeros((groups, tiles * ROWS, pairs * 2, flat.shape[3]), np.int16)
    padded[:, :each, :depth] = flat
    shaped = padded.reshape(groups, tiles, ROWS, pairs, 2, -1)
    return np.ascontiguousarray(shaped.transpose(0, 1, 3, 5, 2, 4))


def bind_words(
    x: _Array,
    packed: _Array,
    bias: _Array,
    out: _Array,
    window: Window,
    scratch: _Array,
    threads: int,
    zero: _Array | None,
) -> Native:
    """
    Bind int32 sums over weights of :func:`pack_pairs`.

    Parameters
    ----------
    x
        uint8 or int8; all arrays must keep their addresses.
    bias
        int32, as :func:`~seamline_cpu.kernels.convolution_dense.pack_bias` lays it out.
    zero
        The zero point of ``x``, one element, read in each run.
    """
    groups, tiles = packed.shape[:2]
    channels, count = x.shape[1] // groups, out.shape[1] // groups
    blocks = _Blocks.of(window, channels, count)
    offsets = blocks.offsets()
    images = x.shape[0] * groups
    splits = max(1, min(tiles // 4, -(-_UNITS // max(1, images * blocks.count))))
    multiplied = out.size * channels * int(np.prod(window.kernel))
    shares = threads if multiplied > _SHARED_FROM else 1
    point = np.zeros(1, x.dtype) if zero is None else zero
    # A tile takes 6 cycles a tap; cutting one at the ends of rows some 100 more.
    by_rows = -(-blocks.columns // COLUMNS) * COLUMNS * 6 * offsets.size
    in_one = blocks.pitch * (6 * offsets.size + 100)
    counter = np.zeros(8, np.int64)
    arguments = [
        x.ctypes.data, packed.ctypes.data, bias.ctypes.data, out.ctypes.data,
        scratch.ctypes.data + -scratch.ctypes.data % 64, blocks.nbytes, images, groups,
        channels, count, *window.sizes[1:], *window.outs[1:], *window.strides[1:],
        *window.begins[1:], blocks.rows, blocks.columns, blocks.held, blocks.pitch,
        blocks.stride, offsets.ctypes.data, offsets.size, splits, in_one < by_rows,
        point.ctypes.data, 128 if x.dtype == np.int8 else 0, counter.ctypes.data,
    ]  # fmt: skip
    kept = (x, packed, bias, out, scratch, offsets, counter, point)
    return in_units(bind(_words, arguments, shares, keep=kept), counter)
