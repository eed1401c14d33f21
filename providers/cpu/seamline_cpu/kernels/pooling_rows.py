"""
Pools of float32 over up to three axes, as two folds: down the rows, then along them.

The largest and the sum of a rectangle are those of its columns' largest and sums, so a
window of k by k costs 2k and not k * k. The first fold writes a line that has padding on
both sides; a stride of s parts the line into s, each with every s-th pixel, so that the
second fold reads neighbours whatever the stride.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.windows import Window
from seamline_cpu.atomics import floats, longs
from seamline_cpu.commands import bind, command
from seamline_cpu.folds import largest_strip, split_pairs, sum_strip
from seamline_cpu.jit import jit
from seamline_cpu.tiles import LANES

__all__ = ["bind_pool"]

_Array = np.ndarray[Any, Any]
_SHARED_FROM = 100_000  # folded elements from which more threads pay

(_X, _Y, _DIVISORS, _PLANES, _D, _H, _W, _OD, _OH, _OW, _KD, _KH, _KW, _SD, _SH, _SW, _DD,
 _DH, _DW, _PD, _PH, _PW, _SCRATCH, _STRIDE, _LINE, _PITCH, _ALONG) = range(27)  # fmt: skip


@jit
def _fold(
    averages: bool, source: int, offsets: int, taps: int, count: int, to: int
) -> None:
    """Fold ``count`` neighbours and touch nothing past them."""
    vectors = count // LANES
    if vectors > 0:
        if averages:
            sum_strip(source, offsets, taps, vectors, to)
        else:
            largest_strip(source, offsets, taps, vectors, to)
        if count % LANES:  # the last vector overlaps the one before
            back = (count - LANES) * 4
            if averages:
                sum_strip(source + back, offsets, taps, 1, to + back)
            else:
                largest_strip(source + back, offsets, taps, 1, to + back)
        return
    target, places = floats(to), longs(offsets)
    first = floats(source + places[0])
    for i in range(count):
        target[i] = first[i]
    for t in range(1, taps):
        row = floats(source + places[t])
        for i in range(count):
            v, m = row[i], target[i]
            if averages:
                target[i] = m + v
            else:
                target[i] = m if (m >= v) | (m != m) else v


@jit
def _rows_of(a: Any, line: int, offsets: int) -> int:
    """List the input rows that an output row's windows see, as addresses; count them."""
    oh = line % a[_OH]
    od = (line // a[_OH]) % a[_OD]
    plane = line // (a[_OH] * a[_OD])
    places = longs(offsets)
    count = 0
    for kd in range(a[_KD]):
        d = od * a[_SD] - a[_PD] + kd * a[_DD]
        if d < 0 or d >= a[_D]:
            continue
        for kh in range(a[_KH]):
            h = oh * a[_SH] - a[_PH] + kh * a[_DH]
            if 0 <= h < a[_H]:
                places[count] = a[_X] + ((plane * a[_D] + d) * a[_H] + h) * a[_W] * 4
                count += 1
    return count


@jit
def _part(a: Any, line: int, parts: int) -> None:
    """Part a line into one for each pixel of a stride."""
    if a[_SW] == 2:
        split_pairs(line, parts, parts + a[_PITCH] * 4, a[_PITCH] // LANES)
        return
    source = floats(line)
    for right in range(a[_SW]):
        to = floats(parts + right * a[_PITCH] * 4)
        for i in range(a[_PITCH]):
            to[i] = source[i * a[_SW] + right]


@command
def _pool(a: Any, share: int, shares: int) -> None:
    averages = a[_DIVISORS] != 0
    nothing = np.float32(0) if averages else np.float32(-np.inf)
    lines = a[_PLANES] * a[_OD] * a[_OH]
    offsets = a[_SCRATCH] + share * a[_STRIDE]
    line = offsets + a[_LINE]
    parts = line if a[_SW] == 1 else line + a[_PITCH] * a[_SW] * 4
    padded, middle = floats(line), line + a[_PW] * 4
    for i in range(a[_PITCH] * a[_SW]):
        padded[i] = nothing
    for at in range(lines * share // shares, lines * (share + 1) // shares):
        rows = _rows_of(a, at, offsets)
        if rows > 0:
            _fold(averages, 0, offsets, rows, a[_W], middle)
        else:
            inside = floats(middle)
            for i in range(a[_W]):
                inside[i] = nothing
        if a[_SW] > 1:
            _part(a, line, parts)
        _fold(averages, parts, a[_ALONG], a[_KW], a[_OW], a[_Y] + at * a[_OW] * 4)
        if averages:
            to = floats(a[_Y] + at * a[_OW] * 4)
            by = floats(a[_DIVISORS] + (at % (a[_OD] * a[_OH])) * a[_OW] * 4)
            for i in range(a[_OW]):
                to[i] = to[i] / by[i]


def bind_pool(
    x: _Array, out: _Array, window: Window, divisors: _Array | None, threads: int
) -> Callable[[], None]:
    """
    Bind a pool of float32 ``(N, C, ...)``: the largest, or sums over ``divisors``.

    Parameters
    ----------
    window
        Over three axes.
    divisors
        float32, one for each place of the window; None for the largest.
    """
    size, outs, kernel = window.sizes[2], window.outs[2], window.kernel[2]
    stride, dilation, begin = window.strides[2], window.dilations[2], window.begins[2]
    span = max((outs - 1) * stride + (kernel - 1) * dilation + 1, begin + size)
    pitch = (-(-span // stride) // LANES + 1) * LANES
    taps = np.arange(kernel) * dilation
    along = np.ascontiguousarray((taps % stride * pitch + taps // stride) * 4, np.int64)
    listed = -(-8 * window.kernel[0] * window.kernel[1] // 64) * 64
    need = listed + 4 * pitch * stride * (1 if stride == 1 else 2) + 64
    need += -need % 64
    folded = out.size * sum(window.kernel) + x.size
    shares = threads if folded > _SHARED_FROM else 1
    scratch = np.empty(need * shares + 64, np.uint8)
    arguments = [
        x.ctypes.data, out.ctypes.data, 0 if divisors is None else divisors.ctypes.data,
        x.shape[0] * x.shape[1], *window.sizes, *window.outs, *window.kernel,
        *window.strides, *window.dilations, *window.begins,
        scratch.ctypes.data + -scratch.ctypes.data % 64, need, listed, pitch,
        along.ctypes.data,
    ]  # fmt: skip
    return bind(_pool, arguments, shares, keep=(x, out, divisors, scratch, along))
