"""
Activations that exporters write out node by node, as the one operator that they are.

An operator that the model's opset does not have yet is made under Seamline's own domain,
with ONNX's meaning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewrites.patterns import Pattern, choice, clipped, scaled, search
from seamline.rewriting import CONTRIB, OWN, Rewriting, Rule, Rules

__all__ = ["RULES"]

_WIDE = ("float32", "float64")  # numbers in halves are not told apart from their likes
_X = "x"


def _product(*parts: Pattern) -> Pattern:
    """Match a product of three, in any order of multiplication."""
    a, b, c = parts
    return choice(*[("Mul", one, ("Mul", two, three)) for one, two, three in
                    ((a, b, c), (b, a, c), (c, a, b))])  # fmt: skip


_ERF = ("Add", ("Erf", scaled(_X, math.sqrt(0.5))), 1.0)
#: x (1 + erf(x / sqrt 2)) / 2
_GELU = (
    _product(_X, _ERF, 0.5),
    ("Mul", scaled(_X, 0.5), _ERF),
    ("Mul", _X, scaled(_ERF, 0.5)),
    scaled(("Mul", _X, _ERF), 0.5),
)
_CUBE = choice(
    ("Pow", _X, 3.0), ("Mul", _X, ("Mul", _X, _X)), ("Mul", ("Mul", _X, _X), _X)
)
_INNER = choice(
    ("Add", _X, ("Mul", _CUBE, 0.044715)),
    ("Mul", _X, ("Add", ("Mul", ("Mul", _X, _X), 0.044715), 1.0)),
)
_TANH = ("Add", ("Tanh", scaled(_INNER, math.sqrt(2 / math.pi))), 1.0)
#: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3))) / 2
_FAST_GELU = (
    _product(_X, _TANH, 0.5),
    ("Mul", scaled(_X, 0.5), _TANH),
    ("Mul", _X, scaled(_TANH, 0.5)),
    scaled(("Mul", _X, _TANH), 0.5),
)
_CLIP = clipped(("Add", _X, 3.0), 0.0, 6.0)
#: x min(6, max(0, x + 3)) / 6
_HARD_SWISH = (
    scaled(("Mul", _X, _CLIP), 1 / 6),
    ("Mul", _X, scaled(_CLIP, 1 / 6)),
    ("Mul", scaled(_X, 1 / 6), _CLIP),
)
_SWISH = (("Mul", _X, ("Sigmoid", _X)),)


@attrs.frozen
class _Activation:
    """An operator, and the ways in which it is written out."""

    rule: str
    op_type: str
    domain: str
    patterns: tuple[Pattern, ...]
    attributes: Mapping[str, Any] = attrs.field(factory=dict)
    since: int = 0  #: opset that has it, where the domain is ONNX's own

    def __call__(self, work: Rewriting, node: ir.Node) -> bool:
        found = None if node.domain else search(work, node, self.patterns)
        if found is None:
            return False
        x, out = found.values[_X], node.outputs[0]
        kind = work.kind(x)
        if kind is None or kind.dtype not in _WIDE:
            return False
        own = not self.domain and work.opset() < self.since
        draft = Draft(work, self.rule, found.nodes)
        made = draft.node(
            self.op_type, [x], kind, self.attributes, domain=OWN if own else self.domain
        )
        return draft.make(f"together they are {self.op_type}", (out, made))


def hard_swish_of_sigmoid(work: Rewriting, node: ir.Node) -> bool:
    """Join ``x HardSigmoid(x)``, of the slope 1/6 that HardSwish has."""
    found = search(work, node, (("Mul", _X, ("HardSigmoid", _X)),))
    if found is None:
        return False
    inner = next(n for n in found.nodes if n.op_type == "HardSigmoid")
    slope, middle = (
        work.attribute(inner, "alpha", 0.2),
        work.attribute(inner, "beta", 0.5),
    )
    # Exporters write 0.1666667 and even 0.16667: the value is kept, and not rounded to 1/6.
    if abs(slope - 1 / 6) > 1e-7 or middle != 0.5:
        return False
    x, domain = found.values[_X], "" if work.opset() >= 14 else OWN
    draft = Draft(work, "hard-swish", found.nodes)
    made = draft.node("HardSwish", [x], work.kind(x), domain=domain)
    return draft.make("together they are HardSwish", (node.outputs[0], made))


_GELUS: tuple[Rule, ...] = (
    _Activation("gelu", "Gelu", CONTRIB, _GELU),
    _Activation("fast-gelu", "FastGelu", CONTRIB, _FAST_GELU),
)
_SWISHES: tuple[Rule, ...] = (
    _Activation("hard-swish", "HardSwish", "", _HARD_SWISH, since=14),
    _Activation("swish", "QuickGelu", CONTRIB, _SWISH, {"alpha": 1.0}),
)
RULES: Rules = {
    "Mul": (*_GELUS, *_SWISHES, hard_swish_of_sigmoid),
    "Div": (*_GELUS, *_SWISHES[:1]),
}
