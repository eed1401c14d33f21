"""Rows of bytes to rows of 32-bit words: two channels as int16, or four as they are."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline_cpu.atomics import bytes_at, ints
from seamline_cpu.jit import jit

__all__ = ["fill_fours", "fill_row", "filler"]

i4 = np.int32


@jit
def fill_row(first: int, second: int, target: int, sign: int, base: int, step: int,
              count: int) -> None:  # fmt: skip
    """
    Write ``count`` words of every ``step``-th byte of two rows, less the zero point.

    No second row where its address is 0.
    """
    to, one = ints(target), bytes_at(first)
    flip, minus = i4(sign), i4(base)
    if second == 0:
        for i in range(count):
            low = i4(i4(one[i * step]) ^ flip) - minus
            to[i] = i4(low) & i4(0xFFFF)
        return
    other = bytes_at(second)
    if step == 1:
        for i in range(count):
            low = i4(i4(i4(one[i]) ^ flip) - minus)
            high = i4(i4(i4(other[i]) ^ flip) - minus)
            to[i] = i4(low & i4(0xFFFF)) | i4(high << i4(16))
        return
    for i in range(count):
        low = i4(i4(i4(one[i * step]) ^ flip) - minus)
        high = i4(i4(i4(other[i * step]) ^ flip) - minus)
        to[i] = i4(low & i4(0xFFFF)) | i4(high << i4(16))


@jit
def fill_fours(first: int, apart: int, there: int, target: int, sign: int, step: int,
               count: int) -> None:  # fmt: skip
    """Write ``count`` words of every ``step``-th byte of up to four rows, as unsigned."""
    to, flip = ints(target), i4(sign * 0x01010101)
    a, b = bytes_at(first), bytes_at(first + (apart if there > 1 else 0))
    c = bytes_at(first + (2 * apart if there > 2 else 0))
    d = bytes_at(first + (3 * apart if there > 3 else 0))
    mask = i4(-1) if there > 3 else i4((1 << (8 * there)) - 1)
    if step == 1:
        for i in range(count):
            low = i4(i4(a[i]) | i4(i4(b[i]) << i4(8)))
            high = i4(i4(i4(c[i]) << i4(16)) | i4(i4(d[i]) << i4(24)))
            to[i] = i4(i4(i4(low | high) ^ flip) & mask)
        return
    for i in range(count):
        j = i * step
        low = i4(i4(a[j]) | i4(i4(b[j]) << i4(8)))
        high = i4(i4(i4(c[j]) << i4(16)) | i4(i4(d[j]) << i4(24)))
        to[i] = i4(i4(i4(low | high) ^ flip) & mask)


@functools.cache
def filler(group: int) -> Any:
    """
    Give ``(first, apart, there, target, sign, base, step, count)`` for ``group`` rows a word.

    Rows lie ``apart`` bytes from each other, and ``there`` of them exist.
    """
    if group == 4:

        @jit
        def four(
            first: int, apart: int, there: int, target: int, sign: int, base: int,
            step: int, count: int,
        ) -> None:  # fmt: skip
            fill_fours(first, apart, there, target, sign, step, count)

        return four

    @jit
    def two(
        first: int, apart: int, there: int, target: int, sign: int, base: int, step: int,
        count: int,
    ) -> None:  # fmt: skip
        second = first + apart if there > 1 else 0
        fill_row(first, second, target, sign, base, step, count)

    return two
