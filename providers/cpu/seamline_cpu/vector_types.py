"""LLVM's types of scalars and vectors, and what its intrinsics' names call them."""

from __future__ import annotations

from typing import Any

from seamline_cpu.ir import ir

__all__ = ["F16", "F32", "I8", "I16", "I32", "I64", "bits_of", "name_of", "vector"]

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()


def vector(element: Any, lanes: int) -> Any:
    """Give LLVM's type of a vector."""
    return ir.VectorType(element, lanes)


def bits_of(element: Any) -> int:
    """Give the bits of a scalar type."""
    return {F16: 16, F32: 32}.get(element) or int(element.width)


def name_of(kind: Any) -> str:
    """
    Give the abbreviation of a type.

    Examples
    --------
    >>> name_of(vector(F32, 16)), name_of(I8)
    ('v16f32', 'i8')
    """
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{name_of(kind.element)}"
    return f"f{bits_of(kind)}" if kind in (F16, F32) else f"i{bits_of(kind)}"
