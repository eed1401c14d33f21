"""
Folds and copies of neighbouring rows, in LLVM vector code.

Pools are made of these folds: the largest, or the sum, of some taps. Written out, because LLVM leaves a loop scalar whose rows are
shorter than several vectors, as those of pooled images are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seamline_cpu.atomics import floats
from seamline_cpu.ir import cgutils, ir, types
from seamline_cpu.jit import jit, native
from seamline_cpu.tiles import LANES

__all__ = [
    "copy_floats",
    "largest_strip",
    "split_pairs",
    "sum_strip",
]

_F32 = ir.FloatType()
_I64 = ir.IntType(64)
_VECTOR = ir.VectorType(_F32, LANES)
_STEP = ir.Constant(_I64, 4 * LANES)
_Fold = Callable[[Any, Any, Any], Any]


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=4)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=4)


def _largest(builder: Any, one: Any, other: Any) -> Any:
    """Give the larger, NaN where either is; a bare comparison would lose one side's."""
    larger = builder.select(builder.fcmp_ordered(">", one, other), one, other)
    return builder.select(builder.fcmp_unordered("uno", one, one), one, larger)


def _strip(fold: _Fold) -> Any:
    """Emit a loop over vectors, and in it one over taps."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, offsets, taps, vectors, target = args
        one, eight = ir.Constant(_I64, 1), ir.Constant(_I64, 8)
        total = cgutils.alloca_once(builder, _VECTOR)
        with cgutils.for_range(builder, vectors) as strip:
            shift = builder.mul(strip.index, _STEP)
            here = builder.add(source, shift)
            first = builder.add(here, _load(builder, offsets, _I64))
            builder.store(_load(builder, first, _VECTOR), total)
            with cgutils.for_range(builder, builder.sub(taps, one)) as tap:
                entry = builder.mul(builder.add(tap.index, one), eight)
                place = _load(builder, builder.add(offsets, entry), _I64)
                value = _load(builder, builder.add(here, place), _VECTOR)
                builder.store(fold(builder, builder.load(total), value), total)
            _store(builder, builder.load(total), builder.add(target, shift))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


@native
def largest_strip(
    context: Any, source: Any, offsets: Any, taps: Any, vectors: Any, target: Any
) -> Any:
    """
    Write ``vectors * LANES`` floats: each the largest over the taps, NaN where one is.

    Tap t of the first lies ``offsets[t]`` bytes from ``source``; there is at least one.
    """
    return _strip(_largest)


@native
def sum_strip(
    context: Any, source: Any, offsets: Any, taps: Any, vectors: Any, target: Any
) -> Any:
    """Write sums over the taps, as :func:`largest_strip` writes the largest."""
    return _strip(lambda builder, one, other: builder.fadd(one, other))


def _picks(parts: int) -> Any:
    """Emit a loop that parts pairs of vectors: into both halves, or the even places only."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, *targets, vectors = args
        kind = ir.VectorType(ir.IntType(32), LANES)
        with cgutils.for_range(builder, vectors) as strip:
            shift = builder.mul(strip.index, _STEP)
            low = builder.add(source, builder.add(shift, shift))
            pair = [
                _load(builder, at, _VECTOR) for at in (low, builder.add(low, _STEP))
            ]
            for first, target in enumerate(targets):
                mask = ir.Constant(kind, list(range(first, 2 * LANES, 2)))
                picked = builder.shuffle_vector(*pair, mask)
                _store(builder, picked, builder.add(target, shift))
        return context.get_dummy_value()

    return types.void(*[types.int64] * (parts + 2)), generate


@native
def split_pairs(context: Any, source: Any, even: Any, odd: Any, vectors: Any) -> Any:
    """Part ``2 * vectors * LANES`` floats into those at even places and those at odd."""
    return _picks(2)


@native
def _copy_strip(context: Any, source: Any, target: Any, vectors: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        with cgutils.for_range(builder, args[2]) as strip:
            shift = builder.mul(strip.index, _STEP)
            value = _load(builder, builder.add(args[0], shift), _VECTOR)
            _store(builder, value, builder.add(args[1], shift))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), generate


@jit
def copy_floats(source: int, target: int, count: int) -> None:
    """Copy ``count`` floats between addresses and touch nothing past them."""
    if count >= LANES:
        _copy_strip(source, target, count // LANES)
        if count % LANES:  # the last vector overlaps the one before
            back = (count - LANES) * 4
            _copy_strip(source + back, target + back, 1)
        return
    values, to = floats(source), floats(target)
    for i in range(count):
        to[i] = values[i]
