"""
What a convolution of bytes does to its int32 sums while they are in the cache.

Sums, to which integers may be added, become floats by a scale of the input and one, or one
a channel, of the weights, with a bias, a residual and an activation; or bytes again, by a
last scale and zero point. A unit
of the convolution calls :func:`end_block` over the block that it has just made. Floats take
the place of their sums.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numba.np.numpy_support import carray

from seamline.provider import Array
from seamline_cpu.atomics import bytes_at, floats, ints, longs
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue, finish
from seamline_cpu.kernels.rows import elementwise, matrix

__all__ = ["ENDING_BYTES", "ConvolutionEnding", "bind_ending", "end_block"]

_ROOM = 1024  # floats that short runs are activated in, side by side
ENDING_BYTES = 64 + 4 * _ROOM  #: scratch of a share
_SHARED_FROM = 131_072  # sums from which more threads pay
(_BYTES, _SUMS, _Y, _INPUT, _WEIGHTS, _STEP, _BIAS, _LAST, _ZERO, _SIGN, _FUNCTION,
 _NUMBERS, _MORE, _IMAGES, _GROUPS, _OC, _OH, _OW, _ADDED) = range(19)  # fmt: skip
f4 = np.float32


@attrs.frozen(eq=False)
class ConvolutionEnding:
    """
    What follows the sums of ``(N, C, ...)``. All arrays are read in each run.

    Attributes
    ----------
    y
        float32, in the place of the sums, or uint8 or int8.
    sums
        int32, of as many elements.
    scale, weights
        float32: of the input, one element; of the weights, one or C.
    added
        int32, C elements, added to the sums.
    bias
        float32, C elements, added to floats.
    last, zero
        Scale and zero point of bytes, one element each.
    epilogue
        Of floats: a residual and an activation.
    """

    y: Array
    sums: Array
    scale: Array
    weights: Array
    added: Array | None = None
    bias: Array | None = None
    last: Array | None = None
    zero: Array | None = None
    epilogue: Epilogue = PLAIN

    def arguments(self, groups: int, columns: int) -> Array:
        """Give what :func:`end_block` takes first, int64; ``columns`` in an output row."""
        addresses = [
            0 if x is None else x.ctypes.data
            for x in (self.sums, self.y, self.scale, self.weights, self.bias, self.last,
                      self.zero)
        ]  # fmt: skip
        sums, y, scale, weights, bias, last, zero = addresses
        images, channels = self.y.shape[:2]
        values = [
            int(self.y.dtype != f4), sums, y, scale, weights, int(self.weights.size > 1),
            bias, last, zero, 128 if self.y.dtype == np.int8 else 0,
            *self.epilogue.arguments, images, groups, channels // groups,
            self.y.size // max(1, images * channels * columns), columns,
            0 if self.added is None else self.added.ctypes.data,
        ]  # fmt: skip
        return np.array(values, np.int64)


@elementwise
def _scale(sums: Any, added: Any, factor: Any, bias: Any, out: Any) -> None:
    for i in range(out.size):
        scaled = f4(np.int32(sums[i] + added)) * factor
        out[i] = scaled + bias


@elementwise
def _round(sums: Any, added: Any, factor: Any, zero: Any, low: Any, high: Any,
           out: Any) -> None:  # fmt: skip
    """Scale and round in float32, as onnxruntime; a half goes to the even neighbour."""
    for i in range(out.size):
        value = f4(np.rint(f4(np.int32(sums[i] + added)) * factor)) + zero
        value = low if not value > low else value  # so that NaN gives the least
        out[i] = np.int32(min(value, high))


@jit
def _end_runs(e: Any, at: int, channel: int, n: int) -> None:
    """End ``n`` sums of one channel, at place ``at``."""
    scale, weight = floats(e[_INPUT])[0], floats(e[_WEIGHTS])[channel * e[_STEP]]
    factor = f4(scale * weight)
    sums = carray(ints(e[_SUMS] + 4 * at), (n,))
    added = np.int32(0) if e[_ADDED] == 0 else ints(e[_ADDED])[channel]
    if e[_BYTES] == 0:
        bias = f4(0.0) if e[_BIAS] == 0 else floats(e[_BIAS])[channel]
        _scale(sums, added, factor, bias, matrix(floats(e[_Y] + 4 * at), 1, n)[0])
        return
    factor = f4(factor / floats(e[_LAST])[0])
    # A zero point with its top bit flipped is itself + 128.
    sign = e[_SIGN]
    zero = f4((np.int64(bytes_at(e[_ZERO])[0]) ^ sign) - sign)
    low, high = f4(-sign), f4(255 - sign)
    out = carray(bytes_at(e[_Y] + at), (n,))
    _round(sums, added, factor, zero, low, high, out)


@jit
def end_block(
    e: Any, which: int, low: int, high: int, first: int, rows: int, start: int,
    width: int, room: int,
) -> None:  # fmt: skip
    """
    Bring a block of sums to the output.

    Parameters
    ----------
    e
        Of :meth:`ConvolutionEnding.arguments`.
    which
        Image and group; ``low`` and ``high`` are of the group's channels.
    first, start
        The block's first output row and column.
    room
        ``ENDING_BYTES`` of scratch.
    """
    pixels, every = e[_OH] * e[_OW], e[_OC]
    channel = which % e[_GROUPS] * every
    lines, n = (1, rows * width) if width == e[_OW] else (rows, width)
    place = (which * every + low) * pixels + first * e[_OW] + start
    for line in range(lines):
        at = place + line * e[_OW]
        for c in range(low, high):
            _end_runs(e, at + (c - low) * pixels, channel + c, n)
        if e[_FUNCTION] != 0 or e[_MORE] != 0:
            more = e[_MORE] + 4 * at if e[_MORE] != 0 else 0
            finish(e[_FUNCTION], e[_NUMBERS], more, e[_Y] + 4 * at, high - low, n, pixels,
                   room, _ROOM)  # fmt: skip


@command
def _ended(a: Any, share: int, shares: int) -> None:
    """End all sums; shares are of the channels of all images."""
    e = longs(a[0])
    every = e[_IMAGES] * e[_GROUPS] * e[_OC]
    at, end = every * share // shares, every * (share + 1) // shares
    while at < end:
        which, low = at // e[_OC], at % e[_OC]
        high = min(e[_OC], low + end - at)
        end_block(e, which, low, high, 0, e[_OH], 0, e[_OW],
                  a[1] + share * ENDING_BYTES)  # fmt: skip
        at += high - low


def bind_ending(ending: ConvolutionEnding, threads: int) -> Native:
    """Bind an ending over sums that something else has made."""
    shares = threads if ending.y.size >= _SHARED_FROM else 1
    shares = max(1, min(shares, ending.y.shape[0] * ending.y.shape[1]))
    scratch = np.empty(shares * ENDING_BYTES, np.uint8)
    arguments = ending.arguments(1, ending.y.shape[-1])
    given = [arguments.ctypes.data, scratch.ctypes.data]
    return bind(_ended, given, shares, keep=(ending, arguments, scratch))
