"""Which instructions multiply bytes by bytes, and why; an option can force a variant."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs

from seamline.provider import Claim, NodeView, Refusal
from seamline_cpu.instruction_sets import INT8, Choice, choose

__all__ = ["OPERATORS", "OPTION", "explained", "group_of", "int8_choice", "variant_for"]

OPTION = "int8_variant"
_CONTRIB = "com.microsoft::"
#: Operators whose sums of bytes take the variant.
OPERATORS = frozenset(
    [
        "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul",
        f"{_CONTRIB}DynamicQuantizeMatMul", f"{_CONTRIB}MatMulIntegerToFloat",
        f"{_CONTRIB}QGemm", "seamline::ConvIntegerToFloat",
        "seamline::MatMulIntegerToFloat",
    ]
)  # fmt: skip
_DOTS = ("avx512vnni", "avxvnni")


@functools.cache
def int8_choice(forced: str | None) -> Choice:
    """
    Give the variant of 8-bit products.

    Raises
    ------
    ValueError
        The forced one cannot be used here; says why.
    """
    made = choose(INT8, forced)
    form = "bytes in fours" if group_of(made.variant) == 4 else "16-bit pairs"
    return Choice(made.variant, f"exact products of {form}; {made.because}")


def group_of(variant: str) -> int:
    """Give how many neighbours of the summed axis share a 32-bit word."""
    return 4 if variant in _DOTS else 2


def variant_for(options: Mapping[str, Any]) -> str:
    """Give the variant that a session's options lead to; a claim was checked before."""
    return int8_choice(_forced(options)).variant


def _forced(options: Mapping[str, Any]) -> str | None:
    return str(options.get(OPTION) or "") or None


def explained(
    answer: Claim | Refusal, node: NodeView, options: Mapping[str, Any]
) -> Claim | Refusal:
    """Name the variant in a claim, or refuse where the forced one is not there."""
    if isinstance(answer, Refusal) or node.node.qualified_op not in OPERATORS:
        return answer
    try:
        made = int8_choice(_forced(options))
    except ValueError as error:
        return Refusal(str(error), f"another value of {OPTION}, or none")
    because = "; ".join(filter(None, (answer.because, made.because)))
    return attrs.evolve(answer, variant=made.variant, because=because)
