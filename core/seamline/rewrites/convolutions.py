"""
Constant arithmetic after a convolution becomes part of its weights and bias.

``s * (W x + b) + t`` is ``(s W) x + (s b + t)`` for one ``s`` and ``t`` a channel. The new
weights are drafted as nodes over constants, so that the pipeline folds them as it folds
everything; a caller who overrides a weight gets what the model says.
"""

from __future__ import annotations

import attrs
import numpy as np
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewriting import Rewriting, Rules
from seamline.tensors import TensorType

__all__ = ["RULES"]

_WIDE = ("float32", "float64")  # a half would round the new weights once more
_SAME = "constants of each channel go into its weights and bias"


@attrs.frozen(eq=False)
class _Weights:
    """A convolution's weights and bias, and what is known of them."""

    draft: Draft
    weights: ir.Value
    bias: ir.Value | None
    kind: TensorType
    channels: int

    @classmethod
    def of(
        cls, work: Rewriting, rule: str, node: ir.Node, after: ir.Node
    ) -> _Weights | None:
        if node.domain or len(node.inputs) < 2 or (weights := node.inputs[1]) is None:
            return None
        kind = work.kind(weights)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if kind is None or kind.shape is None or kind.dtype not in _WIDE:
            return None
        channels = kind.shape[0] if kind.shape else None
        both = [v for v in (weights, bias) if v is not None]
        if not isinstance(channels, int) or not all(map(work.is_static, both)):
            return None
        return cls(Draft(work, rule, (node, after)), weights, bias, kind, channels)

    @property
    def rank(self) -> int:
        return len(self.kind.shape or ())

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
        shape = np.array([-1] + [1] * (self.rank - 1), np.int64)
        draft = self.draft
        kind = TensorType(self.kind.dtype, (self.channels, *(1,) * (self.rank - 1)))
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
        inputs = [node.inputs[0], self.weights, self.bias]
        kind = draft.work.kind(out) or draft.work.kind(node.outputs[0])
        made = draft.node("Conv", inputs, kind, dict(node.attributes))
        return draft.make(reason, (out, made))


def _conv_before(work: Rewriting, value: ir.Value | None) -> ir.Node | None:
    """Give the convolution that makes a value which only one node reads."""
    node = value.producer() if value is not None else None
    if node is None or node.op_type != "Conv" or node.domain or value is None:
        return None
    return node if work.only_reader(value) is not None else None


def batch_normalization(work: Rewriting, node: ir.Node) -> bool:
    """Fold ``BatchNormalization`` into the convolution before it."""
    conv = None if node.domain else _conv_before(work, node.inputs[0])
    statistics = [v for v in node.inputs[1:5] if v is not None]
    trains = work.attribute(node, "training_mode", 0)
    more = [v for v in node.outputs[1:] if v.name]
    if conv is None or len(statistics) < 4 or trains or more or work.opset() < 9:
        return False
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
    """Fold a constant added to a convolution, or multiplied with it, into it."""
    if node.domain or len(node.inputs) != 2:
        return False
    for place in (0, 1):
        value, other = node.inputs[place], node.inputs[1 - place]
        conv = _conv_before(work, value)
        if conv is None or other is None or not work.is_static(other):
            continue
        made = _Weights.of(work, f"convolution-{node.op_type.lower()}", conv, node)
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
