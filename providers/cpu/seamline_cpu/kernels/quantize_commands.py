"""
Dynamic quantisation of float32 to uint8, as two compiled commands.

The first finds the range, each share that of its part; the second works out scale and zero
point from the parts, which every share does for itself, and quantises.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np.numpy_support import carray

from seamline.provider import Array
from seamline_cpu.atomics import bytes_at, floats
from seamline_cpu.commands import Native, bind, command, in_list
from seamline_cpu.jit import jit
from seamline_cpu.kernels.quantize_loops import quantize
from seamline_cpu.kernels.rows import matrix

__all__ = ["bind_dynamic", "range_of", "scale_of", "uint8_row", "zero_of"]

f4, i4 = np.float32, np.int32
_SHARED_FROM = 131_072  # elements from which more threads pay
_LINE = 64  # elements whose bytes fill a cache line, which two threads must not share
(_X, _OUT, _N, _PARTS, _COUNT, _SCALE, _ZERO) = range(7)


@jit
def range_of(x: int, n: int, out: int) -> None:
    """
    Write the least and the greatest of ``n`` floats and 0; NaN where there is one.

    Flipping the low bits of negative numbers makes integer order the order of floats, and
    integers' extremes vectorise. A NaN then lies beyond the infinity of its sign.
    """
    values = matrix(floats(x), 1, n)[0]
    least, most = i4(0), i4(0)
    for j in range(n):
        bits = f4(values[j]).view(np.int32)
        key = i4(bits ^ i4(i4(bits >> i4(31)) & i4(0x7FFFFFFF)))
        least = key if key < least else least
        most = key if key > most else most
    to = floats(out)
    to[0] = i4(least ^ i4(i4(least >> i4(31)) & i4(0x7FFFFFFF))).view(np.float32)
    to[1] = i4(most).view(np.float32)


@jit
def scale_of(low: Any, high: Any) -> Any:
    """Give the scale of a range that holds 0; 1 where the range is 0 alone."""
    width = f4(f4(high - low) / f4(255.0))
    return f4(1.0) if width == f4(0.0) else width


@jit
def zero_of(low: Any, scale: Any) -> Any:
    """Give the zero point as int32, ties to even; 0 where the range is not a number."""
    origin = np.float64(f4(-low / scale))
    if origin != origin:
        return i4(0)
    return i4(np.rint(min(max(origin, 0.0), 255.0)))


@jit
def uint8_row(x: int, n: int, scale: Any, zero: Any, out: int) -> None:
    """Quantise ``n`` floats."""
    codes = carray(bytes_at(out), (n,))
    quantize(matrix(floats(x), 1, n)[0], codes, scale, zero, i4(0), i4(255))


@jit
def _part(n: int, share: int, shares: int) -> Any:
    step = ((n + shares - 1) // shares + _LINE - 1) // _LINE * _LINE
    return min(n, share * step), min(n, (share + 1) * step)


@command
def _range(a: Any, share: int, shares: int) -> None:
    low, high = _part(a[_N], share, shares)
    range_of(a[_X] + 4 * low, high - low, a[_PARTS] + 64 * share)


@command
def _quantize(a: Any, share: int, shares: int) -> None:
    least, most = f4(0.0), f4(0.0)
    for i in range(a[_COUNT]):
        part = floats(a[_PARTS] + 64 * i)
        # Not a number wins, whichever side it stands on.
        least = least if not (part[0] < least or part[0] != part[0]) else part[0]
        most = most if not (part[1] > most or part[1] != part[1]) else part[1]
    scale = scale_of(least, most)
    zero = zero_of(least, scale)
    if share == 0:
        if a[_SCALE] != 0:
            floats(a[_SCALE])[0] = scale
        if a[_ZERO] != 0:
            bytes_at(a[_ZERO])[0] = np.uint8(zero)
    if a[_OUT] != 0:
        low, high = _part(a[_N], share, shares)
        uint8_row(a[_X] + 4 * low, high - low, scale, zero, a[_OUT] + low)


def bind_dynamic(
    x: Array, out: Array | None, scale: Array | None, zero: Array | None, threads: int
) -> Native:
    """
    Bind the quantisation of a tensor by its own range, in which 0 is exact.

    Parameters
    ----------
    x
        float32, C-contiguous.
    out, scale, zero
        uint8 of ``x``'s size, float32 and uint8 of one element; what is None is not written.
    """
    shares = threads if x.size >= _SHARED_FROM else 1
    parts = np.zeros((shares, 16), f4)  # a cache line each
    arguments = [
        x.ctypes.data, 0 if out is None else out.ctypes.data, x.size, parts.ctypes.data,
        shares, *[0 if one is None else one.ctypes.data for one in (scale, zero)],
    ]  # fmt: skip
    kept = (x, out, scale, zero, parts)
    steps = [bind(what, arguments, shares, keep=kept) for what in (_range, _quantize)]
    return in_list([row for step in steps for row in step.rows], tuple(steps))
