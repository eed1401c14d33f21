"""
Attention of few queries over many keys, as when one token is decoded.

Its time is that of reading keys and values, so both are read once for all heads that share
them, and keys are cut into parts, so that threads have work where there are few heads.
Each part gives its greatest score, its sum and its weighted values; these are then joined
as the streaming softmax joins blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import floats, longs
from seamline_cpu.commands import command
from seamline_cpu.ir import types
from seamline_cpu.jit import jit, native
from seamline_cpu.kernels.attention_arguments import (
    BLOCK,
    SLOTS,
    high_of,
    low_of,
    shape_scores,
)
from seamline_cpu.kernels.float32_math import exp, tanh
from seamline_cpu.kernels.rows import (
    elementwise,
    exp_of_row,
    matrix,
    max_of_row,
    sums,
)
from seamline_cpu.tiles import LANES
from seamline_cpu.vectors import F32, Vectors, vector

__all__ = ["attend_few", "few_floats", "join_parts", "part_floats"]

f4 = np.float32
_AT = {name: number for number, name in enumerate(SLOTS)}
(_Q, _Q_BATCH, _Q_HEAD, _Q_ROW, _K, _K_BATCH, _K_HEAD, _K_ROW, _V, _V_BATCH, _V_HEAD, _V_ROW,
 _Y, _Y_BATCH, _Y_HEAD, _Y_ROW, _ENTRIES, _HEADS, _GROUP, _ROWS, _DEPTH, _WIDTH, _KEYS, _TABLE,
 ) = range(24)  # fmt: skip
_NUMBERS, _SINKS, _SINK_STEP = _AT["numbers"], _AT["sinks"], _AT["sink_step"]
_SCRATCH, _STRIDE = _AT["scratch"], _AT["stride"]
_BIAS, _MORE, _SPLITS, _PARTS = _AT["bias"], _AT["more"], _AT["splits"], _AT["parts"]
_HEAD = 16  # floats before a part's values: its greatest score and its sum
_CHUNK = 4  # registers of values at a time, for two keys: eight sums hide the latency


@jit
def _padded(n: int) -> int:
    return (n + 15) // 16 * 16


def few_floats(depth: int, queries: int) -> int:
    """Give the floats of scratch of one share: queries, a block of scores, and weights."""
    return queries * _padded(depth) + 2 * BLOCK


def part_floats(width: int) -> int:
    """Give the floats of a part's result: greatest score, sum, and values."""
    return int(_padded(width)) + _HEAD


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


@elementwise
def _cap(scores: Any, cap: Any) -> None:
    for i in range(scores.size):
        scores[i] = tanh(scores[i] / cap) * cap


@sums
def _dot(x: Any, y: Any, n: int) -> Any:
    total = f4(0.0)
    for i in range(n):
        total += x[i] * y[i]
    return total


@jit
def _score(k: int, pitch: int, count: int, query: int, depth: int, out: int) -> None:
    """Write a query's products with ``count`` keys."""
    turns = count // LANES
    _dots(k, pitch, turns, query, depth, out)
    for t in range(turns * LANES, count):
        floats(out)[t] = _dot(floats(query), floats(k + t * pitch), depth)


@jit
def _weigh(v: int, pitch: int, count: int, weights: int, width: int, out: int) -> None:
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


@jit
def _begin(a: Any, entry: int, head: int, scratch: int, parts: int, pitch: int) -> None:
    """Copy the queries, times the scale, and set each part to one that saw no key."""
    depth, rows, scale = a[_DEPTH], a[_ROWS], floats(a[_NUMBERS])[0]
    for query in range(a[_GROUP] * rows):
        at = a[_Q] + entry * a[_Q_BATCH] + query % rows * a[_Q_ROW]
        x = floats(at + (head * a[_GROUP] + query // rows) * a[_Q_HEAD])
        target = floats(scratch + 4 * query * _padded(depth))
        for d in range(depth):
            target[d] = x[d] * scale
        for d in range(depth, _padded(depth)):
            target[d] = f4(0.0)
        found = floats(parts + query * pitch)
        for i in range(_HEAD + _padded(a[_WIDTH])):
            found[i] = f4(0.0)
        found[0] = f4(-np.inf)


@jit
def _block(
    a: Any, entry: int, head: int, query: int, key: int, count: int, scratch: int, part: int
) -> None:  # fmt: skip
    """Bring a query's part up to a block of keys."""
    depth, width, found = a[_DEPTH], a[_WIDTH], floats(part)
    scores = scratch + 4 * a[_GROUP] * a[_ROWS] * _padded(depth)
    weights, made = scores + 4 * BLOCK, part + 4 * _HEAD
    which, row = head * a[_GROUP] + query // a[_ROWS], query % a[_ROWS]
    k = a[_K] + entry * a[_K_BATCH] + head * a[_K_HEAD] + key * a[_K_ROW]
    v = a[_V] + entry * a[_V_BATCH] + head * a[_V_HEAD] + key * a[_V_ROW]
    cap, line = floats(a[_NUMBERS])[1], matrix(floats(scores), 1, count)[0]
    _score(k, a[_K_ROW], count, scratch + 4 * query * _padded(depth), depth, scores)
    if cap > f4(0.0):
        _cap(line, cap)
    if a[_BIAS] != 0:
        shape_scores(a, _BIAS, entry, which, row, key, count, scores, 1)
    if a[_MORE] != 0:
        shape_scores(a, _MORE, entry, which, row, key, count, scores, 1)
    most = max(found[0], max_of_row(line))
    shift = f4(0.0) if most == f4(-np.inf) else most
    factor = exp(found[0] - shift)
    total = exp_of_row(line, shift, matrix(floats(weights), 1, count)[0])
    for d in range(width):
        floats(made)[d] *= factor
    _weigh(v, a[_V_ROW], count, weights, width, made)
    found[0], found[1] = most, found[1] * factor + total


@jit
def _bounds(a: Any, entry: int, row: int) -> tuple[int, int]:
    """Give the keys that a row sees; none for a row that its entry does not have."""
    line = longs(a[_TABLE] + 24 * entry)
    position = line[1] + row
    high = high_of(a, entry, position) if row < line[0] else 0
    return low_of(a, position), high


@jit
def _share_of(a: Any, pair: int, split: int, scratch: int) -> None:
    """Attend all queries that share a head of keys, over one part of what they see."""
    entry, head, rows = pair // a[_HEADS], pair % a[_HEADS], a[_ROWS]
    size = 4 * (_padded(a[_WIDTH]) + _HEAD)
    pitch = size * a[_SPLITS]
    parts = a[_PARTS] + pair * a[_GROUP] * rows * pitch + split * size
    _begin(a, entry, head, scratch, parts, pitch)
    least, most = a[_KEYS], 0
    for row in range(rows):
        low, high = _bounds(a, entry, row)
        if high > low:
            least, most = min(least, low), max(most, high)
    keys = max(most - least, 0)
    first = least + keys * split // a[_SPLITS]
    end = least + keys * (split + 1) // a[_SPLITS]
    for key in range(first, end, BLOCK):
        for query in range(a[_GROUP] * rows):
            low, high = _bounds(a, entry, query % rows)
            start, stop = max(low, key), min(high, min(key + BLOCK, end))
            if stop > start:
                part = parts + query * pitch
                _block(a, entry, head, query, start, stop - start, scratch, part)


@command
def attend_few(a: Any, share: int, shares: int) -> None:
    """Attend over each part of the keys; shares take parts in turns."""
    for item in range(share, a[_ENTRIES] * a[_HEADS] * a[_SPLITS], shares):
        scratch = a[_SCRATCH] + share * a[_STRIDE]
        _share_of(a, item // a[_SPLITS], item % a[_SPLITS], scratch)


@command
def join_parts(a: Any, share: int, shares: int) -> None:
    """Join the parts of each query, with its sink if there is one."""
    splits, rows, width = a[_SPLITS], a[_ROWS], a[_WIDTH]
    queries = a[_GROUP] * rows
    size = 4 * (_padded(width) + _HEAD)
    for item in range(share, a[_ENTRIES] * a[_HEADS] * queries, shares):
        query, pair = item % queries, item // queries
        which = pair % a[_HEADS] * a[_GROUP] + query // rows
        parts = a[_PARTS] + item * splits * size
        most, total = f4(-np.inf), f4(0.0)
        if a[_SINKS] != 0:
            most, total = floats(a[_SINKS])[which * a[_SINK_STEP]], f4(1.0)
        first = most
        for split in range(splits):
            most = max(most, floats(parts + split * size)[0])
        shift = f4(0.0) if most == f4(-np.inf) else most
        total *= exp(first - shift)
        y = a[_Y] + pair // a[_HEADS] * a[_Y_BATCH] + query % rows * a[_Y_ROW]
        out = floats(y + which * a[_Y_HEAD])
        for d in range(width):
            out[d] = f4(0.0)
        for split in range(splits):
            part = floats(parts + split * size)
            factor = exp(part[0] - shift)
            total += part[1] * factor
            for d in range(width):
                out[d] += part[_HEAD + d] * factor
        scale = f4(1.0) / total if total != f4(0.0) else f4(0.0)
        for d in range(width):
            out[d] *= scale
