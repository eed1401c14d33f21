"""
What generated kernels may call beside Numba's own: conversions, products, divisions.

Half-precision values are held as their 16 bits and computed with in float32, which rounds
once more and never twice wrongly: float32 has more than twice the digits of either. A
product is ``mul.rn``, which the compiler may not join with a sum, so that a chain in one
kernel gives the bits that its nodes give one by one.

Integers are divided in 32 bits where an index is taken apart: Numba widens to 64, which
takes the device several times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import cuda, types
from numba.cuda import libdevice
from numba.cuda.extending import intrinsic

from seamline_cuda.device_functions import FUNCTIONS
from seamline_cuda.matrix_intrinsics import MATRIX_GLOBALS

__all__ = ["GLOBALS"]

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_F32, _F64 = ir.FloatType(), ir.DoubleType()


def _assembly(
    name: str, code: str, constraint: str, gives: Any, takes: tuple[Any, ...]
) -> Any:
    """Make an intrinsic of one line of PTX over registers."""
    result, arguments = _LLVM[gives], [_LLVM[kind] for kind in takes]

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(result, arguments)
        return builder.call(ir.InlineAsm(kind, code, constraint), values)

    signature = gives(*takes)
    scope: dict[str, Any] = {"signature": signature, "emit": emit}
    names = ", ".join(f"a{i}" for i in range(len(takes)))
    source = f"def {name}(typing, {names}):\n    return signature, emit\n"
    exec(source, scope)
    return intrinsic(scope[name])


_LLVM = {
    types.uint16: _I16,
    types.uint32: _I32,
    types.int32: _I32,
    types.int64: _I64,
    types.float32: _F32,
    types.float64: _F64,
}

half_to_float = _assembly(
    "half_to_float", "cvt.f32.f16 $0, $1;", "=f,h", types.float32, (types.uint16,)
)
float_to_half = _assembly(
    "float_to_half", "cvt.rn.f16.f32 $0, $1;", "=h,f", types.uint16, (types.float32,)
)
double_to_half = _assembly(
    "double_to_half", "cvt.rn.f16.f64 $0, $1;", "=h,d", types.uint16, (types.float64,)
)
bfloat_to_float = _assembly(
    "bfloat_to_float", "mov.b32 $0, {0, $1};", "=f,h", types.float32, (types.uint16,)
)
float_to_bfloat = _assembly(
    "float_to_bfloat", "cvt.rn.bf16.f32 $0, $1;", "=h,f", types.uint16, (types.float32,)
)
product = _assembly(
    "product", "mul.rn.f32 $0, $1, $2;", "=f,f,f", types.float32, (types.float32,) * 2
)
product64 = _assembly(
    "product64", "mul.rn.f64 $0, $1, $2;", "=d,d,d", types.float64, (types.float64,) * 2
)
quotient32 = _assembly(
    "quotient32", "div.u32 $0, $1, $2;", "=r,r,r", types.uint32, (types.uint32,) * 2
)
truncated32 = _assembly(
    "truncated32", "div.s32 $0, $1, $2;", "=r,r,r", types.int32, (types.int32,) * 2
)
truncated64 = _assembly(
    "truncated64", "div.s64 $0, $1, $2;", "=l,l,l", types.int64, (types.int64,) * 2
)


def _first_in(order: str) -> Any:
    """Make the emitter of the first of two in an order, or the first that is NaN."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        a, b = values
        kind = signature.return_type
        if isinstance(kind, types.Float):
            before = builder.fcmp_ordered(order, a, b)
            before = builder.or_(before, builder.fcmp_unordered("uno", a, a))
        elif kind.signed:
            before = builder.icmp_signed(order, a, b)
        else:
            before = builder.icmp_unsigned(order, a, b)
        return builder.select(before, a, b)

    return emit


_EMIT_LEAST, _EMIT_GREATEST = _first_in("<"), _first_in(">")


@intrinsic  # type: ignore[untyped-decorator]
def least(typing: Any, a: Any, b: Any) -> Any:
    """Give the smaller of two numbers of one type, or the first that is NaN."""
    return a(a, a), _EMIT_LEAST


@intrinsic  # type: ignore[untyped-decorator]
def greatest(typing: Any, a: Any, b: Any) -> Any:
    """Give the greater of two numbers of one type, or the first that is NaN."""
    return a(a, a), _EMIT_GREATEST


def _word(code: str, constraint: str, gives: Any, *more: Any) -> Any:
    """Make the emitter of an access to a word at a pointer and an index."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = builder.gep(values[0], [values[1]])
        given = [builder.ptrtoint(place, _I64), *values[2:]]
        kind = ir.FunctionType(gives, [_I64, *more])
        # Memory is clobbered: no other access may be moved across this one.
        found = ir.InlineAsm(kind, code, f"{constraint},~{{memory}}", side_effect=True)
        made = builder.call(found, given)
        return context.get_dummy_value() if more else made

    return emit


_EMIT_LOAD = _word("ld.acquire.sys.global.u32 $0, [$1];", "=r,l", _I32)
_EMIT_STORE = _word("st.release.sys.global.u32 [$0], $1;", "l,r", ir.VoidType(), _I32)


@intrinsic  # type: ignore[untyped-decorator]
def load_system(typing: Any, words: Any, index: Any) -> Any:
    """Read a word that the host writes, before anything that is read later."""
    return types.uint32(words, types.int64), _EMIT_LOAD


@intrinsic  # type: ignore[untyped-decorator]
def store_system(typing: Any, words: Any, index: Any, value: Any) -> Any:
    """Write a word that the host reads, after everything that was written before."""
    return types.void(words, types.int64, types.uint32), _EMIT_STORE


def _emit_nanoseconds(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    kind = ir.FunctionType(_I64, [])
    code = "mov.u64 $0, %globaltimer;"
    return builder.call(ir.InlineAsm(kind, code, "=l", side_effect=True), [])


@intrinsic  # type: ignore[untyped-decorator]
def nanoseconds(typing: Any) -> Any:
    """Read the device's clock."""
    return types.int64(), _emit_nanoseconds


@intrinsic  # type: ignore[untyped-decorator]
def four_at(typing: Any, pointer: Any, index: Any) -> Any:
    """
    Load four elements of 4 bytes, in one access of 16, from what no kernel writes meanwhile.

    The address must be a multiple of 16.
    """
    kind = pointer.dtype
    letter, form = ("f", "f32") if isinstance(kind, types.Float) else ("r", "u32")
    code = f"ld.global.nc.v4.{form} {{$0, $1, $2, $3}}, [$4];"
    constraint = ",".join([f"={letter}"] * 4 + ["l"])

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        at = context.cast(builder, values[1], signature.args[1], types.int64)
        address = builder.ptrtoint(builder.gep(values[0], [at]), _I64)
        four = ir.FunctionType(ir.LiteralStructType([_LLVM[kind]] * 4), [_I64])
        found = builder.call(ir.InlineAsm(four, code, constraint), [address])
        parts = [builder.extract_value(found, i) for i in range(4)]
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(kind, 4)(pointer, index), emit


def _moving(nbytes: int, code: str) -> Any:
    """Make the emitter of a copy between two addresses and an index of so many bytes."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        at = context.cast(builder, values[2], signature.args[2], types.int64)
        step = builder.mul(at, ir.Constant(_I64, nbytes))
        given = [builder.add(builder.ptrtoint(v, _I64), step) for v in values[:2]]
        kind = ir.FunctionType(ir.VoidType(), [_I64, _I64])
        found = ir.InlineAsm(kind, code, "l,l,~{memory}", side_effect=True)
        builder.call(found, given)
        return context.get_dummy_value()

    return emit


_EMIT_ONE = _moving(4, "{ .reg .b32 a; ld.global.b32 a, [$1]; st.global.b32 [$0], a; }")
_EMIT_FOUR = _moving(
    16,
    "{ .reg .b32 a, b, c, d; ld.global.v4.b32 {a, b, c, d}, [$1]; "
    "st.global.v4.b32 [$0], {a, b, c, d}; }",
)


@intrinsic  # type: ignore[untyped-decorator]
def move_one(typing: Any, target: Any, source: Any, index: Any) -> Any:
    """
    Copy one word between two arrays of words, which may be the host's.

    Written as text, since the compiler divides to find how often to unroll a loop of few.
    """
    return types.void(target, source, index), _EMIT_ONE


@intrinsic  # type: ignore[untyped-decorator]
def move_four(typing: Any, target: Any, source: Any, index: Any) -> Any:
    """
    Copy four words in one access of 16 bytes, those from four times ``index`` on.

    Both addresses must be multiples of 16; they may be the host's.
    """
    return types.void(target, source, index), _EMIT_FOUR


GLOBALS: dict[str, Any] = {
    "cuda": cuda,
    "libdevice": libdevice,
    "np": np,
    "half_to_float": half_to_float,
    "float_to_half": float_to_half,
    "double_to_half": double_to_half,
    "bfloat_to_float": bfloat_to_float,
    "float_to_bfloat": float_to_bfloat,
    "product": product,
    "product64": product64,
    "quotient32": quotient32,
    "truncated32": truncated32,
    "truncated64": truncated64,
    "least": least,
    "greatest": greatest,
    "load_system": load_system,
    "store_system": store_system,
    "nanoseconds": nanoseconds,
    "four_at": four_at,
    **MATRIX_GLOBALS,
    "move_four": move_four,
    "move_one": move_one,
    **FUNCTIONS,
}  #: what a kernel's text may name
