"""The rules of graph optimization, by level and in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Iterable

from seamline.rewrites import (
    activations,
    attention,
    cleanup,
    convolutions,
    dequantized,
    epilogues,
    integers,
    normalizations,
    products,
    projections,
    quantized,
    quantized_attention,
    quantized_products,
    rotary,
    skips,
)
from seamline.rewriting import Rule, Rules

__all__ = ["BASIC", "EXTENDED"]


def _together(*tables: Rules) -> Rules:
    """Join tables; rules of one operator keep their order."""
    joined: dict[str, list[Rule]] = {}
    for table in tables:
        for op_type, rules in table.items():
            joined.setdefault(op_type, []).extend(_each(rules))
    return joined


def _each(rules: Iterable[Rule]) -> Iterable[Rule]:
    return rules


BASIC: Rules = _together(cleanup.RULES, convolutions.RULES)
#: In stages: bytes stay bytes where they can; patterns become operators before these are
#: fused into what comes first.
EXTENDED: tuple[Rules, ...] = (
    _together(quantized.RULES, quantized_attention.RULES),
    _together(quantized_products.RULES, dequantized.RULES),
    _together(
        attention.RULES,
        rotary.RULES,
        activations.RULES,
        normalizations.RULES,
        skips.WRITTEN_OUT,
    ),
    _together(epilogues.RULES, products.RULES, integers.RULES, skips.RULES),
    projections.RULES,
)
