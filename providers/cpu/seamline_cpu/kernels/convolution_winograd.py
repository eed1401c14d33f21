"""
Convolution of windows of 3x3, 3 or 5 that move by one, float32, by fewer products.

:mod:`seamline_cpu.winograd` has the method, :mod:`seamline_cpu.kernels.winograd_units` the
command. Here is what it is worth, and what its weights look like.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.windows import Window
from seamline_cpu.commands import Native, bind
from seamline_cpu.kernels.convolution_tiles import in_units, limited
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue
from seamline_cpu.kernels.winograd_inputs import QUADS, READ
from seamline_cpu.kernels.winograd_units import unit_bytes, winograd
from seamline_cpu.tiles import ROWS
from seamline_cpu.winograd import TILE, method_of, transformed
from seamline_cpu.winograd_tiles import PANEL, RUN, SUMS

__all__ = ["bind_winograd", "pack_points", "suits_winograd", "winograd_bytes"]

_Array = np.ndarray[Any, Any]
_SHARED_FROM = 60_000  # multiply-adds from which more threads pay
_UNITS = 4  # units wanted, so that threads end together
_KERNELS = ((1, 3, 3), (1, 1, 3), (1, 1, 5))
_MOST_PADDING = 4
# Cycles that transforms take for a channel and two quads, and what direct sums lose.
_SPREAD, _GATHER, _DIRECT = 140, 130, 1.25


def _method(window: Window) -> tuple[int, int, int]:
    """Give the outputs of a tile down, the inputs it needs down, and its products."""
    _, down, along = window.kernel
    points = method_of(along).points
    if down == 1:
        return 1, 1, points
    deep = method_of(down).points
    return TILE, deep, deep * points


def _quads(window: Window, images: int = 1) -> tuple[int, int, int]:
    """Give the rows of quads of an image, how many are in one, and the panels of all."""
    tile = _method(window)[0]
    rows, columns = -(-window.outs[1] // tile), -(-window.outs[2] // RUN)
    return rows, columns, -(-images * rows * columns // QUADS)


def suits_winograd(window: Window, images: int, channels: int, each: int) -> bool:
    """Tell whether a window of three axes, over one group, is worth its transforms."""
    plain = (
        window.kernel in _KERNELS
        and window.strides == window.dilations == (1, 1, 1)
        and window.sizes[0] == window.outs[0] == 1
        and max(window.begins[1:]) <= _MOST_PADDING
        and window.begins[0] == 0
        and window.sizes[1] * window.sizes[2] >= 2 * READ
    )
    if not plain or images * channels * each == 0:
        return False
    panels, products = _quads(window, images)[2], _method(window)[2]
    pixels, taps = images * window.outs[1] * window.outs[2], np.prod(window.kernel)
    sums = products * channels * -(-each // SUMS) * SUMS * panels * PANEL / 16
    direct = taps * channels * -(-each // ROWS) * ROWS * pixels / 16
    moved = panels * QUADS // 2 * (channels * _SPREAD + each * _GATHER) * products / 36
    return bool(sums * 1.1 + moved < 0.8 * direct * _DIRECT)


def winograd_bytes(window: Window, channels: int, each: int, shares: int) -> int:
    """Give the bytes of scratch that ``shares`` shares need."""
    return shares * unit_bytes(_method(window)[2], channels, each) + 64


def pack_points(weights: _Array) -> _Array:
    """Lay weights ``(M, C, ...)`` out as ``(points, tiles, C, SUMS)``, transformed."""
    count, channels = weights.shape[:2]
    tiles, points = -(-count // SUMS), transformed(_two_axes(weights))
    flat = points.reshape(count, channels, -1)
    whole = np.zeros((flat.shape[2], tiles * SUMS, channels), np.float32)
    whole[:, :count] = flat.transpose(2, 0, 1)
    shaped = whole.reshape(len(whole), tiles, SUMS, channels).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(shaped)


def _two_axes(weights: _Array) -> _Array:
    """See windows along the two axes that are used: the last two, or one long one."""
    kernel = weights.shape[2:]
    wide = [size for size in kernel if size > 1]
    return weights.reshape(
        *weights.shape[:2], *(wide if len(wide) == 2 else (1, *wide))
    )


def bind_winograd(
    x: _Array,
    points: _Array,
    weights: _Array,
    bias: _Array,
    out: _Array,
    window: Window,
    scratch: _Array,
    threads: int,
    epilogue: Epilogue = PLAIN,
) -> Native:
    """
    Bind a convolution of one group.

    Parameters
    ----------
    points
        Weights as :func:`pack_points` lays them out.
    weights, bias
        Float32, as ONNX has them: for outputs that are not finite, and one an output.
    """
    channels, count = x.shape[1], out.shape[1]
    rows, columns, panels = _quads(window, x.shape[0])
    tiles = points.shape[1]
    splits = max(1, min(tiles // 2, -(-_UNITS // panels)))
    limits, rest = limited(epilogue)
    tile, deep, products = _method(window)
    shares = threads if out.size * channels * 9 > _SHARED_FROM else 1
    counter = np.zeros(8, np.int64)
    arguments = [
        x.ctypes.data, points.ctypes.data, bias.ctypes.data, out.ctypes.data,
        scratch.ctypes.data + -scratch.ctypes.data % 64,
        unit_bytes(products, channels, count), x.shape[0], channels, count,
        *window.sizes[1:], *window.outs[1:], *window.begins[1:], rows, columns, splits,
        limits.ctypes.data + 8, weights.ctypes.data, counter.ctypes.data,
        tile, deep, products, *window.kernel[1:], *rest,
    ]  # fmt: skip
    kept = (x, points, weights, bias, out, scratch, limits, counter, epilogue)
    return in_units(bind(winograd, arguments, shares, keep=kept), counter)
