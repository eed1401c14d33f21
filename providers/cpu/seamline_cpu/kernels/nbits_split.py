"""
Floats as sums of bfloat16 values, and codes as bfloat16: operands of exact tile products.

A float32 has 24 bits of significand, a bfloat16 eight: so three of them, each the upper half
of what the ones before it left, add up to it exactly, and two to a float16. A code minus a
whole zero point has eight bits at most. Products of the two are exact in float32, in which
AMX adds them up: what its tiles give is what float32 arithmetic gives, at several times the
rate of vectors. Scales stay out of it, for what they multiply would have to be rounded; a
block's sums are scaled in float32 (:mod:`.nbits_split_tile`).

AMX takes what is below 2**-126 for zero, so of values below 2**-102 the last parts are lost.

Activations are the first operand, rows as they lie; weights the second, in which the two
values of a pair of K lie side by side for each of sixteen rows of weights. A register of the
packed layout holds a word of each of these: shifted, it has a code lowest in either half, and
the pair is picked from a table of all values, whose bits above the code do not matter. K is
therefore in another order, :func:`order_of`, in both operands.
"""

from __future__ import annotations

import struct
from typing import Any

from seamline_cpu.amx import TILE
from seamline_cpu.ir import ir, types
from seamline_cpu.jit import native
from seamline_cpu.kernels.nbits_activations import load_floats
from seamline_cpu.kernels.nbits_amx_unpack import DEEP, picked
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_tiles import AHEAD, load_scales
from seamline_cpu.vectors import F32, I8, I16, I32, I64, Vectors, vector

__all__ = ["FROM_ROWS", "LINE", "PARTS", "emit_codes", "emit_split", "order_of", "splits", "splitter",
           "tabler"]  # fmt: skip

FROM_ROWS = 24  #: from which these products pay, over those of vectors
_FULL = 15  # rows that fill one tile well enough to pay as well
#: Values of bfloat16 that add up to one of each type.
PARTS = {"float32": 3, "float16": 2, "bfloat16": 1}
LINE = TILE // GROUP  #: bytes of a tile's row, and of a block's scales
_UPPER, _QUIET = 0xFFFF0000, 0x400000


def splits(form: Form) -> bool:
    """Tell whether weights of a form are whole numbers times scales, in steps of a tile."""
    return form.step == DEEP and form.zero in ("middle", "bytes")


def pays(rows: int) -> bool:
    """Tell whether so many rows are multiplied more quickly so than by vectors."""
    return rows >= FROM_ROWS or _FULL <= rows <= GROUP


def order_of(bits: int) -> list[int]:
    """Give which of the K of a tile lies at each of its places."""
    each = 32 // bits
    return [
        each * word + place + half
        for word in range(DEEP // each)
        for place in range(each // 2)
        for half in (0, each // 2)
    ]


def splitter(variant: str, kind: str, bits: int) -> Any:
    """
    Make the intrinsic that splits 16 rows by 32 of K into a tile for each part.

    Its arguments are int64: the first value, the bytes between rows, how many rows there
    are, how many of K, and where to. Past those of K is zero.
    """

    def split(context: Any, x: Any, pitch: Any, rows: Any, count: Any, out: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            emit_split(Vectors(builder, variant), kind, order_of(bits), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return native(split)


def emit_split(v: Vectors, kind: str, order: list[int], args: Any) -> None:
    """Emit the code of :func:`splitter`'s intrinsic, from its arguments."""
    x, pitch, rows, count, out = args
    b, size = v.builder, 4 if kind == "float32" else 2
    upper, least = [2 * k + 1 for k in order], v.constant(I64, 1)

    def row(i: Any, carried: list[Any]) -> list[Any]:
        (start,) = carried
        halves = [
            _parts(v, load_floats(v, kind, v.add(start, at * size), GROUP, v.add(count, -at)),
                   PARTS[kind])
            for at in range(0, DEEP, GROUP)
        ]  # fmt: skip
        to = v.add(out, v.times(i, LINE))
        for part, (low, high) in enumerate(zip(*halves, strict=True)):
            made = v.shuffle(v.cast(low, I16), upper, v.cast(high, I16))
            v.store(made, v.add(to, TILE * part), 4)
        # The last row again for those past it: nobody reads their products.
        there = b.icmp_signed(">", rows, b.add(i, least))
        return [b.select(there, b.add(start, pitch), start)]

    v.loop(v.constant(I64, GROUP), [x], row)


def _parts(v: Vectors, values: Any, count: int) -> list[Any]:
    """Give words whose upper halves are the parts of values, the largest first."""
    b, words = v.builder, vector(I32, values.type.count)
    made: list[Any] = []
    for _ in range(count):
        # The upper half of a NaN could be that of infinity; what infinity leaves is NaN.
        is_nan = b.fcmp_unordered("uno", values, values)
        bits = b.bitcast(values, words)
        if made:
            bits = b.select(is_nan, v.constant(words, 0), bits)
            values = b.bitcast(bits, values.type)
        else:
            bits = b.select(is_nan, b.or_(bits, v.constant(words, _QUIET)), bits)
        high = b.and_(bits, v.constant(words, _UPPER))
        made.append(high)
        values = b.fsub(values, b.bitcast(high, values.type))
    return made


def tabler(variant: str, form: Form) -> Any:
    """
    Make the intrinsic that writes a group's blocks as scales and tiles of codes.

    Its arguments are int64: the first record, a record's bytes, where in it the scales are,
    blocks, steps in a block, and where to: for each block its 16 scales, then its tiles.
    """
    bits, depth, half, zero = form.bits, form.step, form.half, form.zero

    def write(
        context: Any, w: Any, record: Any, after: Any, blocks: Any, steps: Any, out: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            emit_codes(v, Form(bits, depth, half, zero), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return native(write)


def emit_codes(v: Vectors, form: Form, args: Any) -> None:
    """Emit the code of :func:`tabler`'s intrinsic, from its arguments."""
    w, record, after, blocks, steps, out = args
    b, each = v.builder, 32 // form.bits
    words = vector(I32, GROUP)
    size = v.add(v.times(steps, TILE), LINE)

    def block(i: Any, _: list[Any]) -> list[Any]:
        codes, to = v.add(w, b.mul(i, record)), v.add(out, b.mul(i, size))
        scales = v.add(codes, after)
        v.store(load_scales(v, form.half, scales, GROUP), to, 4)
        zero = _zeros(v, form, v.add(scales, form.scale_nbytes))

        def word(j: Any, _: list[Any]) -> list[Any]:
            place = v.add(codes, v.times(j, 4 * GROUP))
            line = v.add(to, LINE, v.times(j, LINE * each // 2))
            v.prefetch(v.add(place, AHEAD))
            raw = v.cast(v.load(words, place, 4), I16)
            for k in range(each // 2):
                v.store(_pair(v, form, raw, k, zero), v.add(line, LINE * k), 4)
            return []

        v.loop(v.times(steps, form.words), [], word)
        return []

    v.loop(blocks, [], block)


def _zeros(v: Vectors, form: Form, place: Any) -> Any:
    """Give zero points twice in each lane, or None where all are the middle code."""
    if form.zero == "middle":
        return None
    b, words = v.builder, vector(I32, GROUP)
    zero = b.zext(v.load(vector(I8, GROUP), place), words)
    return v.cast(b.or_(zero, b.shl(zero, v.constant(words, 16))), I16)


def _pair(v: Vectors, form: Form, raw: Any, number: int, zero: Any) -> Any:
    """Give code ``number`` of each half of a word, minus its zero point, as bfloat16."""
    b, kind, top = v.builder, raw.type, (1 << form.bits) - 1
    moved = b.lshr(raw, v.constant(kind, form.bits * number)) if number else raw
    middle = 1 << (form.bits - 1)
    if zero is None and form.bits < 8:
        return picked(v, _table(kind, top + 1, middle), moved)
    less = v.constant(kind, middle) if zero is None else zero
    code = b.sub(b.and_(moved, v.constant(kind, top)), less)
    if form.bits < 8:
        index = b.add(code, v.constant(kind, top))
        return picked(v, _table(kind, 2 * (top + 1), top), index)
    words = vector(I32, GROUP)
    code, sixteen = v.cast(code, I32), v.constant(words, 16)
    low, high = (
        b.bitcast(b.sitofp(b.ashr(part, sixteen), vector(F32, GROUP)), words)
        for part in (b.shl(code, sixteen), code)
    )
    return b.or_(b.lshr(low, sixteen), b.and_(high, v.constant(words, _UPPER)))


def _table(kind: Any, count: int, zero: int) -> Any:
    """Give bfloat16 of ``code - zero`` for ``count`` codes, over and over."""
    values = [float(code % count - zero) for code in range(kind.count)]
    bits = [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]
    return ir.Constant(kind, bits)
