"""
Where the quads of :mod:`seamline_cpu.winograd_tiles` lie, and how one is computed directly.

A quad is sixteen columns of four rows of an image's outputs; quads are numbered along rows,
then down, then from image to image, so that a panel is full whatever the image's size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import floats
from seamline_cpu.jit import jit
from seamline_cpu.winograd import TILE
from seamline_cpu.winograd_tiles import RUN

__all__ = ["ARGUMENTS", "compute_anew", "extent", "inside", "output_at", "position"]

#: What a command's arguments are, in order.
ARGUMENTS = (
    "x", "points", "bias", "y", "scratch", "stride", "images", "channels", "outputs",
    "height", "width", "down", "across", "top", "left", "rows", "columns", "splits",
    "limits", "weights", "counter", "function", "numbers", "more",
)  # fmt: skip
(_X, _B, _Y, _C, _OC, _H, _WIDTH, _OH, _OW, _PH, _PW, _ROWS, _COLUMNS, _LIMITS, _W) = (
    ARGUMENTS.index(name) for name in (
        "x", "bias", "y", "channels", "outputs", "height", "width", "down", "across",
        "top", "left", "rows", "columns", "limits", "weights",
    )
)  # fmt: skip
_TAPS = 3


@jit
def position(a: Any, quad: int) -> tuple[int, int, int]:
    """Give a quad's image, and its first output's row and column."""
    place = quad // a[_COLUMNS]
    column = quad % a[_COLUMNS] * RUN
    return place // a[_ROWS], place % a[_ROWS] * TILE, column


@jit
def extent(a: Any, quad: int) -> tuple[int, int]:
    """Give the rows and the columns of a quad that are outputs."""
    _, row, column = position(a, quad)
    return min(TILE, a[_OH] - row), min(RUN, a[_OW] - column)


@jit
def output_at(a: Any, quad: int, channel: int) -> Any:
    """Give how many floats into the output a quad begins."""
    image, row, column = position(a, quad)
    return ((image * a[_OC] + channel) * a[_OH] + row) * a[_OW] + column


@jit
def inside(a: Any, image: int, channel: int, row: int, column: int, count: int,
           target: int) -> None:  # fmt: skip
    """Copy ``count`` inputs of a row, as it is padded, from a column on."""
    to = floats(target)
    there = 0 <= row < a[_H]
    plane = (image * a[_C] + channel) * a[_H]
    source = floats(a[_X] + (plane + (row if there else 0)) * a[_WIDTH] * 4)
    for i in range(count):
        at = column + i
        to[i] = source[at] if there and 0 <= at < a[_WIDTH] else np.float32(0)


@jit
def _anew_row(a: Any, image: int, row: int, column: int, m: int, sums: int,
              held: int) -> None:  # fmt: skip
    """Add up one row of a quad by the definition, ``RUN`` floats at ``sums``."""
    to, values = floats(sums), floats(held)
    first = floats(a[_B])[m]
    for i in range(RUN):
        to[i] = first
    weights = floats(a[_W] + m * a[_C] * _TAPS * _TAPS * 4)
    for c in range(a[_C]):
        for down in range(_TAPS):
            inside(
                a, image, c, row - a[_PH] + down, column - a[_PW], RUN + _TAPS - 1, held
            )
            for right in range(_TAPS):
                weight = weights[(c * _TAPS + down) * _TAPS + right]
                for i in range(RUN):
                    to[i] += weight * values[i + right]


@jit
def compute_anew(a: Any, quad: int, low: int, high: int, room: int) -> None:
    """
    Compute a quad's outputs of channels ``low`` to ``high`` by the definition.

    ``room`` is scratch of 256 bytes.
    """
    image, row, column = position(a, quad)
    rows, columns = extent(a, quad)
    least, most = floats(a[_LIMITS])[0], floats(a[_LIMITS])[1]
    sums = floats(room)
    for m in range(low, high):
        out = a[_Y] + output_at(a, quad, m) * 4
        for r in range(rows):
            _anew_row(a, image, row + r, column, m, room, room + 4 * RUN)
            to = floats(out + r * a[_OW] * 4)
            for i in range(columns):
                value = sums[i]
                value = least if value < least else value
                to[i] = most if value > most else value
