"""
Sine and cosine of float32 as compiled commands.

The nearest multiple of pi is taken off in four parts: the first three have nine bits, so
their products with a count below 2**15 are exact, and so are the differences. What is left,
within half of pi, goes through a polynomial fitted by iteratively reweighted least squares
for relative error. Largest error, measured against float64: 2.4 ulp where the result is
above 2**-10, and 2**-33 below, where the rest itself is rounded. A block with a larger
argument, infinity or NaN takes C's functions of float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.kernels import Call
from seamline.provider import Array
from seamline_cpu.atomics import floats
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import elementwise, fused, matrix, threads_of

__all__ = ["SINES", "bind_sine"]

f4, i4 = np.float32, np.int32
SINES = {"Sin": 0, "Cos": 1}
_SHARED_FROM = 65_536  # elements from which more threads pay
_BLOCK = 4096
#: Below, the count of halves of pi has 15 bits.
_LIMIT_BITS = i4(np.float32(51_000).view(np.int32))
_PER_PI = f4(0.3183098861837907)
_ROUNDER = f4(12582912.0)  # 1.5 * 2**23: its sum's last bits are the nearest integer
_PI_0, _PI_1, _PI_2, _PI_3 = map(
    f4, (3.140625, 0.0009670257568359375, 6.277114152908325e-07, 1.215420125655342e-10)
)
_S0, _S1, _S2, _S3, _S4 = map(
    f4,
    (
        -0.16666666626147347,
        0.008333331108527856,
        -0.0001984086820171788,
        2.752538406047139e-06,
        -2.388890355756873e-08,
    ),
)


@fused
def _rest_sine(x: Any, count: Any, turned: Any) -> Any:
    """Give the sine of ``x - count pi``, negated where ``turned`` is odd."""
    r = ((x - count * _PI_0) - count * _PI_1) - count * _PI_2
    r = r - count * _PI_3
    z = r * r
    p = (((_S4 * z + _S3) * z + _S2) * z + _S1) * z + _S0
    value = r + r * z * p
    value = r if r == f4(0.0) else value  # the sum would lose a zero's sign
    bits = i4(f4(value).view(np.int32) ^ i4(turned << i4(31)))
    return bits.view(np.float32)


@elementwise
def _sines(x: Any, out: Any) -> None:
    for i in range(out.size):
        whole = x[i] * _PER_PI + _ROUNDER
        out[i] = _rest_sine(x[i], whole - _ROUNDER, f4(whole).view(np.int32))


@elementwise
def _cosines(x: Any, out: Any) -> None:
    half = f4(0.5)
    for i in range(out.size):
        # cos x is the sine of x + pi / 2: the count is a whole number and a half.
        whole = x[i] * _PER_PI - half + _ROUNDER
        turned = f4(whole).view(np.int32) + i4(1)
        out[i] = _rest_sine(x[i], whole - _ROUNDER + half, i4(turned))


@jit
def _are_small(x: Any) -> bool:
    most = i4(0)
    for i in range(x.size):
        size = i4(f4(x[i]).view(np.int32) & i4(0x7FFFFFFF))
        most = size if size > most else most
    return bool(most < _LIMIT_BITS)


@command
def _sine(a: Any, share: int, shares: int) -> None:
    """Arguments: function, size, addresses of x and of the output."""
    n = a[1]
    step = ((n + shares - 1) // shares + 15) // 16 * 16
    for low in range(min(n, share * step), min(n, (share + 1) * step), _BLOCK):
        count = min(min(n, (share + 1) * step) - low, _BLOCK)
        x = matrix(floats(a[2] + 4 * low), 1, count)[0]
        out = matrix(floats(a[3] + 4 * low), 1, count)[0]
        if _are_small(x):
            if a[0] == 0:
                _sines(x, out)
            else:
                _cosines(x, out)
            continue
        for i in range(count):
            wide = np.float64(x[i])
            out[i] = f4(np.sin(wide) if a[0] == 0 else np.cos(wide))


def bind_sine(op: str, call: Call, x: Array, out: Array) -> Native | None:
    """Bind Sin or Cos; None where NumPy has to do it."""
    plain = x.flags.c_contiguous and out.flags.c_contiguous and out.size
    if not plain or x.dtype != f4 or out.dtype != f4:
        return None
    shares = threads_of(call.options) if x.size >= _SHARED_FROM else 1
    arguments = [SINES[op], x.size, x.ctypes.data, out.ctypes.data]
    return bind(_sine, arguments, shares, keep=(x, out))
