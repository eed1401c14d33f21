"""Compiled quantisation of flat arrays by one scale, to and from 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.jit import jit

__all__ = ["dequantize", "quantize"]

# Adding 1.5 * 2**23 and taking it off again rounds to the nearest integer, ties to even.
_ROUNDER = np.float32(12582912.0)
_FAR = np.float32(1 << 20)


@jit
def quantize(x: Any, out: Any, scale: Any, zero: Any, low: Any, high: Any) -> None:
    """
    Write x / scale, rounded, plus zero, within low and high; NaN gives ``low``.

    Parameters
    ----------
    x
        float32.
    out
        uint8 or int8.
    scale
        float32.
    zero, low, high
        int32.
    """
    for i in range(x.size):
        t = x[i] / scale
        # Beyond this the rounding would fail and the result is an end anyway.
        t = t if t > -_FAR else -_FAR
        t = t if t < _FAR else _FAR
        q = np.int32(np.int32((t + _ROUNDER) - _ROUNDER) + zero)
        q = low if q < low else q
        q = high if q > high else q
        out[i] = q


@jit
def dequantize(x: Any, out: Any, scale: Any, zero: Any) -> None:
    """Write (x - zero) scale, from uint8 or int8 to float32; ``zero`` is int32."""
    for i in range(x.size):
        out[i] = np.float32(np.int32(x[i]) - zero) * scale
