"""
LayerNormalization written out node by node, as the one operator that it is.

``(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + e) * w + b`` over the last axis. Under an
opset that lacks the operator it is Seamline's own, with ONNX's meaning.
"""

from __future__ import annotations

import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewrites.patterns import Pattern, choice, search
from seamline.rewriting import OWN, Rewriting, Rules

__all__ = ["RULES", "mean_of", "over_last"]

_SINCE = 17


def mean_of(part: Pattern, axes: str) -> Pattern:
    """Match a mean, whose axes were an attribute until opset 18, and are an input since."""
    return choice(("ReduceMean", part), ("ReduceMean", part, axes))


_APART = ("Sub", "x", mean_of("x", "axes"))
_SQUARE = choice(("Pow", "d", 2.0), ("Mul", "d", "d"))
_ROOT = ("Sqrt", ("Add", mean_of(_SQUARE, "axes_2"), "e"))
_EVEN = choice(("Div", "d", _ROOT), ("Mul", "d", ("Reciprocal", _ROOT)))
_PATTERN = ("Add", ("Mul", _EVEN, "w"), "b")


def layer_normalization(work: Rewriting, node: ir.Node) -> bool:
    """Join a LayerNormalization that is written out."""
    if node.domain or (found := search(work, node, (_PATTERN,))) is None:
        return False
    apart = found.values["d"].producer()
    inner = search(work, apart, (_APART,)) if apart is not None else None
    if inner is None or inner.values["x"] not in apart.inputs[:1]:  # type: ignore[union-attr]
        return False
    x, epsilon = inner.values["x"], work.number(found.values["e"])
    kind, nodes = work.kind(x), (*found.nodes, *inner.nodes)
    w, b = found.values["w"], found.values["b"]
    if epsilon is None or kind is None or kind.shape is None or not kind.shape:
        return False
    width = kind.shape[-1]
    sizes = [work.shape(v) for v in (w, b)]
    if any(s != (width,) for s in sizes) or kind.dtype not in ("float32", "float64"):
        return False
    if not all(over_last(work, n, len(kind.shape)) for n in nodes):
        return False
    domain = "" if work.opset() >= _SINCE else OWN
    draft = Draft(work, "layer-normalization", nodes)
    given = {"axis": -1, "epsilon": float(epsilon)}
    made = draft.node("LayerNormalization", [x, w, b], kind, given, domain=domain)
    return draft.make("together they are LayerNormalization", (node.outputs[0], made))


def over_last(work: Rewriting, node: ir.Node, rank: int) -> bool:
    """Tell whether a mean is over the last axis alone, which stays; true of others."""
    if node.op_type != "ReduceMean":
        return True
    axes = work.attribute(node, "axes", None)
    if axes is None and len(node.inputs) > 1:
        known = work.constant(node.inputs[1])
        axes = None if known is None else tuple(known.ravel().tolist())
    kept = work.attribute(node, "keepdims", 1)
    return bool(kept) and axes is not None and tuple(axes) in ((-1,), (rank - 1,))


RULES: Rules = {"Add": (layer_normalization,)}
