"""
What products of bytes are packed into: panels of the right matrix, words of the left rows.

The constant right matrix lies in panels of ``COLUMNS`` columns, as many rows of which lie
together for each column as share a 32-bit word; it stays as large as it was. Unsigned bytes
are moved into the signed range by flipping their top bit, and their zero points with them.
Rows of the left matrix become words, and their sums are kept: the right matrix' zero point
times such a sum is where a tile's sums begin.
"""

from __future__ import annotations

import attrs
import numpy as np

from seamline.provider import Array
from seamline_cpu.atomics import bytes_at, ints
from seamline_cpu.jit import jit
from seamline_cpu.tiles import COLUMNS

__all__ = ["BytePanels", "pack_fours", "pack_pairs_of_bytes"]

i4 = np.int32


@attrs.frozen(eq=False)
class BytePanels:
    """
    A packed right matrix.

    Attributes
    ----------
    codes
        int8, ``(panels, words, COLUMNS, group)``; several matrices may be stacked.
    totals
        int32, ``(panels * COLUMNS,)`` for each: the sum of each column's codes.
    depth, columns
        The matrix' sizes.
    moved
        What was taken off each byte: 128 off unsigned ones.
    """

    codes: Array
    totals: Array
    depth: int
    columns: int
    moved: int

    @classmethod
    def of(cls, b: Array, group: int = 2) -> BytePanels:
        """Pack uint8 or int8 ``(K, N)``, ``group`` rows of K together."""
        depth, columns = b.shape
        panels, words = -(-columns // COLUMNS), -(-depth // group)
        signed = b if b.dtype == np.int8 else (b ^ np.uint8(128)).view(np.int8)
        whole = np.zeros((words * group, panels * COLUMNS), np.int8)
        whole[:depth, :columns] = signed
        shaped = whole.reshape(words, group, panels, COLUMNS).transpose(2, 0, 3, 1)
        moved = 0 if b.dtype == np.int8 else 128
        totals = whole.sum(0, dtype=np.int32)
        return cls(np.ascontiguousarray(shaped), totals, depth, columns, moved)

    @property
    def group(self) -> int:
        """Give how many rows lie together."""
        return int(self.codes.shape[-1])

    def zeros(self, point: Array | None) -> Array:
        """Give zero points, one or one a column, moved as the codes are; int32, padded."""
        found = np.zeros(self.codes.shape[-4] * COLUMNS, np.int32)
        value = np.int32(0) if point is None else point.reshape(-1).astype(np.int32)
        found[: self.columns] = value - self.moved
        return found


@jit
def pack_pairs_of_bytes(
    a: int, down: int, rows: int, depth: int, tall: int, sign: int, zero: int,
    zero_step: int, out: int, minus: int,
) -> None:  # fmt: skip
    """
    Write bytes as ``(pairs, tall)`` pairs of int16 less the zero point, and negative sums.

    ``down`` is the bytes between rows at ``a``; rows past ``rows`` are zeros.
    """
    flip = i4(sign)
    pairs = depth // 2
    for r in range(tall):
        to = ints(out + 4 * r)
        total = i4(0)
        if r >= rows:
            for k in range((depth + 1) // 2):
                to[k * tall] = i4(0)
            ints(minus)[r] = total
            continue
        row = bytes_at(a + r * down)
        base = i4(i4(bytes_at(zero + r * zero_step)[0]) ^ flip)
        for k in range(pairs):
            low = i4(i4(i4(row[2 * k]) ^ flip) - base)
            high = i4(i4(i4(row[2 * k + 1]) ^ flip) - base)
            to[k * tall] = i4(low & i4(0xFFFF)) | i4(high << i4(16))
            total = i4(total + i4(low + high))
        if depth % 2:
            low = i4(i4(i4(row[depth - 1]) ^ flip) - base)
            to[pairs * tall] = low & i4(0xFFFF)
            total = i4(total + low)
        ints(minus)[r] = i4(-total)


@jit
def pack_fours(
    a: int, down: int, rows: int, depth: int, tall: int, sign: int, zero: int,
    zero_step: int, out: int, minus: int, shift: int,
) -> None:  # fmt: skip
    """
    Write bytes, flipped where signed, as ``(words, tall)`` words of four.

    ``minus`` takes the negative sums of the rows less their zero points, ``shift`` the
    negative zero points. Rows past ``rows`` and bytes past ``depth`` are zeros.
    """
    words, flip = depth // 4, i4(sign * 0x01010101)
    for r in range(tall):
        to = ints(out + 4 * r)
        if r >= rows:
            for k in range((depth + 3) // 4):
                to[k * tall] = i4(0)
            ints(minus)[r] = i4(0)
            ints(shift)[r] = i4(0)
            continue
        row, fours = bytes_at(a + r * down), ints(a + r * down)
        for k in range(words):
            to[k * tall] = i4(fours[k] ^ flip)
        total = i4(0)
        for k in range(depth):
            total = i4(total + i4(i4(row[k]) ^ i4(sign)))
        if depth % 4:
            last = i4(0)
            for k in range(4 * words, depth):
                byte = i4(i4(row[k]) ^ i4(sign))
                last = i4(last | i4(byte << i4(8 * (k % 4))))
            to[words * tall] = last
        base = i4(i4(bytes_at(zero + r * zero_step)[0]) ^ i4(sign))
        ints(minus)[r] = i4(i4(base * i4(depth)) - total)
        ints(shift)[r] = i4(-base)
