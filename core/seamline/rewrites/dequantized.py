"""
A product with a constant matrix of codes multiplies by the codes, not by their floats.

A model says it as ``DequantizeLinear`` of a constant, perhaps a ``Transpose`` or a
``Reshape``, then ``MatMul`` or ``Gemm``. Folding would keep the floats, which are four to
sixteen times the codes; multiplied by one of them at a time, codes are also what is read
from memory. So these rules come before folding, and what is left to it is what no product
reads. Values are at least as exact as what the model says: it may round the floats to 16 bits.

Where the other operand is dequantised from 8 bits, both are: see :mod:`.quantized`.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewrites.coded_matrices import CodedMatrix, matrix_of
from seamline.rewriting import OWN, Rewriting, Rules
from seamline.tensors import TensorType

__all__ = ["RULES"]

_RULE = "dequantized-product"
_REASON = "codes are multiplied as they are, and never become floats in memory"


def _attributes(work: Rewriting, codes: CodedMatrix) -> dict[str, int]:
    source = codes.source
    given = {
        "axis": int(work.attribute(source, "axis", 1)),
        "block_size": int(work.attribute(source, "block_size", 0)),
        "transB": int(codes.turned),
        "accuracy_level": work.accuracy_level,
    }
    default = {"axis": 1, "block_size": 0, "transB": 0, "accuracy_level": 0}
    return {name: value for name, value in given.items() if value != default[name]}


def _operands(
    work: Rewriting, draft: Draft, codes: CodedMatrix, attributes: dict[str, int]
) -> list[ir.Value | None] | None:
    """Give codes, scale and zero point of a matrix; None where blocks were an axis oddly."""
    given = [*codes.source.inputs, None, None][:3]
    if not codes.reshaped:
        return given
    kind = work.kind(given[0])
    shape = None if kind is None else kind.shape
    sizes = work.shape(given[1])
    if kind is None or shape is None or len(shape) != 3 or sizes is None:
        return None
    n, blocks, block = shape
    if not isinstance(blocks, int) or not isinstance(block, int):
        return None
    if sizes != (n, blocks, 1) or attributes.get("axis", 1) % 3 != 2:
        return None
    whole = (n, blocks * block)
    attributes.update(axis=1, block_size=block)
    made: list[ir.Value | None] = []
    for value, wanted in zip(given, (whole, (n, blocks), (n, blocks)), strict=True):
        of = work.kind(value)
        if value is None or of is None:
            made.append(None)
            continue
        shape_value = draft.constant(np.array(wanted, np.int64), "sizes")
        like = TensorType(of.dtype, wanted)
        made.append(draft.node("Reshape", [value, shape_value], like, hint="codes"))
    return made


def _product(
    work: Rewriting,
    node: ir.Node,
    a: ir.Value | None,
    codes: CodedMatrix,
    bias: ir.Value | None,
) -> bool:
    out = node.outputs[0]
    kind = work.kind(out)
    if a is None or kind is None:
        return False
    if (why := _held(work, codes)) is not None:
        return work.leave(_RULE, node.name or "", why)
    draft = Draft(work, _RULE, (node,))
    given = _attributes(work, codes)
    operands = _operands(work, draft, codes, given)
    if operands is None:
        return False
    made = draft.node(
        "DequantizedMatMul", [a, *operands, bias], kind, given, domain=OWN
    )
    return draft.make(_REASON, (out, made))


def _held(work: Rewriting, codes: CodedMatrix) -> str | None:
    for node in codes.nodes:
        if (pin := work.pinned.get(node.name or "")) is not None:
            return f"{node.name!r} is pinned by {pin!r}"
    return None


def matmul(work: Rewriting, node: ir.Node) -> bool:
    """Multiply by codes on the right, or by those on the left with both sides turned."""
    if node.domain or len(node.inputs) != 2:
        return False
    a, b = node.inputs
    if (codes := matrix_of(work, b)) is not None:
        return _product(work, node, a, codes, None)
    if (codes := matrix_of(work, a)) is not None and not codes.reshaped:
        return _turned(work, node, codes, b)
    return False


def _turned(
    work: Rewriting, node: ir.Node, codes: CodedMatrix, x: ir.Value | None
) -> bool:
    """Write ``W @ x`` as ``(x^T @ W^T)^T``."""
    kind, out = work.kind(x), work.kind(node.outputs[0])
    if x is None or kind is None or out is None or not kind.shape or not out.shape:
        return False
    rank = len(kind.shape)
    if rank < 2 or len(out.shape) != rank:
        return False
    if (why := _held(work, codes)) is not None:
        return work.leave(_RULE, node.name or "", why)
    codes.turned = not codes.turned
    perm = [*range(rank - 2), rank - 1, rank - 2]
    draft = Draft(work, _RULE, (node,))
    before = TensorType(kind.dtype, tuple(kind.shape[i] for i in perm))
    after = TensorType(out.dtype, tuple(out.shape[i] for i in perm))
    turned = draft.node("Transpose", [x], before, {"perm": perm}, hint="turned")
    given = [*codes.source.inputs, None, None][:3]
    made = draft.node(
        "DequantizedMatMul",
        [turned, *given],
        after,
        _attributes(work, codes),
        domain=OWN,
    )
    back = draft.node("Transpose", [made], out, {"perm": perm}, hint="back")
    return draft.make(_REASON, (node.outputs[0], back))


def gemm(work: Rewriting, node: ir.Node) -> bool:
    """Multiply by the codes of a ``Gemm`` whose C is a bias, or is not there."""
    if node.domain or len(node.inputs) < 2:
        return False
    codes = matrix_of(work, node.inputs[1])
    if codes is None:
        return False
    plain = (("alpha", 1.0), ("beta", 1.0), ("transA", 0))
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    for name, usual in plain:
        if (value := work.attribute(node, name, usual)) != usual:
            return work.leave(_RULE, node.name or "", f"its {name} is {value}")
    if work.attribute(node, "transB", 0):
        codes.turned = not codes.turned
    kind = work.kind(node.outputs[0])
    width = kind.shape[-1] if kind is not None and kind.shape else None
    if bias is not None and work.shape(bias) != (width,):
        return work.leave(_RULE, node.name or "", "its C is no bias")
    return _product(work, node, node.inputs[0], codes, bias)


def addition(work: Rewriting, node: ir.Node) -> bool:
    """Add a bias where the product's sums begin."""
    if node.domain or len(node.inputs) != 2:
        return False
    for place in (0, 1):
        value, other = node.inputs[place], node.inputs[1 - place]
        made = value.producer() if value is not None else None
        if made is None or (made.domain, made.op_type) != (OWN, "DequantizedMatMul"):
            continue
        kind, its = work.kind(node.outputs[0]), work.kind(other)
        if other is None or its is None or kind is None or not kind.shape:
            continue
        has_bias = len(made.inputs) > 4 and made.inputs[4] is not None
        if has_bias or its.shape != kind.shape[-1:] or its.dtype != kind.dtype:
            continue
        if value is None or work.only_reader(value) is not node:
            continue
        inputs = [*made.inputs, None, None][:4]
        draft = Draft(work, f"{_RULE}-bias", (made, node))
        new = draft.node(
            "DequantizedMatMul",
            [*inputs, other],
            kind,
            dict(made.attributes),
            domain=OWN,
        )
        return draft.make("sums begin with the bias", (node.outputs[0], new))
    return False


RULES: Rules = {"MatMul": (matmul,), "Gemm": (gemm,), "Add": (addition,)}
