"""
What follows a product with a constant matrix becomes part of it: bias, residual, activation.

The fused operator is Seamline's own; onnxruntime's FusedGemm has two axes only.
"""

from __future__ import annotations

import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewrites.epilogues import ACTIVATIONS, alike, attributes_of, numbers_of
from seamline.rewriting import OWN, Rewriting, Rules
from seamline.tensors import TensorType

__all__ = ["RULES"]

_RULE = "product"
_FLOATS = ("float32", "float16", "bfloat16")


def _product_of(work: Rewriting, value: ir.Value | None) -> ir.Node | None:
    """Give the product of floats with a constant matrix that makes a value read once."""
    node = value.producer() if value is not None else None
    if value is None or node is None or len(node.inputs) < 2:
        return None
    plain = node.op_type == "MatMul" and not node.domain
    if not plain and (node.domain, node.op_type) != (OWN, "FusedMatMul"):
        return None
    b, kind = node.inputs[1], work.kind(value)
    if b is None or kind is None or kind.dtype not in _FLOATS or not work.is_static(b):
        return None
    shapes = [work.shape(node.inputs[0]), work.shape(b)]
    if (
        any(s is None for s in shapes)
        or len(shapes[0] or ()) < 2
        or len(shapes[1] or ()) != 2
    ):
        return None
    fused = "activation" in node.attributes or work.only_reader(value) is None
    return None if fused else node


def _make(
    work: Rewriting,
    node: ir.Node,
    after: ir.Node,
    inputs: list[ir.Value | None],
    attributes: dict[str, ir.Attr],
    reason: str,
) -> bool:
    out = after.outputs[0]
    draft = Draft(work, f"{_RULE}-{reason}", (node, after))
    kind = work.kind(out)
    made = draft.node("FusedMatMul", inputs, kind, attributes, domain=OWN)
    return draft.make(
        f"the {reason} of each block while it is in the cache",
        (out, made), optional=_is_narrow(kind),
    )  # fmt: skip


def _is_narrow(kind: TensorType | None) -> bool:
    """Tell whether a type is one whose products few providers fuse, which needs no mention."""
    return kind is None or kind.dtype != "float32"


def addition(work: Rewriting, node: ir.Node) -> bool:
    """Fuse a bias, or a residual of the output's shape, that is added to a product."""
    if node.domain or len(node.inputs) != 2:
        return False
    for place in (0, 1):
        value, other = node.inputs[place], node.inputs[1 - place]
        product = _product_of(work, value)
        if product is None or other is None or other in product.outputs:
            continue
        given = list(product.inputs) + [None] * (4 - len(product.inputs))
        kind, its = work.kind(other), work.kind(value)
        if kind is None or its is None or its.shape is None or kind.dtype != its.dtype:
            continue
        if kind.shape == its.shape[-1:] and isinstance(its.shape[-1], int):
            index, what = 2, "bias"
        elif alike(kind, its):
            index, what = 3, "residual"
        else:
            continue
        if given[index] is not None or (index == 2 and given[3] is not None):
            continue
        given[index] = other
        return _make(work, product, node, given, dict(product.attributes), what)
    return False


def activation(work: Rewriting, node: ir.Node) -> bool:
    """Fuse an activation of a product."""
    product = _product_of(work, node.inputs[0] if node.inputs else None)
    if product is None or (numbers := numbers_of(work, node)) is None:
        return False
    given = {**product.attributes, **attributes_of(node, numbers)}
    return _make(work, product, node, list(product.inputs), given, "activation")


def gemm(work: Rewriting, node: ir.Node) -> bool:
    """Write ``Gemm`` with a constant matrix as the product and bias that it is."""
    if node.domain or len(node.inputs) < 2:
        return False
    b, out = node.inputs[1], node.outputs[0]
    numbers = [
        work.attribute(node, n, d)
        for n, d in (("alpha", 1.0), ("beta", 1.0), ("transA", 0))
    ]
    kind, shape = work.kind(out), work.shape(b)
    if b is None or not work.is_static(b) or numbers != [1.0, 1.0, 0]:
        return False
    if kind is None or kind.dtype not in _FLOATS or shape is None or work.opset() < 7:
        return False
    turned = work.attribute(node, "transB", 0)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    width = shape[0 if turned else 1]
    if bias is not None and work.shape(bias) != (width,):
        return False
    draft = Draft(work, "gemm", (node,))
    given = {"transB": 1} if turned else {}
    made = draft.node("FusedMatMul", [node.inputs[0], b, bias], kind, given, domain=OWN)
    return draft.make(
        "it is a product and a bias", (out, made), optional=_is_narrow(kind)
    )


RULES: Rules = {
    "Gemm": (gemm,),
    "Add": (addition,),
    "Clip": (activation,),
    **{op_type: (activation,) for _, op_type in ACTIVATIONS},
}
