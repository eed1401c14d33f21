"""
Register tiles of exact integer products, of 16-bit pairs or of bytes in fours.

**Pairs.** A 32-bit lane holds two neighbours along the summed axis as int16, from which zero
points were taken off already; a byte less a byte needs nine bits, so nothing is lost. One
instruction multiplies both and adds them to a 32-bit sum: ``pmaddwd``, or ``vpdpwssd``,
which LLVM makes of it and the addition where there is VNNI. Products of unsigned by signed
bytes would be half as many instructions, but AVX2's saturate at 16 bits.

**Fours.** VNNI multiplies four unsigned by four signed bytes and adds them up without
saturation. Zero points then enter through what a tile's sums begin with.

Sums wrap at 32 bits, as ONNX's do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from seamline_cpu.instruction_sets import choose
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.tiles import COLUMNS, LANES, ROWS
from seamline_cpu.vectors import I8, I16, I32, I64, Vectors, vector

__all__ = ["VARIANT", "byte_tile", "emit_bytes", "emit_taps", "tap_tile_of_words"]

VARIANT = choose()
#: Adds the products of a broadcast word and a vector of words to a vector of sums.
_Multiply = Callable[[Any, Any, Any], Any]


def _lanes(v: Vectors) -> int:
    """Give lanes of a vector of sums: VNNI's instruction should fill it, not half of it."""
    return v.lanes if v.has_byte_dot else LANES


def _line(v: Vectors, place: Any) -> list[Any]:
    """Load ``COLUMNS`` words."""
    lanes = _lanes(v)
    every = range(0, 4 * COLUMNS, 4 * lanes)
    return [v.load(vector(I32, lanes), v.add(place, at)) for at in every]


def _accumulate(
    v: Vectors, rows: int, left: Any, right: list[Any], sums: list[Any], add: _Multiply
) -> list[Any]:
    """Multiply a broadcast word of each row by ``COLUMNS`` words."""
    made, each = [], len(right)
    for row in range(rows):
        word = v.broadcast(I32, v.add(left, 4 * row), _lanes(v))
        made += [
            add(total, word, column)
            for total, column in zip(sums[each * row :], right, strict=False)
        ]
    return made


def _pairs(v: Vectors) -> _Multiply:
    return lambda total, word, column: v.word_pairs(
        total, v.cast(word, I16), v.cast(column, I16)
    )


def _write(v: Vectors, rows: int, sums: list[Any], out: Any, pitch: Any) -> None:
    each = len(sums) // rows
    for row in range(rows):
        line = v.add(out, v.times(pitch, row)) if row else out
        for i in range(each):
            v.store(sums[each * row + i], v.add(line, 4 * i * _lanes(v)), 4)


def emit_taps(v: Vectors, group: int, args: Any) -> None:
    """Emit the code of :func:`tap_tile_of_words`'s intrinsic, from its arguments."""
    left, right, depth, bias, out, pitch, offsets = args
    lanes = _lanes(v)
    first = [v.broadcast(I32, v.add(bias, 4 * r), lanes) for r in range(ROWS)]

    def fours(total: Any, word: Any, column: Any) -> Any:
        return v.bytes_dot(total, column, word)

    add = fours if group == 4 else _pairs(v)

    def body(index: Any, sums: list[Any]) -> list[Any]:
        place = v.add(right, v.load(I64, v.add(offsets, v.times(index, 8)), 8))
        pixels = _line(v, place)
        weights = v.add(left, v.times(index, 4 * ROWS))
        return _accumulate(v, ROWS, weights, pixels, sums, add)

    starts = [value for value in first for _ in range(COLUMNS // lanes)]
    _write(v, ROWS, v.loop(depth, starts, body), out, pitch)


@functools.cache
def tap_tile_of_words(variant: str, group: int) -> Any:
    """
    Make the intrinsic of ``out[r, c] = bias[r] + sum_k left[k, r] . right[k][c]`` in int32.

    Its arguments are int64: ``left``, ``(depth, ROWS)`` words; ``right``; ``depth``;
    ``bias``; ``out`` and the bytes between its rows; ``offsets``. The words ``right[k]``,
    one a column, lie ``offsets[k]`` bytes from ``right``. A word is two int16, or with
    ``group`` 4 four bytes: signed ones of ``left``, unsigned ones of ``right``.
    """

    def tile(
        context: Any, left: Any, right: Any, depth: Any, bias: Any, out: Any, pitch: Any,
        offsets: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            emit_taps(Vectors(builder, variant), group, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    return native(tile)


def _columns(v: Vectors, group: int, place: Any) -> list[Any]:
    """Load ``COLUMNS`` words of the right side, which lies there as bytes."""
    if group == 4:
        return _line(v, place)
    lanes, found = _lanes(v), []
    for at in range(0, 2 * COLUMNS, 2 * lanes):
        some = v.load(vector(I8, 2 * lanes), v.add(place, at))
        found.append(v.cast(v.builder.sext(some, vector(I16, 2 * lanes)), I32))
    return found


def emit_bytes(v: Vectors, group: int, rows: int, args: Any) -> None:
    """Emit the code of :func:`byte_tile`'s intrinsic, from its arguments."""
    left, right, depth, minus, zeros, shift, totals, out, pitch = args
    b, sums = v.builder, []
    points, whole = _line(v, zeros), _line(v, totals)
    for row in range(rows):
        total = v.broadcast(I32, v.add(minus, 4 * row), _lanes(v))
        first = [b.mul(total, point) for point in points]
        if group == 4:
            moved = v.broadcast(I32, v.add(shift, 4 * row), _lanes(v))
            first = [
                b.add(x, b.mul(moved, y)) for x, y in zip(first, whole, strict=True)
            ]
        sums += first
    add = v.bytes_dot if group == 4 else _pairs(v)

    def body(index: Any, sums: list[Any]) -> list[Any]:
        columns = _columns(v, group, v.add(right, v.times(index, group * COLUMNS)))
        words = v.add(left, v.times(index, 4 * rows))
        return _accumulate(v, rows, words, columns, sums, add)

    _write(v, rows, v.loop(depth, sums, body), out, pitch)


@functools.cache
def byte_tile(variant: str, group: int, rows: int) -> Any:
    """
    Make the intrinsic of ``rows`` by ``COLUMNS`` of a product of bytes, in int32.

    Its arguments are int64: ``left``, ``(depth, rows)`` words; ``right``, ``(depth, COLUMNS,
    group)`` int8; ``depth``; ``minus``, ``zeros``, ``shift`` and ``totals``; ``out`` and
    the bytes between its rows. A word is two int16, or with ``group`` 4 four unsigned bytes.

    ``out[r, c] = minus[r] zeros[c] + sum_k left[k, r] . right[k, c]``, and with ``group`` 4
    plus ``shift[r] totals[c]``; the latter are not used otherwise. With ``minus`` the
    negative sums of the left rows, ``zeros`` are taken off every element of the right
    columns; with ``totals`` the sums of those, the negative ``shift`` off the left rows.
    """

    def tile(
        context: Any, left: Any, right: Any, depth: Any, minus: Any, zeros: Any,
        shift: Any, totals: Any, out: Any, pitch: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            emit_bytes(Vectors(builder, variant), group, rows, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 9), generate

    return native(tile)
