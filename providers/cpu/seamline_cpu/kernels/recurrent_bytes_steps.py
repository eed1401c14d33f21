"""
The steps of an LSTM with 8-bit weights: quantise the state, multiply, and turn the gates.

In every step the state of a direction, all rows of the batch together, is quantised by its
own range. Its integer products with the recurrent weights are scaled to floats, as are
those of the inputs, which were multiplied before for all steps at once. One direction is
one share: its steps follow from each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import bytes_at, floats, ints
from seamline_cpu.commands import command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.byte_panels import pack_pairs_of_bytes
from seamline_cpu.kernels.byte_product import product_row
from seamline_cpu.kernels.quantize_commands import (
    range_of,
    scale_of,
    uint8_row,
    zero_of,
)
from seamline_cpu.kernels.recurrent_steps import end_lstm, show, sigmoids, tanhs
from seamline_cpu.tiles import COLUMNS

__all__ = ["ARGUMENTS", "scratch_bytes", "walk_bytes"]

f4 = np.float32

#: Addresses, then counts. ``sums`` are the inputs' products, int32; ``h`` and ``c`` are
#: written, ``first_h`` and ``first_c`` copied there before the first step.
ARGUMENTS = (
    "sums", "x_scale", "w_scale", "r_scale", "codes", "zeros", "bias", "first_h", "first_c",
    "h", "c", "y", "lengths", "scratch", "stride", "count", "batch", "size", "ways",
    "first_back",
)  # fmt: skip
(_SUMS, _X_SCALE, _W_SCALE, _R_SCALE, _CODES, _ZEROS, _BIAS, _FIRST_H, _FIRST_C, _H, _C,
 _Y, _LENGTHS, _SCRATCH, _STRIDE, _COUNT, _BATCH, _SIZE, _WAYS, _FIRST_BACK,
 ) = range(20)  # fmt: skip
_HEAD = 128  # bytes: the range, a zero, and the negative sum of a packed row


def scratch_bytes(batch: int, size: int) -> int:
    """Give the bytes of a share: gates, sums, inputs, a packed row and the batch's codes."""
    room = 2 * _wide(4 * size) + 4 * size + (size + 1) // 2
    return _HEAD + 4 * room + -(-batch * size // 64) * 64


def _wide(columns: int) -> int:
    return -(-columns // COLUMNS) * COLUMNS


@jit
def _scaled(sums: Any, scale: Any, factors: Any, out: Any, n: int) -> None:
    for j in range(n):
        out[j] = f4(sums[j]) * f4(scale * factors[j])


@jit
def _begin(source: int, target: int, n: int) -> None:
    to = floats(target)
    if source == 0:
        for j in range(n):
            to[j] = f4(0.0)
    else:
        given = floats(source)
        for j in range(n):
            to[j] = given[j]


@jit
def _step(a: Any, way: int, t: int, panels: int, mine: int) -> None:
    size, batch = a[_SIZE], a[_BATCH]
    wide, pairs = 4 * size, (size + 1) // 2
    g_at = mine + _HEAD
    sums_at = g_at + 4 * panels * COLUMNS
    x_at = sums_at + 4 * panels * COLUMNS
    left = x_at + 4 * wide
    codes_at = left + 4 * pairs
    state = 4 * way * batch * size
    range_of(a[_H] + state, batch * size, mine)
    low, high = floats(mine)[0], floats(mine)[1]
    scale = scale_of(low, high)
    zero = zero_of(low, scale)
    bytes_at(mine + 8)[0] = np.uint8(zero)
    uint8_row(a[_H] + state, batch * size, scale, zero, codes_at)
    b, right = a[_BIAS] + 4 * way * wide, a[_CODES] + way * panels * COLUMNS * pairs * 2
    zeros = a[_ZEROS] + 4 * way * panels * COLUMNS
    w_scale, r_scale = (
        floats(a[_W_SCALE] + 4 * way * wide),
        floats(a[_R_SCALE] + 4 * way * wide),
    )
    x_scale = floats(a[_X_SCALE])[0]
    for r in range(batch):
        h_at = a[_H] + state + 4 * r * size
        going = True
        if a[_LENGTHS] != 0:
            going = t < ints(a[_LENGTHS])[r]
        if going:
            pack_pairs_of_bytes(
                codes_at + r * size, size, 1, size, 1, 0, mine + 8, 0, left, mine + 64
            )
            product_row(left, right, pairs, mine + 64, zeros, panels, sums_at)
            given = a[_SUMS] + 4 * ((way * a[_COUNT] + t) * batch + r) * wide
            g, x = floats(g_at), floats(x_at)
            _scaled(ints(sums_at), scale, r_scale, g, wide)
            _scaled(ints(given), x_scale, w_scale, x, wide)
            sigmoids(g, x, floats(b), 3 * size)
            new, last = floats(g_at + 12 * size), floats(x_at + 12 * size)
            tanhs(new, last, floats(b + 12 * size), size)
            cell = floats(a[_C] + state + 4 * r * size)
            end_lstm(g_at, new, floats(h_at), cell, size)
        if a[_Y] != 0:
            far = ((t * a[_WAYS] + way) * batch + r) * size
            show(floats(a[_Y] + 4 * far), floats(h_at), going, size)


@command
def walk_bytes(a: Any, share: int, shares: int) -> None:
    """Take directions through all steps, from the last to the first where they go back."""
    size, batch, count, ways = a[_SIZE], a[_BATCH], a[_COUNT], a[_WAYS]
    panels = (4 * size + COLUMNS - 1) // COLUMNS
    mine = a[_SCRATCH] + share * a[_STRIDE]
    for way in range(ways * share // shares, ways * (share + 1) // shares):
        state = 4 * way * batch * size
        for first, to in ((a[_FIRST_H], a[_H]), (a[_FIRST_C], a[_C])):
            source = first + state if first != 0 else first
            _begin(source, to + state, batch * size)
        back = way == 1 or a[_FIRST_BACK] != 0
        for step in range(count):
            _step(a, way, count - 1 - step if back else step, panels, mine)
