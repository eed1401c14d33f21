"""Which variant multiplies by packed weights, and why; an option can force one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from seamline.provider import Claim, NodeView, Refusal
from seamline_cpu.instruction_sets import INT8, Choice, choose, lacking
from seamline_cpu.kernels.nbits_plans import said

__all__ = ["OPTION", "VARIANTS", "choice", "explained", "forced_by", "is_int8"]

OPTION = "int4_variant"
VARIANTS = ("amx", *INT8)
_BFLOAT16 = (3, 4)  # levels that bfloat16 is accurate enough for
_FLOAT = "float32, which accuracy_level 0 to 2 ask for"
_SAID = {
    3: "bfloat16 for many rows where there is AMX, else float32, as accuracy_level 3 allows",
    4: "8-bit activations, for many rows bfloat16 where there is AMX, as accuracy_level 4 "
    "allows",
}
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
    named = VARIANTS if level in _BFLOAT16 else INT8
    aside = ""
    if forced == "amx" and level not in _BFLOAT16:
        if (reason := lacking("amx")) is not None:
            raise ValueError(f"variant 'amx' was asked for, but {reason}")
        forced, aside = None, "; amx is for accuracy_level 3 and 4 only"
    made = choose(named, forced)
    because = f"{_SAID.get(level, _FLOAT)}{aside}; {made.because}"
    if not is_int8(level) and made.variant != "amx":
        because = f"{because}; {said(made.variant)}"
    return Choice(made.variant, because)


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
