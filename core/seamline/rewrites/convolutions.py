"""
Constant arithmetic after a convolution, or a normalization, becomes part of its constants.

``s * (W x + b) + t`` is ``(s W) x + (s b + t)`` for one ``s`` and ``t`` a channel, whether
``W`` is a convolution's or the scale of a BatchNormalization. The new
weights are drafted as nodes over constants, so that the pipeline folds them as it folds
everything; a caller who overrides a weight gets what the model says.
"""

from __future__ import annotations

from collections.abc import Container

import attrs
import numpy as np
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewriting import Rewriting, Rules
from seamline.tensors import TensorType

__all__ = ["RULES"]

_WIDE = ("float32", "float64")  # a half would round the new weights once more
_SAME = "constants of each channel go into its weights and bias"
_KINDS = {
    "Conv": "convolution",
    "ConvTranspose": "convolution",
    "BatchNormalization": "normalization",
}


@attrs.frozen(eq=False)
class _Weights:
    """
    Weights and bias of a node, and what is known of them.

    Attributes
    ----------
    rest
        The node's further inputs.
    rank
        Axes of the node's output.
    axis
        Where the output's channels lie in the weights.
    """

    draft: Draft
    weights: ir.Value
    bias: ir.Value | None
    rest: tuple[ir.Value | None, ...]
    kind: TensorType
    rank: int
    axis: int
    channels: int

    @classmethod
    def of(
        cls, work: Rewriting, rule: str, node: ir.Node, after: ir.Node
    ) -> _Weights | None:
        weights, bias, *rest = [*node.inputs[1:], None, None]
        kind, shape = work.kind(weights), work.shape(node.inputs[0])
        if weights is None or shape is None:
            return None
        if kind is None or kind.shape is None or kind.dtype not in _WIDE:
            return None
        axis = 1 if node.op_type == "ConvTranspose" else 0
        if axis and work.attribute(node, "group", 1) != 1:
            return None
        channels = kind.shape[axis] if len(kind.shape) > axis else None
        both = [v for v in (weights, bias) if v is not None]
        if not isinstance(channels, int) or not all(map(work.is_static, both)):
            return None
        draft, more = Draft(work, rule, (node, after)), tuple(rest[: len(rest) - 2])
        return cls(draft, weights, bias, more, kind, len(shape), axis, channels)

    def vector(self, op_type: str, hint: str, *inputs: ir.Value) -> ir.Value:
        kind = TensorType(self.kind.dtype, (self.channels,))
        return self.draft.node(op_type, inputs, kind, hint=hint)

    def by_channel(self, value: ir.Value, hint: str) -> ir.Value:
        """Give a constant of one element, or of one a channel, as a vector of channels."""
        draft = self.draft
        flat = draft.constant(np.array([-1], np.int64), f"{hint}.flat")
        size = draft.work.shape(value) or ()
        count = int(np.prod([d for d in size if isinstance(d, int)]))
        kind = TensorType(self.kind.dtype, (count,))
        vector = draft.node("Reshape", [value, flat], kind, hint=f"{hint}.vector")
        if count == self.channels:
            return vector
        ones = draft.constant(np.ones(self.channels, self.kind.dtype), f"{hint}.ones")
        return self.vector("Mul", f"{hint}.each", vector, ones)

    def scaled(self, factor: ir.Value) -> _Weights:
        """Multiply both by a factor a channel."""
        sizes = [1] * len(self.kind.shape or ())
        sizes[self.axis], draft = self.channels, self.draft
        shape = np.array(sizes, np.int64)
        kind = TensorType(self.kind.dtype, tuple(sizes))
        to = draft.constant(shape, "factor.shape")
        column = draft.node("Reshape", [factor, to], kind, hint="factor.column")
        weights = draft.node("Mul", [self.weights, column], self.kind, hint="weights")
        bias = self.bias
        if bias is not None:
            bias = self.vector("Mul", "bias.scaled", bias, factor)
        return attrs.evolve(self, weights=weights, bias=bias)

    def shifted(self, by: ir.Value) -> _Weights:
        """Add a number a channel to the bias."""
        bias = by
        if self.bias is not None:
            bias = self.vector("Add", "bias", self.bias, by)
        return attrs.evolve(self, bias=bias)

    def make(self, node: ir.Node, after: ir.Node, reason: str) -> bool:
        out, draft = after.outputs[0], self.draft
        inputs = [node.inputs[0], self.weights, self.bias, *self.rest]
        kind = draft.work.kind(out) or draft.work.kind(node.outputs[0])
        made = draft.node(node.op_type, inputs, kind, dict(node.attributes))
        return draft.make(reason, (out, made))


def _before(
    work: Rewriting,
    value: ir.Value | None,
    kinds: Container[str] = ("Conv", "ConvTranspose"),
) -> ir.Node | None:
    """Give the node of one of some kinds that makes a value which only one node reads."""
    node = value.producer() if value is not None else None
    if node is None or node.op_type not in kinds or node.domain or value is None:
        return None
    if node.op_type == "BatchNormalization" and not _is_affine(work, node):
        return None
    return node if work.only_reader(value) is not None else None


def _is_affine(work: Rewriting, node: ir.Node) -> bool:
    """Tell whether a BatchNormalization uses the statistics that it is given."""
    more = [v for v in node.outputs[1:] if v.name]
    known = len([v for v in node.inputs if v is not None]) == 5
    trains = bool(work.attribute(node, "training_mode", 0))
    return known and not trains and not more and work.opset() >= 9


def batch_normalization(work: Rewriting, node: ir.Node) -> bool:
    """Fold ``BatchNormalization`` into the convolution before it."""
    conv = None if node.domain else _before(work, node.inputs[0])
    if conv is None or not _is_affine(work, node):
        return False
    statistics = [v for v in node.inputs[1:5] if v is not None]
    if not all(map(work.is_static, statistics)):
        return False
    made = _Weights.of(work, "batch-normalization", conv, node)
    if made is None or any(
        (work.kind(v) or made.kind).dtype != made.kind.dtype for v in statistics
    ):
        return False
    scale, shift, mean, variance = statistics
    epsilon = work.attribute(node, "epsilon", 1e-5)
    small = made.draft.constant(np.array(epsilon, made.kind.dtype), "epsilon")
    spread = made.vector(
        "Sqrt", "spread", made.vector("Add", "variance", variance, small)
    )
    factor = made.vector("Div", "factor", scale, spread)
    minus = made.vector("Mul", "mean", mean, factor)
    made = made.scaled(factor).shifted(made.vector("Sub", "shift", shift, minus))
    return made.make(conv, node, _SAME)


def _a_channel(work: Rewriting, value: ir.Value, made: _Weights) -> bool:
    """Tell whether a value has one element, or one a channel, next to the output."""
    kind = work.kind(value)
    if kind is None or kind.dtype != made.kind.dtype or kind.shape is None:
        return False
    if len(kind.shape) > made.rank or not all(isinstance(d, int) for d in kind.shape):
        return False
    whole = (1,) * (made.rank - len(kind.shape)) + kind.shape
    return whole[1] in (1, made.channels) and all(
        size == 1 for axis, size in enumerate(whole) if axis != 1
    )


def _arithmetic(work: Rewriting, node: ir.Node) -> bool:
    """Fold a constant added to, or multiplied with, a result into what made it."""
    if node.domain or len(node.inputs) != 2:
        return False
    for place in (0, 1):
        value, other = node.inputs[place], node.inputs[1 - place]
        conv = _before(work, value, _KINDS)
        if conv is None or other is None or not work.is_static(other):
            continue
        rule = f"{_KINDS[conv.op_type]}-{node.op_type.lower()}"
        made = _Weights.of(work, rule, conv, node)
        if made is None or not _a_channel(work, other, made):
            continue
        vector = made.by_channel(other, "other")
        done = made.scaled(vector) if node.op_type == "Mul" else made.shifted(vector)
        return done.make(conv, node, _SAME)
    return False


RULES: Rules = {
    "BatchNormalization": (batch_normalization,),
    "Add": (_arithmetic,),
    "Mul": (_arithmetic,),
}
