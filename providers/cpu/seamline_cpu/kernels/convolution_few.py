"""
Convolution to few pixels, float32: channels are a vector's lanes, and weights are read once.

The last layers of speech models, and filters as wide as their input, have an output of a
few pixels. Their windows are laid out, pixel beside pixel, and a unit of work is a run of
panels of output channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.windows import Window
from seamline_cpu.atomics import fetch_add, floats, longs
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.few_pixel_tiles import four_pixels, six_pixels
from seamline_cpu.jit import jit
from seamline_cpu.kernels.convolution_tiles import in_units, limited
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue, finish
from seamline_cpu.tiles import COLUMNS

__all__ = ["bind_few", "few_bytes", "pack_lanes", "suits_few"]

_Array = np.ndarray[Any, Any]
_MOST = 12  #: pixels
_SHARED_FROM = 120_000  # multiply-adds from which more threads pay
_UNITS = 4  # wanted, so that threads end together
_HEAD = 64 + 4 * 6 * COLUMNS  # of a share's scratch: an epilogue's block, a tile

(_X, _W, _B, _Y, _SCRATCH, _STRIDE, _IMAGES, _GROUPS, _C, _OC, _PLANE, _PIXELS, _ROWS, _TAPS,
 _PLACES, _UNITS_OF, _COUNTER, _LIMITS, _FUNCTION, _NUMBERS, _MORE) = range(21)  # fmt: skip


@jit
def _lay(a: Any, x: int, target: int) -> None:
    """Lay windows out as (pixel groups, channels, taps, pixels of a group)."""
    rows, taps = a[_ROWS], a[_TAPS]
    groups = (a[_PIXELS] + rows - 1) // rows
    places = longs(a[_PLACES])
    to = floats(target)
    k = 0
    for g in range(groups):
        first = g * taps * rows
        for c in range(a[_C]):
            plane = floats(x + c * a[_PLANE] * 4)
            for i in range(taps * rows):
                at = places[first + i]
                to[k] = plane[at] if at >= 0 else np.float32(0)
                k += 1


@jit
def _write(a: Any, tile: int, out: int, count: int, channels: int) -> None:
    """Turn a tile of ``count`` pixels, which become neighbours, and keep it in limits."""
    least, most = floats(a[_LIMITS])[0], floats(a[_LIMITS])[1]
    values = floats(tile)
    for m in range(channels):
        to = floats(out + m * a[_PIXELS] * 4)
        for p in range(count):
            value = values[p * COLUMNS + m]
            value = least if value < least else value
            to[p] = most if value > most else value


@jit
def _panel(a: Any, which: int, panel: int, corner: int) -> None:
    """Compute one panel of output channels."""
    depth, rows, group = a[_C] * a[_TAPS], a[_ROWS], which % a[_GROUPS]
    panels = (a[_OC] + COLUMNS - 1) // COLUMNS
    at = group * panels + panel
    weights, bias = a[_W] + at * depth * 4 * COLUMNS, a[_B] + at * 4 * COLUMNS
    tile, first = corner + 64, panel * COLUMNS
    channels = min(COLUMNS, a[_OC] - first)
    pixels = corner + _HEAD
    for p in range(0, a[_PIXELS], rows):
        if rows == 4:
            four_pixels(pixels, weights, depth, bias, tile)
        else:
            six_pixels(pixels, weights, depth, bias, tile)
        pixels += depth * 4 * rows
        out = a[_Y] + ((which * a[_OC] + first) * a[_PIXELS] + p) * 4
        _write(a, tile, out, min(rows, a[_PIXELS] - p), channels)


@command
def _few(a: Any, share: int, shares: int) -> None:
    panels = (a[_OC] + COLUMNS - 1) // COLUMNS
    parts = a[_UNITS_OF]
    corner = a[_SCRATCH] + share * a[_STRIDE]
    held = np.int64(-1)
    unit = fetch_add(a[_COUNTER], 1)
    while unit < a[_IMAGES] * parts:
        which, part = unit // parts, unit % parts
        if which != held:
            _lay(a, a[_X] + which * a[_C] * a[_PLANE] * 4, corner + _HEAD)
            held = which
        low, high = panels * part // parts, panels * (part + 1) // parts
        for panel in range(low, high):
            _panel(a, which, panel, corner)
        if a[_FUNCTION] != 0 or a[_MORE] != 0:
            shift = (which * a[_OC] + low * COLUMNS) * a[_PIXELS] * 4
            n = (min(a[_OC], high * COLUMNS) - low * COLUMNS) * a[_PIXELS]
            more = a[_MORE] + shift if a[_MORE] != 0 else 0
            finish(a[_FUNCTION], a[_NUMBERS], more, a[_Y] + shift, 1, n, n, corner, 0)
        unit = fetch_add(a[_COUNTER], 1)


def suits_few(window: Window, channels: int, each: int) -> bool:
    """Tell whether a window of three axes has few places, and channels fill vectors."""
    pixels = int(np.prod(window.outs))
    depth = channels * int(np.prod(window.kernel))
    return 0 < pixels <= _MOST and each >= COLUMNS // 2 and depth >= 16


def _rows(window: Window) -> int:
    """Give the pixels of a tile, of which the last should not be left half empty."""
    pixels = int(np.prod(window.outs))
    return min((4, 6), key=lambda rows: (-(-pixels // rows) * rows, -rows))


def _places(window: Window, rows: int) -> _Array:
    """Give each tap's float in a channel, by group of pixels; -1 in the padding."""
    taps = np.indices(window.kernel).reshape(3, -1).T
    pixels = np.indices(window.outs).reshape(3, -1).T
    groups = -(-len(pixels) // rows)
    found = np.full((groups * rows, len(taps)), -1, np.int64)
    strides, dilations = np.array(window.strides), np.array(window.dilations)
    at = pixels[:, None] * strides + taps * dilations - np.array(window.begins)
    inside = ((at >= 0) & (at < np.array(window.sizes))).all(-1)
    _, height, width = window.sizes
    flat = (at[..., 0] * height + at[..., 1]) * width + at[..., 2]
    found[: len(pixels)] = np.where(inside, flat, -1)
    shaped = found.reshape(groups, rows, -1).transpose(0, 2, 1)
    return np.ascontiguousarray(shaped)


def few_bytes(window: Window, channels: int, shares: int) -> int:
    """Give the bytes of scratch that ``shares`` shares need."""
    rows, pixels = _rows(window), int(np.prod(window.outs))
    laid = -(-pixels // rows) * rows * channels * int(np.prod(window.kernel)) * 4
    return shares * -(-(_HEAD + laid) // 64) * 64 + 64


def pack_lanes(weights: _Array, groups: int) -> _Array:
    """Lay ``(M, ...)``, weights or a bias, out as ``(groups, panels, rest, COLUMNS)``."""
    each = weights.shape[0] // groups
    panels = -(-each // COLUMNS)
    padded = np.zeros((groups, panels * COLUMNS, weights[0].size), np.float32)
    padded[:, :each] = weights.reshape(groups, each, -1)
    shaped = padded.reshape(groups, panels, COLUMNS, -1).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(shaped)


def bind_few(
    x: _Array,
    packed: _Array,
    bias: _Array,
    out: _Array,
    window: Window,
    scratch: _Array,
    threads: int,
    epilogue: Epilogue = PLAIN,
) -> Native:
    """Bind a convolution over weights and a bias of :func:`pack_lanes`."""
    groups, panels = packed.shape[:2]
    channels, count = x.shape[1] // groups, out.shape[1] // groups
    rows, images = _rows(window), x.shape[0] * groups
    places = _places(window, rows)
    shares = threads if out.size * channels * places.shape[1] > _SHARED_FROM else 1
    parts = min(panels, 1 if shares == 1 else -(-_UNITS // images))
    counter, (limits, rest) = np.zeros(8, np.int64), limited(epilogue)
    arguments = [
        x.ctypes.data, packed.ctypes.data, bias.ctypes.data, out.ctypes.data,
        scratch.ctypes.data + -scratch.ctypes.data % 64, few_bytes(window, channels, 1) - 64,
        images, groups, channels, count, int(np.prod(window.sizes)),
        int(np.prod(window.outs)), rows, places.shape[1], places.ctypes.data, parts,
        counter.ctypes.data, limits.ctypes.data + 8, *rest,
    ]  # fmt: skip
    kept = (x, packed, bias, out, scratch, places, counter, limits, epilogue)
    return in_units(bind(_few, arguments, shares, keep=kept), counter)
