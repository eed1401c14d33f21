"""
Packed codes of 2, 4 or 8 bits times floats, a panel's width at a time, in vector code.

Written as LLVM instructions, because a loop would check before every few bytes whether
its sums overlap its codes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from seamline_cpu.tiles import LANES

__all__ = [
    "add_codes_2",
    "add_codes_4",
    "add_codes_8",
    "unpack_2",
    "unpack_4",
    "unpack_8",
]

_F32, _I8, _I32, _I64 = ir.FloatType(), ir.IntType(8), ir.IntType(32), ir.IntType(64)
_FLOATS = ir.VectorType(_F32, LANES)
_WORDS = ir.VectorType(_I32, LANES)
_WIDTH = 4 * LANES  # bytes of a vector of floats


def _constant(value: int) -> Any:
    return ir.Constant(_I64, value)


def _at(builder: Any, address: Any, offset: int, kind: Any) -> Any:
    place = builder.add(address, _constant(offset))
    return builder.inttoptr(place, kind.as_pointer())


def _load(builder: Any, address: Any, offset: int, kind: Any, align: int = 4) -> Any:
    return builder.load(_at(builder, address, offset, kind), align=align)


def _splat(builder: Any, value: Any) -> Any:
    blank = ir.Constant(_FLOATS, ir.Undefined)
    one = builder.insert_element(blank, value, ir.Constant(_I32, 0))
    mask = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
    return builder.shuffle_vector(one, blank, mask)


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
    name = f"llvm.fmuladd.v{LANES}f32"
    return builder.call(
        cgutils.get_or_insert_function(builder.module, kind, name), [a, b, c]
    )


def _codes(builder: Any, address: Any, half: int, plane: int, bits: int) -> Any:
    """Load one plane of half a panel's codes as floats."""
    raw = _load(builder, address, half * LANES, ir.VectorType(_I8, LANES), 1)
    words = builder.zext(raw, _WORDS)
    shift = ir.Constant(_WORDS, [plane * bits] * LANES)
    mask = ir.Constant(_WORDS, [(1 << bits) - 1] * LANES)
    return builder.sitofp(builder.and_(builder.lshr(words, shift), mask), _FLOATS)


def _adder(bits: int) -> Any:
    planes = 8 // bits

    @intrinsic
    def add_codes(context: Any, codes: Any, count: Any, values: Any, sums: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, length, factors, out = args
            totals = [cgutils.alloca_once(builder, _FLOATS) for _ in range(2)]
            for total in totals:
                builder.store(ir.Constant(_FLOATS, [0.0] * LANES), total)
            with cgutils.for_range(builder, length) as loop:
                row = builder.add(source, builder.mul(loop.index, _constant(2 * LANES)))
                a = builder.add(factors, builder.mul(loop.index, _constant(4 * planes)))
                for plane in range(planes):
                    factor = _splat(builder, _load(builder, a, 4 * plane, _F32))
                    for half, total in enumerate(totals):
                        code = _codes(builder, row, half, plane, bits)
                        now = builder.load(total)
                        builder.store(_multiply_add(builder, code, factor, now), total)
            for half, total in enumerate(totals):
                target = _at(builder, out, half * _WIDTH, _FLOATS)
                builder.store(builder.load(total), target, align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), generate

    return add_codes


def _unpacker(bits: int) -> Any:
    planes = 8 // bits

    @intrinsic
    def unpack(
        context: Any, codes: Any, count: Any, scale: Any, zero: Any, out: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, length, scales, zeros, target = args
            factors = [
                [_load(builder, x, half * _WIDTH, _FLOATS) for x in (scales, zeros)]
                for half in range(2)
            ]
            with cgutils.for_range(builder, length) as loop:
                row = builder.add(source, builder.mul(loop.index, _constant(2 * LANES)))
                step = builder.mul(loop.index, _constant(2 * _WIDTH * planes))
                to = builder.add(target, step)
                for plane in range(planes):
                    for half, (times, minus) in enumerate(factors):
                        code = _codes(builder, row, half, plane, bits)
                        value = builder.fmul(builder.fsub(code, minus), times)
                        place = (2 * plane + half) * _WIDTH
                        builder.store(value, _at(builder, to, place, _FLOATS), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return unpack


# Addresses and counts. ``add_codes(codes, bytes, values, sums)`` writes, for each of a
# panel's columns, the sum of its codes times the values, ``8 / bits`` of them for a byte;
# ``unpack(codes, bytes, scale, zero, out)`` writes ``(code - zero) * scale``.
add_codes_2, add_codes_4, add_codes_8 = _adder(2), _adder(4), _adder(8)
unpack_2, unpack_4, unpack_8 = _unpacker(2), _unpacker(4), _unpacker(8)
