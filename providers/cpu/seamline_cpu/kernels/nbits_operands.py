"""
Where the operands of a product by packed weights are, and tiles that find them there.

Every such command has these arguments, whatever hands out its work: turns at one matrix
(:mod:`.nbits_turns`), or at the matrices of many experts (:mod:`.expert_turns`). What differs
is how far from an operand's beginning a tile's part of it lies, which the caller says.
"""

from __future__ import annotations

import functools
from typing import Any

from seamline_cpu.jit import inlined
from seamline_cpu.kernels.nbits_float import float_tile
from seamline_cpu.kernels.nbits_int8 import int8_tile
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.row_tiles import row_tile

__all__ = [
    "FIRST",
    "OPERANDS",
    "SLOTS",
    "float_at",
    "int8_at",
    "rows_by_piece",
    "unpacked_at",
]

#: Names of arguments, in their order. ``scale`` and ``total`` are those of quantised
#: activations; ``depth``, ``block`` and what follows are read where weights are unpacked.
OPERANDS = (
    "groups", "per", "n", "w", "across", "record", "after", "blocks", "steps", "bias", "x",
    "x_pitch", "scale", "total", "s_pitch", "y", "y_pitch", "depth", "block", "scratch",
    "stride",
)  # fmt: skip
FIRST = 2  #: arguments before them, which say how work is handed out
#: All arguments of products with one matrix. ``rows`` are those of a block; where ``x_own`` is
#: not 0, each thread has quantised activations of its own, so many bytes after another's.
SLOTS = (
    "turns_at", "parts", *OPERANDS, "m", "k", "a", "a_pitch", "x_own", "s_own", "factor",
    "rows",
)  # fmt: skip
(_GROUPS, _, _N, _W, _ACROSS, _RECORD, _AFTER, _BLOCKS, _STEPS, _BIAS, _X, _X_PITCH, _SCALE,
 _TOTAL, _S_PITCH, _Y, _Y_PITCH, _, _BLOCK, _, _) = range(
     FIRST, FIRST + len(OPERANDS))  # fmt: skip


@functools.cache
def int8_at(variant: str, form: Form, rows: int, groups: int) -> Any:
    """
    Make the function that multiplies a tile of quantised activations.

    It takes the arguments, the row, the group of weights, and in bytes how far on weights,
    bias, activations and their scales begin.
    """
    tile = int8_tile(variant, form, rows, groups)

    @inlined
    def at(a: Any, row: int, group: int, w: int, bias: int, x: int, scale: int) -> None:
        apart = scale + row * a[_S_PITCH]
        tile(
            a[_W] + w + group * a[_ACROSS], a[_ACROSS], a[_RECORD], a[_AFTER],
            a[_X] + x + row * a[_X_PITCH], a[_X_PITCH], a[_SCALE] + apart,
            a[_TOTAL] + apart, a[_S_PITCH], a[_BLOCKS], a[_STEPS],
            a[_BIAS] + bias + 4 * GROUP * group,
            a[_Y] + row * a[_Y_PITCH] + 4 * GROUP * group, a[_Y_PITCH],
            a[_N] - GROUP * group,
        )  # fmt: skip

    return at


@functools.cache
def float_at(variant: str, form: Form, rows: int, groups: int) -> Any:
    """Make what :func:`int8_at` does for float32 activations, which have no scales."""
    tile = float_tile(variant, form, rows, groups)

    @inlined
    def at(a: Any, row: int, group: int, w: int, bias: int, x: int, scale: int) -> None:
        tile(
            a[_W] + w + group * a[_ACROSS], a[_ACROSS], a[_RECORD], a[_AFTER],
            a[_X] + x + row * a[_X_PITCH], a[_X_PITCH], a[_BLOCKS], a[_STEPS],
            a[_BIAS] + bias + 4 * GROUP * group,
            a[_Y] + row * a[_Y_PITCH] + 4 * GROUP * group, a[_Y_PITCH],
            a[_N] - GROUP * group,
        )  # fmt: skip

    return at


@functools.cache
def unpacked_at(unpack: Any, columns: int) -> Any:
    """
    Make the function that unpacks a panel's piece of K with an intrinsic.

    It takes the arguments, how far on weights begin, the panel's first group, where in K the
    piece begins, its depth, and where to.
    """
    groups = columns // GROUP

    @inlined
    def at(a: Any, w: int, group: int, start: int, deep: int, right: int) -> None:
        first = a[_W] + w + group * a[_ACROSS] + start // a[_BLOCK] * a[_RECORD]
        for i in range(min(groups, a[_GROUPS] - group)):
            unpack(
                first + i * a[_ACROSS], a[_RECORD], a[_AFTER], deep // a[_BLOCK],
                a[_STEPS], right + 4 * GROUP * i,
            )  # fmt: skip

    return at


@functools.cache
def rows_by_piece(variant: str, rows: int, wide: int, pitch: int) -> Any:
    """
    Make the function that multiplies rows, ``rows`` at a time, by an unpacked piece.

    What sums come to after a piece is in the output, where the next one goes on. It takes
    the arguments; the rows, ``pitch`` bytes apart, and the piece; where in K it begins and its
    depth; the first row and the end of rows; how far on the bias begins; and the first group.
    """
    tile = row_tile(variant, rows, wide, pitch)

    @inlined
    def at(
        a: Any, left: int, right: int, start: int, deep: int, low: int, high: int, bias: int,
        group: int,
    ) -> None:  # fmt: skip
        n, given = a[_N], a[_BIAS] + bias + 4 * GROUP * group
        y = a[_Y] + 4 * GROUP * group
        for row in range(low, high, rows):
            to = y + row * 4 * n
            begun, begun_pitch = (to, 4 * n) if start > 0 else (given, 0)
            tile(
                left + (row - low) * pitch, right, deep, begun, begun_pitch, to, 4 * n,
                high - row, n - GROUP * group, right,
            )  # fmt: skip

    return at
