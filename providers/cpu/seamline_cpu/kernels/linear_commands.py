"""
QuantizeLinear and DequantizeLinear of 8 bits, as compiled commands.

A tensor is seen as lines: each has one scale and zero point, those of its place along the
axis, or, where the axis is the last, one for each of its elements.
"""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
from numba.np.numpy_support import carray

from seamline.provider import Array
from seamline_cpu.atomics import bytes_at, floats
from seamline_cpu.commands import Command, Native, bind, command
from seamline_cpu.jit import inlined, jit
from seamline_cpu.kernels.quantize_loops import (
    dequantize,
    dequantize_each,
    quantize,
    quantize_each,
)
from seamline_cpu.kernels.rows import matrix
from seamline_cpu.strides import portion

__all__ = ["bind_dequantized", "bind_quantized", "point_of"]

_SHARED_FROM = 131_072  # elements from which more threads pay
(_FLOATS, _CODES, _LINES, _N, _SCALE, _ZERO, _EVERY, _STEP, _EACH, _SIGN) = range(10)
i4 = np.int32


@jit
def point_of(zero: int, index: int, sign: int) -> Any:
    """Give a zero point's value, int32, of bytes at an address; 0 where there are none."""
    if zero == 0:
        return i4(0)
    return i4(i4(i4(bytes_at(zero + index)[0]) ^ i4(sign)) - i4(sign))


def _by_lines(line: Any, each: Any) -> Command:
    """
    Give the command that goes through lines.

    Parameters
    ----------
    line
        Compiled: floats and codes of one scale; the scale, zero point and sign, int32.
    each
        Compiled: floats and codes; scales, zero points as bytes, and the sign.
    """

    def run(a: Any, share: int, shares: int) -> None:
        n, sign = a[_N], a[_SIGN]
        first, end, low, high = portion(a[_LINES], n, share, shares)
        for r in range(first, end):
            at = r * n + low
            real = matrix(floats(a[_FLOATS] + 4 * at), 1, high - low)[0]
            codes = carray(bytes_at(a[_CODES] + at), (high - low,))
            if a[_EACH] != 0:
                scales = matrix(floats(a[_SCALE] + 4 * low), 1, high - low)[0]
                zeros = carray(bytes_at(a[_ZERO] + low), (high - low,))
                each(real, codes, scales, zeros, i4(sign))
            else:
                place = r % a[_EVERY] * a[_STEP]
                zero = point_of(a[_ZERO], place, sign)
                line(real, codes, floats(a[_SCALE])[place], zero, i4(sign))

    return command(run)


@inlined
def _quantized_line(real: Any, codes: Any, scale: Any, zero: Any, sign: Any) -> None:
    quantize(real, codes, scale, zero, i4(-sign), i4(255 - sign))


@inlined
def _dequantized_line(real: Any, codes: Any, scale: Any, zero: Any, sign: Any) -> None:
    dequantize(codes, real, scale, zero, sign)


@inlined
def _dequantized_each(
    real: Any, codes: Any, scales: Any, zeros: Any, sign: Any
) -> None:
    dequantize_each(codes, real, scales, zeros, sign)


_quantized = _by_lines(_quantized_line, quantize_each)
_dequantized = _by_lines(_dequantized_line, _dequantized_each)


@attrs.frozen
class _Lines:
    """How many lines there are, how long, after how many scales repeat, and whether along."""

    count: int
    length: int
    every: int
    along: bool

    @classmethod
    def of(cls, shape: tuple[int, ...], scales: int, axis: int) -> _Lines:
        if scales == 1:
            return cls(1, math.prod(shape), 1, False)
        inner = math.prod(shape[axis + 1 :])
        if inner == 1:
            return cls(math.prod(shape[:axis]), scales, 1, True)
        return cls(math.prod(shape[: axis + 1]), inner, scales, False)


def _bound(
    what: Command, real: Array, codes: Array, scale: Array, zero: Array | None, axis: int,
    threads: int,
) -> Native:  # fmt: skip
    lines = _Lines.of(codes.shape, scale.size, axis)
    if zero is None and lines.along:
        zero = np.zeros(scale.size, codes.dtype)
    shares = threads if codes.size >= _SHARED_FROM else 1
    arguments = [
        real.ctypes.data, codes.ctypes.data, lines.count, lines.length, scale.ctypes.data,
        0 if zero is None else zero.ctypes.data, lines.every, int(scale.size > 1),
        lines.along, 128 if codes.dtype == np.int8 else 0,
    ]  # fmt: skip
    return bind(what, arguments, shares, keep=(real, codes, scale, zero))


def bind_quantized(
    x: Array, scale: Array, zero: Array | None, codes: Array, axis: int, threads: int
) -> Native:
    """
    Bind ``codes = round(x / scale) + zero``, halves to even, saturated; NaN is the least.

    Parameters
    ----------
    x, codes
        float32, and uint8 or int8, of one shape; C-contiguous.
    scale, zero
        float32 and of the codes' type: one, or one for each place of ``axis``, counted
        from the front. Read in each run.
    """
    return _bound(_quantized, x, codes, scale, zero, axis, threads)


def bind_dequantized(
    codes: Array, scale: Array, zero: Array | None, out: Array, axis: int, threads: int
) -> Native:
    """Bind ``out = (codes - zero) * scale``; arguments as of :func:`bind_quantized`."""
    return _bound(_dequantized, out, codes, scale, zero, axis, threads)
