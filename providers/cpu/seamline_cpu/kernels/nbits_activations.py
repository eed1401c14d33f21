"""
Rows of activations as the kernels over packed weights read them.

Float types of 16 bits become float32 on the way. For kernels over floats a row is copied,
zero past K. For 8-bit ones each step of K is quantised by itself, as ONNX Runtime does at
accuracy level 4 for blocks of that size: ``q = round(x * 127 / most)``, half to even, where
``most`` is the greatest magnitude, so that codes lie within [-127, 127]. A NaN makes the
step's scale NaN, and with it the row's results. The kernel wants the codes of a word plane
by plane, and the sum of a step's codes times what its zero points are multiples of.
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.vectors import F16, F32, I8, I16, I32, I64, Vectors, vector

__all__ = [
    "as_16_bits",
    "load_floats",
    "narrower",
    "quantiser",
    "upper_bfloat16",
    "widener",
]

_ROUND = (
    12582912.0  # 1.5 * 2**23: added, it leaves the nearest whole number in the low bits
)
_LEAST = 0x3014EAB  # 3.8e-37: 127 divided by a little less is infinite


def load_floats(
    v: Vectors, kind: str, address: Any, lanes: int, count: Any = None
) -> Any:
    """Load activations as float32; the first ``count`` and zeros, or all."""
    if kind == "float32":
        wide = vector(F32, lanes)
        return (
            v.load(wide, address, 4)
            if count is None
            else v.load_part(wide, address, count)
        )
    narrow = vector(I16, lanes)
    raw = (
        v.load(narrow, address, 2)
        if count is None
        else v.load_part(narrow, address, count)
    )
    if kind == "float16":
        return v.builder.fpext(
            v.builder.bitcast(raw, vector(F16, lanes)), vector(F32, lanes)
        )
    words = v.builder.zext(raw, vector(I32, lanes))
    return v.builder.bitcast(
        v.builder.shl(words, v.constant(words.type, 16)), vector(F32, lanes)
    )


def quantiser(variant: str, kind: str, step: int, planes: int) -> Any:
    """
    Make the intrinsic that quantises steps of one row.

    Its arguments are int64: the first value, how many there are from there on, codes,
    scales, sums, steps, what sums are multiplied by, and the bytes from one step's codes and
    from its scale and sum to the next one's. A step past the last value is zero.
    """

    def quantise(
        context: Any, x: Any, count: Any, q: Any, scale: Any, total: Any, steps: Any,
        factor: Any, q_apart: Any, s_apart: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _emit(Vectors(builder, variant), kind, step, planes, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 9), generate

    return native(quantise)


def _emit(v: Vectors, kind: str, step: int, planes: int, args: Any) -> None:
    x, count, q, scale, total, steps, factor, q_apart, s_apart = args
    b, size = v.builder, 4 if kind == "float32" else 2
    times = b.trunc(factor, I32)
    whole = b.sdiv(_at_least_0(v, count), v.constant(I64, step))

    def one(i: Any, *, part: bool) -> list[Any]:
        start = v.add(x, v.times(i, step * size))
        left = b.sub(count, v.times(i, step)) if part else None
        values = load_floats(v, kind, start, step, left)
        codes, factor, added = _codes(v, values)
        place = b.mul(i, s_apart)
        v.store(factor, v.add(scale, place), 4)
        v.store(b.mul(added, times), v.add(total, place), 4)
        order = [
            4 * planes * word + planes * i + plane
            for word in range(step // (4 * planes))
            for plane in range(planes)
            for i in range(4)
        ]
        narrow = b.trunc(codes, vector(I8, step))
        v.store(v.shuffle(narrow, order), v.add(q, b.mul(i, q_apart)), 4)
        return []

    least = b.select(b.icmp_signed("<", whole, steps), whole, steps)
    v.loop(least, [], lambda i, _: one(i, part=False))
    rest = b.sub(steps, least)
    v.loop(rest, [], lambda i, _: one(b.add(i, least), part=True))


def _codes(v: Vectors, values: Any) -> tuple[Any, Any, Any]:
    """Give a step's codes as int32, its scale, and the codes' sum."""
    b, lanes = v.builder, values.type.count
    words = vector(I32, lanes)
    # Magnitudes order like the integers of their bits, NaN last.
    bits = b.and_(b.bitcast(values, words), v.constant(words, 0x7FFFFFFF))
    most = v.call(f"llvm.vector.reduce.smax.v{lanes}i32", I32, bits)
    more = b.icmp_signed(">", most, v.constant(I32, _LEAST))
    magnitude = b.bitcast(b.select(more, most, v.constant(I32, _LEAST)), F32)
    scale = b.fmul(magnitude, v.constant(F32, 1 / 127))
    inverse = b.fdiv(v.constant(F32, 127.0), magnitude)
    moved = v.multiply_add(
        values, v.splat(inverse, lanes), v.constant(values.type, _ROUND)
    )
    offset = v.constant(words, 0x4B400000)
    codes = b.sub(b.bitcast(moved, words), offset)
    return codes, scale, v.call(f"llvm.vector.reduce.add.v{lanes}i32", I32, codes)


def widener(variant: str, kind: str) -> Any:
    """
    Make the intrinsic that writes a row as float32.

    Its arguments are int64: the first value, how many there are, where to, and how many
    groups of 16 to write there, with zeros past the values.
    """

    def widen(context: Any, x: Any, count: Any, out: Any, groups: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            x, count, out, groups = args
            size = 4 if kind == "float32" else 2
            whole = builder.sdiv(_at_least_0(v, count), v.constant(I64, 16))

            def one(i: Any, *, part: bool) -> list[Any]:
                start = v.add(x, v.times(i, 16 * size))
                left = builder.sub(count, v.times(i, 16)) if part else None
                v.store(
                    load_floats(v, kind, start, 16, left), v.add(out, v.times(i, 64)), 4
                )
                return []

            v.loop(whole, [], lambda i, _: one(i, part=False))
            rest = builder.sub(groups, whole)
            v.loop(rest, [], lambda i, _: one(builder.add(i, whole), part=True))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), generate

    return native(widen)


def narrower(variant: str, kind: str) -> Any:
    """
    Make the intrinsic that writes float32 as ``float16`` or ``bfloat16``, half to even.

    Its arguments are int64: the first value, how many there are, and where to.
    """

    def narrow(context: Any, x: Any, count: Any, out: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            x, count, out = args
            whole = builder.sdiv(count, v.constant(I64, 16))

            def one(i: Any, *, part: bool) -> list[Any]:
                start, target = v.add(x, v.times(i, 64)), v.add(out, v.times(i, 32))
                left = builder.sub(count, v.times(i, 16)) if part else None
                made = as_16_bits(v, kind, load_floats(v, "float32", start, 16, left))
                if part:
                    v.store_part(made, target, left)
                else:
                    v.store(made, target, 2)
                return []

            v.loop(whole, [], lambda i, _: one(i, part=False))
            rest = builder.srem(count, v.constant(I64, 16))
            some = builder.zext(builder.icmp_signed(">", rest, v.constant(I64, 0)), I64)
            v.loop(some, [], lambda i, _: one(builder.add(i, whole), part=True))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), generate

    return native(narrow)


def as_16_bits(v: Vectors, kind: str, values: Any) -> Any:
    """Round float32 to the bits of ``float16`` or ``bfloat16``, half to even."""
    b, lanes = v.builder, values.type.count
    halves, words = vector(I16, lanes), vector(I32, lanes)
    if kind == "float16":
        return b.bitcast(b.fptrunc(values, vector(F16, lanes)), halves)
    bits = upper_bfloat16(v, values)
    return b.trunc(b.lshr(bits, v.constant(words, 16)), halves)


def upper_bfloat16(v: Vectors, values: Any) -> Any:
    """Round float32 to bfloat16, half to even, in the upper half of each word."""
    b, words = v.builder, vector(I32, values.type.count)
    bits = b.bitcast(values, words)
    odd = b.and_(b.lshr(bits, v.constant(words, 16)), v.constant(words, 1))
    rounded = b.add(b.add(bits, v.constant(words, 0x7FFF)), odd)
    # A NaN of all ones would become zero by rounding.
    is_nan = b.fcmp_unordered("uno", values, values)
    quiet = b.or_(bits, v.constant(words, 0x400000))
    return b.select(is_nan, quiet, rounded)


def _at_least_0(v: Vectors, count: Any) -> Any:
    zero = v.constant(I64, 0)
    return v.builder.select(v.builder.icmp_signed(">", count, zero), count, zero)
