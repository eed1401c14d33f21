"""
All steps of LSTM, GRU or RNN in one command: float32, with the usual activations.

Rows of the batch and directions do not depend on each other, so a share of the command
takes some rows of one direction through every step and waits for nobody. A step is a
product of the rows' states by the recurrence's weights, which lie in panels, and then one
pass over the gates of each row. Few rows read the weights a strip at a time, with the sums
in registers; from ``TILED_ROWS`` on the rows are packed and make register tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import floats, longs
from seamline_cpu.commands import command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.float32_math import sigmoid, tanh
from seamline_cpu.kernels.stacked_product import pack_rows
from seamline_cpu.tiles import COLUMNS, LANES, ROWS, dot_tile, tap_strip

__all__ = [
    "ARGUMENTS",
    "GRU",
    "GRU_LINEAR",
    "HEAD",
    "LSTM",
    "RNN",
    "STRIP",
    "TILED_ROWS",
    "end_lstm",
    "show",
    "sigmoids",
    "tanhs",
    "walk",
]

f4 = np.float32
STRIP = 4 * LANES
HEAD = 16  # floats: zeros for a tile to start from, and the rest of their cache line
#: Rows of a share from which a tile of ROWS, some of them idle, beats a strip for each.
TILED_ROWS = 4
LSTM, GRU, GRU_LINEAR, RNN = range(4)

#: Addresses, then counts, then floats between neighbours in Y. ``last`` are the weights of
#: GRU's last gate where its state is reset first, ``first`` all others; ``inner`` is the
#: bias that is scaled where the reset comes later.
ARGUMENTS = (
    "gates", "bias", "inner", "states", "y", "lengths", "scratch", "offsets", "first", "last",
    "kind", "count", "batch", "size", "ways", "chunks", "tiled", "first_back", "stride",
    "first_panels", "last_panels", "y_time", "y_way", "y_row",
)  # fmt: skip
(_GATES, _BIAS, _INNER, _STATES, _Y, _LENGTHS, _SCRATCH, _OFFSETS, _FIRST, _LAST,
 _KIND, _COUNT, _BATCH, _SIZE, _WAYS, _CHUNKS, _TILED, _FIRST_BACK, _STRIDE,
 _FIRST_PANELS, _LAST_PANELS, _Y_TIME, _Y_WAY, _Y_ROW) = range(24)  # fmt: skip


@jit
def _by_strips(source: int, rows: int, size: int, weights: int, panels: int,
               offsets: int, out: int) -> None:  # fmt: skip
    for p in range(panels):
        for r in range(rows):
            tap_strip(
                weights + 4 * p * size * STRIP, offsets, source + 4 * r * size, size,
                f4(0), out + 4 * (r * panels + p) * STRIP,
            )  # fmt: skip


@jit
def _by_tiles(source: int, rows: int, size: int, weights: int, panels: int,
              left: int, zeros: int, out: int) -> None:  # fmt: skip
    """Write whole tiles; ``left`` is room for packed rows, ``zeros`` a row's start."""
    pitch = 4 * panels * COLUMNS
    tiles = (rows + ROWS - 1) // ROWS
    block = 4 * ROWS * size
    for i in range(tiles):
        pack_rows(
            floats(source + i * block), size, 1, rows - i * ROWS, size,
            floats(left + i * block),
        )  # fmt: skip
    for p in range(panels):
        for i in range(tiles):
            dot_tile(
                left + i * block, weights + 4 * p * size * COLUMNS, size, zeros,
                out + i * ROWS * pitch + 4 * p * COLUMNS, pitch,
            )  # fmt: skip


@jit
def _multiply(a: Any, source: int, rows: int, weights: int, panels: int, left: int,
              zeros: int, out: int) -> None:  # fmt: skip
    if a[_TILED]:
        _by_tiles(source, rows, a[_SIZE], weights, panels, left, zeros, out)
    else:
        _by_strips(source, rows, a[_SIZE], weights, panels, a[_OFFSETS], out)


# Of the loops below none both calls a function and reads what it writes elsewhere: LLVM
# then makes vector code after one check for overlap. A command has one call of each, for
# LLVM copies it into every one, and compiling takes as long as it has copies.


@jit
def sigmoids(g: Any, x: Any, b: Any, n: int) -> None:
    """Replace ``g`` by the sigmoids of ``g + b + x``."""
    for j in range(n):
        g[j] += b[j]
    for j in range(n):
        g[j] = sigmoid(g[j] + x[j])


@jit
def tanhs(g: Any, x: Any, b: Any, n: int) -> None:
    """Replace ``g`` by the hyperbolic tangents of ``g + b + x``."""
    for j in range(n):
        g[j] += b[j]
    for j in range(n):
        g[j] = tanh(g[j] + x[j])


@jit
def end_lstm(g: int, new: Any, h: Any, c: Any, size: int) -> None:
    """Of gates i, o, f and the new value: ``c = f c + i new``, ``h = o tanh(c)``."""
    take, out, keep = floats(g), floats(g + 4 * size), floats(g + 8 * size)
    for j in range(size):
        new[j] *= take[j]
    for j in range(size):
        c[j] = c[j] * keep[j] + new[j]
    for j in range(size):
        h[j] = tanh(c[j])
    for j in range(size):
        h[j] *= out[j]


@jit
def _end_gru(z: Any, new: Any, h: Any, size: int) -> None:
    """``h = (1 - z) new + z h``."""
    for j in range(size):
        new[j] *= f4(1) - z[j]
    for j in range(size):
        h[j] = h[j] * z[j] + new[j]


@jit
def _reset(reset: Any, source: Any, b: Any, out: Any, size: int) -> None:
    """Write ``reset * (source + b)``; ``out`` may be ``source``."""
    for j in range(size):
        out[j] = source[j] + b[j]
    for j in range(size):
        out[j] *= reset[j]


@jit
def show(y: Any, h: Any, going: bool, size: int) -> None:
    """Write a row's new state, or zeros where it has ended."""
    if going:
        for j in range(size):
            y[j] = h[j]
    else:
        for j in range(size):
            y[j] = f4(0)


@command
def walk(a: Any, share: int, shares: int) -> None:  # noqa: C901 - flat
    """Take chunks of rows through all steps."""
    size, batch, count, kind = a[_SIZE], a[_BATCH], a[_COUNT], a[_KIND]
    chunks = a[_CHUNKS]
    width = COLUMNS if a[_TILED] else STRIP
    gates = 4 if kind == LSTM else (1 if kind == RNN else 3)
    wide, before = gates * size, (gates - 1) * size
    most = (batch + chunks - 1) // chunks
    most = (most + ROWS - 1) // ROWS * ROWS
    pitch, pitch_last = 4 * width * a[_FIRST_PANELS], 4 * width * a[_LAST_PANELS]
    zeros = a[_SCRATCH] + share * a[_STRIDE]
    g_at = zeros + 4 * HEAD
    last_at = g_at + most * pitch
    mixed_at = last_at + most * pitch_last
    left = mixed_at + 4 * most * size
    # Where the last gate's sums lie, and how far its rows are apart.
    new_at, new_pitch = g_at + 4 * before, pitch
    if kind == GRU:
        new_at, new_pitch = last_at, pitch_last
    panel = 4 * size * width
    every = a[_WAYS] * chunks
    for chunk in range(every * share // shares, every * (share + 1) // shares):
        way, part = chunk // chunks, chunk % chunks
        low, high = batch * part // chunks, batch * (part + 1) // chunks
        rows = high - low
        back = way == 1 or a[_FIRST_BACK] != 0
        h_at = a[_STATES] + 4 * (way * batch + low) * size
        c_at = h_at + 4 * a[_WAYS] * batch * size
        b_at = a[_BIAS] + 4 * way * wide
        inner = floats(a[_INNER] + 4 * way * size)
        for step in range(count):
            t = count - 1 - step if back else step
            x_at = a[_GATES] + 4 * ((way * count + t) * batch + low) * wide
            for phase in range(2 if kind == GRU else 1):
                if phase == 0:
                    source, out, panels = h_at, g_at, a[_FIRST_PANELS]
                    weights = a[_FIRST] + way * panels * panel
                else:
                    source, out, panels = mixed_at, last_at, a[_LAST_PANELS]
                    weights = a[_LAST] + way * panels * panel
                _multiply(a, source, rows, weights, panels, left, zeros, out)
                for r in range(rows if phase == 0 else 0):
                    g, x = g_at + r * pitch, floats(x_at + 4 * r * wide)
                    sigmoids(floats(g), x, floats(b_at), before)
                    if kind in (GRU, GRU_LINEAR):
                        to = floats(mixed_at + 4 * r * size)
                        of = floats(h_at + 4 * r * size)
                        if kind == GRU_LINEAR:
                            to = floats(new_at + r * new_pitch)
                            of = to
                        _reset(floats(g + 4 * size), of, inner, to, size)
            for r in range(rows):
                h = floats(h_at + 4 * r * size)
                going = True
                if a[_LENGTHS] != 0:
                    going = t < longs(a[_LENGTHS])[low + r]
                if going:
                    g, new = g_at + r * pitch, floats(new_at + r * new_pitch)
                    x = floats(x_at + 4 * (r * wide + before))
                    tanhs(new, x, floats(b_at + 4 * before), size)
                    if kind == LSTM:
                        end_lstm(g, new, h, floats(c_at + 4 * r * size), size)
                    elif kind == RNN:
                        for j in range(size):
                            h[j] = new[j]
                    else:
                        _end_gru(floats(g), new, h, size)
                if a[_Y] != 0:
                    far = t * a[_Y_TIME] + way * a[_Y_WAY] + (low + r) * a[_Y_ROW]
                    show(floats(a[_Y] + 4 * far), h, going, size)
