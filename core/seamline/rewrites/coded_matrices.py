"""
Constant matrices that a graph states as codes, which products may multiply as they are.

From a product's operand back to the DequantizeLinear of a constant there may be nodes that
only change how a matrix lies, or round its floats.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import onnx_ir as ir

from seamline.rewriting import Rewriting
from seamline.tensors import Dim

__all__ = ["CodedMatrix", "matrix_of"]

_TYPES = frozenset({"int2", "uint2", "int4", "uint4", "int8", "uint8", "float4_e2m1fn"})


@attrs.define(eq=False)
class CodedMatrix:
    """
    A constant matrix that is dequantised.

    Attributes
    ----------
    nodes
        From the product back to the DequantizeLinear.
    turned
        CodedMatrix lie as N by K.
    """

    nodes: list[ir.Node]
    turned: bool = False
    reshaped: bool = False

    @property
    def source(self) -> ir.Node:
        """Give the DequantizeLinear."""
        return self.nodes[-1]


def matrix_of(work: Rewriting, value: ir.Value | None) -> CodedMatrix | None:
    """Give the codes behind a matrix, if it is made from constant ones alone."""
    found = CodedMatrix([])
    while value is not None and work.is_static(value):
        node = value.producer()
        if node is None or node.domain:
            return None
        found.nodes.append(node)
        if node.op_type == "DequantizeLinear":
            kind = work.kind(node.inputs[0])
            fits = kind is not None and kind.dtype in _TYPES
            return found if fits else None
        if not _passes(work, node, found):
            return None
        value = node.inputs[0]
    return None


def _passes(work: Rewriting, node: ir.Node, found: CodedMatrix) -> bool:
    """Follow a node that leaves a matrix of floats what it is, but for how it lies."""
    kind = work.kind(node.inputs[0] if node.inputs else None)
    if kind is None or kind.shape is None:
        return False
    if node.op_type == "Transpose" and len(kind.shape) == 2 and not found.reshaped:
        turns = tuple(work.attribute(node, "perm", (1, 0))) == (1, 0)
        found.turned ^= turns
        return True
    if node.op_type == "Reshape" and not found.reshaped:
        found.reshaped = True
        return _joins_blocks(kind.shape, work.shape(node.outputs[0]))
    if node.op_type == "Cast":  # to fewer bits: what it would round stays exact
        return kind.dtype == "float32" and work.kind(node.outputs[0]) is not None
    return node.op_type == "Identity"


def _joins_blocks(before: Sequence[Dim], after: Sequence[Dim] | None) -> bool:
    """Tell whether rows of blocks become rows."""
    if len(before) != 3 or after is None:
        return False
    rows, blocks, block = before
    known = isinstance(blocks, int) and isinstance(block, int)
    return known and tuple(after) == (rows, blocks * block)  # type: ignore[operator]
