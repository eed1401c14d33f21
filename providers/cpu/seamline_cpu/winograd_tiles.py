"""
Vector code of :mod:`seamline_cpu.winograd`: its matrices and products, in registers.

Four tiles beside each other, a *quad*, are sixteen neighbouring outputs of four rows. A
vector of eight lanes holds the same point of two quads, which may lie anywhere: what moves
floats between tiles and rows stays within a half, where it is one cheap instruction. Sums
over channels take a panel of four quads at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from seamline_cpu.integer_tiles import VARIANT
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.tiles import LANES
from seamline_cpu.vectors import F32, I8, I32, I64, Vectors, vector
from seamline_cpu.winograd import INPUTS, OUTPUTS, POINTS, TILE

__all__ = [
    "BLOCKS", "PANEL", "QUAD", "RUN", "SUMS", "gather_tiles", "point_sums", "spread_tiles",
]  # fmt: skip

QUAD = 4  #: tiles
RUN = QUAD * TILE  #: outputs of a quad's row
PANEL = 16  #: tiles that sums are made of at once
_VECTORS = PANEL // LANES
SUMS = 12 // _VECTORS  #: output channels at once: twelve vectors of sums
_HALF, _WHOLE = vector(F32, 4), vector(F32, 8)
BLOCKS = RUN // 4 + 1  #: of four neighbouring inputs, that a quad's row has part in


def _halves(lanes: Sequence[int]) -> list[int]:
    """Give a mask of both halves from the first's; from 4 on it is the other vector."""
    low = [n if n < 4 else n + 4 for n in lanes]
    return [*low, *[n + 4 for n in low]]


# A matrix of four vectors by four lanes is transposed by two turns of these.
_LOW, _HIGH = _halves((0, 4, 1, 5)), _halves((2, 6, 3, 7))
_FIRST, _SECOND = _halves((0, 1, 4, 5)), _halves((2, 3, 6, 7))


def _transposed(v: Vectors, rows: Sequence[Any], count: int = 4) -> list[Any]:
    """Give the first ``count`` columns of four vectors' halves, each as a vector."""
    a, b, c, d = rows
    found: list[Any] = []
    for mask in (_LOW, _HIGH)[: count // 2]:
        p, q = v.shuffle(a, mask, b), v.shuffle(c, mask, d)
        found += [v.shuffle(p, pick, q) for pick in (_FIRST, _SECOND)]
    return found


def _sum(v: Vectors, values: Sequence[Any], factors: Sequence[Fraction]) -> Any:
    """Give a sum of vectors times constants, of which ones need no product."""
    total: Any = None
    terms = [(x, f) for x, f in zip(values, factors, strict=True) if f]
    for value, factor in sorted(terms, key=lambda term: term[1] != 1):
        if factor == 1:
            total = value if total is None else v.builder.fadd(total, value)
            continue
        times = v.constant(value.type, float(factor))
        if total is None:
            total = v.builder.fmul(value, times)
        else:
            total = v.multiply_add(value, times, total)
    return total


def _to_points(v: Vectors, inputs: Sequence[Any]) -> list[Any]:
    """Apply B': the rows of a point and of its opposite differ in odd columns' signs."""
    found = [_sum(v, inputs, INPUTS[0])]
    for k in range(1, POINTS - 1, 2):
        even, odd = (_sum(v, inputs[i::2], INPUTS[k][i::2]) for i in range(2))
        found += [v.builder.fadd(even, odd), v.builder.fsub(even, odd)]
    return [*found, _sum(v, inputs, INPUTS[-1])]


def _from_points(v: Vectors, points: Sequence[Any]) -> list[Any]:
    """Apply A', whose columns of opposite points differ in odd rows' signs."""
    first, *pairs, last = points
    sums = [v.builder.fadd(*pairs[i : i + 2]) for i in range(0, len(pairs), 2)]
    apart = [v.builder.fsub(*pairs[i : i + 2]) for i in range(0, len(pairs), 2)]
    found = []
    for i, row in enumerate(OUTPUTS):
        mixed = apart if i % 2 else sums
        found.append(_sum(v, [first, *mixed, last], [row[0], *row[1:-1:2], row[-1]]))
    return found


def _pair(v: Vectors, low: Any, high: Any) -> Any:
    """Load the four floats at two addresses."""
    return v.shuffle(v.load(_HALF, low), range(8), v.load(_HALF, high))


@native
def spread_tiles(
    context: Any, sources: Any, steps: Any, masks: Any, channels: Any, target: Any, apart: Any,
    along: Any,
) -> Any:  # fmt: skip
    """
    Transform the inputs of two quads, channel after channel.

    Parameters
    ----------
    sources, steps
        Twelve addresses each: where the rows of the first quad begin, then those of the
        second, and how many bytes further the next channel's do.
    masks
        ``BLOCKS`` times eight words, all ones or zero: which inputs to take; four of the
        first quad, four of the second.
    target, apart, along
        Where eight floats go, a point's bytes, and a channel's.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sources, steps, masks, channels, target, apart, along = args
        v = Vectors(builder, VARIANT.variant)
        rows = range(2 * POINTS)
        begins = [v.load(I64, v.add(sources, 8 * r)) for r in rows]
        moves = [v.load(I64, v.add(steps, 8 * r)) for r in rows]
        words = vector(I32, 8)
        taken = [v.load(words, v.add(masks, 32 * k)) for k in range(BLOCKS)]

        def channel(index: Any, at: list[Any]) -> list[Any]:
            blocks = []
            for k in range(BLOCKS):
                given = [
                    _pair(v, v.add(at[r], 16 * k), v.add(at[r + POINTS], 16 * k))
                    for r in range(POINTS)
                ]
                kept = [
                    builder.and_(builder.bitcast(x, words), taken[k]) for x in given
                ]
                blocks.append(_to_points(v, [builder.bitcast(x, _WHOLE) for x in kept]))
            to = builder.add(target, builder.mul(index, along))
            for r in range(POINTS):
                row = [block[r] for block in blocks]
                inputs = _transposed(v, row[:4]) + _transposed(v, row[1:], POINTS - 4)
                for value in _to_points(v, inputs):
                    v.store(value, to)
                    to = builder.add(to, apart)
            return [builder.add(a, b) for a, b in zip(at, moves, strict=True)]

        v.loop(channels, begins, channel)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


@native
def gather_tiles(
    context: Any, source: Any, apart: Any, bias: Any, limits: Any, low: Any, low_pitch: Any,
    high: Any, high_pitch: Any,
) -> Any:  # fmt: skip
    """
    Make the outputs of two quads of one channel, four rows of sixteen floats each.

    Parameters
    ----------
    source, apart
        Eight sums of the first point, and the bytes to the next point's.
    bias, limits
        Of a float that is added, and of two that outputs are kept within; a NaN is kept.
    low, low_pitch, high, high_pitch
        Where both quads' outputs go, and the bytes from row to row.

    Returns
    -------
    int
        Not 0 where an output is not finite.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, apart, bias, limits, *places = args
        v = Vectors(builder, VARIANT.variant)
        added = v.broadcast(F32, bias, 8)
        least, most = (v.broadcast(F32, v.add(limits, 4 * i), 8) for i in range(2))
        columns = []
        at = v.every(source, apart, POINTS * POINTS)
        for k in range(POINTS):
            points = [v.load(_WHOLE, at[POINTS * r + k]) for r in range(POINTS)]
            columns.append(_from_points(v, points))
        none, seen = v.constant(_WHOLE, 0.0), v.constant(_WHOLE, 0.0)
        rows = [v.every(places[i], places[i + 1], TILE) for i in (0, 2)]
        for r in range(TILE):
            made = []
            for value in _from_points(v, [column[r] for column in columns]):
                whole = builder.fadd(value, added)
                seen = v.multiply_add(whole, none, seen)
                more = builder.select(
                    builder.fcmp_ordered("<", whole, least), least, whole
                )
                made.append(
                    builder.select(builder.fcmp_ordered(">", more, most), most, more)
                )
            for k, block in enumerate(_transposed(v, made)):
                for half in range(2):
                    lanes = v.shuffle(block, range(4 * half, 4 * half + 4))
                    v.store(lanes, v.add(rows[half][r], 16 * k))
        wrong = builder.bitcast(builder.fcmp_unordered("uno", seen, seen), I8)
        return builder.zext(wrong, I64)

    return types.int64(*[types.int64] * 8), generate


@native
def point_sums(context: Any, left: Any, right: Any, depth: Any, out: Any) -> Any:
    """
    Multiply ``(depth, SUMS)`` weights by ``(depth, PANEL)`` inputs: ``(SUMS, PANEL)``.

    All of them lie without gaps.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right, depth, out = args
        v = Vectors(builder, VARIANT.variant)
        kind = vector(F32, LANES)
        parts = range(_VECTORS)

        def step(index: Any, sums: list[Any]) -> list[Any]:
            weights = builder.add(left, v.times(index, 4 * SUMS))
            pixels = builder.add(right, v.times(index, 4 * PANEL))
            inputs = [v.load(kind, v.add(pixels, 4 * LANES * p)) for p in parts]
            found = []
            for row in range(SUMS):
                weight = v.broadcast(F32, v.add(weights, 4 * row), LANES)
                for p in parts:
                    total = sums[row * _VECTORS + p]
                    found.append(v.multiply_add(weight, inputs[p], total))
            return found

        zeros = [v.constant(kind, 0.0)] * (SUMS * _VECTORS)
        for i, total in enumerate(v.loop(depth, zeros, step)):
            v.store(total, v.add(out, 4 * LANES * i))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate
