"""
Products of one query with keys, and weighted sums of values, read where they lie.

As many keys as a register has lanes are multiplied at a time, each along its own row, and
their sums are brought into one register at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import floats
from seamline_cpu.ir import types
from seamline_cpu.jit import jit, native
from seamline_cpu.kernels.rows import sums
from seamline_cpu.tiles import LANES
from seamline_cpu.vectors import F32, Vectors, vector

__all__ = ["add_weighted", "query_products"]

f4 = np.float32
_CHUNK = 4  # registers of values at a time, for two keys: eight sums hide the latency


def _summed(v: Vectors, sums: list[Any]) -> Any:
    """Give a vector of the sums of as many vectors as it has lanes."""
    lanes = len(sums)
    while len(sums) > 1:
        sums = [
            v.builder.fadd(
                v.shuffle(x, range(0, 2 * lanes, 2), y),
                v.shuffle(x, range(1, 2 * lanes, 2), y),
            )
            for x, y in zip(sums[::2], sums[1::2], strict=True)
        ]
    return sums[0]


@native
def _dots(
    context: Any, keys: Any, pitch: Any, turns: Any, query: Any, depth: Any, out: Any
) -> Any:
    """Write the products of ``LANES * turns`` keys with one query that is padded by zeros."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        keys, pitch, turns, query, depth, out = args
        v, b, kind = Vectors(builder, "portable"), builder, vector(F32, LANES)
        whole = b.sdiv(depth, v.constant(depth.type, LANES))
        rest = b.srem(depth, v.constant(depth.type, LANES))
        some = b.zext(b.icmp_signed(">", rest, v.constant(rest.type, 0)), rest.type)

        def turn(i: Any, _: list[Any]) -> list[Any]:
            here = v.add(keys, b.mul(v.times(i, LANES), pitch))
            rows = v.every(here, pitch, LANES)

            def step(j: Any, sums: list[Any], *, part: bool) -> list[Any]:
                at = v.times(j, 4 * LANES)
                x = v.load(kind, v.add(query, at), 4)
                made = []
                for row, total in zip(rows, sums, strict=True):
                    place = v.add(row, at)
                    y = (
                        v.load_part(kind, place, rest)
                        if part
                        else v.load(kind, place, 4)
                    )
                    made.append(v.multiply_add(x, y, total))
                return made

            start = [v.constant(kind, 0.0)] * LANES
            sums = v.loop(whole, start, lambda j, s: step(j, s, part=False))
            sums = v.loop(some, sums, lambda j, s: step(b.add(j, whole), s, part=True))
            v.store(_summed(v, sums), v.add(out, v.times(i, 4 * LANES)), 4)
            return []

        v.loop(turns, [], turn)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate


def _emit_weighing(v: Vectors, registers: int, args: Any) -> None:
    values, pitch, count, weights, out, columns = args
    b, kind = v.builder, vector(F32, LANES)
    places = [v.add(out, 4 * LANES * i) for i in range(registers)]

    def row(t: Any, sums: list[Any]) -> list[Any]:
        factor = v.broadcast(F32, v.add(weights, v.times(t, 4)), LANES)
        start = v.add(values, b.mul(t, pitch))
        made = []
        for i, total in enumerate(sums):
            place = v.add(start, 4 * LANES * i)
            x = (
                v.load_part(kind, place, columns)
                if registers == 1
                else v.load(kind, place, 4)
            )
            made.append(v.multiply_add(factor, x, total))
        return made

    def two(i: Any, sums: list[Any]) -> list[Any]:
        t = v.times(i, 2)
        even = row(t, sums[:registers])
        return even + row(v.add(t, 1), sums[registers:])

    blank = [v.constant(kind, 0.0)] * registers
    start = [v.load(kind, place, 4) for place in places]
    sums = v.loop(b.sdiv(count, v.constant(count.type, 2)), start + blank, two)
    both = [
        b.fadd(x, y) for x, y in zip(sums[:registers], sums[registers:], strict=True)
    ]
    odd = b.and_(count, v.constant(count.type, 1))
    last = b.sub(count, v.constant(count.type, 1))
    both = v.loop(odd, both, lambda _, s: row(last, s))
    for value, place in zip(both, places, strict=True):
        v.store(value, place, 4)


def _weighing(registers: int) -> Any:
    """Make the intrinsic that adds weighted rows of values to ``registers`` of sums."""

    def weigh(
        context: Any, values: Any, pitch: Any, count: Any, weights: Any, out: Any, columns: Any
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _emit_weighing(Vectors(builder, "portable"), registers, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return native(weigh)


_weigh_many, _weigh_one = _weighing(_CHUNK), _weighing(1)


@sums
def _dot(x: Any, y: Any, n: int) -> Any:
    total = f4(0.0)
    for i in range(n):
        total += x[i] * y[i]
    return total


@jit
def query_products(
    k: int, pitch: int, count: int, query: int, depth: int, out: int
) -> None:
    """Write a query's products with ``count`` keys."""
    turns = count // LANES
    _dots(k, pitch, turns, query, depth, out)
    for t in range(turns * LANES, count):
        floats(out)[t] = _dot(floats(query), floats(k + t * pitch), depth)


@jit
def add_weighted(
    v: int, pitch: int, count: int, weights: int, width: int, out: int
) -> None:
    """Add the weighted sum of ``count`` values."""
    column = 0
    while column + _CHUNK * LANES <= width:
        shift = 4 * column
        _weigh_many(v + shift, pitch, count, weights, out + shift, 0)
        column += _CHUNK * LANES
    while column < width:
        shift = 4 * column
        _weigh_one(v + shift, pitch, count, weights, out + shift, width - column)
        column += LANES
