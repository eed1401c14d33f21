"""Which windows the transform suits, its weights, and how its output is cut in blocks."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from seamline.windows import Window
from seamline_cpu.integer_transforms import LARGEST, Nested, nested
from seamline_cpu.kernels.word_blocks import (
    TILE,
    TILE_STEP,
    apart_in_cache,
    even_parts,
    rows_of,
    suits_words,
)
from seamline_cpu.tiles import COLUMNS, LANES, ROWS

__all__ = [
    "TALL",
    "Blocks",
    "pack_transformed",
    "packed_shape",
    "suits_transformed",
    "sums_fit",
]

_Array = np.ndarray[Any, Any]
_CACHE = 320 << 10  # bytes of planes: what a 512 KB cache holds beside weights and sums
_FILL = 40  # cycles that a group of a pair's inputs takes to be transformed, about
TALL = 4  #: tiles of weights that a panel of pixels meets at once
#: Channels, outputs of a group and of a row from which transforms cost little beside products.
_LEAST = (8, 12, 16)
_LEAST_PIXELS = 256  # or the larger weights take longer to read than the products


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
    shape = packed_shape(count, depth, groups, window)
    return np.ascontiguousarray(valued.astype(np.int16)).reshape(shape)


def packed_shape(
    count: int, depth: int, groups: int, window: Window
) -> tuple[int, ...]:
    """Give the shape of packed weights of ``count`` outputs and ``depth`` inputs a group."""
    form, tiles = nested(window.kernel[2]), -(-count // groups // ROWS)
    high, pairs = window.kernel[1], -(-depth // 2)
    return (groups, tiles, form.points, pairs, high, form.filters, ROWS, 2)


@attrs.frozen
class Blocks:
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
    def of(cls, window: Window, channels: int, each: int) -> Blocks:
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
            depth = pairs * window.kernel[1] * form.filters
            tiled = -(-each // ROWS) * form.points * depth * TILE_STEP
            filled = (every + beside) * d * pairs * _FILL
            rows = rows_of(height, rows, below, (every + beside) * d, tiled, filled)
        held, pitch = rows + below, runs + beside
        stride = apart_in_cache(held * d * pitch + COLUMNS + LANES)
        return cls(window, pairs, rows, runs, held, pitch, stride)

    @property
    def form(self) -> Nested:
        """Give how a row of the window is cut."""
        return nested(self.window.kernel[2])

    @property
    def count(self) -> int:
        """Give the number of blocks of an image."""
        height, width = self.window.outs[1:]
        every = -(-width // (self.window.dilations[2] * self.form.outputs))
        return -(-height // self.rows) * -(-every // self.runs)

    @property
    def nbytes(self) -> int:
        """Give the scratch of one share: tiles, outputs, a staged row and the planes."""
        points, outputs = self.form.points, self.form.outputs
        words = points * self.pairs * self.stride + outputs * (self.pitch + 2 * LANES)
        return -(-((TALL * points + outputs) * TILE + 4 * words) // 64) * 64

    def offsets(self) -> _Array:
        """Give each tap's place in bytes, by pair of channels, row and short filter."""
        (dh, dw), kh = self.window.dilations[1:], self.window.kernel[1]
        down = np.arange(kh)[:, None] * (dh * dw * self.pitch)
        taps = down + np.arange(self.form.filters)
        whole = np.arange(self.pairs)[:, None, None] * self.stride + taps
        return np.ascontiguousarray(whole.ravel() * 4, np.int64)
