"""
Attention whose queries, keys and values are projected from one input: one product for all.

Three products of the same rows with small matrices keep a device less busy than one with
the matrices side by side, and the parts of its result are read where they lie. What is made
is Seamline's own ProjectedAttention, for onnxruntime's Attention has no mask that broadcasts
over rows. A provider that gains nothing by it does not claim it, which needs no mention.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewriting import CONTRIB, OWN, Rewriting, Rules
from seamline.tensors import TensorType

__all__ = ["RULES"]

_RULE = "projected-attention"
_KEPT = ("scale", "is_causal", "softcap", "left_window_size", "right_window_size")
_ATTENTIONS = (("", "Attention"), (OWN, "Attention"))


@attrs.frozen(eq=False)
class _Projection:
    """A product with a constant matrix, stored turned or not, and its bias."""

    nodes: tuple[ir.Node, ...]
    x: ir.Value
    weights: ir.Value
    width: int
    bias: ir.Value | None = None
    turned: bool = False


def projections(work: Rewriting, node: ir.Node) -> bool:
    """Take the projections of an attention into it."""
    form = _form(work, node)
    if form is None or any(value.name for value in node.outputs[1:]):
        return False
    given, mask, attributes = form
    found = [_projection(work, value) for value in given]
    parts = [part for part in found if part is not None]
    if len(parts) < 3 or len({part.x for part in parts}) > 1:
        return False
    if len({part.bias is None for part in parts}) > 1:
        return False
    return _make(work, node, parts, mask, attributes)


def _form(
    work: Rewriting, node: ir.Node
) -> tuple[Sequence[ir.Value | None], ir.Value | None, dict[str, ir.Attr]] | None:
    """Give queries, keys and values, the mask, and attributes, of three axes."""
    inputs = [*node.inputs, *[None] * 7][:7]
    kind = work.kind(inputs[0])
    if kind is None or kind.shape is None or len(kind.shape) != 3:
        return None
    names: tuple[str, ...]
    if (node.domain, node.op_type) in _ATTENTIONS:
        if any(value is not None for value in inputs[4:]):
            return None
        names, mask = (*_KEPT, "q_num_heads", "kv_num_heads"), inputs[3]
    elif (node.domain, node.op_type) == (CONTRIB, "MultiHeadAttention"):
        if any(value is not None for value in (*inputs[3:5], inputs[6])):
            return None
        names, mask = ("scale",), inputs[5]
    else:
        return None
    if set(node.attributes) - {*names, "num_heads", "qk_matmul_output_mode"}:
        return None
    kept = {name: node.attributes[name] for name in names if name in node.attributes}
    if "num_heads" in node.attributes:
        heads = int(work.attribute(node, "num_heads", 0))
        for name in ("q_num_heads", "kv_num_heads"):
            kept[name] = ir.AttrInt64(name, heads)
    return inputs[:3], mask, kept


def _projection(work: Rewriting, value: ir.Value | None) -> _Projection | None:
    """Read a product that nobody else reads, with its bias."""
    if value is None or work.only_reader(value) is None:
        return None
    node = value.producer()
    if node is None:
        return None
    if (node.domain, node.op_type) == ("", "Add"):
        return _biased(work, node)
    own = (node.domain, node.op_type) == (OWN, "FusedMatMul")
    if not own and (node.domain, node.op_type) != ("", "MatMul"):
        return None
    x, weights, bias, more = [*node.inputs, None, None][:4]
    shape = work.shape(weights)
    if x is None or weights is None or shape is None or len(shape) != 2:
        return None
    if (
        more is not None
        or "activation" in node.attributes
        or not work.is_static(weights)
    ):
        return None
    if bias is not None and not work.is_static(bias):
        return None
    turned = bool(work.attribute(node, "transB", 0))
    width = shape[0 if turned else 1]
    if not isinstance(width, int):
        return None
    return _Projection((node,), x, weights, width, bias, turned)


def _biased(work: Rewriting, node: ir.Node) -> _Projection | None:
    for place in (0, 1):
        bias, found = node.inputs[place], _projection(work, node.inputs[1 - place])
        if bias is None or found is None or found.bias is not None:
            continue
        if work.is_static(bias) and work.shape(bias) == (found.width,):
            return attrs.evolve(found, nodes=(*found.nodes, node), bias=bias)
    return None


def _make(
    work: Rewriting, node: ir.Node, parts: Sequence[_Projection], mask: ir.Value | None,
    attributes: dict[str, ir.Attr],
) -> bool:  # fmt: skip
    kind, out = work.kind(parts[0].x), node.outputs[0]
    depth = work.shape(parts[0].weights)
    if kind is None or depth is None:
        return False
    rows, whole = depth[parts[0].turned], sum(part.width for part in parts)
    draft = Draft(work, _RULE, (*(n for part in parts for n in part.nodes), node))
    beside = []
    for part in parts:
        turn = TensorType(kind.dtype, (rows, part.width))
        value = part.weights
        if part.turned:
            value = draft.node(
                "Transpose", [value], turn, {"perm": [1, 0]}, hint="turned"
            )
        beside.append(value)
    weights = draft.node(
        "Concat",
        beside,
        TensorType(kind.dtype, (rows, whole)),
        {"axis": 1},
        hint="weights",
    )
    bias = None
    if parts[0].bias is not None:
        bias = draft.node(
            "Concat", [part.bias for part in parts], TensorType(kind.dtype, (whole,)),
            {"axis": 0}, hint="bias",
        )  # fmt: skip
    sizes = {"qkv_hidden_sizes": [part.width for part in parts]}
    made = draft.node(
        "ProjectedAttention", [parts[0].x, weights, bias, mask], work.kind(out),
        attributes | sizes, domain=OWN,
    )  # fmt: skip
    return draft.make(
        "queries, keys and values are one product", (out, made), optional=True
    )


RULES: Rules = {"Attention": (projections,), "MultiHeadAttention": (projections,)}
