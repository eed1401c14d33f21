"""
Vector code of :mod:`seamline_cpu.winograd`: its matrices and products, in registers.

Four tiles beside each other, a *quad*, are sixteen neighbouring outputs of four rows. A
vector of eight lanes holds the same point of two quads, which may lie anywhere: what moves
floats between tiles and rows stays within a half, where it is one cheap instruction. Sums
over channels take a panel of four quads at a time.
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.integer_tiles import VARIANT
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.tiles import LANES
from seamline_cpu.vectors import F32, I8, I32, I64, Vectors, vector
from seamline_cpu.winograd import TILE, Method, method_of
from seamline_cpu.winograd_matrices import from_points, to_points, transposed

__all__ = [
    "BLOCKS", "PANEL", "QUAD", "RUN", "SUMS", "gather_fives", "gather_threes",
    "gather_tiles", "point_sums", "spread_fives", "spread_threes", "spread_tiles",
]  # fmt: skip

QUAD = 4  #: tiles
RUN = QUAD * TILE  #: outputs of a quad's row
PANEL = 16  #: tiles that sums are made of at once
_VECTORS = PANEL // LANES
SUMS = 12 // _VECTORS  #: output channels at once: twelve vectors of sums
_HALF, _WHOLE = vector(F32, 4), vector(F32, 8)
BLOCKS = RUN // 4 + 1  #: of four neighbouring inputs, that a quad's row has part in


def _pair(v: Vectors, low: Any, high: Any) -> Any:
    """Load the four floats at two addresses."""
    return v.shuffle(v.load(_HALF, low), range(8), v.load(_HALF, high))


def _spread(down: Method | None, along: Method) -> Any:
    """Emit the transform of two quads' inputs, channel after channel."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sources, steps, masks, channels, target, apart, stride = args
        v = Vectors(builder, VARIANT.variant)
        rows = 1 if down is None else down.points
        begins = [v.load(I64, v.add(sources, 8 * r)) for r in range(2 * rows)]
        moves = [v.load(I64, v.add(steps, 8 * r)) for r in range(2 * rows)]
        words = vector(I32, 8)
        taken = [v.load(words, v.add(masks, 32 * k)) for k in range(BLOCKS)]

        def channel(index: Any, at: list[Any]) -> list[Any]:
            blocks = []
            for k in range(BLOCKS):
                given = [
                    _pair(v, v.add(at[r], 16 * k), v.add(at[r + rows], 16 * k))
                    for r in range(rows)
                ]
                kept = [
                    builder.and_(builder.bitcast(x, words), taken[k]) for x in given
                ]
                inputs = [builder.bitcast(x, _WHOLE) for x in kept]
                blocks.append(to_points(v, down, inputs))
            to = builder.add(target, builder.mul(index, stride))
            for r in range(rows):
                row = [block[r] for block in blocks]
                inputs = transposed(v, row[:4]) + transposed(v, row[1:])
                for value in to_points(v, along, inputs[: along.points]):
                    v.store(value, to)
                    to = builder.add(to, apart)
            return [builder.add(a, b) for a, b in zip(at, moves, strict=True)]

        v.loop(channels, begins, channel)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


@native
def spread_tiles(
    context: Any, sources: Any, steps: Any, masks: Any, channels: Any, target: Any, apart: Any,
    stride: Any,
) -> Any:  # fmt: skip
    """
    Transform the inputs of two quads for windows of three by three, channel by channel.

    Parameters
    ----------
    sources, steps
        Addresses: where each row of the first quad begins, then those of the second, and
        how many bytes further the next channel's do.
    masks
        ``BLOCKS`` times eight words, all ones or zero: which inputs to take; four of the
        first quad, four of the second.
    target, apart, stride
        Where eight floats go, a point's bytes, and a channel's.
    """
    return _spread(method_of(3), method_of(3))


@native
def spread_threes(
    context: Any, sources: Any, steps: Any, masks: Any, channels: Any, target: Any, apart: Any,
    stride: Any,
) -> Any:  # fmt: skip
    """As :func:`spread_tiles`, for rows of three taps: there is one row of each quad."""
    return _spread(None, method_of(3))


@native
def spread_fives(
    context: Any, sources: Any, steps: Any, masks: Any, channels: Any, target: Any, apart: Any,
    stride: Any,
) -> Any:  # fmt: skip
    """As :func:`spread_threes`, for rows of five taps."""
    return _spread(None, method_of(5))


def _gather(down: Method | None, along: Method) -> Any:
    """Emit the outputs of two quads of one channel."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, apart, bias, limits, *places = args
        v = Vectors(builder, VARIANT.variant)
        added = v.broadcast(F32, bias, 8)
        least, most = (v.broadcast(F32, v.add(limits, 4 * i), 8) for i in range(2))
        points, count = along.points, 1 if down is None else down.points
        at = v.every(source, apart, count * points)
        columns = []
        for k in range(points):
            given = [v.load(_WHOLE, at[points * r + k]) for r in range(count)]
            columns.append(from_points(v, down, given))
        none, seen = v.constant(_WHOLE, 0.0), v.constant(_WHOLE, 0.0)
        rows = [v.every(places[i], places[i + 1], len(columns[0])) for i in (0, 2)]
        for r in range(len(columns[0])):
            made = []
            for value in from_points(v, along, [column[r] for column in columns]):
                whole = builder.fadd(value, added)
                seen = v.multiply_add(whole, none, seen)
                more = builder.select(
                    builder.fcmp_ordered("<", whole, least), least, whole
                )
                made.append(
                    builder.select(builder.fcmp_ordered(">", more, most), most, more)
                )
            for k, block in enumerate(transposed(v, made)):
                for half in range(2):
                    lanes = v.shuffle(block, range(4 * half, 4 * half + 4))
                    v.store(lanes, v.add(rows[half][r], 16 * k))
        wrong = builder.bitcast(builder.fcmp_unordered("uno", seen, seen), I8)
        return builder.zext(wrong, I64)

    return types.int64(*[types.int64] * 8), generate


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
    return _gather(method_of(3), method_of(3))


@native
def gather_threes(
    context: Any, source: Any, apart: Any, bias: Any, limits: Any, low: Any, low_pitch: Any,
    high: Any, high_pitch: Any,
) -> Any:  # fmt: skip
    """As :func:`gather_tiles`, for rows of three taps: one row of sixteen floats each."""
    return _gather(None, method_of(3))


@native
def gather_fives(
    context: Any, source: Any, apart: Any, bias: Any, limits: Any, low: Any, low_pitch: Any,
    high: Any, high_pitch: Any,
) -> Any:  # fmt: skip
    """As :func:`gather_threes`, for rows of five taps."""
    return _gather(None, method_of(5))


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
