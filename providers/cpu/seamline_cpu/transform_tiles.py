"""
Vector code of :mod:`seamline_cpu.integer_transforms`: its matrices, applied in registers.

Inputs are words of two int16, one of each of two channels, in as many phases as outputs are
made at once, m: word t of phase i is input ``m t + i``. A point's transformed inputs are such
words again, one for each m outputs, so that the tiles of :mod:`seamline_cpu.integer_tiles`
read them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from seamline_cpu.integer_tiles import VARIANT
from seamline_cpu.integer_transforms import Nested
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.tiles import COLUMNS, LANES, ROWS
from seamline_cpu.vectors import I16, I32, Vectors, vector

__all__ = ["gather_tile", "spread_tile"]

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


def _emit_spread(v: Vectors, form: Nested, args: Any) -> None:
    source, pitch, target, apart, count = args
    inner, outer = form.inner, form.outer

    def body(index: Any, carried: list[Any]) -> list[Any]:
        shift = v.times(index, _WIDTH)
        here = v.add(source, shift)
        inputs = []
        for i in range(inner.points + inner.count * (outer.points - 1)):
            past, phase = divmod(i, form.outputs)
            place = v.add(here, v.times(pitch, phase), 4 * past)
            inputs.append(v.cast(v.load(_WORDS, place), I16))
        for k, row in enumerate(inner.inputs):
            runs = [
                _combined(v, inputs[at : at + inner.points], row)
                for at in range(0, inner.count * outer.points, inner.count)
            ]
            for j, across in enumerate(outer.inputs):
                to = v.add(target, v.times(apart, j * inner.points + k), shift)
                v.store(v.cast(_combined(v, runs, across), I32), to)
        return []

    v.loop(count, [], body)


@functools.cache
def spread_tile(taps: int, runs: int) -> Any:
    """
    Make the intrinsic that transforms the inputs of a row, for :meth:`Nested.of` these.

    Its arguments are int64: the phases' address and the bytes between them, where the
    points are written and the bytes between those, and how many vectors of groups of
    outputs there are.
    """

    def tile(
        context: Any, source: Any, pitch: Any, target: Any, apart: Any, count: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, VARIANT.variant)
            _emit_spread(v, Nested.of(taps, runs), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return native(tile)


def _interleaved(v: Vectors, values: list[Any]) -> Any:
    """Give the first lanes of all vectors, then the second ones, and so on."""
    if len(values) == 1:
        return values[0]
    even, odd = _interleaved(v, values[::2]), _interleaved(v, values[1::2])
    lanes = even.type.count
    order = [lane + lanes * half for lane in range(lanes) for half in (0, 1)]
    return v.shuffle(even, order, odd)


def _outputs(v: Vectors, form: Nested, sums: list[Any], start: Any) -> list[Any]:
    """Give the outputs of all points' sums, in their order."""
    inner, outer = form.inner, form.outer
    made = []
    for o in range(outer.count):
        across = [
            row[o] * scale
            for row, scale in zip(outer.outputs, outer.scales, strict=True)
        ]
        runs = []
        for k, scale in enumerate(inner.scales):
            run = _combined(v, sums[k :: inner.points], across)
            runs.append(v.builder.mul(run, v.constant(_WORDS, scale)))
        for i in range(inner.count):
            total = _combined(v, runs, [row[i] for row in inner.outputs])
            shifted = v.builder.ashr(total, v.constant(_WORDS, form.shift))
            made.append(v.builder.add(shifted, start))
    return made


def _emit_gather(v: Vectors, form: Nested, args: Any) -> None:
    source, bias, target = args
    size = 4 * ROWS * COLUMNS

    def body(index: Any, carried: list[Any]) -> list[Any]:
        start = v.broadcast(I32, v.add(bias, v.times(index, 4)), LANES)
        line = v.add(source, v.times(index, 4 * COLUMNS))
        out = v.add(target, v.times(index, 4 * form.outputs * COLUMNS))
        for half in range(2):
            sums = [
                v.load(_WORDS, v.add(line, k * size + half * _WIDTH))
                for k in range(form.points)
            ]
            made = _outputs(v, form, sums, start)
            v.store(_interleaved(v, made), v.add(out, half * form.outputs * _WIDTH))
        return []

    v.loop(v.constant(source.type, ROWS), [], body)


@functools.cache
def gather_tile(taps: int, runs: int) -> Any:
    """
    Make the intrinsic that makes outputs of the points' tiles, for :meth:`Nested.of` these.

    Its arguments are int64: the tiles, which follow one another; each row's bias; and where
    ``ROWS`` rows of outputs of ``COLUMNS`` groups go, int32.
    """

    def tile(context: Any, source: Any, bias: Any, target: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, VARIANT.variant)
            _emit_gather(v, Nested.of(taps, runs), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), generate

    return native(tile)
