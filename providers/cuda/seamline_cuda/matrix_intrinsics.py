"""
Products of small matrices by a warp's tensor cores, and what brings operands to them.

A warp holds a matrix in pieces: lane ``l`` has, of each 8 by 8 part, two neighbours of row
``l // 4``, from column ``l % 4 * 2`` on. Elements are of 16 bits, two of them in a word; sums
are float32. All lanes of a warp take part, or none.

What is copied to shared memory without going through registers has arrived once
``copies_awaited`` has returned; other threads see it after a barrier behind that.

These are instructions of compute capability 8.0 and later.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic

__all__ = ["MATRIX_GLOBALS"]

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_SHARED = 3  #: the compiler's number of shared memory
_FOUR = types.UniTuple(types.uint32, 4)
_SUMS = types.UniTuple(types.float32, 4)
_SHAPE = "mma.sync.aligned.m16n8k16.row.col.f32.{0}.{0}.f32"


def _unpacked(context: Any, builder: Any, kind: Any, found: Any) -> Any:
    parts = [builder.extract_value(found, i) for i in range(4)]
    return context.make_tuple(builder, kind, parts)


def _multiply(element: str) -> Any:
    """Make the emitter of a product of 16 by 16 and 16 by 8 elements, added to sums."""
    code = f"{_SHAPE.format(element)} {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, {{$10,$11,$12,$13}};"
    constraint = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
    kind = ir.FunctionType(ir.LiteralStructType([_F32] * 4), [_I32] * 6 + [_F32] * 4)

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        found = builder.call(ir.InlineAsm(kind, code, constraint), values)
        return _unpacked(context, builder, signature.return_type, found)

    return emit


_EMIT_HALVES, _EMIT_BFLOATS = _multiply("f16"), _multiply("bf16")
_FACTORS = (types.uint32,) * 6 + (types.float32,) * 4


@intrinsic  # type: ignore[untyped-decorator]
def multiplied_float16(
    typing: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any, c0: Any, c1: Any,
    c2: Any, c3: Any,
) -> Any:  # fmt: skip
    """Multiply float16: rows of ``a`` with columns of ``b``, added to ``c``."""
    return _SUMS(*_FACTORS), _EMIT_HALVES


@intrinsic  # type: ignore[untyped-decorator]
def multiplied_bfloat16(
    typing: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any, c0: Any, c1: Any,
    c2: Any, c3: Any,
) -> Any:  # fmt: skip
    """Multiply bfloat16: rows of ``a`` with columns of ``b``, added to ``c``."""
    return _SUMS(*_FACTORS), _EMIT_BFLOATS


def _shared_address(
    context: Any, builder: Any, kind: Any, array: Any, index: Any
) -> Any:
    """Give the 32-bit address of a word of shared memory."""
    data = context.make_array(kind)(context, builder, array).data
    place = builder.gep(data, [index])
    near = builder.addrspacecast(place, ir.PointerType(place.type.pointee, _SHARED))
    return builder.ptrtoint(near, _I32)


def _matrices(turned: bool) -> Any:
    """Make the emitter of a load of four 8 by 8 matrices, one row's address from each lane."""
    form = "trans." if turned else ""
    code = f"ldmatrix.sync.aligned.m8n8.x4.{form}shared.b16 {{$0,$1,$2,$3}}, [$4];"
    constraint = "=r,=r,=r,=r,r,~{memory}"
    kind = ir.FunctionType(ir.LiteralStructType([_I32] * 4), [_I32])

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        at = _shared_address(context, builder, signature.args[0], *values)
        load = ir.InlineAsm(kind, code, constraint, side_effect=True)
        found = builder.call(load, [at])
        return _unpacked(context, builder, signature.return_type, found)

    return emit


_EMIT_ROWS, _EMIT_TURNED = _matrices(turned=False), _matrices(turned=True)


@intrinsic  # type: ignore[untyped-decorator]
def matrices_at(typing: Any, words: Any, index: Any) -> Any:
    """
    Load four 8 by 8 matrices from shared memory.

    Lanes 0 to 7 give where the rows of the first one begin, the next lanes those of the
    others; each is a multiple of four words.
    """
    return _FOUR(words, types.int64), _EMIT_ROWS


@intrinsic  # type: ignore[untyped-decorator]
def turned_matrices_at(typing: Any, words: Any, index: Any) -> Any:
    """Load four 8 by 8 matrices as :func:`matrices_at` does, each of them transposed."""
    return _FOUR(words, types.int64), _EMIT_TURNED


def _emit_four(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    at = _shared_address(context, builder, signature.args[0], *values)
    kind = ir.FunctionType(ir.LiteralStructType([_F32] * 4), [_I32])
    code, constraint = (
        "ld.shared.v4.f32 {$0,$1,$2,$3}, [$4];",
        "=f,=f,=f,=f,r,~{memory}",
    )
    load = ir.InlineAsm(kind, code, constraint, side_effect=True)
    found = builder.call(load, [at])
    return _unpacked(context, builder, signature.return_type, found)


@intrinsic  # type: ignore[untyped-decorator]
def four_shared(typing: Any, floats: Any, index: Any) -> Any:
    """Load four floats of shared memory at once, from a multiple of four."""
    return _SUMS(floats, types.int64), _emit_four


def _emit_copy(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    words, to, source, at, nbytes = values
    near = _shared_address(context, builder, signature.args[0], words, to)
    far = builder.ptrtoint(builder.gep(source, [at]), _I64)
    kind = ir.FunctionType(ir.VoidType(), [_I32, _I64, _I32])
    code = "cp.async.cg.shared.global [$0], [$1], 16, $2;"
    copy = ir.InlineAsm(kind, code, "r,l,r,~{memory}", side_effect=True)
    builder.call(copy, [near, far, nbytes])
    return context.get_dummy_value()


@intrinsic  # type: ignore[untyped-decorator]
def copied_sixteen(
    typing: Any, words: Any, to: Any, source: Any, at: Any, nbytes: Any
) -> Any:
    """
    Begin to copy 16 bytes from memory to shared memory, zeros after the first ``nbytes``.

    Both places are multiples of 16 bytes; with 0 bytes nothing is read.
    """
    signature = types.void(words, types.int64, source, types.int64, types.int32)
    return signature, _emit_copy


def _emit_wait(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    kind = ir.FunctionType(ir.VoidType(), [])
    code = "cp.async.wait_all;"
    builder.call(ir.InlineAsm(kind, code, "~{memory}", side_effect=True), [])
    return context.get_dummy_value()


@intrinsic  # type: ignore[untyped-decorator]
def copies_awaited(typing: Any) -> Any:
    """Wait for every copy that this thread began."""
    return types.void(), _emit_wait


def _pair(element: str) -> Any:
    """Make the emitter of two floats rounded to one word, the first in its low half."""
    code = f"cvt.rn.{element}x2.f32 $0, $2, $1;"
    kind = ir.FunctionType(_I32, [_F32, _F32])

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.call(ir.InlineAsm(kind, code, "=r,f,f"), values)

    return emit


_EMIT_PAIR_HALF, _EMIT_PAIR_BFLOAT = _pair("f16"), _pair("bf16")


@intrinsic  # type: ignore[untyped-decorator]
def paired_float16(typing: Any, low: Any, high: Any) -> Any:
    """Round two numbers to float16, into one word."""
    return types.uint32(types.float32, types.float32), _EMIT_PAIR_HALF


@intrinsic  # type: ignore[untyped-decorator]
def paired_bfloat16(typing: Any, low: Any, high: Any) -> Any:
    """Round two numbers to bfloat16, into one word."""
    return types.uint32(types.float32, types.float32), _EMIT_PAIR_BFLOAT


MATRIX_GLOBALS: dict[str, Any] = {
    "multiplied_float16": multiplied_float16,
    "multiplied_bfloat16": multiplied_bfloat16,
    "matrices_at": matrices_at,
    "turned_matrices_at": turned_matrices_at,
    "four_shared": four_shared,
    "copied_sixteen": copied_sixteen,
    "copies_awaited": copies_awaited,
    "paired_float16": paired_float16,
    "paired_bfloat16": paired_bfloat16,
}  #: what a kernel's text may name
