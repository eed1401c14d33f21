"""Which variant multiplies by packed weights, and why; an option can force one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from seamline.provider import Claim, NodeView, Refusal
from seamline_cpu.instruction_sets import INT8, Choice, choose, lacking
from seamline_cpu.kernels.nbits_plans import said, said_of_bytes
from seamline_cpu.kernels.nbits_split import FROM_ROWS

__all__ = [
    "OPTION", "VARIANTS", "choice", "explained", "forced_by", "is_exact", "is_int8",
]  # fmt: skip

OPTION = "int4_variant"
VARIANTS = ("amx", *INT8)
_BFLOAT16 = (3, 4)  # levels that bfloat16 is accurate enough for
_FLOAT = (
    f"float32, which accuracy_level 0 to 2 ask for; from {FROM_ROWS} rows on, and for 15 and 16, "
    "as sums of bfloat16, exactly, where there is AMX, blocks are of whole steps of 32 and "
    "zero points are whole"
)
_SAID = {
    3: "bfloat16 for many rows where there is AMX, else float32, as accuracy_level 3 allows",
    4: "8-bit activations, for many rows bfloat16 where there is AMX, as accuracy_level 4 "
    "allows",
}
_FLOAT_PLAIN = "float32, which accuracy_level 0 to 2 ask for"
_SAID_PLAIN = {
    3: "float32, which accuracy_level 3 allows",
    4: "8-bit activations, as accuracy_level 4 allows",
}
#: Operators over packed weights, and whether many rows of theirs go through AMX tiles.
_OPERATORS = {
    "com.microsoft::MatMulNBits": True,
    "com.microsoft::QMoE": False,
    "com.microsoft::MatMulBnb4": False,
    "seamline::DequantizedMatMul": True,
}


def is_int8(level: int) -> bool:
    """Tell whether an ``accuracy_level`` lets activations be of 8 bits."""
    return level == 4


def forced_by(options: Mapping[str, Any]) -> str | None:
    """Give the variant that a provider's options name, or None for the best."""
    return str(options.get(OPTION) or "") or None


def is_exact(level: int) -> bool:
    """Tell whether an ``accuracy_level`` wants activations as they are."""
    return level not in _BFLOAT16


def choice(level: int, forced: str | None, *, tiles: bool = True) -> Choice:
    """
    Give the variant for a node; ``tiles`` says that the kernel has a form for AMX.

    Raises
    ------
    ValueError
        The forced one cannot be used here; says why.
    """
    named, aside = VARIANTS if tiles else INT8, ""
    if forced == "amx" and not tiles:
        if (reason := lacking("amx")) is not None:
            raise ValueError(f"variant 'amx' was asked for, but {reason}")
        forced, aside = None, "; amx is for MatMulNBits only"
    made = choose(named, forced)
    said_of, of_floats = (_SAID, _FLOAT) if tiles else (_SAID_PLAIN, _FLOAT_PLAIN)
    reason = said_of.get(level, of_floats)
    because = f"{reason}{aside}; {made.because}"
    how = ""
    if is_int8(level):
        # experts have tiles of their own
        how = said_of_bytes(made.variant) if tiles else ""
    elif is_exact(level) or made.variant != "amx":
        how = said(made.variant)
    return Choice(made.variant, "; ".join(filter(None, (because, how))))


def explained(
    answer: Claim | Refusal, node: NodeView, options: Mapping[str, Any]
) -> Claim | Refusal:
    """Name the variant in a claim, or refuse where the forced one is not there."""
    tiles = _OPERATORS.get(node.node.qualified_op)
    if isinstance(answer, Refusal) or tiles is None:
        return answer
    level = int(node.attributes.get("accuracy_level", 0))
    try:
        made = choice(level, forced_by(options), tiles=tiles)
    except ValueError as error:
        return Refusal(str(error), f"another value of {OPTION}, or none")
    return attrs.evolve(answer, variant=made.variant, because=made.because)
