"""
Vector code that ends a tile of integer sums: scaled to float32, or rounded to bytes.

Rows of a stripe are ``COLUMNS`` int32, so loops over one row would be shorter than what
LLVM's vectoriser takes at once. Bytes are rounded in float32, as onnxruntime does.
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.integer_tiles import VARIANT
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.tiles import COLUMNS, LANES
from seamline_cpu.vectors import F32, I8, I32, Vectors, vector

__all__ = ["round_stripe", "scale_stripe"]

_WIDTH = 4 * LANES
_WORDS, _FLOATS = vector(I32, LANES), vector(F32, LANES)


def _halves(v: Vectors, kind: Any, place: Any) -> list[Any]:
    return [v.load(kind, v.add(place, half * _WIDTH)) for half in range(2)]


@native
def scale_stripe(context: Any, stripe: Any, rows: Any, factors: Any, bias: Any) -> Any:
    """
    Replace ``rows`` rows of ``COLUMNS`` int32 by ``sum * factors + bias``, float32.

    Arguments are addresses, of rows of ``COLUMNS`` floats the last two, and a count.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        stripe, rows, factors, bias = args
        v = Vectors(builder, VARIANT.variant)
        by, added = (_halves(v, _FLOATS, place) for place in (factors, bias))

        def body(index: Any, carried: list[Any]) -> list[Any]:
            line = v.add(stripe, v.times(index, 4 * COLUMNS))
            for half, total in enumerate(_halves(v, _WORDS, line)):
                scaled = builder.fmul(builder.sitofp(total, _FLOATS), by[half])
                made = builder.fadd(scaled, added[half])
                v.store(made, v.add(line, half * _WIDTH), 4)
            return []

        v.loop(rows, [], body)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@native
def round_stripe(
    context: Any, stripe: Any, rows: Any, factors: Any, bias: Any, zero: Any, low: Any,
    high: Any, out: Any, pitch: Any,
) -> Any:  # fmt: skip
    """
    Write ``rows`` rows of ``COLUMNS`` bytes, ``round((sum + bias) * factors) + zero``.

    A half goes to the even neighbour; what lies beyond ``low`` and ``high``, float32 as
    ``zero``, becomes these, and NaN ``low``. ``bias`` is int32. ``out`` may be ``stripe``
    where ``pitch``, the bytes between rows of it, is ``COLUMNS``.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        stripe, rows, factors, bias, zero, low, high, out, pitch = args
        v, b = Vectors(builder, VARIANT.variant), builder
        by = _halves(v, _FLOATS, factors)
        added = _halves(v, _WORDS, bias)
        middle, least, most = (v.splat(x, LANES) for x in (zero, low, high))

        def body(index: Any, carried: list[Any]) -> list[Any]:
            line = v.add(stripe, v.times(index, 4 * COLUMNS))
            to = v.add(out, b.mul(index, pitch))
            # Both halves are read before bytes are written over them.
            totals = _halves(v, _WORDS, line)
            for half, total in enumerate(totals):
                sums = b.sitofp(b.add(total, added[half]), _FLOATS)
                real = b.fmul(sums, by[half])
                x = b.fadd(v.call(f"llvm.rint.v{LANES}f32", _FLOATS, real), middle)
                x = b.select(b.fcmp_ordered(">", x, least), x, least)
                x = b.select(b.fcmp_ordered("<", x, most), x, most)
                made = b.trunc(b.fptosi(x, _WORDS), vector(I8, LANES))
                v.store(made, v.add(to, half * LANES))
            return []

        v.loop(rows, [], body)
        return context.get_dummy_value()

    i64, f32 = types.int64, types.float32
    return types.void(i64, i64, i64, i64, f32, f32, f32, i64, i64), generate
