"""
A product of two matrices that were dequantised from 8 bits is a product of bytes.

Models in the QDQ form quantise a value where it is made and dequantise it where it is
read. Where both operands of a product come so, and the right one is constant, its sums are
whole numbers times two scales: ``QLinearMatMul`` where the result is quantised again at
once, else onnxruntime's ``MatMulIntegerToFloat``. Sums are exact in both, so a result
differs from the floats' by their rounding, and a code by one at most.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewrites.coded_matrices import CodedMatrix, matrix_of
from seamline.rewrites.quantized_sites import (
    Codes,
    Site,
    is_single,
    single_of,
    zero_of,
)
from seamline.rewriting import CONTRIB, Rewriting, Rules

__all__ = ["RULES"]

_BYTES = ("int8", "uint8")
_RULE = "quantized-product"


def _left(work: Rewriting, value: ir.Value | None) -> Codes | None:
    """Give an operand that is dequantised as it comes, with one known scale."""
    found = single_of(work, value)
    if found is None or work.is_static(found.node.outputs[0]):
        return None
    return found if _is_known(work, found.scale, found.point) else None


def _is_known(work: Rewriting, scale: ir.Value, point: ir.Value | None) -> bool:
    """Tell whether scale and zero point are constant, the point one for the whole tensor."""
    known = work.is_static(scale) and (point is None or work.is_static(point))
    return known and is_single(work, point)


def _right(work: Rewriting, value: ir.Value | None) -> CodedMatrix | None:
    """Give a constant matrix of bytes with one scale, or one for each column."""
    found = matrix_of(work, value)
    if found is None or found.reshaped or work.attribute(found.source, "block_size", 0):
        return None
    codes, scale = found.source.inputs[:2]
    kind, of_scale = work.kind(codes), work.kind(scale)
    if kind is None or of_scale is None or not kind.shape or len(kind.shape) != 2:
        return None
    if kind.dtype not in _BYTES or of_scale.dtype != "float32":
        return None
    axis = int(work.attribute(found.source, "axis", 1)) % 2
    along_n = axis == (0 if found.turned else 1)
    single = of_scale.shape in ((), (1,))
    whole = single or (along_n and of_scale.shape == (kind.shape[axis],))
    return found if whole else None


def _operands(
    work: Rewriting, draft: Draft, left: Codes, right: CodedMatrix
) -> tuple[list[ir.Value], list[ir.Value]] | None:
    """Give codes, scale and zero point of both sides, the right one as K by N."""
    codes, scale, zero = [*right.source.inputs, None][:3]
    kind = work.kind(codes)
    if codes is None or scale is None or kind is None:
        return None
    if right.turned:
        known = work.constant(codes)
        if known is None:
            return None
        # Kernels want to know their weights before they claim: a node would be too late.
        codes = draft.constant(known.T, "codes")
    zero = zero or draft.constant(np.zeros((), kind.dtype), "zero")
    return [left.codes, left.scale, zero_of(draft, left, "zero")], [codes, scale, zero]


def matmul(work: Rewriting, node: ir.Node) -> bool:
    """Multiply bytes where both operands of a ``MatMul`` are dequantised ones."""
    if node.domain or len(node.inputs) != 2:
        return False
    return _made(work, node, None)


def gemm(work: Rewriting, node: ir.Node) -> bool:
    """Do so in a ``Gemm`` whose C is a bias, or is not there."""
    if node.domain or len(node.inputs) < 2:
        return False
    usual = (("alpha", 1.0), ("beta", 1.0), ("transA", 0))
    if any(work.attribute(node, name, value) != value for name, value in usual):
        return False
    bias, kind = [*node.inputs, None][2], work.kind(node.outputs[0])
    if bias is not None and (
        kind is None or not kind.shape or work.shape(bias) != kind.shape[-1:]
    ):
        return False
    return _made(work, node, bias)


def _made(work: Rewriting, node: ir.Node, bias: ir.Value | None) -> bool:
    left, right = _left(work, node.inputs[0]), _right(work, node.inputs[1])
    out = node.outputs[0]
    kind = work.kind(out)
    if left is None or right is None or kind is None or kind.dtype != "float32":
        return False
    if node.op_type == "Gemm" and work.attribute(node, "transB", 0):
        right.turned = not right.turned
    for one in right.nodes:
        if (pin := work.pinned.get(one.name or "")) is not None:
            why = f"{one.name!r} is pinned by {pin!r}"
            return work.leave(_RULE, node.name or "", why)
    old = (node, left.node) if left.alone else (node,)
    after = work.only_reader(out) if bias is None else None
    site = Site.of(work, after) if after is not None else None
    if site is not None and _is_known(work, site.scale, site.point):
        return _to_bytes(work, old, site, left, right)
    return _to_floats(work, old, left, right, bias)


def _to_bytes(
    work: Rewriting,
    old: tuple[ir.Node, ...],
    site: Site,
    left: Codes,
    right: CodedMatrix,
) -> bool:
    draft = Draft(work, _RULE, (*old, site.last))
    sides = _operands(work, draft, left, right)
    if sides is None:
        return False
    inputs = [*sides[0], *sides[1], site.scale, site.zero(draft)]
    made = draft.node("QLinearMatMul", inputs, site.kind)
    out = site.last.outputs[0]
    return draft.make("sums of bytes are exact, and quantised again", (out, made))


def _to_floats(
    work: Rewriting, old: tuple[ir.Node, ...], left: Codes, right: CodedMatrix,
    bias: ir.Value | None,
) -> bool:  # fmt: skip
    node = old[0]
    out = node.outputs[0]
    # New nodes come before the last old one, which has to be the product.
    draft = Draft(work, _RULE, (*old[1:], node))
    sides = _operands(work, draft, left, right)
    if sides is None:
        return False
    (a, a_scale, a_zero), (b, b_scale, b_zero) = sides
    inputs = [a, b, a_scale, b_scale, a_zero, b_zero, bias]
    made = draft.node("MatMulIntegerToFloat", inputs, work.kind(out), domain=CONTRIB)
    return draft.make("sums of bytes are exact, and scaled once", (out, made))


def addition(work: Rewriting, node: ir.Node) -> bool:
    """Add a bias to the scaled sums where they are made."""
    if node.domain or len(node.inputs) != 2:
        return False
    for place in (0, 1):
        value, other = node.inputs[place], node.inputs[1 - place]
        made = value.producer() if value is not None else None
        if value is None or other is None or made is None:
            continue
        if (made.domain, made.op_type) != (CONTRIB, "MatMulIntegerToFloat"):
            continue
        kind, its = work.kind(node.outputs[0]), work.kind(other)
        if kind is None or its is None or not kind.shape or its.dtype != "float32":
            continue
        inputs = [*made.inputs, None, None, None][:7]
        if inputs[6] is not None or its.shape != kind.shape[-1:]:
            continue
        if work.only_reader(value) is not node:
            continue
        inputs[6] = other
        draft = Draft(work, f"{_RULE}-bias", (made, node))
        new = draft.node("MatMulIntegerToFloat", inputs, kind, domain=CONTRIB)
        return draft.make(
            "the bias is added as sums are scaled", (node.outputs[0], new)
        )
    return False


RULES: Rules = {"MatMul": (matmul,), "Gemm": (gemm,), "Add": (addition,)}
