"""
What a product of bytes does to its int32 sums while they are in the cache.

Sums become floats by scales of rows and columns, with a bias, a residual and an activation;
or bytes again, by a last scale and zero point. A share of the product calls
:func:`end_stripe` over each stripe, some rows by ``COLUMNS`` sums, that it has just made.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from seamline.provider import Array
from seamline_cpu.atomics import bytes_at, call_at, floats, ints, longs
from seamline_cpu.ending_tiles import round_stripe, scale_stripe
from seamline_cpu.folds import copy_floats
from seamline_cpu.jit import jit
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue
from seamline_cpu.tiles import COLUMNS

__all__ = ["ROOM", "Ending", "end_stripe"]

ROOM = 8 * COLUMNS + 64  #: bytes of scratch: factors, a bias, an activation's arguments
(_BYTES, _ROW, _ROW_STEP, _COLUMN, _COLUMN_STEP, _BIAS, _Y, _N, _LAST, _ZERO, _SIGN,
 _FUNCTION, _NUMBERS, _MORE, _ADDED) = range(15)  # fmt: skip
f4, i4 = np.float32, np.int32


@attrs.frozen(eq=False)
class Ending:
    """
    What follows ``(M, N)`` sums. All arrays are read in each run.

    Attributes
    ----------
    y
        float32, or uint8 or int8; ``(M, N)``, C-contiguous.
    rows, columns
        float32 scales: of one element, or M and N.
    bias
        float32, N elements, added to floats.
    added
        int32, N elements, added to the sums; scaled with them.
    last, zero
        Scale and zero point of bytes, one element each.
    epilogue
        Of floats: a residual and an activation.
    """

    y: Array
    rows: Array
    columns: Array
    bias: Array | None = None
    last: Array | None = None
    zero: Array | None = None
    epilogue: Epilogue = PLAIN
    added: Array | None = None

    def arguments(self) -> Array:
        """Give what :func:`end_stripe` takes first, int64."""
        as_bytes = self.y.dtype != np.float32
        where = [
            0 if x is None else x.ctypes.data
            for x in (self.rows, self.columns, self.bias, self.y, self.last, self.zero)
        ]
        sign = 128 if self.y.dtype == np.int8 else 0
        values = [
            int(as_bytes), where[0], int(self.rows.size > 1), where[1],
            int(self.columns.size > 1), where[2], where[3], self.y.shape[1], where[4],
            where[5], sign, *self.epilogue.arguments,
            0 if self.added is None else self.added.ctypes.data,
        ]  # fmt: skip
        return np.array(values, np.int64)


@jit
def _prepare(e: Any, row: int, column: int, columns: int, room: int) -> None:
    """Lay out factors and bias of a stripe's columns; zeros past the last."""
    factors, bias = floats(room), floats(room + 4 * COLUMNS)
    scale, step = floats(e[_ROW])[row * e[_ROW_STEP]], e[_COLUMN_STEP]
    each = floats(e[_COLUMN])
    for j in range(columns):
        factors[j] = f4(scale * each[(column + j) * step])
    if e[_BYTES] != 0:
        last, whole = floats(e[_LAST])[0], ints(room + 4 * COLUMNS)
        for j in range(columns):
            factors[j] = f4(factors[j] / last)
            whole[j] = i4(0) if e[_ADDED] == 0 else ints(e[_ADDED])[column + j]
    else:
        for j in range(columns):
            bias[j] = f4(0.0) if e[_BIAS] == 0 else floats(e[_BIAS])[column + j]
            if e[_ADDED] != 0:
                bias[j] += f4(ints(e[_ADDED])[column + j]) * factors[j]
    for j in range(columns, COLUMNS):
        factors[j] = f4(0.0)
        bias[j] = f4(0.0)


@jit
def _end_bytes(
    e: Any, stripe: int, first: int, rows: int, column: int, columns: int, room: int
) -> None:
    # A zero point with its top bit flipped is itself + 128.
    sign = e[_SIGN]
    zero = f4((np.int64(bytes_at(e[_ZERO])[0]) ^ sign) - sign)
    low, high = f4(-sign), f4(255 - sign)
    y = e[_Y] + first * e[_N] + column
    if columns == COLUMNS:
        round_stripe(stripe, rows, room, room + 4 * COLUMNS, zero, low, high, y, e[_N])
        return
    round_stripe(
        stripe, rows, room, room + 4 * COLUMNS, zero, low, high, stripe, COLUMNS
    )
    for r in range(rows):
        source, to = bytes_at(stripe + r * COLUMNS), bytes_at(y + r * e[_N])
        for j in range(columns):
            to[j] = source[j]


@jit
def _end_floats(
    e: Any, stripe: int, first: int, rows: int, column: int, columns: int, room: int
) -> None:
    place = 4 * (first * e[_N] + column)
    if e[_MORE] != 0:
        for r in range(rows):
            here = floats(stripe + 4 * r * COLUMNS)
            more = floats(e[_MORE] + place + 4 * r * e[_N])
            for j in range(columns):
                here[j] = f4(here[j] + more[j])
    if e[_FUNCTION] != 0:
        block = room + 8 * COLUMNS
        words = longs(block)
        words[0], words[1], words[2] = rows * COLUMNS, stripe, stripe
        words[3] = e[_NUMBERS]
        call_at(e[_FUNCTION], block, 0, 1)
    for r in range(rows):
        to = e[_Y] + place + 4 * r * e[_N]
        copy_floats(stripe + 4 * r * COLUMNS, to, columns)


@jit
def end_stripe(
    e: Any, stripe: int, first: int, rows: int, column: int, columns: int, room: int
) -> None:
    """
    Bring a stripe of sums to the output.

    Parameters
    ----------
    e
        Of :meth:`Ending.arguments`.
    stripe
        int32, ``rows`` by ``COLUMNS``, of which ``columns`` count; is overwritten.
    first, column
        Where it lies in the product.
    room
        ``ROOM`` bytes of scratch.
    """
    one = e[_ROW_STEP] == 0
    for r in range(1 if one else rows):
        count = rows if one else 1
        here = stripe + 4 * r * COLUMNS
        _prepare(e, first + r, column, columns, room)
        if e[_BYTES] != 0:
            _end_bytes(e, here, first + r, count, column, columns, room)
        else:
            scale_stripe(here, count, room, room + 4 * COLUMNS)
            _end_floats(e, here, first + r, count, column, columns, room)
