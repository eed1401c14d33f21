"""
Pools of float32 over two axes whose windows are small, from padded planes.

A channel is spread over planes as for a depthwise convolution, with padding that changes
nothing, and every tap of the window is an offset: strips go over all rows of a block at
once, so that short rows cost no more than long ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.windows import Window
from seamline_cpu.atomics import floats
from seamline_cpu.block_moves import copy_block, fill_floats
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.folds import largest_strip, sum_strip
from seamline_cpu.kernels.padded_planes import fill_planes, planes_of
from seamline_cpu.tiles import LANES

__all__ = ["bind_pool_planes", "suits_pool_planes"]

_Array = np.ndarray[Any, Any]
_CACHE = 24 << 10  # of a 32 KB first-level cache
_SHARED_FROM = 100_000  # folded elements from which more threads pay
_TAPS = 25  # beyond, to fold rows first costs less

(_X, _Y, _DIVISORS, _PLANES, _SCRATCH, _STRIDE, _H, _W, _OH, _OW, _SH, _SW, _PH, _PW, _ROWS,
 _HELD, _PITCH, _PLANE, _OFFSETS, _COUNT) = range(20)  # fmt: skip


@command
def _pool(a: Any, share: int, shares: int) -> None:
    averages = a[_DIVISORS] != 0
    nothing = np.float32(0) if averages else np.float32(-np.inf)
    blocks = (a[_OH] + a[_ROWS] - 1) // a[_ROWS]
    units = a[_PLANES] * blocks
    planes = a[_SCRATCH] + share * a[_STRIDE]
    line = planes + a[_PLANE] * 4
    fill_floats(planes, a[_PLANE], nothing)
    for unit in range(units * share // shares, units * (share + 1) // shares):
        plane, first = unit // blocks, unit % blocks * a[_ROWS]
        rows = min(a[_ROWS], a[_OH] - first)
        fill_planes(
            a[_X] + plane * a[_H] * a[_W] * 4, planes, a[_H], a[_W], a[_SH], a[_SW],
            a[_PH], a[_PW], first, a[_HELD], a[_PITCH], nothing,
        )  # fmt: skip
        end = (rows - 1) * a[_PITCH] + a[_OW]
        vectors = (end + LANES - 1) // LANES
        if averages:
            sum_strip(planes, a[_OFFSETS], a[_COUNT], vectors, line)
        else:
            largest_strip(planes, a[_OFFSETS], a[_COUNT], vectors, line)
        out = a[_Y] + (plane * a[_OH] + first) * a[_OW] * 4
        copy_block(line, a[_PITCH] * 4, out, a[_OW] * 4, rows, a[_OW])
        if averages:
            to, by = floats(out), floats(a[_DIVISORS] + first * a[_OW] * 4)
            for i in range(rows * a[_OW]):
                to[i] = to[i] / by[i]


def suits_pool_planes(window: Window) -> bool:
    """Tell whether a window of three axes is one that planes serve well."""
    flat = window.kernel[0] == 1 and window.sizes[0] == 1 and window.outs[0] == 1
    taps, stride = int(np.prod(window.kernel)), window.strides[1] * window.strides[2]
    return flat and window.begins[0] == 0 and taps <= _TAPS and stride <= 9


def bind_pool_planes(
    x: _Array, out: _Array, window: Window, divisors: _Array | None, threads: int
) -> Native:
    """
    Bind a pool of float32 ``(N, C, ...)``: the largest, or sums over ``divisors``.

    Parameters
    ----------
    window
        Over three axes, of which the first is one window of size one.
    divisors
        float32, one for each place of the window; None for the largest.
    """
    planes = planes_of(window, 1, _CACHE, 1)
    offsets = planes.offsets(1)
    folded = out.size * offsets.size + x.size
    shares = threads if folded > _SHARED_FROM else 1
    need = 4 * (planes.stride + planes.rows * planes.pitch + LANES)
    need += -need % 64
    scratch = np.empty(need * shares + 64, np.uint8)
    arguments = [
        x.ctypes.data, out.ctypes.data, 0 if divisors is None else divisors.ctypes.data,
        x.shape[0] * x.shape[1], scratch.ctypes.data + -scratch.ctypes.data % 64, need,
        *window.sizes[1:], *window.outs[1:], *window.strides[1:], *window.begins[1:],
        planes.rows, planes.held, planes.pitch, planes.stride, offsets.ctypes.data,
        offsets.size,
    ]  # fmt: skip
    return bind(_pool, arguments, shares, keep=(x, out, divisors, scratch, offsets))
