"""
Codes of 4 bits that stand for the values of a table, and how registers look them up.

``e2m1``
    OCP's FP4, of which MXFP4 makes blocks: sign, two bits of exponent, one of mantissa
    (https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf).
``nf4``, ``fp4``
    bitsandbytes' types (Dettmers et al., https://arxiv.org/abs/2305.14314, appendix E; and
    its FP4, whose magnitudes are twelfths, with 1/192 for the least).

One instruction looks sixteen lanes up in sixteen floats with AVX-512; AVX2's finds eight
in eight, and ignores the high bits of an index, so the other half of a table is a second
look, or for tables whose halves differ in sign alone, the code's high bit moved to the
float's. Elsewhere four levels of selection do.
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.ir import ir
from seamline_cpu.kernels.nbits_layout import Form
from seamline_cpu.vectors import F32, I8, I32, Vectors, vector

__all__ = ["CODEBOOKS", "WHOLE", "doubled", "factor_of", "looked_up"]

_TWELFTHS = (0.0, 1 / 192, 8 / 12, 1.0, 4 / 12, 6 / 12, 2 / 12, 3 / 12)
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: What the sixteen codes of a type stand for.
CODEBOOKS: dict[str, tuple[float, ...]] = {
    "e2m1": (*_E2M1, *(-x for x in _E2M1)),
    "fp4": (*_TWELFTHS, *(-x for x in _TWELFTHS)),
    "nf4": (
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ),
}  # fmt: skip
#: Tables whose values are whole numbers when they are doubled, and what then makes all of them
#: positive, so that bytes can be multiplied.
WHOLE = {"e2m1": 12}


def factor_of(form: Form) -> int:
    """Give what the sum of a step's activations is multiplied by: less the zero point, or -1."""
    if form.zero in WHOLE:
        return -WHOLE[form.zero]
    return -(1 << (form.bits - 1)) if form.zero == "middle" else -1


def looked_up(v: Vectors, name: str, index: Any) -> Any:
    """
    Emit the values of codes.

    Parameters
    ----------
    index
        int32 lanes, one register; the code in the lowest four bits, anything above.
    """
    table = CODEBOOKS[name]
    kind = vector(F32, index.type.count)
    if v.variant == "portable":
        return _selected(v, table, index)
    if v.lanes == 16:
        every = ir.Constant(kind, list(table))
        return v.call("llvm.x86.avx512.permvar.sf.512", kind, every, index)
    low = _of_eight(v, kind, table[:8], index)
    high_bit = v.builder.shl(index, v.constant(index.type, 28))
    if all(a == -b for a, b in zip(table[:8], table[8:], strict=True)):
        sign = v.builder.and_(high_bit, v.constant(index.type, -(1 << 31)))
        bits = v.builder.xor(v.builder.bitcast(low, index.type), sign)
        return v.builder.bitcast(bits, kind)
    high = _of_eight(v, kind, table[8:], index)
    negative = v.builder.icmp_signed("<", high_bit, v.constant(index.type, 0))
    return v.builder.select(negative, high, low)


def _of_eight(v: Vectors, kind: Any, table: tuple[float, ...], index: Any) -> Any:
    every = ir.Constant(kind, list(table))
    return v.call("llvm.x86.avx2.permps", kind, every, index)


def _selected(v: Vectors, table: tuple[float, ...], index: Any) -> Any:
    """Halve the table by each bit of the code, the highest last."""
    kind = vector(F32, index.type.count)
    values = [v.constant(kind, x) for x in table]
    for bit in range(4):
        masked = v.builder.and_(index, v.constant(vector(I32, kind.count), 1 << bit))
        is_set = v.builder.icmp_signed("!=", masked, v.constant(masked.type, 0))
        values = [
            v.builder.select(is_set, odd, even)
            for even, odd in zip(values[::2], values[1::2], strict=True)
        ]
    return values[0]


def doubled(v: Vectors, name: str, codes: Any) -> Any:
    """
    Emit twice the values of codes, moved to be positive, as bytes in int32 lanes.

    Parameters
    ----------
    codes
        int32 lanes, one register of bytes; in each a code, and nothing above it.
    """
    index = v.cast(codes, I8)
    table = [int(2 * x) + WHOLE[name] for x in CODEBOOKS[name]]
    if v.variant == "portable":
        return v.cast(_moved(v, index, WHOLE[name]), I32)
    # The instruction looks up within 16 bytes, in each part of a register.
    bits = "512" if v.lanes == 16 else ""
    intrinsic = f"llvm.x86.avx512.pshuf.b.{bits}" if bits else "llvm.x86.avx2.pshuf.b"
    every = ir.Constant(index.type, table * (index.type.count // 16))
    return v.cast(v.call(intrinsic, index.type, every, index), I32)


def _moved(v: Vectors, codes: Any, middle: int) -> Any:
    """Double E2M1 by its exponent: 0, 1, 2, 3, then in steps of 1, 2 and 4."""
    b, kind = v.builder, codes.type

    def constant(value: int) -> Any:
        return v.constant(kind, value)

    low = b.and_(codes, constant(7))
    beyond_4, beyond_6 = (
        b.select(
            b.icmp_unsigned(">", low, constant(n)), b.sub(low, constant(n)), constant(0)
        )
        for n in (4, 6)
    )
    twice = b.add(low, b.add(beyond_4, b.add(beyond_6, beyond_6)))
    negative = b.icmp_unsigned(">", codes, constant(7))
    return b.select(
        negative, b.sub(constant(middle), twice), b.add(constant(middle), twice)
    )
