"""
Packed weights to tiles of bfloat16, a table lookup for each weight.

A row of weights has one scale for a step of K, so all that its codes can stand for are the
``2 ** bits`` multiples of one number: they are made once, rounded, and each code then picks
one of them, thirty-two at a time (``vpermw``). That is half the arithmetic of multiplying
every weight by its scale. It wants one row of weights in a register, where the layout has one
word of sixteen rows; so steps are turned first, in a loop of its own: loads from what was
just stored would be taken for shuffles by LLVM.

A row's codes are looked up as words of 16 bits, each shifted so that one of its codes is
lowest; the table repeats, so that bits above the code do not matter. K is therefore in
another order within a tile, :func:`order_of`, in which activations are packed as well.
"""

from __future__ import annotations

from typing import Any

import attrs

from seamline_cpu.amx import TILE
from seamline_cpu.ir import ir, types
from seamline_cpu.jit import native
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_tiles import load_scales
from seamline_cpu.vectors import F32, I8, I16, I32, I64, Vectors, vector

__all__ = ["DEEP", "PAIR", "emit_turned", "emit_unpacked", "order_of", "picked", "turned_nbytes",
           "turner", "unpacker"]  # fmt: skip

DEEP = 32  #: of K in a tile
PAIR = 2 * TILE  #: bytes of two groups' tiles, which lie together
_LINE = TILE // GROUP  # bytes of a row of a tile
_FLOATS = 4 * GROUP


def order_of(bits: int, step: int) -> list[int]:
    """Give which of the K of a tile lies at each of its places."""
    each, words = 16 // bits, step * bits // 16
    one = [each * word + place for place in range(each) for word in range(words)]
    return [start + k for start in range(0, DEEP, step) for k in one]


def turned_nbytes(form: Form) -> int:
    """Give the bytes of a turned step: rows of codes, their scales, their zero points."""
    return GROUP * form.step * form.bits // 8 + 2 * _FLOATS


def turner(variant: str, form: Form) -> Any:
    """
    Make the intrinsic that turns steps of a group.

    Its arguments are int64: the first record, a record's bytes, where in it the scales are,
    the first step, how many, steps in a block, and where to.
    """
    bits, depth, half, zero = form.bits, form.step, form.half, form.zero

    def turn(
        context: Any, w: Any, record: Any, after: Any, first: Any, count: Any, steps: Any,
        out: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            emit_turned(v, Form(bits, depth, half, zero), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    return native(turn)


def emit_turned(v: Vectors, form: Form, args: Any) -> None:
    """Emit the code of :func:`turner`'s intrinsic, from its arguments."""
    w, record, after, first, count, steps, out = args
    b = v.builder
    nbytes, words = turned_nbytes(form), vector(I32, GROUP)
    begin = v.add(w, b.mul(b.sdiv(first, steps), record))

    def step(i: Any, carried: list[Any]) -> list[Any]:
        start, inside = carried
        codes = v.add(start, v.times(inside, 4 * GROUP * form.words))
        to = v.add(out, v.times(i, nbytes))
        raw = [v.load(words, v.add(codes, 64 * k), 4) for k in range(form.words)]
        for k, line in enumerate(_turned(v, raw)):
            v.store(line, v.add(to, 64 * k), 4)
        floats = v.add(to, 64 * form.words)
        scales = v.add(start, after)
        v.store(load_scales(v, form.half, scales, GROUP), floats, 4)
        if form.zero != "middle":
            zeros = _zeros(v, form, v.add(scales, form.scale_nbytes))
            v.store(zeros, v.add(floats, _FLOATS), 4)
        # Counted on, as a division takes as long as half a step.
        more = v.add(inside, 1)
        over = b.icmp_signed("==", more, steps)
        return [
            b.select(over, b.add(start, record), start),
            b.select(over, v.constant(I64, 0), more),
        ]

    v.loop(count, [begin, b.srem(first, steps)], step)


def _turned(v: Vectors, words: list[Any]) -> list[Any]:
    """Turn registers of one word of each row to rows of words, one after the other."""
    if len(words) == 1:
        return words
    made = []
    for a, b in zip(_turned(v, words[::2]), _turned(v, words[1::2]), strict=True):
        for low in (0, GROUP // 2):
            lanes = [k for i in range(low, low + GROUP // 2) for k in (i, GROUP + i)]
            made.append(v.shuffle(a, lanes, b))
    return made


def _zeros(v: Vectors, form: Form, place: Any) -> Any:
    if form.zero == "floats":
        return load_scales(v, form.half, place, GROUP)
    raw = v.builder.zext(v.load(vector(I8, GROUP), place), vector(I32, GROUP))
    return v.builder.sitofp(raw, vector(F32, GROUP))


def unpacker(variant: str, form: Form) -> Any:
    """
    Make the intrinsic that writes turned steps as tiles, :data:`PAIR` apart.

    Its arguments are int64: the first turned step, how many, where to, and what memory is
    asked for meanwhile: from where, and bytes for each step. A step takes about as long as
    its share of that.
    """
    bits, depth, half, zero = form.bits, form.step, form.half, form.zero

    def unpack(
        context: Any, turned: Any, count: Any, out: Any, after: Any, each: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            emit_unpacked(v, Form(bits, depth, half, zero), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return native(unpack)


@attrs.frozen
class _Row:
    """A row's codes as words, and its scale and zero point (None for the middle code)."""

    codes: Any
    scale: Any
    zero: Any


def emit_unpacked(v: Vectors, form: Form, args: Any) -> None:
    """Emit the code of :func:`unpacker`'s intrinsic, from its arguments."""
    turned, count, out, after, apart = args
    b, nbytes, in_tile = v.builder, turned_nbytes(form), DEEP // form.step
    width, words = form.step * form.bits // 8, vector(I16, form.step * form.bits // 16)
    each = 16 // form.bits
    shifts = [form.bits * k for k in range(each) for _ in range(words.count)]

    def step(i: Any, _: list[Any]) -> list[Any]:
        start = v.add(turned, v.times(i, nbytes))
        tile = v.times(b.sdiv(i, v.constant(I64, in_tile)), PAIR)
        place = v.times(b.srem(i, v.constant(I64, in_tile)), _LINE // in_tile)
        for line in range(form.words + 1):
            v.prefetch(v.add(after, b.mul(i, apart), 64 * line))
        to, floats = v.add(out, tile, place), v.add(start, 64 * form.words)
        for row in range(GROUP):
            raw = v.load(words, v.add(start, width * row), 2)
            wide = v.shuffle(raw, list(range(words.count)) * each)
            codes = b.lshr(wide, ir.Constant(wide.type, shifts))
            at = v.add(floats, 4 * row)
            zero = None if form.zero == "middle" else v.load(F32, v.add(at, _FLOATS), 4)
            made = _weights(v, form, _Row(codes, v.load(F32, at, 4), zero))
            v.store(made, v.add(to, _LINE * row), 2)
        return []

    v.loop(count, [], step)


def _weights(v: Vectors, form: Form, row: _Row) -> Any:
    """Give a row's weights as bfloat16, half up in magnitude."""
    b = v.builder
    if form.bits == 8:
        low = b.and_(row.codes, v.constant(row.codes.type, 0xFF))
        wide = vector(F32, form.step)
        codes = b.sitofp(b.zext(low, vector(I32, form.step)), wide)
        bits = _scaled(v, form, codes, row)
        high = b.lshr(bits, v.constant(bits.type, 16))
        return b.trunc(high, vector(I16, form.step))
    codes = ir.Constant(
        vector(F32, GROUP), [float(k % (1 << form.bits)) for k in range(GROUP)]
    )
    # The upper halves of the sums, over and over: lane k is of code k mod 16.
    halves = v.cast(_scaled(v, form, codes, row), I16)
    table = v.shuffle(halves, [2 * (k % GROUP) + 1 for k in range(form.step)])
    return picked(v, table, row.codes)


def _scaled(v: Vectors, form: Form, codes: Any, row: _Row) -> Any:
    """Give codes as weights: bits of which the upper sixteen are rounded."""
    b, lanes = v.builder, codes.type.count
    middle = v.constant(codes.type, float(1 << (form.bits - 1)))
    zero = middle if row.zero is None else v.splat(row.zero, lanes)
    made = b.fmul(b.fsub(codes, zero), v.splat(row.scale, lanes))
    words = vector(I32, lanes)
    return b.add(b.bitcast(made, words), v.constant(words, 0x8000))


def picked(v: Vectors, table: Any, index: Any) -> Any:
    """Give the lanes of a table that the low bits of an index's lanes name."""
    kind, lanes = table.type, table.type.count
    if v.lanes == 16:
        return v.call(f"llvm.x86.avx512.permvar.hi.{16 * lanes}", kind, table, index)
    b, made = v.builder, ir.Constant(kind, ir.Undefined)
    low = b.and_(index, v.constant(kind, lanes - 1))
    for lane in range(lanes):
        number = ir.Constant(I32, lane)
        place = b.zext(b.extract_element(low, number), I32)
        made = b.insert_element(made, b.extract_element(table, place), number)
    return made
