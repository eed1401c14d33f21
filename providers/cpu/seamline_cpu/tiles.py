"""
Register tiles of a matrix product, in LLVM vector code.

A tile is ``ROWS`` rows of the left matrix by ``COLUMNS`` columns of the right one, both
packed: for each k, ``ROWS`` weights and ``COLUMNS`` pixels lie together. Its sums stay in
vector registers: twelve of AVX2's sixteen, or of 32 with AVX-512, which leaves room for
two vectors of pixels and a broadcast weight. Written out, because LLVM's vectorisers do
not find this shape in a loop nest.
"""

from __future__ import annotations

import platform
from typing import Any

from seamline_cpu.instruction_sets import features
from seamline_cpu.ir import cgutils, ir, types
from seamline_cpu.jit import native

__all__ = [
    "COLUMNS",
    "LANES",
    "ROWS",
    "copy_row",
    "dot_tile",
    "dot_tile_onto",
    "tap_strip",
    "tap_tile",
    "tap_tile_onto",
    "word_tile",
]


LANES = 16 if "avx512f" in features() else 8  #: floats in a vector register
ROWS = 6
COLUMNS = 2 * LANES
PAIRS = "avx2" in features() and platform.machine() in ("x86_64", "AMD64")
_F32 = ir.FloatType()
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)


def _constant(value: int) -> Any:
    return ir.Constant(_I64, value)


def _at(builder: Any, address: Any, offset: Any, kind: Any) -> Any:
    return builder.inttoptr(builder.add(address, offset), kind.as_pointer())


def _load(builder: Any, address: Any, offset: Any, kind: Any) -> Any:
    return builder.load(_at(builder, address, offset, kind), align=4)


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    one = builder.insert_element(
        ir.Constant(kind, ir.Undefined), value, ir.Constant(_I32, 0)
    )
    mask = ir.Constant(ir.VectorType(_I32, kind.count), [0] * kind.count)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), mask)


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """One fused instruction where there is one; LLVM's ``fma`` would call a library."""
    name = f"llvm.fmuladd.v{a.type.count}f32"
    kind = ir.FunctionType(a.type, [a.type] * 3)
    return builder.call(
        cgutils.get_or_insert_function(builder.module, kind, name), [a, b, c]
    )


def _pair_sum(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Add to each 32-bit lane of ``c`` the products of its two signed 16-bit halves."""
    if PAIRS:
        # AVX2's instruction is eight lanes wide; wider vectors are cut to it.
        half = ir.VectorType(ir.IntType(16), 16)
        eight = ir.VectorType(_I32, 8)
        kind = ir.FunctionType(eight, [half, half])
        name = "llvm.x86.avx2.pmadd.wd"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        parts = []
        for start in range(0, c.type.count, 8):
            mask = ir.Constant(ir.VectorType(_I32, 8), list(range(start, start + 8)))
            cut = [
                builder.bitcast(builder.shuffle_vector(v, v, mask), half)
                for v in (a, b)
            ]
            parts.append(builder.call(function, cut))
        whole = parts[0]
        if len(parts) == 2:
            mask = ir.Constant(ir.VectorType(_I32, 16), list(range(16)))
            whole = builder.shuffle_vector(parts[0], parts[1], mask)
        return builder.add(c, whole)
    sixteen = _splat(builder, ir.Constant(_I32, 16), a.type)
    low = [builder.ashr(builder.shl(v, sixteen), sixteen) for v in (a, b)]
    high = [builder.ashr(v, sixteen) for v in (a, b)]
    return builder.add(c, builder.add(builder.mul(*low), builder.mul(*high)))


def _tile(
    element: Any, multiply: Any, *, tabled: bool = False, onto: bool = False
) -> Any:
    """Emit a tile's code for a 32-bit element type and a multiply-accumulate."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right, depth, bias, out, pitch = args[:6]
        vector = ir.VectorType(element, LANES)
        width = 4 * LANES
        sums = [cgutils.alloca_once(builder, vector) for _ in range(2 * ROWS)]
        for row in range(ROWS):
            line = builder.add(out, builder.mul(pitch, _constant(row)))
            for column in range(2):
                if onto:
                    first = _load(builder, line, _constant(width * column), vector)
                else:
                    given = _load(builder, bias, _constant(4 * row), element)
                    first = _splat(builder, given, vector)
                builder.store(first, sums[2 * row + column])
        with cgutils.for_range(builder, depth) as loop:
            weights = builder.add(left, builder.mul(loop.index, _constant(4 * ROWS)))
            if tabled:
                shift = builder.mul(loop.index, _constant(8))
                pixels = builder.add(right, _load(builder, args[6], shift, _I64))
            else:
                shift = builder.mul(loop.index, _constant(2 * width))
                pixels = builder.add(right, shift)
            b = [_load(builder, pixels, _constant(width * c), vector) for c in range(2)]
            for row in range(ROWS):
                weight = _load(builder, weights, _constant(4 * row), element)
                a = _splat(builder, weight, vector)
                for column in range(2):
                    place = sums[2 * row + column]
                    value = multiply(builder, a, b[column], builder.load(place))
                    builder.store(value, place)
        for row in range(ROWS):
            line = builder.add(out, builder.mul(pitch, _constant(row)))
            for column in range(2):
                target = _at(builder, line, _constant(width * column), vector)
                builder.store(builder.load(sums[2 * row + column]), target, align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * (7 if tabled else 6)), generate


@native
def tap_tile(
    context: Any,
    left: Any,
    right: Any,
    depth: Any,
    bias: Any,
    out: Any,
    pitch: Any,
    offsets: Any,
) -> Any:
    """As :func:`dot_tile`, but row k of the right matrix lies ``offsets[k]`` bytes away."""
    return _tile(_F32, _multiply_add, tabled=True)


@native
def tap_tile_onto(
    context: Any,
    left: Any,
    right: Any,
    depth: Any,
    bias: Any,
    out: Any,
    pitch: Any,
    offsets: Any,
) -> Any:
    """As :func:`tap_tile`, but add to what ``out`` holds; ``bias`` is not read."""
    return _tile(_F32, _multiply_add, tabled=True, onto=True)


@native
def dot_tile_onto(
    context: Any, left: Any, right: Any, depth: Any, bias: Any, out: Any, pitch: Any
) -> Any:
    """As :func:`dot_tile`, but add to what ``out`` holds; ``bias`` is not read."""
    return _tile(_F32, _multiply_add, onto=True)


@native
def dot_tile(
    context: Any, left: Any, right: Any, depth: Any, bias: Any, out: Any, pitch: Any
) -> Any:
    """
    Compute one float32 tile: ``out[r, c] = bias[r] + sum_k left[k, r] * right[k, c]``.

    Arguments are addresses and counts; ``pitch`` is the bytes between rows of ``out``.
    """
    return _tile(_F32, _multiply_add)


@native
def word_tile(
    context: Any, left: Any, right: Any, depth: Any, bias: Any, out: Any, pitch: Any
) -> Any:
    """Compute one int32 tile; each word of the operands holds two int16, two steps of k."""
    return _tile(_I32, _pair_sum)


@native
def copy_row(context: Any, target: Any, source: Any) -> Any:
    """Copy ``COLUMNS`` 32-bit words between addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(_I32, LANES)
        for part in (0, 4 * LANES):
            value = _load(builder, args[1], _constant(part), vector)
            builder.store(
                value, _at(builder, args[0], _constant(part), vector), align=4
            )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@native
def tap_strip(
    context: Any,
    pixels: Any,
    offsets: Any,
    weights: Any,
    taps: Any,
    bias: Any,
    out: Any,
) -> Any:
    """
    Compute ``4 * LANES`` neighbours: ``out[i] = bias + sum_t weights[t] * pixels[offsets[t] + i]``.

    ``offsets`` are int64, in bytes; all others are addresses, ``bias`` a float32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, places, factors, count, first, out = args
        vector = ir.VectorType(_F32, LANES)
        sums = [cgutils.alloca_once(builder, vector) for _ in range(4)]
        for place in sums:
            builder.store(_splat(builder, first, vector), place)
        with cgutils.for_range(builder, count) as loop:
            shift = builder.mul(loop.index, _constant(8))
            row = builder.add(source, _load(builder, places, shift, _I64))
            factor = _load(
                builder, factors, builder.mul(loop.index, _constant(4)), _F32
            )
            a = _splat(builder, factor, vector)
            for part, place in enumerate(sums):
                b = _load(builder, row, _constant(4 * LANES * part), vector)
                builder.store(_multiply_add(builder, a, b, builder.load(place)), place)
        for part, place in enumerate(sums):
            target = _at(builder, out, _constant(4 * LANES * part), vector)
            builder.store(builder.load(place), target, align=4)
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(i64, i64, i64, i64, types.float32, i64), generate
