"""
How a convolution of bytes is cut, and where a block's pixels and packed weights lie.

Some channels are spread over one padded plane: each of its 32-bit words is the same pixel
of all of them. A tap of the window is then an offset into the planes, whatever the kernel,
stride and dilation, and nothing is laid out per position of the window. A block is some
output rows, or some of a row's columns where rows are long: its planes stay in the
second-level cache while every tile of weights passes over them.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from seamline.windows import Window
from seamline_cpu.tiles import COLUMNS, ROWS

__all__ = [
    "HEAD",
    "TILE",
    "TILE_STEP",
    "UNITS",
    "WordBlocks",
    "apart_in_cache",
    "even_parts",
    "pack_channels",
    "rows_of",
    "splits_of",
    "suits_words",
    "words_bytes",
]

_Array = np.ndarray[Any, Any]
_CACHE = 192 << 10  # bytes of planes: what a 512 KB cache holds beside weights and sums
TILE = 4 * ROWS * COLUMNS  #: bytes of a tile of sums
HEAD = (
    TILE + 64
)  #: bytes before a share's planes: a tile that is cut, and where sums begin
TILE_STEP = 7  #: cycles that a tile takes for a word of channels and a tap, about
_FILL = 4  # cycles that a word of a plane takes to be filled, about
UNITS = 8  #: units of work wanted, so that threads end together


def suits_words(window: Window) -> bool:
    """Tell whether a window of three axes is one that planes serve well."""
    flat = window.kernel[0] == 1 and window.sizes[0] == 1 and window.outs[0] == 1
    small = window.strides[1] * window.strides[2] <= 4
    return flat and small and window.begins[0] == 0


@attrs.frozen
class WordBlocks:
    """
    How the output is cut, and where a block's pixels lie.

    Attributes
    ----------
    words
        Words of channels: as many as fill 32 bits share one.
    rows, columns
        Of the output, in a block.
    held, pitch
        Rows of a plane, and words in one of them.
    stride
        Words between planes: never a multiple of the cache's way size.
    """

    window: Window
    words: int
    rows: int
    columns: int
    held: int
    pitch: int
    stride: int

    @classmethod
    def of(cls, window: Window, channels: int, each: int, group: int) -> WordBlocks:
        """Choose blocks whose planes of all channels, ``group`` a word, stay in the cache."""
        (sh, sw), (dh, dw) = window.strides[1:], window.dilations[1:]
        height, width = window.outs[1:]
        deep = max(1, -(-channels // group))
        below = (window.kernel[1] - 1) * dh // sh
        beside = (window.kernel[2] - 1) * dw // sw
        words = _CACHE // (4 * deep * sh * sw)
        rows = words // (width + beside) - below
        columns = width
        if rows < 1:
            rows = 1
            most = max(COLUMNS, words // (1 + below) - beside)
            columns = even_parts(width, most // COLUMNS * COLUMNS, COLUMNS)
        else:
            tiled = -(-each // ROWS) * deep * int(np.prod(window.kernel)) * TILE_STEP
            filled = sh * sw * (width + beside) * deep * _FILL
            rows = rows_of(height, rows, below, width + beside, tiled, filled)
        held, pitch = rows + below, columns + beside
        stride = apart_in_cache(sh * sw * held * pitch + COLUMNS)
        return cls(window, deep, rows, columns, held, pitch, stride)

    @property
    def count(self) -> int:
        """Give the number of blocks of an image."""
        height, width = self.window.outs[1:]
        return -(-height // self.rows) * -(-width // self.columns)

    @property
    def pixels(self) -> int:
        """Give the pixels of a block's output."""
        return self.rows * self.columns

    @property
    def nbytes(self) -> int:
        """Give the scratch of one share, without what its ending takes."""
        return -(-(HEAD + 4 * self.words * self.stride) // 64) * 64

    def offsets(self) -> _Array:
        """Give each tap's place in bytes, by word of channels and window position."""
        (sh, sw), (dh, dw) = self.window.strides[1:], self.window.dilations[1:]
        kh, kw = self.window.kernel[1:]
        down, right = np.arange(kh)[:, None] * dh, np.arange(kw) * dw
        plane = (down % sh) * sw + right % sw
        taps = (plane * self.held + down // sh) * self.pitch + right // sw
        whole = np.arange(self.words)[:, None, None] * self.stride + taps
        return np.ascontiguousarray(whole.ravel() * 4, np.int64)


def apart_in_cache(words: int) -> int:
    """Give words between planes so that planes do not fall on one set of a cache."""
    words += -words % 16
    return words + (16 if words // 16 % 2 == 0 else 0)


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


def splits_of(tiles: int, blocks: int) -> int:
    """Give into how many parts the tiles of weights fall, so that there are units enough."""
    return max(1, min(tiles // 4, -(-UNITS // max(1, blocks))))


def words_bytes(
    window: Window, channels: int, each: int, shares: int, group: int = 2
) -> int:
    """Give the bytes of scratch that ``shares`` shares need, without their endings."""
    return shares * WordBlocks.of(window, channels, each, group).nbytes


def pack_channels(weights: _Array, groups: int, group: int) -> _Array:
    """
    Lay weights ``(M, C, ...)`` out as ``(groups, tiles, words of C, taps, ROWS, group)``.

    Two int16 or four int8 share a word; weights must fit.
    """
    each, depth = weights.shape[0] // groups, weights.shape[1]
    tiles, words = -(-each // ROWS), -(-depth // group)
    flat = weights.reshape(groups, each, depth, -1)
    kind = np.int16 if group == 2 else np.int8
    padded = np.zeros((groups, tiles * ROWS, words * group, flat.shape[3]), kind)
    padded[:, :each, :depth] = flat
    shaped = padded.reshape(groups, tiles, ROWS, words, group, -1)
    return np.ascontiguousarray(shaped.transpose(0, 1, 3, 5, 2, 4))
