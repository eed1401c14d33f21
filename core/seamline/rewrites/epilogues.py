"""
What follows a convolution becomes part of it: a residual that is added, an activation.

onnxruntime's FusedConv has both, and some activations; with others it is Seamline's own,
of the same form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewriting import CONTRIB, OWN, Rewriting, Rules
from seamline.tensors import TensorType

__all__ = ["ACTIVATIONS", "RULES", "alike", "attributes_of", "numbers_of"]

_THEIRS = frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid"})
#: Activations that a fused operator may have, and the attributes that are their numbers.
ACTIVATIONS: dict[tuple[str, str], tuple[tuple[str, float], ...]] = {
    ("", "Relu"): (),
    ("", "Sigmoid"): (),
    ("", "Tanh"): (),
    ("", "LeakyRelu"): (("alpha", 0.01),),
    ("", "HardSigmoid"): (("alpha", 0.2), ("beta", 0.5)),
    ("", "HardSwish"): (),
    (OWN, "HardSwish"): (),
    (CONTRIB, "Gelu"): (),
    (CONTRIB, "FastGelu"): (),
    (CONTRIB, "QuickGelu"): (("alpha", 1.702),),
}


def numbers_of(work: Rewriting, node: ir.Node) -> tuple[float, ...] | None:
    """Give the numbers of an activation; None if the node is none, or they are not known."""
    if len([v for v in node.outputs if v.name]) != 1:
        return None
    if node.op_type == "Clip" and not node.domain:
        return _bounds(work, node)
    wanted = ACTIVATIONS.get((node.domain, node.op_type))
    if wanted is None or len([v for v in node.inputs if v is not None]) != 1:
        return None
    return tuple([float(work.attribute(node, *one)) for one in wanted])


def _bounds(work: Rewriting, node: ir.Node) -> tuple[float, float] | None:
    given = [*node.inputs[1:3], None, None][:2]
    bounds: list[float] = []
    for value, name, default in zip(
        given, ("min", "max"), (-math.inf, math.inf), strict=True
    ):
        found = work.attribute(node, name, default)
        if value is not None:
            found = work.number(value)
        if found is None or math.isnan(found):
            return None
        bounds.append(float(found))
    return bounds[0], bounds[1]


def _is_conv(node: ir.Node | None) -> bool:
    if node is None:
        return False
    return (node.domain, node.op_type) in (
        ("", "Conv"), (CONTRIB, "FusedConv"), (OWN, "FusedConv"),
    )  # fmt: skip


def _conv_of(work: Rewriting, value: ir.Value | None) -> ir.Node | None:
    """Give the float32 convolution that makes a value read by one node alone."""
    node = value.producer() if value is not None else None
    if value is None or node is None or not _is_conv(node):
        return None
    kind = work.kind(value)
    if kind is None or kind.dtype != "float32" or "activation" in node.attributes:
        return None
    return node if work.only_reader(value) is not None else None


def activation(work: Rewriting, node: ir.Node) -> bool:
    """Fuse an activation into the convolution before it."""
    conv = _conv_of(work, node.inputs[0] if node.inputs else None)
    if conv is None or (numbers := numbers_of(work, node)) is None:
        return False
    draft = Draft(work, "convolution-activation", (conv, node))
    given = attributes_of(node, numbers)
    domain = CONTRIB if node.op_type in _THEIRS else OWN
    made = _fused(draft, conv, conv.inputs, node.outputs[0], domain, given)
    return draft.make(
        f"{node.op_type} of each block while it is in the cache",
        (node.outputs[0], made),
    )


def residual(work: Rewriting, node: ir.Node) -> bool:
    """Fuse the addition of a value of the same shape into the convolution before it."""
    if node.domain or len(node.inputs) != 2:
        return False
    for place in (1, 0):
        conv, more = _conv_of(work, node.inputs[place]), node.inputs[1 - place]
        if conv is None or more is None or len(conv.inputs) > 3:
            continue
        kinds = [work.kind(node.inputs[0]), work.kind(node.inputs[1])]
        if not alike(*kinds) or more in conv.outputs:
            continue
        inputs = [*conv.inputs, *[None] * (3 - len(conv.inputs)), more]
        draft = Draft(work, "convolution-residual", (conv, node))
        made = _fused(draft, conv, inputs, node.outputs[0], CONTRIB, {})
        return draft.make(
            "the sum is made while it is in the cache", (node.outputs[0], made)
        )
    return False


def alike(one: TensorType | None, other: TensorType | None) -> bool:
    """Tell whether two types are one, with no size left open: no broadcast hides there."""
    if one is None or one.shape is None or None in one.shape:
        return False
    return one == other


def attributes_of(node: ir.Node, numbers: Sequence[float]) -> dict[str, ir.Attr]:
    """Give the attributes by which a fused node states an activation."""
    given: dict[str, ir.Attr] = {
        "activation": ir.AttrString("activation", node.op_type)
    }
    if numbers:
        given["activation_params"] = ir.AttrFloat32s("activation_params", list(numbers))
    return given


def _fused(
    draft: Draft,
    conv: ir.Node,
    inputs: Sequence[ir.Value | None],
    out: ir.Value,
    domain: str,
    more: Mapping[str, ir.Attr],
) -> ir.Value:
    attributes = {**conv.attributes, **more}
    return draft.node(
        "FusedConv", inputs, draft.work.kind(out), attributes, domain=domain
    )


_AFTER = (activation,)
RULES: Rules = {
    **{op_type: _AFTER for _, op_type in ACTIVATIONS},
    "Clip": _AFTER,
    "Add": (residual,),
    "Sum": (residual,),
}
