"""
What follows a product or a convolution of bytes becomes part of it.

Models that quantise as they run bring integer sums back to floats node by node: a cast, a
product with both scales, a bias. onnxruntime's MatMulIntegerToFloat is that for a matrix;
with a residual or an activation, and for convolutions, it is Seamline's own.
"""

from __future__ import annotations

import attrs
import numpy as np
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewrites.epilogues import ACTIVATIONS, alike, attributes_of, numbers_of
from seamline.rewriting import CONTRIB, OWN, Rewriting, Rules
from seamline.tensors import TensorType

__all__ = ["RULES"]

_PRODUCT, _CONVOLUTION = "MatMulIntegerToFloat", "ConvIntegerToFloat"
#: The inputs that are a bias and a residual.
_PLACES = {_PRODUCT: (6, 7), _CONVOLUTION: (7, 8)}
_SCALED = "integer sums are scaled while they are in the cache"


@attrs.frozen(eq=False)
class _Sums:
    """
    Integer sums that become floats.

    Attributes
    ----------
    nodes
        From the product to the cast.
    added
        What is added to the sums of a convolution.
    """

    nodes: tuple[ir.Node, ...]
    added: ir.Value | None = None


def _alone(work: Rewriting, value: ir.Value | None, *ops: str) -> ir.Node | None:
    """Give the node of some operators that makes a value which one node alone reads."""
    node = value.producer() if value is not None else None
    if value is None or node is None or node.domain or node.op_type not in ops:
        return None
    return node if work.only_reader(value) is not None else None


def _sums_of(work: Rewriting, value: ir.Value | None) -> _Sums | None:
    cast = _alone(work, value, "Cast")
    if cast is None or int(work.attribute(cast, "to", 0)) != ir.DataType.FLOAT:
        return None
    made = cast.inputs[0]
    if (node := _alone(work, made, "MatMulInteger", "ConvInteger")) is not None:
        return _Sums((node, cast))
    if (add := _alone(work, made, "Add")) is None:
        return None
    for place in (0, 1):
        node = _alone(work, add.inputs[place], "ConvInteger")
        other = add.inputs[1 - place]
        if node is None or other is None or other in node.outputs:
            continue
        kind, its = work.kind(other), work.kind(node.outputs[0])
        if kind is not None and kind.dtype == "int32" and _a_channel(kind, its):
            return _Sums((node, add, cast), other)
    return None


def _a_channel(kind: TensorType | None, of: TensorType | None) -> bool:
    """Tell whether a type is ``(1, C, 1, ...)`` beside a type of C channels."""
    if kind is None or of is None or not kind.shape or not of.shape:
        return False
    wanted = (1, of.shape[1], *(1,) * (len(of.shape) - 2))
    return len(of.shape) > 2 and isinstance(of.shape[1], int) and kind.shape == wanted


def _single(work: Rewriting, value: ir.Value | None) -> bool:
    kind = work.kind(value)
    return kind is not None and kind.dtype == "float32" and kind.shape in ((), (1,))


def _scales_of(
    work: Rewriting, value: ir.Value | None, wide: int | str | None
) -> tuple[ir.Value, ir.Value | None, tuple[ir.Node, ...]] | None:
    """Give the scale of the inputs, that of the weights or None for 1, and their product."""
    node = value.producer() if value is not None else None
    if node is not None and node.op_type == "Mul" and not node.domain:
        for place in (0, 1):
            scale, weights = node.inputs[place], node.inputs[1 - place]
            kind = work.kind(weights)
            if scale is None or kind is None or not _single(work, scale):
                continue
            if kind.dtype == "float32" and kind.shape in ((), (1,), (wide,)):
                alone = _alone(work, value, "Mul") is not None
                return scale, weights, (node,) if alone else ()
    return (value, None, ()) if value is not None and _single(work, value) else None


def scaled(work: Rewriting, node: ir.Node) -> bool:
    """Fuse cast and scales into the product or convolution of bytes before them."""
    if node.domain or len(node.inputs) != 2:
        return False
    for place in (0, 1):
        sums = _sums_of(work, node.inputs[place])
        kind = work.kind(node.outputs[0])
        if sums is None or kind is None:
            continue
        first = sums.nodes[0]
        is_product = first.op_type == "MatMulInteger"
        wide = kind.shape[-1] if kind.shape and is_product else None
        found = _scales_of(work, node.inputs[1 - place], wide)
        if found is None:
            continue
        scale, weights, between = found
        draft = Draft(work, "integer-scale", (*sums.nodes, *between, node))
        if weights is None:
            weights = draft.constant(np.ones(1, np.float32), "one")
        a, b, *zeros = [*first.inputs, None, None][:4]
        if is_product:
            made = draft.node(
                _PRODUCT, [a, b, scale, weights, *zeros], kind, domain=CONTRIB
            )
        else:
            inputs = [a, b, *zeros, scale, weights, sums.added]
            given = dict(first.attributes)
            made = draft.node(_CONVOLUTION, inputs, kind, given, domain=OWN)
        return draft.make(_SCALED, (node.outputs[0], made))
    return False


def _open(work: Rewriting, value: ir.Value | None) -> ir.Node | None:
    """Give the scaled sums that make a value read once, and that nothing activates yet."""
    node = value.producer() if value is not None else None
    if value is None or node is None or node.op_type not in _PLACES:
        return None
    if node.domain not in (CONTRIB, OWN) or "activation" in node.attributes:
        return None
    return node if work.only_reader(value) is not None else None


def _become(
    work: Rewriting, node: ir.Node, after: ir.Node, inputs: list[ir.Value | None],
    more: dict[str, ir.Attr], what: str,
) -> bool:  # fmt: skip
    """Put what follows into the node of scaled sums."""
    plain = (
        node.op_type == _PRODUCT and not more and len(inputs) <= _PLACES[_PRODUCT][1]
    )
    out, draft = after.outputs[0], Draft(work, f"integer-{what}", (node, after))
    made = draft.node(
        node.op_type, inputs, work.kind(out), {**node.attributes, **more},
        domain=CONTRIB if plain else OWN,
    )  # fmt: skip
    return draft.make(f"the {what} of each block while it is in the cache", (out, made))


def addition(work: Rewriting, node: ir.Node) -> bool:
    """Fuse a bias, or a residual of the output's shape, that is added to scaled sums."""
    if node.domain or len(node.inputs) != 2:
        return False
    for place in (0, 1):
        sums, other = _open(work, node.inputs[place]), node.inputs[1 - place]
        if sums is None or other is None or other in sums.outputs:
            continue
        bias, residual = _PLACES[sums.op_type]
        given = [*sums.inputs, *[None] * (residual - len(sums.inputs) + 1)]
        kind, its = work.kind(other), work.kind(node.inputs[place])
        if kind is None or its is None or kind.dtype != "float32" or given[residual]:
            continue
        if alike(kind, its):
            given[residual] = other
            return _become(work, sums, node, given, {}, "residual")
        if given[bias] is None and _is_bias(sums, kind, its):
            given[bias] = other
            return _become(work, sums, node, given[:residual], {}, "bias")
    return False


def _is_bias(sums: ir.Node, kind: TensorType, its: TensorType) -> bool:
    if sums.op_type == _CONVOLUTION:
        return _a_channel(kind, its)
    wide = its.shape[-1] if its.shape else None
    return isinstance(wide, int) and kind.shape == (wide,)


def activation(work: Rewriting, node: ir.Node) -> bool:
    """Fuse an activation of scaled sums."""
    sums = _open(work, node.inputs[0] if node.inputs else None)
    if sums is None or (numbers := numbers_of(work, node)) is None:
        return False
    given = attributes_of(node, numbers)
    return _become(work, sums, node, list(sums.inputs), given, "activation")


RULES: Rules = {
    "Mul": (scaled,),
    "Add": (addition,),
    "Clip": (activation,),
    **{op_type: (activation,) for _, op_type in ACTIVATIONS},
}
