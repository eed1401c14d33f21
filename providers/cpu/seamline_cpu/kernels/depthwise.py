"""
Depthwise convolution, float32: one input channel makes each output channel.

There is nothing to reuse between channels, so a channel's rows are padded into planes
that stay in the first-level cache, and strips of neighbouring pixels take every tap from
there with one multiply-add a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.windows import Window
from seamline_cpu.atomics import floats
from seamline_cpu.block_moves import copy_block, fill_floats
from seamline_cpu.commands import bind, command
from seamline_cpu.kernels.convolution_tiles import limited
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue, finish
from seamline_cpu.kernels.padded_planes import Planes, fill_planes, planes_of
from seamline_cpu.pixel_tiles import STRIP, strip_within

__all__ = ["bind_depthwise", "depthwise_bytes", "suits_depthwise"]

_CACHE = 24 << 10  # of a 32 KB first-level cache; the strip's output takes some too

(_X, _W, _B, _Y, _SCRATCH, _STRIDE, _IMAGES, _C, _OC, _H, _WIDTH, _OH, _OW, _SH, _SW, _PH,
 _PW, _ROWS, _HELD, _PITCH, _PLANE, _OFFSETS, _TAPS, _LIMITS, _FUNCTION, _NUMBERS, _MORE) = range(27)  # fmt: skip


@command
def _depthwise(a: Any, share: int, shares: int) -> None:
    blocks = (a[_OH] + a[_ROWS] - 1) // a[_ROWS]
    each = a[_OC] // a[_C]
    units = a[_IMAGES] * a[_C] * blocks
    planes = a[_SCRATCH] + share * a[_STRIDE]
    line = planes + a[_PLANE] * 4
    weights, biases = a[_W], floats(a[_B])
    fill_floats(planes, a[_PLANE], np.float32(0))
    for unit in range(units * share // shares, units * (share + 1) // shares):
        block, which = unit % blocks, unit // blocks
        channel, image = which % a[_C], which // a[_C]
        first = block * a[_ROWS]
        rows = min(a[_ROWS], a[_OH] - first)
        fill_planes(
            a[_X] + which * a[_H] * a[_WIDTH] * 4, planes, a[_H], a[_WIDTH], a[_SH],
            a[_SW], a[_PH], a[_PW], first, a[_HELD], a[_PITCH], np.float32(0),
        )  # fmt: skip
        end = (rows - 1) * a[_PITCH] + a[_OW]
        for m in range(channel * each, (channel + 1) * each):
            taps = weights + m * a[_TAPS] * 4
            for q in range(0, end, STRIP):
                strip_within(
                    planes + q * 4, a[_OFFSETS], taps, a[_TAPS], biases[m], line + q * 4,
                    a[_LIMITS],
                )  # fmt: skip
            shift = ((image * a[_OC] + m) * a[_OH] + first) * a[_OW] * 4
            out = a[_Y] + shift
            copy_block(line, a[_PITCH] * 4, out, a[_OW] * 4, rows, a[_OW])
            if a[_FUNCTION] != 0 or a[_MORE] != 0:
                more, n = a[_MORE] + shift if a[_MORE] != 0 else 0, rows * a[_OW]
                finish(a[_FUNCTION], a[_NUMBERS], more, a[_Y] + shift, 1, n, n, line, 0)


def suits_depthwise(window: Window, channels: int, each: int) -> bool:
    """Tell whether a group of ``channels`` inputs and ``each`` outputs is served well."""
    flat = window.kernel[0] == 1 and window.sizes[0] == 1 and window.outs[0] == 1
    small = window.strides[1] * window.strides[2] <= 9
    return flat and small and window.begins[0] == 0 and channels == 1 and each <= 4


def _chosen(window: Window) -> Planes:
    return planes_of(window, 1, _CACHE, 1)


def depthwise_bytes(window: Window, shares: int) -> int:
    """Give the bytes of scratch that ``shares`` shares need."""
    planes = _chosen(window)
    return shares * 4 * (planes.stride + planes.rows * planes.pitch + 2 * STRIP) + 64


def bind_depthwise(
    x: np.ndarray[Any, Any],
    weights: np.ndarray[Any, Any],
    bias: np.ndarray[Any, Any],
    out: np.ndarray[Any, Any],
    window: Window,
    scratch: np.ndarray[Any, Any],
    threads: int,
    epilogue: Epilogue = PLAIN,
) -> Callable[[], None]:
    """Bind a convolution whose weights are ``(M, 1, kh, kw)`` as ONNX has them."""
    planes = _chosen(window)
    offsets, (limits, rest) = planes.offsets(1), limited(epilogue)
    arguments = [
        x.ctypes.data, weights.ctypes.data, bias.ctypes.data, out.ctypes.data,
        scratch.ctypes.data + -scratch.ctypes.data % 64, depthwise_bytes(window, 1) - 64,
        x.shape[0], x.shape[1], out.shape[1], *window.sizes[1:], *window.outs[1:],
        *window.strides[1:], *window.begins[1:], planes.rows, planes.held, planes.pitch,
        planes.stride, offsets.ctypes.data, offsets.size, limits.ctypes.data + 8, *rest,
    ]  # fmt: skip
    shares = threads if out.size * (offsets.size + 3) > 100_000 else 1
    kept = (x, weights, bias, out, scratch, offsets, limits, epilogue)
    return bind(_depthwise, arguments, shares, keep=kept)
