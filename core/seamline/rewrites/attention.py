"""
Attention written out node by node, as the one operator that it is.

What is looked for is ``softmax(scale * Q @ K' + mask) @ V`` of four axes, with the factor
before or after the product, and a mask that is added or chosen by ``Where``. Around it
exporters cut a projection into heads by ``Reshape`` and ``Transpose``, and join heads by the
reverse; where all of that is there it goes too, since both operators take projections as
they come. What is made is onnxruntime's MultiHeadAttention where that says the same, for
other providers know it; else ONNX's Attention, under Seamline's domain where the model's
opset lacks it: its masks broadcast, and its heads may come first.

A ``Where`` that replaces a score becomes a mask that is added. That is the same only if
the number swallows any score: minus infinity, or of a size that leaves nothing of it in
a float32.

One thing differs: a query whose scores are all minus infinity gets zeros, as ONNX's text
asks of its operator, where the graph written out gives NaN. Exporters guard against that
NaN, and their guard is taken in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewrites.heads import Operand, joined_heads, operand_of, swapped
from seamline.rewrites.masks import Mask
from seamline.rewriting import CONTRIB, OWN, Rewriting, Rules
from seamline.tensors import TensorType

__all__ = ["RULES"]

_RULE = "attention"
_SINCE = 23


@attrs.frozen(eq=False)
class _Scores:
    """What a softmax is of: nodes, both sides of the product, the factor, the mask."""

    nodes: tuple[ir.Node, ...]
    q: ir.Value
    k: ir.Value
    scale: float = 1.0
    mask: Mask = attrs.field(factory=Mask)


def attention(work: Rewriting, node: ir.Node) -> bool:
    """Join attention that ends in the product of a softmax with values."""
    kind = work.kind(node.outputs[0])
    if node.domain or kind is None or kind.shape is None or len(kind.shape) != 4:
        return False
    if kind.dtype not in ("float32", "float16") or not _over_last(work, node):
        return False
    weights, guard = _guarded(work, node)
    product = _reader(weights)
    scores = _scores(work, node.inputs[0])
    if scores is None or product is None:
        return False
    q, k, v = (
        operand_of(work, scores.q),
        swapped(work, scores.k),
        operand_of(work, product.inputs[1]),
    )
    if k is None or not _same_heads(work, q, k, v, kind):
        return False
    nodes = (*scores.nodes, node, *guard, product)
    if (wrong := scores.mask.misfit(work, kind)) is not None:
        return work.leave(_RULE, node.name or "", wrong)
    return _make(work, scores, (q, k, v), nodes, kind)


def _reader(weights: ir.Value) -> ir.Node | None:
    """Give a product that multiplies weights with something."""
    for use in weights.uses():
        node = use.node
        if (node.domain, node.op_type) == ("", "MatMul") and node.inputs[0] is weights:
            return node
    return None


def _over_last(work: Rewriting, node: ir.Node) -> bool:
    axis = work.attribute(node, "axis", -1 if work.opset() >= 13 else 1)
    return bool(axis in (-1, 3))


def _guarded(work: Rewriting, node: ir.Node) -> tuple[ir.Value, tuple[ir.Node, ...]]:
    """Give the weights after ``Where(IsNaN(weights), 0, weights)`` if that is there."""
    value = node.outputs[0]
    readers = {use.node for use in value.uses()}
    if len(readers) != 2 or {n.op_type for n in readers} != {"IsNaN", "Where"}:
        return value, ()
    where, check = sorted(readers, key=lambda n: n.op_type == "IsNaN")
    given = list(where.inputs)
    if given[0] is not check.outputs[0] or given[2] is not value:
        return value, ()
    if work.number(given[1]) != 0:
        return value, ()
    return where.outputs[0], (check, where)


def _scores(work: Rewriting, value: ir.Value | None) -> _Scores | None:
    """Read what makes scores: a mask, then factors, then the product."""
    node = value.producer() if value is not None else None
    if node is None or node.domain:
        return None
    if node.op_type == "Add":
        for place in (0, 1):
            inner = _chosen(work, node.inputs[place])
            if inner is not None:
                mask = attrs.evolve(inner.mask, added=node.inputs[1 - place])
                return attrs.evolve(inner, nodes=(*inner.nodes, node), mask=mask)
    return _chosen(work, value)


def _chosen(work: Rewriting, value: ir.Value | None) -> _Scores | None:
    """Read scores that a number replaces where a condition says so, or all scores."""
    node = value.producer() if value is not None else None
    if node is not None and not node.domain and node.op_type == "Where":
        for place in (1, 2):
            filler = work.number(node.inputs[3 - place])
            inner = _product(work, node.inputs[place])
            cond = node.inputs[0]
            if inner is not None and filler is not None and cond is not None:
                mask = Mask(chosen=(cond, filler, place == 1))
                return attrs.evolve(inner, nodes=(*inner.nodes, node), mask=mask)
    return _product(work, value)


def _product(work: Rewriting, value: ir.Value | None) -> _Scores | None:
    value, factor, nodes = _unscaled(work, value, alone=False)
    node = value.producer() if value is not None else None
    if node is None or node.domain or node.op_type != "MatMul":
        return None
    q, of_q, before_q = _unscaled(work, node.inputs[0], alone=True)
    k, of_k, before_k = _unscaled(work, node.inputs[1], alone=True)
    if q is None or k is None:
        return None
    scale = factor * of_q * of_k
    if not math.isfinite(scale) or scale == 0:
        return None
    return _Scores((*before_q, *before_k, node, *nodes), q, k, scale)


def _unscaled(
    work: Rewriting, value: ir.Value | None, *, alone: bool
) -> tuple[ir.Value | None, float, tuple[ir.Node, ...]]:
    """Take constant factors off a value; ``alone``, only if nobody else reads it."""
    factor, nodes = 1.0, list[ir.Node]()
    while value is not None:
        node = value.producer()
        if node is None or node.domain or node.op_type not in ("Mul", "Div"):
            break
        if alone and work.only_reader(value) is None:
            break
        given = list(node.inputs)
        if node.op_type == "Mul" and work.number(given[0]) is not None:
            given.reverse()
        number = work.number(given[1])
        if number is None or number == 0:
            break
        factor *= number if node.op_type == "Mul" else 1 / number
        nodes.insert(0, node)
        value = given[0]
    return value, factor, tuple(nodes)


def _same_heads(
    work: Rewriting, q: Operand, k: Operand, v: Operand, kind: TensorType
) -> bool:
    """Tell whether batch, heads and keys are the same everywhere: nothing is broadcast."""
    shapes = [one.shape for one in (q, k, v)]
    if any(shape is None or None in shape for shape in shapes):
        return False
    (b, h, s, d), ks, vs = (shape for shape in shapes if shape is not None)
    kv, keys = ks[1], ks[2]
    if k.group != v.group or q.group != 1:
        return False
    if k.group > 1 and (not isinstance(kv, int) or kv * k.group != h):
        return False
    if k.group == 1 and kv != h:
        return False
    fit = ks == (b, kv, keys, d) and vs[:3] == (b, kv, keys)
    return fit and kind.shape == (b, h, s, keys)


def _make(
    work: Rewriting, scores: _Scores, operands: Sequence[Operand],
    nodes: tuple[ir.Node, ...], kind: TensorType,
) -> bool:  # fmt: skip
    """Draft the operators that say the same, the one that peers know first."""
    product = nodes[-1]
    q, k, v = operands
    heads = q.heads
    end = joined_heads(work, product.outputs[0], q, v)
    flat = end is not None and all(one.flat is not None for one in operands)
    made = False
    if flat and end is not None and heads is not None:
        whole = (*nodes, *end.nodes, *q.cut, *k.cut, *v.cut)
        values = [one.flat for one in operands]
        made = _peers(work, scores, values, whole, end.value, heads, kind) or _ours(
            work, scores, values, whole, end.value, heads, kind
        )
    else:
        whole = (*nodes, *k.turned, *k.repeated, *v.repeated)
        made = _ours(
            work, scores, [q.value, k, v.value], whole, product.outputs[0], 0, kind
        )
    if made:
        work.left.pop((_RULE, whole[0].name or ""), None)
    return made


def _peers(
    work: Rewriting, scores: _Scores, values: Sequence[ir.Value | None],
    nodes: tuple[ir.Node, ...], out: ir.Value, heads: int, kind: TensorType,
) -> bool:  # fmt: skip
    """Make MultiHeadAttention, whose bias has all of the rows."""
    shape, whole = scores.mask.shape(work), kind.shape or ()
    masked = scores.mask.is_there
    if masked and (shape is None or len(shape) != 4 or shape[2:] != whole[2:]):
        return False
    draft = Draft(work, _RULE, nodes)
    given: list[ir.Value | None] = [*values]
    if masked:
        given += [None, None, scores.mask.drafted(draft, kind)]
    attributes = {"num_heads": heads, "scale": float(scores.scale)}
    made = draft.node(
        "MultiHeadAttention", given, work.kind(out), attributes, domain=CONTRIB
    )
    return draft.make("together they are MultiHeadAttention", (out, made))


def _ours(
    work: Rewriting, scores: _Scores, values: Sequence[ir.Value | Operand | None],
    nodes: tuple[ir.Node, ...], out: ir.Value, heads: int, kind: TensorType,
) -> bool:  # fmt: skip
    """Make ONNX's Attention, of three axes where ``heads`` are given, else of four."""
    draft = Draft(work, _RULE, nodes)
    given = [
        one.heads_first(draft) if isinstance(one, Operand) else one for one in values
    ]
    if (mask := scores.mask.drafted(draft, kind)) is not None:
        given.append(mask)
    attributes: dict[str, int | float] = {"scale": float(scores.scale)}
    if heads:
        attributes |= {"q_num_heads": heads, "kv_num_heads": heads}
    domain = "" if work.opset() >= _SINCE else OWN
    made = draft.node("Attention", given, work.kind(out), attributes, domain=domain)
    return draft.make("together they are Attention", (out, made))


RULES: Rules = {"Softmax": (attention,)}
