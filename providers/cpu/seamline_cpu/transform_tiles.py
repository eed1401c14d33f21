"""
Vector code of :mod:`seamline_cpu.integer_transforms`: its matrices, applied in registers.

Inputs are words of two int16, one of each of two channels, and four phases: word t of phase
i is input ``4 t + i``. A point's transformed inputs are such words again, one for each four
outputs, so that the tiles of :mod:`seamline_cpu.integer_tiles` read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seamline_cpu.integer_tiles import VARIANT
from seamline_cpu.integer_transforms import OUTPUTS, transform_of
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.tiles import COLUMNS, LANES, ROWS
from seamline_cpu.vectors import I16, I32, Vectors, vector

__all__ = ["gathered_3", "gathered_4", "gathered_5", "spread_3", "spread_4", "spread_5"]

_WIDTH = 4 * LANES
_WORDS = vector(I32, LANES)


def _combined(v: Vectors, values: Sequence[Any], factors: Sequence[int]) -> Any:
    """Give the sum of vectors times constants."""
    b, total = v.builder, None
    for value, factor in zip(values, factors, strict=True):
        if factor == 0:
            continue
        size = abs(factor)
        part = value if size == 1 else b.mul(value, v.constant(value.type, size))
        if total is None:
            total = part if factor > 0 else b.sub(v.constant(value.type, 0), part)
        else:
            total = b.add(total, part) if factor > 0 else b.sub(total, part)
    return total


def _spread(taps: int) -> Any:
    transform = transform_of(taps)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, pitch, target, apart, count = args
        v = Vectors(builder, VARIANT.variant)

        def body(index: Any, carried: list[Any]) -> list[Any]:
            shift = v.times(index, _WIDTH)
            here = v.add(source, shift)
            inputs = []
            for i in range(transform.points):
                phase = v.add(here, v.times(pitch, i % OUTPUTS), 4 * (i // OUTPUTS))
                inputs.append(v.cast(v.load(_WORDS, phase), I16))
            for k, row in enumerate(transform.inputs):
                place = v.add(target, v.times(apart, k), shift)
                v.store(v.cast(_combined(v, inputs, row), I32), place)
            return []

        v.loop(count, [], body)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


def _interleaved(v: Vectors, values: list[Any]) -> Any:
    """Give the first lanes of four vectors, then the second ones, and so on."""
    lanes = values[0].type.count
    pairs = [
        v.shuffle(
            a, [lane + lanes * half for lane in range(lanes) for half in (0, 1)], b
        )
        for a, b in ((values[0], values[2]), (values[1], values[3]))
    ]
    order = [lane + 2 * lanes * half for lane in range(2 * lanes) for half in (0, 1)]
    return v.shuffle(pairs[0], order, pairs[1])


def _gathered(taps: int) -> Any:
    transform = transform_of(taps)
    size = 4 * ROWS * COLUMNS

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, bias, target = args
        v = Vectors(builder, VARIANT.variant)
        shift = v.constant(_WORDS, transform.shift)

        def body(index: Any, carried: list[Any]) -> list[Any]:
            start = v.broadcast(I32, v.add(bias, v.times(index, 4)), LANES)
            line = v.add(source, v.times(index, 4 * COLUMNS))
            out = v.add(target, v.times(index, 4 * OUTPUTS * COLUMNS))
            for half in range(2):
                sums = []
                for k, scale in enumerate(transform.scales):
                    found = v.load(_WORDS, v.add(line, k * size + half * _WIDTH))
                    sums.append(builder.mul(found, v.constant(_WORDS, scale)))
                made = []
                for i in range(OUTPUTS):
                    total = _combined(v, sums, [row[i] for row in transform.outputs])
                    made.append(builder.add(builder.ashr(total, shift), start))
                v.store(_interleaved(v, made), v.add(out, half * OUTPUTS * _WIDTH))
            return []

        v.loop(v.constant(source.type, ROWS), [], body)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), generate


@native
def spread_3(
    context: Any, source: Any, pitch: Any, target: Any, apart: Any, count: Any
) -> Any:
    """
    Transform the inputs of filters of three taps, ``count`` vectors of four outputs.

    Phases lie ``pitch`` bytes apart, the points written ``apart`` bytes.
    """
    return _spread(3)


@native
def spread_4(
    context: Any, source: Any, pitch: Any, target: Any, apart: Any, count: Any
) -> Any:
    """As :func:`spread_3`, for four taps."""
    return _spread(4)


@native
def spread_5(
    context: Any, source: Any, pitch: Any, target: Any, apart: Any, count: Any
) -> Any:
    """As :func:`spread_3`, for five taps."""
    return _spread(5)


@native
def gathered_3(context: Any, source: Any, bias: Any, target: Any) -> Any:
    """
    Make outputs of the points' tiles, which follow one another at ``source``, for three taps.

    ``target`` takes ``ROWS`` rows of ``4 * COLUMNS`` int32; each row's bias is added.
    """
    return _gathered(3)


@native
def gathered_4(context: Any, source: Any, bias: Any, target: Any) -> Any:
    """As :func:`gathered_3`, for four taps."""
    return _gathered(4)


@native
def gathered_5(context: Any, source: Any, bias: Any, target: Any) -> Any:
    """As :func:`gathered_3`, for five taps."""
    return _gathered(5)
