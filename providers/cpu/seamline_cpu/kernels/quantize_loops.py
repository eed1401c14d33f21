"""
Compiled quantisation of flat arrays to and from 8 bits.

Codes are bytes whatever their sign: a signed byte with its top bit flipped is itself + 128,
so ``(byte ^ sign) - sign`` is its value, where ``sign`` is 128 for signed ones, else 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import elementwise

__all__ = ["code_of", "dequantize", "dequantize_each", "quantize", "quantize_each"]

f4, i4 = np.float32, np.int32
# Adding 1.5 * 2**23 and taking it off again rounds to the nearest integer, ties to even.
_ROUNDER = f4(12582912.0)
_FAR = f4(1 << 20)


@jit
def code_of(real: Any, scale: Any, zero: Any, low: Any, high: Any) -> Any:
    """Give real / scale, rounded, plus zero, within low and high; NaN gives ``low``."""
    t = real / scale
    # Beyond this the rounding would fail and the result is an end anyway.
    t = t if t > -_FAR else -_FAR
    t = t if t < _FAR else _FAR
    q = i4(i4((t + _ROUNDER) - _ROUNDER) + zero)
    q = low if q < low else q
    return high if q > high else q


@elementwise
def quantize(x: Any, out: Any, scale: Any, zero: Any, low: Any, high: Any) -> None:
    """
    Write codes of x; see :func:`code_of`.

    Parameters
    ----------
    x
        float32.
    out
        Bytes.
    scale
        float32.
    zero, low, high
        int32.
    """
    for i in range(out.size):
        out[i] = code_of(x[i], scale, zero, low, high)


@elementwise
def quantize_each(x: Any, out: Any, scales: Any, zeros: Any, sign: Any) -> None:
    """As :func:`quantize`, with a scale and a zero point, a byte, for each element."""
    low, high = i4(-sign), i4(255 - sign)
    for i in range(out.size):
        zero = i4(i4(zeros[i]) ^ sign) - sign
        out[i] = code_of(x[i], scales[i], i4(zero), low, high)


@elementwise
def dequantize(x: Any, out: Any, scale: Any, zero: Any, sign: Any) -> None:
    """Write (x - zero) scale, from bytes to float32; ``zero`` and ``sign`` are int32."""
    less = i4(zero + sign)
    for i in range(out.size):
        out[i] = f4(i4(i4(i4(x[i]) ^ sign) - less)) * scale


@elementwise
def dequantize_each(x: Any, out: Any, scales: Any, zeros: Any, sign: Any) -> None:
    """As :func:`dequantize`, with a scale and a zero point, a byte, for each element."""
    for i in range(out.size):
        less = i4(i4(zeros[i]) ^ sign)
        out[i] = f4(i4(i4(i4(x[i]) ^ sign) - less)) * scales[i]
