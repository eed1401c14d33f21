"""
Exact products of 8-bit matrices by a constant one, as compiled commands.

The constant right matrix is packed once, in panels of ``COLUMNS`` columns, two rows of
which lie together for each column; it stays as large as it was. Unsigned bytes are moved
into the signed range by flipping their top bit, and their zero points with them. Rows of
the left matrix are packed as 16-bit pairs less their zero point, a block at a time, and
their sums are kept: the right matrix' zero point times such a sum is where a tile's sums
begin.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from seamline.provider import Array
from seamline_cpu.atomics import bytes_at, ints
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.integer_tiles import byte_row, byte_tile
from seamline_cpu.jit import jit
from seamline_cpu.tiles import COLUMNS, ROWS

__all__ = ["BytePanels", "bind_bytes", "pack_byte_rows", "product_row"]

_BLOCK = 192 << 10  # bytes of left rows packed at once
_SHARED_FROM = 1 << 19  # multiply-adds from which more threads pay
_SPARE = 4 * ROWS * COLUMNS + 64  # bytes: a tile that is cut, and the rows' sums

(_A, _B, _Y, _M, _K, _N, _LEFT, _STRIDE, _STEP, _BY_ROWS, _SIGN, _ZERO, _ZERO_STEP,
 _ZEROS) = range(14)  # fmt: skip


@attrs.frozen(eq=False)
class BytePanels:
    """
    A packed right matrix.

    Attributes
    ----------
    codes
        int8, ``(panels, pairs of rows, COLUMNS, 2)``.
    depth, columns
        The matrix' sizes.
    """

    codes: Array
    depth: int
    columns: int
    moved: int

    @classmethod
    def of(cls, b: Array) -> BytePanels:
        """Pack uint8 or int8 ``(K, N)``."""
        depth, columns = b.shape
        panels, pairs = -(-columns // COLUMNS), -(-depth // 2)
        signed = b if b.dtype == np.int8 else (b ^ np.uint8(128)).view(np.int8)
        whole = np.zeros((pairs * 2, panels * COLUMNS), np.int8)
        whole[:depth, :columns] = signed
        shaped = whole.reshape(pairs, 2, panels, COLUMNS).transpose(2, 0, 3, 1)
        moved = 0 if b.dtype == np.int8 else 128
        return cls(np.ascontiguousarray(shaped), depth, columns, moved)

    def zeros(self, point: Array | None) -> Array:
        """Give zero points, one or one a column, moved as the codes are; int32, padded."""
        found = np.zeros(self.codes.shape[0] * COLUMNS, np.int32)
        value = np.int32(0) if point is None else point.reshape(-1).astype(np.int32)
        found[: self.columns] = value - self.moved
        return found


@jit
def pack_byte_rows(a: int, down: int, rows: int, depth: int, tall: int, sign: int,
                   zero: int, zero_step: int, out: int, minus: int) -> None:  # fmt: skip
    """
    Write bytes as ``(pairs, tall)`` pairs of int16 less the zero point, and negative sums.

    ``down`` is the bytes between rows at ``a``; rows past ``rows`` are zeros.
    """
    flip = np.int32(sign)
    pairs = depth // 2
    for r in range(tall):
        to = ints(out + 4 * r)
        total = np.int32(0)
        if r >= rows:
            for k in range((depth + 1) // 2):
                to[k * tall] = np.int32(0)
            ints(minus)[r] = total
            continue
        row = bytes_at(a + r * down)
        base = np.int32(np.int32(bytes_at(zero + r * zero_step)[0]) ^ flip)
        for k in range(pairs):
            low = np.int32(np.int32(np.int32(row[2 * k]) ^ flip) - base)
            high = np.int32(np.int32(np.int32(row[2 * k + 1]) ^ flip) - base)
            word = np.int32(low & np.int32(0xFFFF)) | np.int32(high << np.int32(16))
            to[k * tall] = word
            total = np.int32(total + np.int32(low + high))
        if depth % 2:
            low = np.int32(np.int32(np.int32(row[depth - 1]) ^ flip) - base)
            to[pairs * tall] = low & np.int32(0xFFFF)
            total = np.int32(total + low)
        ints(minus)[r] = np.int32(-total)


@jit
def product_row(left: int, right: int, pairs: int, minus: int, zeros: int, panels: int,
                out: int) -> None:  # fmt: skip
    """Multiply one packed row by every panel; ``out`` has room for whole panels."""
    for p in range(panels):
        byte_row(left, right + 2 * p * pairs * COLUMNS, pairs, minus,
                 zeros + 4 * p * COLUMNS, out + 4 * p * COLUMNS, 4 * COLUMNS)  # fmt: skip


@jit
def _tile(tall: int, left: int, right: int, pairs: int, minus: int, zeros: int, rows: int,
          columns: int, spare: int, y: int, pitch: int) -> None:  # fmt: skip
    whole = rows >= tall and columns >= COLUMNS
    to, step = (y, pitch) if whole else (spare, 4 * COLUMNS)
    if tall == 1:
        byte_row(left, right, pairs, minus, zeros, to, step)
    else:
        byte_tile(left, right, pairs, minus, zeros, to, step)
    if whole:
        return
    for r in range(min(rows, tall)):
        source, target = ints(spare + 4 * r * COLUMNS), ints(y + r * pitch)
        for j in range(min(columns, COLUMNS)):
            target[j] = source[j]


@command
def _product(a: Any, share: int, shares: int) -> None:
    """Multiply; shares are of the rows, or of the panels."""
    m, depth, n = a[_M], a[_K], a[_N]
    pairs = (depth + 1) // 2
    rows, panels = (m + ROWS - 1) // ROWS, (n + COLUMNS - 1) // COLUMNS
    first, end, low, high = 0, rows, 0, panels
    if a[_BY_ROWS] != 0:
        first, end = rows * share // shares, rows * (share + 1) // shares
    else:
        low, high = panels * share // shares, panels * (share + 1) // shares
    spare = a[_LEFT] + share * a[_STRIDE]
    left = spare + 4 * ROWS * COLUMNS + 64
    size = 4 * ROWS * (pairs + 1)  # the sums of a block's rows lie before its pairs
    for start in range(first, end, a[_STEP]):
        stop = min(start + a[_STEP], end)
        for r in range(start, stop):
            tall = 1 if m - r * ROWS == 1 else ROWS
            here = left + (r - start) * size
            pack_byte_rows(
                a[_A] + r * ROWS * depth, depth, m - r * ROWS, depth, tall, a[_SIGN],
                a[_ZERO] + r * ROWS * a[_ZERO_STEP], a[_ZERO_STEP], here + 4 * ROWS, here,
            )  # fmt: skip
        for p in range(low, high):
            right = a[_B] + 2 * p * pairs * COLUMNS
            zeros = a[_ZEROS] + 4 * p * COLUMNS
            for r in range(start, stop):
                tall = 1 if m - r * ROWS == 1 else ROWS
                here = left + (r - start) * size
                y = a[_Y] + 4 * (r * ROWS * n + p * COLUMNS)
                _tile(tall, here + 4 * ROWS, right, pairs, here, zeros, m - r * ROWS,
                      n - p * COLUMNS, spare, y, 4 * n)  # fmt: skip


def bind_bytes(
    a: Array,
    zero: Array | None,
    panels: BytePanels,
    zeros: Array,
    y: Array,
    threads: int,
) -> Native:
    """
    Bind ``y = (a - zero) @ (b - zeros)`` in int32 that wraps.

    Parameters
    ----------
    a
        uint8 or int8, ``(M, K)``, C-contiguous.
    zero
        One zero point, or one a row, read in each run; None is 0.
    zeros
        Of :meth:`BytePanels.zeros`.
    y
        int32, ``(M, N)``, C-contiguous.
    """
    (m, depth), n = a.shape, panels.columns
    rows, count = -(-m // ROWS), len(panels.codes)
    shares = threads if m * depth * n >= _SHARED_FROM else 1
    by_rows = rows >= 4 * shares or count < shares
    shares = min(shares, rows if by_rows else count)
    pairs = -(-depth // 2)
    size = 4 * ROWS * (pairs + 1)
    step = max(1, min(_BLOCK // size, rows))
    stride = -(-(_SPARE + step * size) // 64) * 64
    scratch = np.zeros(max(1, shares) * stride, np.uint8)
    point = np.zeros(1, a.dtype) if zero is None else zero
    arguments = [
        a.ctypes.data, panels.codes.ctypes.data, y.ctypes.data, m, depth, n,
        scratch.ctypes.data, stride, step, by_rows, 128 if a.dtype == np.int8 else 0,
        point.ctypes.data, 0 if point.size == 1 else 1, zeros.ctypes.data,
    ]  # fmt: skip
    kept = (a, panels, zeros, y, scratch, point)
    return bind(_product, arguments, shares, keep=kept)
