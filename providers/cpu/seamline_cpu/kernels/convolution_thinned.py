"""
Convolution with windows of one pixel that skip pixels: thinned out first, then a product.

What is read by such a window is a part of the input. Copied together, it is the input of
:mod:`seamline_cpu.kernels.convolution_pointwise`, which then reads runs of neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.windows import Window
from seamline_cpu.block_moves import copy_block, thin_block, thin_rows
from seamline_cpu.commands import Native, bind, command, joined
from seamline_cpu.kernels.convolution_pointwise import bind_pointwise, pointwise_bytes
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue

__all__ = ["bind_thinned", "suits_thinned", "thinned_bytes"]

_Array = np.ndarray[Any, Any]
_SHARED_FROM = 1 << 15  # floats from which more threads pay

_X, _Y, _PLANES, _H, _W, _OH, _OW, _SH, _SW = range(9)


@command
def _thin(a: Any, share: int, shares: int) -> None:
    planes, rows, count, step = a[_PLANES], a[_OH], a[_OW], a[_SW]
    for plane in range(planes * share // shares, planes * (share + 1) // shares):
        source = a[_X] + plane * a[_H] * a[_W] * 4
        target, pitch = a[_Y] + plane * rows * count * 4, a[_SH] * a[_W] * 4
        if step == 1:
            copy_block(source, pitch, target, 4 * count, rows, count)
        elif step == 2:
            thin_block(source, pitch, target, 4 * count, rows, count)
        else:
            thin_rows(source, pitch, target, 4 * count, rows, count, step)


def suits_thinned(window: Window, channels: int) -> bool:
    """Tell whether a window of three axes is one pixel that skips, and is never padding."""
    reached = [
        (out - 1) * stride < size
        for out, stride, size in zip(
            window.outs, window.strides, window.sizes, strict=True
        )
    ]
    flat = window.sizes[0] == window.outs[0] == 1
    return (
        channels > 0
        and flat
        and set(window.kernel) == {1}
        and not any(window.begins)
        and all(reached)
    )


def _thinned(window: Window, images: int, channels: int) -> int:
    """Give the bytes of what is read, in whole cache lines."""
    return -(-4 * images * channels * int(np.prod(window.outs)) // 64) * 64


def thinned_bytes(window: Window, images: int, channels: int, shares: int) -> int:
    """Give the bytes of scratch; ``channels`` are those of all groups."""
    return _thinned(window, images, channels) + pointwise_bytes(shares) + 64


def bind_thinned(
    x: _Array,
    packed: _Array,
    bias: _Array,
    out: _Array,
    window: Window,
    groups: int,
    scratch: _Array,
    threads: int,
    epilogue: Epilogue = PLAIN,
) -> Native:
    """Bind a convolution over weights and a bias as ``bind_pointwise`` has them."""
    shape = (x.shape[0], x.shape[1], *window.outs)
    size = int(np.prod(shape))
    begin = -scratch.ctypes.data % 64
    end = begin + _thinned(window, x.shape[0], x.shape[1])
    small = scratch[begin : begin + 4 * size].view(np.float32).reshape(shape)
    arguments = [
        x.ctypes.data, small.ctypes.data, shape[0] * shape[1], *window.sizes[1:],
        *window.outs[1:], *window.strides[1:],
    ]  # fmt: skip
    shares = threads if size > _SHARED_FROM else 1
    thin = bind(_thin, arguments, shares, keep=(x, small))
    product = bind_pointwise(
        small, packed, bias, out, groups, scratch[end:], threads, epilogue
    )
    both = joined([thin, product])
    assert both is not None
    return both
