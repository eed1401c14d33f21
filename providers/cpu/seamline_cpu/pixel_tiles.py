"""
Register tiles of convolutions: some output channels by neighbouring pixels, kept in limits.

As :mod:`seamline_cpu.tiles`, of which they take the weights; and a tile ends with what most
activations after a convolution do, to keep values in limits, while they are in registers.
A narrow tile is one vector of pixels by the rows of two tiles of weights: as many sums, for
the last pixels of a row or an image where a whole tile would mostly multiply nothing.
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.integer_tiles import VARIANT
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.tiles import COLUMNS, LANES, ROWS
from seamline_cpu.vectors import F32, I64, Vectors, vector

__all__ = [
    "STRIP",
    "laid_tile",
    "laid_tile_onto",
    "narrow_tap_tile",
    "narrow_tap_tile_onto",
    "narrow_tile",
    "narrow_tile_onto",
    "placed_tile",
    "placed_tile_onto",
    "strip_within",
]  # fmt: skip

STRIP = 4 * LANES  #: pixels
_KIND = vector(F32, LANES)


def _within(v: Vectors, value: Any, least: Any, most: Any) -> Any:
    """Keep lanes in limits; a NaN stays."""
    b = v.builder
    value = b.select(b.fcmp_ordered("<", value, least), least, value)
    return b.select(b.fcmp_ordered(">", value, most), most, value)


def _store_within(
    v: Vectors, limits: Any, values: list[Any], places: list[Any]
) -> None:
    """Store vectors, kept in the limits at an address."""
    least, most = (v.broadcast(F32, v.add(limits, 4 * i), LANES) for i in range(2))
    for value, place in zip(values, places, strict=True):
        v.store(_within(v, value, least, most), place)


def _emitted(
    v: Vectors, args: Any, parts: int, apart: Any, offsets: Any, onto: bool
) -> None:
    """Emit a tile of ``parts`` vectors; of one, by twice the rows, ``apart`` bytes apart."""
    left, right, depth, bias, out, pitch, limits = args
    count = 2 * ROWS // parts
    lines = v.every(out, pitch, count)
    sums = []
    for row, line in enumerate(lines):
        first = None if onto else v.broadcast(F32, v.add(bias, 4 * row), LANES)
        for part in range(parts):
            held = v.load(_KIND, v.add(line, 4 * LANES * part)) if onto else first
            sums.append(held)

    def step(index: Any, sums: list[Any]) -> list[Any]:
        shift = v.times(index, 4 * ROWS)
        weights = [v.add(left, shift)]
        if apart is not None:
            weights.append(v.add(left, apart, shift))
        place = v.times(index, 4 * COLUMNS)
        if offsets is not None:
            place = v.load(I64, v.add(offsets, v.times(index, 8)))
        pixels = v.add(right, place)
        inputs = [
            v.load(_KIND, v.add(pixels, 4 * LANES * part)) for part in range(parts)
        ]
        found: list[Any] = []
        for row in range(count):
            at = v.add(weights[row // ROWS], 4 * (row % ROWS))
            weight = v.broadcast(F32, at, LANES)
            for part in range(parts):
                found.append(v.multiply_add(weight, inputs[part], sums[len(found)]))
        return found

    done = v.loop(depth, sums, step)
    ends = [v.add(line, 4 * LANES * part) for line in lines for part in range(parts)]
    _store_within(v, limits, done, ends)


def _tile(parts: int, tabled: bool, onto: bool) -> Any:
    """Give the signature and the code of one kind of tile."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rest = list(args[7:])
        offsets = rest.pop(0) if tabled else None
        apart = rest.pop(0) if parts == 1 else None
        v = Vectors(builder, VARIANT.variant)
        _emitted(v, args[:7], parts, apart, offsets, onto)
        return context.get_dummy_value()

    count = 7 + tabled + (parts == 1)
    return types.void(*[types.int64] * count), generate


def _laid(onto: bool) -> Any:
    def tile(
        context: Any, left: Any, right: Any, depth: Any, bias: Any, out: Any, pitch: Any,
        limits: Any,
    ) -> Any:  # fmt: skip
        return _tile(2, False, onto)

    return native(tile)


def _placed(onto: bool) -> Any:
    def tile(
        context: Any, left: Any, right: Any, depth: Any, bias: Any, out: Any, pitch: Any,
        limits: Any, offsets: Any,
    ) -> Any:  # fmt: skip
        return _tile(2, True, onto)

    return native(tile)


def _narrow(onto: bool) -> Any:
    def tile(
        context: Any, left: Any, right: Any, depth: Any, bias: Any, out: Any, pitch: Any,
        limits: Any, apart: Any,
    ) -> Any:  # fmt: skip
        return _tile(1, False, onto)

    return native(tile)


def _narrow_tap(onto: bool) -> Any:
    def tile(
        context: Any, left: Any, right: Any, depth: Any, bias: Any, out: Any, pitch: Any,
        limits: Any, offsets: Any, apart: Any,
    ) -> Any:  # fmt: skip
        return _tile(1, True, onto)

    return native(tile)


#: Compute ``out[r, c] = bias[r] + sum_k left[k, r] * right[k, c]``, kept in limits. Arguments
#: are addresses and counts: ``pitch`` is the bytes between rows of ``out``, and at ``limits``
#: are the least and the most. Those ``onto`` add to what ``out`` holds, and read no ``bias``.
laid_tile, laid_tile_onto = _laid(False), _laid(True)
#: The same, but row k of the right side lies ``offsets[k]`` bytes away.
placed_tile, placed_tile_onto = _placed(False), _placed(True)
#: As :data:`laid_tile`, of ``LANES`` pixels by two tiles of weights, ``apart`` bytes.
narrow_tile, narrow_tile_onto = _narrow(False), _narrow(True)
#: As :data:`placed_tile`, of ``LANES`` pixels by two tiles of weights.
narrow_tap_tile, narrow_tap_tile_onto = _narrow_tap(False), _narrow_tap(True)


@native
def strip_within(
    context: Any, pixels: Any, offsets: Any, weights: Any, taps: Any, bias: Any, out: Any,
    limits: Any,
) -> Any:  # fmt: skip
    """
    Compute ``STRIP`` neighbours of one channel, kept in limits.

    ``out[i] = bias + sum_t weights[t] * pixels[offsets[t] + i]``; ``offsets`` are int64, in
    bytes; ``bias`` is a float32, all others are addresses.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pixels, offsets, weights, taps, bias, out, limits = args
        v = Vectors(builder, VARIANT.variant)
        places = [4 * LANES * part for part in range(STRIP // LANES)]

        def step(index: Any, sums: list[Any]) -> list[Any]:
            row = v.add(pixels, v.load(I64, v.add(offsets, v.times(index, 8))))
            weight = v.broadcast(F32, v.add(weights, v.times(index, 4)), LANES)
            return [
                v.multiply_add(weight, v.load(_KIND, v.add(row, place)), total)
                for place, total in zip(places, sums, strict=True)
            ]

        sums = v.loop(taps, [v.splat(bias, LANES)] * len(places), step)
        _store_within(v, limits, sums, [v.add(out, place) for place in places])
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(i64, i64, i64, i64, types.float32, i64, i64), generate
