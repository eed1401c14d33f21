"""
Nodes that give what they are given, and pairs of nodes that one node replaces.

What depends on constants alone is folded later, and not looked at here.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewriting import Rewriting, Rules
from seamline.tensors import dtype_name

__all__ = ["RULES"]


def _pass_through(work: Rewriting, rule: str, node: ir.Node, reason: str) -> bool:
    """Let readers of a node read its first input."""
    source = node.inputs[0]
    if source is None:
        return False
    return Draft(work, rule, (node,)).make(
        reason, (node.outputs[0], source), quiet=True
    )


def identity(work: Rewriting, node: ir.Node) -> bool:
    """Remove ``Identity``."""
    if node.domain:
        return False
    return _pass_through(work, "identity", node, "it gives its input")


def dropout(work: Rewriting, node: ir.Node) -> bool:
    """Remove ``Dropout`` that does not train."""
    if node.domain or work.opset() < 7:
        return False
    training = node.inputs[2] if len(node.inputs) > 2 else None
    if training is not None:
        known = work.constant(training)
        if known is None or known.any():
            return False
    return _pass_through(work, "dropout", node, "it drops nothing unless it trains")


def cast(work: Rewriting, node: ir.Node) -> bool:
    """Remove ``Cast`` to the element type that its input has."""
    kind = None if node.domain else work.kind(node.inputs[0])
    if kind is None or work.is_static(node.outputs[0]):
        return False
    to = dtype_name(ir.DataType(work.attribute(node, "to", 0)))
    if to != kind.dtype:
        return False
    return _pass_through(work, "cast", node, f"its input is {kind.dtype} already")


def _before(node: ir.Node, op_type: str) -> ir.Node | None:
    """Give the node that makes a node's first input, if it is of an operator of ONNX."""
    source = node.inputs[0] if node.inputs and not node.domain else None
    found = source.producer() if source is not None else None
    if found is None or found.op_type != op_type or found.domain:
        return None
    return found if found.graph is node.graph else None


def transposes(work: Rewriting, node: ir.Node) -> bool:
    """Join two transpositions; remove both where the second takes the first back."""
    first = _before(node, "Transpose")
    if first is None or (source := first.inputs[0]) is None:
        return False
    if work.is_static(node.outputs[0]):
        return False
    shape = work.shape(source)
    if shape is None:
        return False
    back = tuple(reversed(range(len(shape))))
    one, other = (tuple(work.attribute(n, "perm", back)) for n in (first, node))
    both = tuple([one[axis] for axis in other])
    old = (node, first) if work.only_reader(first.outputs[0]) is node else (node,)
    draft = Draft(work, "transposes", old)
    if both == tuple(range(len(shape))):
        reason = "the second transposition takes the first back"
        return draft.make(reason, (node.outputs[0], source), quiet=True)
    made = draft.node(
        "Transpose", [source], work.kind(node.outputs[0]), {"perm": list(both)}
    )
    return draft.make("one transposition does both", (node.outputs[0], made))


def reshapes(work: Rewriting, node: ir.Node) -> bool:
    """Leave out the first of two ``Reshape``."""
    first = _before(node, "Reshape")
    if first is None or work.opset() < 5 or len(node.inputs) < 2:
        return False
    target = node.inputs[1]
    if work.is_static(node.outputs[0]):
        return False
    sizes = work.constant(target)
    if sizes is None or (not sizes.all() and not work.attribute(node, "allowzero", 0)):
        return False  # a zero keeps a size that the first one gave
    old = (node, first) if work.only_reader(first.outputs[0]) is node else (node,)
    draft = Draft(work, "reshapes", old)
    given = {"allowzero": 1} if work.attribute(node, "allowzero", 0) else {}
    made = draft.node(
        "Reshape", [first.inputs[0], target], work.kind(node.outputs[0]), given
    )
    reason = f"the second sets all sizes, {np.asarray(sizes).tolist()}"
    return draft.make(reason, (node.outputs[0], made))


RULES: Rules = {
    "Identity": (identity,),
    "Dropout": (dropout,),
    "Cast": (cast,),
    "Transpose": (transposes,),
    "Reshape": (reshapes,),
}
