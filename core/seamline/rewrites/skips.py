"""
Root-mean-square normalization written out, and sums that are normalized next.

``x / sqrt(mean(x ** 2) + e) * w`` is RMSNormalization, or by onnxruntime's older name, which
stands in ONNX's own domain, SimplifiedLayerNormalization. A sum of two values of one shape
before either normalization is onnxruntime's skip form, which gives the sum too.

A sum stays where it is if one of its terms is a product with a constant matrix that can
take the other in as its residual: the product adds it while its block is in the cache, and
the skip form would read both again.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewrites.epilogues import alike
from seamline.rewrites.normalizations import mean_of, over_last
from seamline.rewrites.patterns import choice, search
from seamline.rewriting import CONTRIB, OWN, Rewriting, Rules

__all__ = ["RULES", "WRITTEN_OUT"]

_SINCE = 23
_SQUARE = choice(("Pow", "x", 2.0), ("Mul", "x", "x"))
_ROOT = ("Sqrt", ("Add", mean_of(_SQUARE, "axes"), "e"))
_EVEN = choice(
    ("Div", "x", _ROOT),
    ("Mul", "x", ("Reciprocal", _ROOT)),
    ("Mul", "x", ("Div", 1.0, _ROOT)),
)
_APART = ("Sub", "x", mean_of("x", "axes"))
_PATTERN = ("Mul", _EVEN, "w")
_NORMALIZATIONS = {
    ("", "LayerNormalization"): "SkipLayerNormalization",
    (OWN, "LayerNormalization"): "SkipLayerNormalization",
    ("", "RMSNormalization"): "SkipSimplifiedLayerNormalization",
    ("", "SimplifiedLayerNormalization"): "SkipSimplifiedLayerNormalization",
}


def rms_normalization(work: Rewriting, node: ir.Node) -> bool:
    """Join an RMSNormalization that is written out."""
    if node.domain or (found := search(work, node, (_PATTERN,))) is None:
        return False
    x, w = found.values["x"], found.values["w"]
    kind, epsilon = work.kind(x), work.number(found.values["e"])
    apart = x.producer()
    if apart is not None and search(work, apart, (_APART,)) is not None:
        return False  # of what a mean was taken off: that is LayerNormalization
    if epsilon is None or kind is None or not kind.shape or kind.dtype != "float32":
        return False
    same = work.kind(w)
    if same is None or same.shape != kind.shape[-1:] or same.dtype != kind.dtype:
        return False
    if not all(over_last(work, n, len(kind.shape)) for n in found.nodes):
        return False
    op_type = (
        "RMSNormalization" if work.opset() >= _SINCE else "SimplifiedLayerNormalization"
    )
    draft = Draft(work, "rms-normalization", found.nodes)
    given = {"axis": -1, "epsilon": float(epsilon)}
    made = draft.node(op_type, [x, w], kind, given)
    return draft.make(f"together they are {op_type}", (node.outputs[0], made))


def skip_normalization(work: Rewriting, node: ir.Node) -> bool:
    """Take a sum into the normalization of it."""
    op_type = _NORMALIZATIONS.get((node.domain, node.op_type))
    total = node.inputs[0] if node.inputs else None
    kind = work.kind(total)
    if op_type is None or total is None or kind is None or kind.shape is None:
        return False
    if len([v for v in node.outputs if v.name]) != 1 or kind.dtype != "float32":
        return False
    if len(kind.shape) not in (2, 3) or work.attribute(node, "axis", -1) not in (
        -1,
        len(kind.shape) - 1,
    ):
        return False
    add = total.producer()
    if add is None or add.domain or add.op_type != "Add" or None in add.inputs:
        return False
    terms = list(add.inputs)
    if not all(alike(work.kind(term), kind) for term in terms):
        return False
    if any(work.shape(w) != kind.shape[-1:] for w in node.inputs[1:] if w is not None):
        return False
    if any(_takes_in(work, term) for term in terms):
        return False
    return _make(work, node, add, terms, op_type)


def _takes_in(work: Rewriting, value: ir.Value | None) -> bool:
    """Tell whether a value is a product that adds a residual itself, or will be."""
    for _ in range(3):
        node = value.producer() if value is not None else None
        if node is None:
            return False
        if node.op_type in ("MatMul", "Gemm", "FusedMatMul", "Conv", "FusedConv"):
            right = node.inputs[1] if len(node.inputs) > 1 else None
            return right is not None and work.is_static(right)
        if node.op_type != "Add" or node.domain:
            return False
        constant = [v for v in node.inputs if v is not None and work.is_static(v)]
        others = [v for v in node.inputs if v not in constant]
        if len(others) != 1:
            return False
        value = others[0]
    return False


def _make(
    work: Rewriting, node: ir.Node, add: ir.Node, terms: Sequence[ir.Value | None], op_type: str
) -> bool:  # fmt: skip
    total, out = add.outputs[0], node.outputs[0]
    kind = work.kind(out)
    asked = total.is_graph_output() or work.only_reader(total) is None
    default = 1e-5
    given = {"epsilon": float(work.attribute(node, "epsilon", default))}
    draft = Draft(work, "skip-normalization", (add, node))
    made = draft.node(
        op_type, [*terms, *node.inputs[1:]], kind, given, domain=CONTRIB,
        outputs=4 if asked else 1, absent=(1, 2),
    )  # fmt: skip
    pairs = [(out, made)]
    if asked:
        producer = made.producer()
        assert producer is not None
        pairs.append((total, producer.outputs[3]))
    return draft.make("the sum is made while the row is in the cache", *pairs)


#: Of operators written out; the sums before them are taken in only after that.
WRITTEN_OUT: Rules = {"Mul": (rms_normalization,)}
RULES: Rules = {
    **{op_type: (skip_normalization,) for _, op_type in _NORMALIZATIONS},
}
