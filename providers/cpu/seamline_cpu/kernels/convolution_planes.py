"""
Convolution of windows larger than one pixel, float32: tiles read padded planes in place.

Nothing is laid out per window position: a tile of weights runs over neighbouring pixels,
and each tap is an offset into the planes of a block of rows, which stay in the
second-level cache while every row tile of the weights passes over them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seamline_cpu.atomics import floats
from seamline_cpu.commands import bind, command
from seamline_cpu.kernels.padded_planes import Planes, fill_planes, planes_of
from seamline_cpu.kernels.windows import Window
from seamline_cpu.tiles import COLUMNS, ROWS, tap_tile

__all__ = ["bind_planes", "planes_bytes", "suits_planes"]

_CACHE = 224 << 10
_TILE = 4 * ROWS * COLUMNS

(_X, _W, _B, _Y, _SCRATCH, _STRIDE, _BATCH, _GROUPS, _C, _OC, _H, _WIDTH, _OH, _OW, _SH,
 _SW, _PH, _PW, _ROWS, _HELD, _PITCH, _PLANE, _OFFSETS, _TAPS, _SPLITS, _FLAT) = range(26)  # fmt: skip


@command
def _planes(a: Any, share: int, shares: int) -> None:  # noqa: C901 - flat loops
    pixels = a[_OH] * a[_OW]
    tiles = (a[_OC] + ROWS - 1) // ROWS
    blocks = (a[_OH] + a[_ROWS] - 1) // a[_ROWS]
    units = a[_BATCH] * a[_GROUPS] * blocks * a[_SPLITS]
    corner = a[_SCRATCH] + share * a[_STRIDE]
    base = corner + _TILE
    held = np.int64(-1)
    for unit in range(units * share // shares, units * (share + 1) // shares):
        split, place = unit % a[_SPLITS], unit // a[_SPLITS]
        block, which = place % blocks, place // blocks
        group = which % a[_GROUPS]
        first = block * a[_ROWS]
        rows = min(a[_ROWS], a[_OH] - first)
        if place != held:
            for c in range(a[_C]):
                fill_planes(
                    a[_X] + (which * a[_C] + c) * a[_H] * a[_WIDTH] * 4,
                    base + c * a[_PLANE] * 4, a[_H], a[_WIDTH], a[_SH], a[_SW], a[_PH],
                    a[_PW], first, a[_HELD], a[_PITCH],
                )  # fmt: skip
            held = place
        for t in range(tiles * split // a[_SPLITS], tiles * (split + 1) // a[_SPLITS]):
            left = a[_W] + (group * tiles + t) * a[_TAPS] * 4 * ROWS
            bias = a[_B] + (group * tiles + t) * 4 * ROWS
            high = min(ROWS, a[_OC] - t * ROWS)
            out = a[_Y] + ((which * a[_OC] + t * ROWS) * pixels + first * a[_OW]) * 4
            if a[_FLAT] == 0:
                for r in range(rows):
                    q = 0
                    while q < a[_OW]:
                        # The last tile of a row overlaps the one before.
                        q = min(q, max(0, a[_OW] - COLUMNS))
                        right = base + (r * a[_PITCH] + q) * 4
                        to = out + (r * a[_OW] + q) * 4
                        if high == ROWS and a[_OW] >= COLUMNS:
                            tap_tile(
                                left, right, a[_TAPS], bias, to, pixels * 4, a[_OFFSETS]
                            )
                        else:
                            wide = min(COLUMNS, a[_OW])
                            tap_tile(
                                left,
                                right,
                                a[_TAPS],
                                bias,
                                corner,
                                4 * COLUMNS,
                                a[_OFFSETS],
                            )
                            for m in range(high):
                                source = floats(corner + m * 4 * COLUMNS)
                                target = floats(to + m * pixels * 4)
                                for i in range(wide):
                                    target[i] = source[i]
                        q += COLUMNS
                continue
            end = (rows - 1) * a[_PITCH] + a[_OW]
            for q in range(0, end, COLUMNS):
                row, column = q // a[_PITCH], q % a[_PITCH]
                if high == ROWS and column + COLUMNS <= a[_OW]:
                    to = out + (row * a[_OW] + column) * 4
                    tap_tile(
                        left, base + q * 4, a[_TAPS], bias, to, pixels * 4, a[_OFFSETS]
                    )
                    continue
                tap_tile(
                    left, base + q * 4, a[_TAPS], bias, corner, 4 * COLUMNS, a[_OFFSETS]
                )
                begin = 0
                while begin < COLUMNS and row < rows:
                    run = min(COLUMNS - begin, a[_PITCH] - column)
                    wide = min(run, a[_OW] - column)
                    for m in range(high):
                        source = floats(corner + (m * COLUMNS + begin) * 4)
                        target = floats(out + (m * pixels + row * a[_OW] + column) * 4)
                        for i in range(wide):
                            target[i] = source[i]
                    begin += run
                    row += 1
                    column = 0


def suits_planes(window: Window) -> bool:
    """Tell whether a window of three axes is one that planes serve well."""
    flat = window.kernel[0] == 1 and window.sizes[0] == 1 and window.outs[0] == 1
    small = window.strides[1] * window.strides[2] <= 4
    return flat and small and window.begins[0] == 0 and max(window.kernel) > 1


def _chosen(window: Window, channels: int) -> Planes:
    return planes_of(window, channels, _CACHE, 2)


def planes_bytes(window: Window, channels: int, shares: int) -> int:
    """Give the bytes of scratch that ``shares`` shares need."""
    return shares * (_TILE + _chosen(window, channels).stride * channels * 4) + 64


def bind_planes(
    x: np.ndarray[Any, Any],
    packed: np.ndarray[Any, Any],
    bias: np.ndarray[Any, Any],
    out: np.ndarray[Any, Any],
    window: Window,
    scratch: np.ndarray[Any, Any],
    threads: int,
) -> Callable[[], None]:
    """Bind a convolution over weights as ``pack_weights`` lays them out."""
    groups, tiles = packed.shape[:2]
    channels, count = x.shape[1] // groups, out.shape[1] // groups
    planes = _chosen(window, channels)
    offsets = planes.offsets(channels)
    units = x.shape[0] * groups * -(-window.outs[1] // planes.rows)
    shares = threads if out.size * offsets.size > 60_000 else 1
    splits = 1 if units >= shares else min(tiles, -(-shares // max(1, units)))
    # A tile takes 6 cycles a tap; cutting one at the ends of rows some 100 more.
    by_rows = -(-window.outs[2] // COLUMNS) * COLUMNS * 6 * offsets.size
    in_one = planes.pitch * (6 * offsets.size + 100)
    arguments = [
        x.ctypes.data, packed.ctypes.data, bias.ctypes.data, out.ctypes.data,
        scratch.ctypes.data + -scratch.ctypes.data % 64,
        planes_bytes(window, channels, 1) - 64, x.shape[0], groups, channels, count,
        *window.sizes[1:], *window.outs[1:], *window.strides[1:], *window.begins[1:],
        planes.rows, planes.held, planes.pitch, planes.stride, offsets.ctypes.data,
        offsets.size, splits, in_one < by_rows,
    ]  # fmt: skip
    return bind(
        _planes, arguments, shares, keep=(x, packed, bias, out, scratch, offsets)
    )
