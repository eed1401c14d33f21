"""
Vector code for attention with queries across the lanes of a register.

Scores are made transposed: a row for each key, a column for each query, ``COLUMNS`` of them
together. So the greatest score and the sum of a query are made lane by lane, without a
shuffle; scores stand ready as the right side of their product with the values; and keys
and values are the left side, whose numbers are broadcast from memory where they lie,
rows of any distance, never packed. Only the queries are packed, once for all keys.

``fold`` is the streaming softmax: it keeps for each query the greatest score ``m`` so far and
the sum ``l`` of ``exp(score - m)``; a new block of keys that raises ``m`` multiplies ``l``,
and what was summed of the values, by ``exp(m_old - m_new)``. No score is exponentiated
above 0, and a query whose scores are all minus infinity keeps ``l = 0``.
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.ir import types
from seamline_cpu.jit import jit, native
from seamline_cpu.tiles import COLUMNS, LANES
from seamline_cpu.vectors import F32, I32, Vectors, vector

__all__ = ["LINE", "exp_to_one", "fold", "hide", "key_products", "value_products"]

LINE = 4 * COLUMNS  #: bytes of a row of scores
_INF = float("inf")


def exp_to_one(v: Vectors, x: Any) -> Any:
    """
    Emit the exponential of numbers that are at most zero; below 2**-126 zero.

    The reduction and polynomial of :func:`seamline_cpu.kernels.rows.exp_in_place`.
    """
    b, kind = v.builder, x.type
    words = vector(I32, kind.count)

    def many(value: float) -> Any:
        return v.constant(kind, value)

    t = v.multiply_add(x, many(1.44269504), many(12582912.0))
    n = b.fsub(t, many(12582912.0))
    r = v.multiply_add(n, many(-0.693359375), x)
    r = v.multiply_add(n, many(2.12194440e-4), r)
    p = many(1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
                   5.0000001201e-1):  # fmt: skip
        p = v.multiply_add(p, r, many(factor))
    p = v.multiply_add(p, b.fmul(r, r), b.fadd(r, many(1.0)))
    power = b.shl(b.bitcast(t, words), v.constant(words, 23))
    power = b.bitcast(b.add(power, v.constant(words, 0x3F800000)), kind)
    return b.select(b.fcmp_ordered("<", x, many(-87.33)), many(0.0), b.fmul(p, power))


def _vectors(builder: Any) -> Vectors:
    return Vectors(builder, "portable")  # no instruction of one processor is named here


def _pair(v: Vectors, address: Any) -> list[Any]:
    kind = vector(F32, LANES)
    return [v.load(kind, v.add(address, 4 * LANES * i), 4) for i in range(2)]


def _store_pair(v: Vectors, values: list[Any], address: Any) -> None:
    for i, value in enumerate(values):
        v.store(value, v.add(address, 4 * LANES * i), 4)


def _emit_tile(v: Vectors, rows: int, of_keys: bool, args: Any) -> None:
    left, pitch, right, depth, out = args
    b = v.builder
    places = v.every(left, pitch, rows) if of_keys else []
    if of_keys:
        blank = v.constant(vector(F32, LANES), 0.0)
        sums = [blank] * (2 * rows)
    else:
        sums = [x for row in range(rows) for x in _pair(v, v.add(out, LINE * row))]

    def step(i: Any, sums: list[Any]) -> list[Any]:
        columns = _pair(v, v.add(right, v.times(i, LINE)))
        if of_keys:
            at = v.times(i, 4)
            here = [v.add(place, at) for place in places]
        else:
            start = v.add(left, b.mul(i, pitch))
            here = [v.add(start, 4 * row) for row in range(rows)]
        made = []
        for row, place in enumerate(here):
            factor = v.broadcast(F32, place, LANES)
            made += [
                v.multiply_add(factor, column, sums[2 * row + part])
                for part, column in enumerate(columns)
            ]
        return made

    sums = v.loop(depth, sums, step)
    for row in range(rows):
        _store_pair(v, sums[2 * row : 2 * row + 2], v.add(out, LINE * row))


def _tile(rows: int, of_keys: bool) -> Any:
    """
    Make the intrinsic of a tile of ``rows`` lines of ``COLUMNS``.

    Of keys, it writes ``out[r] = sum_d left[r, d] * right[d]``, rows of ``left`` being
    ``pitch`` bytes apart; of values, it adds ``sum_t left[t, r] * right[t]`` to ``out[r]``.
    """

    def tile(
        context: Any, left: Any, pitch: Any, right: Any, depth: Any, out: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _emit_tile(_vectors(builder), rows, of_keys, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return native(tile)


# Six rows fill AVX2's registers; four are the fewest whose sums hide a multiply-add's
# latency; with both, any multiple of four from eight on is whole tiles.
_keys_6, _keys_4, _keys_1 = _tile(6, True), _tile(4, True), _tile(1, True)
_values_6, _values_4, _values_1 = _tile(6, False), _tile(4, False), _tile(1, False)


@jit
def key_products(
    keys: int, pitch: int, count: int, panel: int, depth: int, out: int
) -> None:
    """Write a line of scores for each of ``count`` keys."""
    at = 0
    while count - at >= 6 and count - at != 8:
        _keys_6(keys + at * pitch, pitch, panel, depth, out + at * LINE)
        at += 6
    while count - at >= 4:
        _keys_4(keys + at * pitch, pitch, panel, depth, out + at * LINE)
        at += 4
    while count - at > 0:
        _keys_1(keys + at * pitch, pitch, panel, depth, out + at * LINE)
        at += 1


@jit
def value_products(
    values: int, pitch: int, count: int, weights: int, width: int, out: int
) -> None:
    """Add to a line for each of a value's ``width`` numbers, over ``count`` keys."""
    at = 0
    while width - at >= 6 and width - at != 8:
        _values_6(values + 4 * at, pitch, weights, count, out + at * LINE)
        at += 6
    while width - at >= 4:
        _values_4(values + 4 * at, pitch, weights, count, out + at * LINE)
        at += 4
    while width - at > 0:
        _values_1(values + 4 * at, pitch, weights, count, out + at * LINE)
        at += 1


@native
def hide(
    context: Any, scores: Any, first: Any, count: Any, lows: Any, highs: Any
) -> Any:
    """
    Put minus infinity where a key lies outside of its query's range.

    Line ``t`` is key ``first + t``; the query of column ``c`` sees ``lows[c]`` up to and
    without ``highs[c]``, both int32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scores, first, count, lows, highs = args
        v, words = _vectors(builder), vector(I32, LANES)
        bounds = [
            [v.load(words, v.add(at, 4 * LANES * i), 4) for i in range(2)]
            for at in (lows, highs)
        ]
        lowest = v.constant(vector(F32, LANES), -_INF)

        def line(t: Any, _: list[Any]) -> list[Any]:
            place = v.add(scores, v.times(t, LINE))
            key = v.splat(builder.trunc(builder.add(first, t), I32), LANES)
            kept = []
            for value, low, high in zip(_pair(v, place), *bounds, strict=True):
                inside = builder.and_(
                    builder.icmp_signed(">=", key, low),
                    builder.icmp_signed("<", key, high),
                )
                kept.append(builder.select(inside, value, lowest))
            _store_pair(v, kept, place)
            return []

        v.loop(count, [], line)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


def _shifts(v: Vectors, greatest: list[Any]) -> list[Any]:
    """Give what to subtract from scores: the greatest, or 0 where that is -inf."""
    b = v.builder
    lowest = v.constant(vector(F32, LANES), -_INF)
    blank = v.constant(vector(F32, LANES), 0.0)
    return [b.select(b.fcmp_ordered("==", m, lowest), blank, m) for m in greatest]


@native
def fold(
    context: Any, scores: Any, count: Any, greatest: Any, sums: Any, out: Any, width: Any
) -> Any:  # fmt: skip
    """
    Turn ``count`` lines of scores into weights, and bring ``sums`` and ``out`` up to them.

    ``greatest`` and ``sums`` are a line each; ``out`` has ``width`` lines, to which the
    products with these weights are to be added next.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scores, count, greatest, sums, out, width = args
        v, b = _vectors(builder), builder

        def larger(t: Any, most: list[Any]) -> list[Any]:
            here = _pair(v, v.add(scores, v.times(t, LINE)))
            return [
                b.select(b.fcmp_ordered(">", x, m), x, m)
                for x, m in zip(here, most, strict=True)
            ]

        before = _pair(v, greatest)
        most = v.loop(count, before, larger)
        shifts = _shifts(v, most)
        kept = [
            exp_to_one(v, b.fsub(m, s)) for m, s in zip(before, shifts, strict=True)
        ]

        def weigh(t: Any, totals: list[Any]) -> list[Any]:
            place = v.add(scores, v.times(t, LINE))
            made = [
                exp_to_one(v, b.fsub(x, s))
                for x, s in zip(_pair(v, place), shifts, strict=True)
            ]
            _store_pair(v, made, place)
            return [b.fadd(x, w) for x, w in zip(totals, made, strict=True)]

        start = [b.fmul(x, k) for x, k in zip(_pair(v, sums), kept, strict=True)]
        _store_pair(v, v.loop(count, start, weigh), sums)
        _store_pair(v, most, greatest)

        def shrink(i: Any, _: list[Any]) -> list[Any]:
            place = v.add(out, v.times(i, LINE))
            now = [b.fmul(x, k) for x, k in zip(_pair(v, place), kept, strict=True)]
            _store_pair(v, now, place)
            return []

        v.loop(width, [], shrink)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate
