"""
Register tiles of exact integer products: 16-bit pairs by pairs, or by bytes.

A 32-bit lane holds two neighbours along the summed axis as int16, from which zero points
were taken off already; a byte less a byte needs nine bits, so nothing is lost. One
instruction multiplies both and adds them to a 32-bit sum: ``pmaddwd``, or ``vpdpwssd``,
which LLVM makes of it and the addition where there is VNNI. Products of unsigned by signed
bytes would be half as many instructions, but AVX2's saturate at 16 bits. Sums wrap at 32
bits, as ONNX's do.
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.instruction_sets import choose
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.tiles import LANES, ROWS
from seamline_cpu.vectors import I8, I16, I32, I64, Vectors, vector

__all__ = ["VARIANT", "byte_row", "byte_tile", "word_tap_tile"]

VARIANT = choose()
_WIDTH = 4 * LANES  # bytes of a vector of sums
_WORDS = vector(I32, LANES)


def _accumulate(
    v: Vectors, rows: int, left: Any, right: list[Any], sums: list[Any]
) -> list[Any]:
    """Multiply a broadcast pair of each row by two vectors of pairs."""
    made = []
    for row in range(rows):
        pair = v.cast(v.broadcast(I32, v.add(left, 4 * row), LANES), I16)
        made += [
            v.word_pairs(sums[2 * row + half], pair, right[half]) for half in range(2)
        ]
    return made


def _write(v: Vectors, rows: int, sums: list[Any], out: Any, pitch: Any) -> None:
    for row in range(rows):
        line = v.add(out, v.times(pitch, row)) if row else out
        for half in range(2):
            v.store(sums[2 * row + half], v.add(line, half * _WIDTH), 4)


@native
def word_tap_tile(
    context: Any,
    left: Any,
    right: Any,
    depth: Any,
    bias: Any,
    out: Any,
    pitch: Any,
    offsets: Any,
) -> Any:
    """
    Compute ``out[r, c] = bias[r] + sum_k left[k, r] . right[k][c]`` in int32.

    ``left`` is ``(depth, ROWS)`` pairs; the pairs ``right[k]``, one a column, lie
    ``offsets[k]`` bytes from ``right``. ``pitch`` is the bytes between rows of ``out``.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right, depth, bias, out, pitch, offsets = args
        v = Vectors(builder, VARIANT.variant)
        first = [v.broadcast(I32, v.add(bias, 4 * r), LANES) for r in range(ROWS)]

        def body(index: Any, sums: list[Any]) -> list[Any]:
            place = v.add(right, v.load(I64, v.add(offsets, v.times(index, 8)), 8))
            pixels = [
                v.cast(v.load(_WORDS, v.add(place, half * _WIDTH)), I16)
                for half in range(2)
            ]
            weights = v.add(left, v.times(index, 4 * ROWS))
            return _accumulate(v, ROWS, weights, pixels, sums)

        starts = [value for value in first for _ in range(2)]
        _write(v, ROWS, v.loop(depth, starts, body), out, pitch)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


def _by_bytes(rows: int) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right, depth, minus, zeros, out, pitch = args
        v = Vectors(builder, VARIANT.variant)
        points = [v.load(_WORDS, v.add(zeros, half * _WIDTH)) for half in range(2)]
        starts = []
        for row in range(rows):
            total = v.broadcast(I32, v.add(minus, 4 * row), LANES)
            starts += [builder.mul(total, point) for point in points]

        def body(index: Any, sums: list[Any]) -> list[Any]:
            place = v.add(right, v.times(index, _WIDTH))
            columns = []
            for half in range(2):
                some = v.load(vector(I8, 2 * LANES), v.add(place, half * 2 * LANES))
                columns.append(builder.sext(some, vector(I16, 2 * LANES)))
            pairs = v.add(left, v.times(index, 4 * rows))
            return _accumulate(v, rows, pairs, columns, sums)

        _write(v, rows, v.loop(depth, starts, body), out, pitch)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


@native
def byte_tile(
    context: Any,
    left: Any,
    right: Any,
    depth: Any,
    minus: Any,
    zeros: Any,
    out: Any,
    pitch: Any,
) -> Any:
    """
    Compute ``out[r, c] = minus[r] zeros[c] + sum_k left[k, r] . right[k, c]`` in int32.

    ``left`` is ``(depth, ROWS)`` pairs of int16, ``right`` ``(depth, COLUMNS)`` pairs of
    int8. With ``minus`` the negative sums of the left rows, ``zeros`` are taken off every
    element of the right columns.
    """
    return _by_bytes(ROWS)


@native
def byte_row(
    context: Any,
    left: Any,
    right: Any,
    depth: Any,
    minus: Any,
    zeros: Any,
    out: Any,
    pitch: Any,
) -> Any:
    """As :func:`byte_tile`, for one row."""
    return _by_bytes(1)
