"""Which variant multiplies by packed weights, and why; an option can force one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from seamline.provider import Claim, NodeView, Refusal
from seamline_cpu.instruction_sets import INT8, Choice, choose

__all__ = ["OPTION", "VARIANTS", "choice", "explained", "forced_by", "is_int8"]

OPTION = "int4_variant"
VARIANTS = INT8
_OPERATOR = "com.microsoft::MatMulNBits"


def is_int8(level: int) -> bool:
    """Tell whether an ``accuracy_level`` lets activations be of 8 bits."""
    return level == 4


def forced_by(options: Mapping[str, Any]) -> str | None:
    """Give the variant that a provider's options name, or None for the best."""
    return str(options.get(OPTION) or "") or None


def choice(level: int, forced: str | None) -> Choice:
    """
    Give the variant for a node.

    Raises
    ------
    ValueError
        The forced one cannot be used here; says why.
    """
    made = choose(VARIANTS, forced)
    if is_int8(level):
        what = "accuracy_level 4 allows activations of 8 bits"
    else:
        what = f"accuracy_level {level} asks for float32"
    kind = "int8" if is_int8(level) else "float32"
    return Choice(made.variant, f"{kind}: {what}; {made.because}")


def explained(
    answer: Claim | Refusal, node: NodeView, options: Mapping[str, Any]
) -> Claim | Refusal:
    """Name the variant in a claim, or refuse where the forced one is not there."""
    if isinstance(answer, Refusal) or node.node.qualified_op != _OPERATOR:
        return answer
    level = int(node.attributes.get("accuracy_level", 0))
    try:
        made = choice(level, forced_by(options))
    except ValueError as error:
        return Refusal(str(error), f"another value of {OPTION}, or none")
    return attrs.evolve(answer, variant=made.variant, because=made.because)
