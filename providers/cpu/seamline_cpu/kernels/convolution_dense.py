"""
Dense convolution as a product of packed tiles, for float32 and for bytes.

Output pixels are cut into panels of ``COLUMNS``; a share lays the window's inputs of a
few panels out (im2col, but only as much as stays in the second-level cache) and runs
every row tile of the weights over them. Bytes become int16 pairs, whose products AVX2
adds exactly into int32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.windows import Window
from seamline_cpu.atomics import bytes_at, floats
from seamline_cpu.commands import bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue, finish
from seamline_cpu.tiles import COLUMNS, ROWS, copy_row, dot_tile, word_tile

__all__ = ["bind_dense", "scratch_bytes"]

_CACHE = 160 << 10  # bytes of panels that leave room for weights in a 256 KB cache
_TILE = 4 * ROWS * COLUMNS

# Where a command's arguments lie.
(_X, _W, _B, _Y, _SCRATCH, _STRIDE, _BATCH, _GROUPS, _C, _OC, _D, _H, _WIDTH, _OD, _OH,
 _OW, _KD, _KH, _KW, _SD, _SH, _SW, _DD, _DH, _DW, _PD, _PH, _PW, _BLOCK, _SPLITS,
 _SIGNED, _ZERO, _FUNCTION, _NUMBERS, _MORE) = range(35)  # fmt: skip


@jit
def _pack_run(a: Any, x: int, target: int, od: int, oh: int, ow: int, run: int) -> None:  # noqa: C901 - flat loops
    """Lay out the windows of ``run`` pixels of one output row, as float32."""
    height, width = a[_H], a[_WIDTH]
    step, grow = a[_SW], a[_DW]
    for c in range(a[_C]):
        for kd in range(a[_KD]):
            d = od * a[_SD] - a[_PD] + kd * a[_DD]
            for kh in range(a[_KH]):
                h = oh * a[_SH] - a[_PH] + kh * a[_DH]
                inside = 0 <= d < a[_D] and 0 <= h < height
                source = x + ((c * a[_D] + d) * height + h) * width * 4
                for kw in range(a[_KW]):
                    w = ow * step - a[_PW] + kw * grow
                    to = floats(target)
                    target += 4 * COLUMNS
                    if not inside:
                        for i in range(run):
                            to[i] = np.float32(0)
                        continue
                    row = floats(source + w * 4)
                    if w >= 0 and w + (run - 1) * step < width:
                        if step == 1:
                            if run == COLUMNS:
                                copy_row(target - 4 * COLUMNS, source + w * 4)
                            else:
                                for i in range(run):
                                    to[i] = row[i]
                        elif step == 2:
                            for i in range(run):
                                to[i] = row[2 * i]
                        else:
                            for i in range(run):
                                to[i] = row[step * i]
                        continue
                    for i in range(run):
                        at = w + i * step
                        to[i] = row[i * step] if 0 <= at < width else np.float32(0)


@jit
def _pack_word_run(
    a: Any, x: int, target: int, od: int, oh: int, ow: int, run: int
) -> None:
    """Lay out the windows of ``run`` pixels of one output row, as int16 pairs."""
    height, width = a[_H], a[_WIDTH]
    step, sign = a[_SW], a[_SIGNED]
    zero = np.int64(bytes_at(a[_ZERO])[0] ^ sign) - sign
    k = 0
    for c in range(a[_C]):
        for kd in range(a[_KD]):
            d = od * a[_SD] - a[_PD] + kd * a[_DD]
            for kh in range(a[_KH]):
                h = oh * a[_SH] - a[_PH] + kh * a[_DH]
                inside = 0 <= d < a[_D] and 0 <= h < height
                source = x + ((c * a[_D] + d) * height + h) * width
                for kw in range(a[_KW]):
                    w = ow * step - a[_PW] + kw * a[_DW]
                    to = bytes_at(target + (k >> 1) * 4 * COLUMNS + (k & 1) * 2)
                    k += 1
                    row = bytes_at(source + w)
                    for i in range(run):
                        at = w + i * step
                        value = np.int64(0)
                        if inside and 0 <= at < width:
                            # Flipping the top bit turns a signed byte into itself + 128.
                            value = np.int64(row[i * step] ^ sign) - sign - zero
                        to[4 * i] = np.uint8(value & 255)
                        to[4 * i + 1] = np.uint8((value >> 8) & 255)
    if k & 1:
        to = bytes_at(target + (k >> 1) * 4 * COLUMNS + 2)
        for i in range(run):
            to[4 * i] = np.uint8(0)
            to[4 * i + 1] = np.uint8(0)


@jit
def _pack_panel(a: Any, x: int, target: int, first: int, words: bool) -> None:
    end = min(first + COLUMNS, a[_OD] * a[_OH] * a[_OW])
    p = first
    while p < end:
        ow = p % a[_OW]
        line = p // a[_OW]
        run = min(a[_OW] - ow, end - p)
        place = target + (p - first) * 4
        if words:
            _pack_word_run(a, x, place, line // a[_OH], line % a[_OH], ow, run)
        else:
            _pack_run(a, x, place, line // a[_OH], line % a[_OH], ow, run)
        p += run


@jit
def _run_tile(
    words: bool, left: int, right: int, depth: int, bias: int, out: int, pitch: int
) -> None:
    if words:
        word_tile(left, right, depth, bias, out, pitch)
    else:
        dot_tile(left, right, depth, bias, out, pitch)


@jit
def _finish(
    a: Any, which: int, first: int, last: int, row: int, end: int, corner: int
) -> None:
    """Do the epilogue of a unit's pixels and output channels."""
    pixels = a[_OD] * a[_OH] * a[_OW]
    shift = ((which * a[_OC] + row) * pixels + first) * 4
    more = a[_MORE] + shift if a[_MORE] != 0 else 0
    count = min(last, pixels) - first
    finish(
        a[_FUNCTION],
        a[_NUMBERS],
        more,
        a[_Y] + shift,
        end - row,
        count,
        pixels,
        corner,
        0,  # the panels behind the corner may serve the next unit
    )


@jit
def _share(a: Any, share: int, shares: int, words: bool) -> None:
    pixels = a[_OD] * a[_OH] * a[_OW]
    taps = a[_C] * a[_KD] * a[_KH] * a[_KW]
    depth = (taps + 1) // 2 if words else taps
    image = a[_C] * a[_D] * a[_H] * a[_WIDTH] * (1 if words else 4)
    tiles = (a[_OC] + ROWS - 1) // ROWS
    panels = (pixels + COLUMNS - 1) // COLUMNS
    blocks = (panels + a[_BLOCK] - 1) // a[_BLOCK]
    units = a[_BATCH] * a[_GROUPS] * blocks * a[_SPLITS]
    corner = a[_SCRATCH] + share * a[_STRIDE]
    packed = corner + _TILE
    panel_bytes = depth * 4 * COLUMNS
    held = np.int64(-1)
    for unit in range(units * share // shares, units * (share + 1) // shares):
        split, place = unit % a[_SPLITS], unit // a[_SPLITS]
        block, which = place % blocks, place // blocks
        group = which % a[_GROUPS]
        first, last = block * a[_BLOCK], min(panels, (block + 1) * a[_BLOCK])
        if place != held:
            for panel in range(first, last):
                to = packed + (panel - first) * panel_bytes
                _pack_panel(a, a[_X] + which * image, to, panel * COLUMNS, words)
            held = place
        for t in range(tiles * split // a[_SPLITS], tiles * (split + 1) // a[_SPLITS]):
            left = a[_W] + (group * tiles + t) * depth * 4 * ROWS
            bias = a[_B] + (group * tiles + t) * 4 * ROWS
            rows = min(ROWS, a[_OC] - t * ROWS)
            for panel in range(first, last):
                columns = min(COLUMNS, pixels - panel * COLUMNS)
                right = packed + (panel - first) * panel_bytes
                out = (
                    a[_Y] + ((which * a[_OC] + t * ROWS) * pixels + panel * COLUMNS) * 4
                )
                if rows == ROWS and columns == COLUMNS:
                    _run_tile(words, left, right, depth, bias, out, pixels * 4)
                    continue
                _run_tile(words, left, right, depth, bias, corner, 4 * COLUMNS)
                for r in range(rows):
                    # As bit patterns: a copy must not look at the type.
                    source, target = floats(corner + r * 4 * COLUMNS), floats(out)
                    for c in range(columns):
                        target[c] = source[c]
                    out += pixels * 4
        if not words and (a[_FUNCTION] != 0 or a[_MORE] != 0):
            row = tiles * split // a[_SPLITS] * ROWS
            end = min(a[_OC], tiles * (split + 1) // a[_SPLITS] * ROWS)
            _finish(a, which, first * COLUMNS, last * COLUMNS, row, end, corner)


@command
def _dense_floats(a: Any, share: int, shares: int) -> None:
    _share(a, share, shares, False)


@command
def _dense_words(a: Any, share: int, shares: int) -> None:
    _share(a, share, shares, True)


def _depth(taps: int, words: bool) -> int:
    return (taps + 1) // 2 if words else taps


def _block(window: Window, channels: int, words: bool) -> int:
    """Give the panels that are laid out at once."""
    taps = channels * int(np.prod(window.kernel))
    panels = -(-int(np.prod(window.outs)) // COLUMNS)
    return max(
        1, min(_CACHE // (max(1, _depth(taps, words)) * 4 * COLUMNS), -(-panels // 2))
    )


def scratch_bytes(
    window: Window, channels: int, shares: int, words: bool = False
) -> int:
    """Give the bytes of scratch that ``shares`` shares need."""
    taps = channels * int(np.prod(window.kernel))
    panel = _depth(taps, words) * 4 * COLUMNS
    return shares * (_TILE + _block(window, channels, words) * panel) + 64


def bind_dense(
    x: np.ndarray[Any, Any],
    packed: np.ndarray[Any, Any],
    bias: np.ndarray[Any, Any],
    out: np.ndarray[Any, Any],
    window: Window,
    scratch: np.ndarray[Any, Any],
    threads: int,
    zero: np.ndarray[Any, Any] | None = None,
    epilogue: Epilogue = PLAIN,
) -> Callable[[], None]:
    """
    Bind a convolution over packed weights.

    Parameters
    ----------
    x
        float32, or bytes; all arrays must keep their addresses.
    window
        Over three axes.
    zero
        The zero point of bytes, one element, read in each run.
    """
    words = x.dtype.itemsize == 1
    groups, tiles = packed.shape[:2]
    channels, count = x.shape[1] // groups, out.shape[1] // groups
    block = _block(window, channels, words)
    panels = -(-int(np.prod(window.outs)) // COLUMNS)
    units = x.shape[0] * groups * -(-panels // block)
    multiplied = out.size * channels * int(np.prod(window.kernel))
    shares = threads if multiplied > 60_000 else 1
    splits = 1 if units >= shares else min(tiles, -(-shares // max(1, units)))
    need = scratch_bytes(window, channels, 1, words) - 64
    point = np.zeros(1, x.dtype) if zero is None else zero
    arguments = [
        x.ctypes.data, packed.ctypes.data, bias.ctypes.data, out.ctypes.data,
        scratch.ctypes.data + -scratch.ctypes.data % 64, need, x.shape[0], groups, channels,
        count, *window.sizes, *window.outs, *window.kernel, *window.strides,
        *window.dilations, *window.begins, block, splits,
        128 if x.dtype == np.int8 else 0, point.ctypes.data, *epilogue.arguments,
    ]  # fmt: skip
    what = _dense_words if words else _dense_floats
    kept = (x, packed, bias, out, scratch, epilogue, point)
    return bind(what, arguments, shares, keep=kept)
