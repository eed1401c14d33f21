"""
The provider ``onnxruntime``: a whole segment is one model, and one call.

What a table of kernels does not show of the contract is here: claims that ask a compiler,
``owns_intermediates``, and a build that sees the segment as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seamline.provider import (
    HOST,
    BuildContext,
    Claim,
    Executable,
    Memory,
    NodeView,
    Refusal,
    SegmentSpec,
)
from seamline.tensors import TensorType, ValueType
from seamline_onnxruntime.model import PACKED
from seamline_onnxruntime.segment import OnnxRuntimeSegment
from seamline_onnxruntime.trial import Trials, has_own_kernel, kernel_types

__all__ = ["OnnxRuntimeProvider"]

NOT_CAPTURABLE = "onnxruntime runs it behind its own interface, with its own threads"
# Only running finds their outputs' sizes, though inference may name them.
_SIZED_BY_DATA = frozenset(
    {"Compress", "NonMaxSuppression", "NonZero", "StringSplit", "Unique"}
)


class OnnxRuntimeProvider:
    """
    Runs segments through ONNX Runtime's CPU execution provider.

    Parameters
    ----------
    options
        ``num_threads``, ``graph_optimization_level``, ``allow_spinning``.
    """

    name = "onnxruntime"
    device = HOST
    captures = False
    owns_intermediates = True

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = dict(options or {})
        self._trials = Trials()

    def claim(self, node: NodeView) -> Claim | Refusal:
        """Offer a node of tensors that onnxruntime loads."""
        refusal = _refuses_form(node)
        if refusal is not None:
            return refusal
        why = self._trials.ask(node).why
        if why is not None:
            return Refusal(why, ", ".join(kernel_types(node)))
        return Claim(
            "onnxruntime",
            ""
            if has_own_kernel(node)
            else "in float32 between casts: it has no kernel as is",
            not_capturable=NOT_CAPTURABLE,
            sizes_at_run=_sizes_follow_from_data(node),
        )

    def infer(self, node: NodeView) -> Sequence[ValueType | None] | None:
        """Give output types as onnxruntime finds them; it knows its own operators."""
        answer = self._trials.ask(node, sizes=True)
        return None if answer.why is not None else answer.outputs

    def memory(self) -> Memory | None:
        """Use the host's memory."""
        return None

    def build(self, segment: SegmentSpec, context: BuildContext) -> Executable:
        """Compile the segment into a session."""
        return OnnxRuntimeSegment(segment, self.options)

    def close(self) -> None:
        """Forget the trials; sessions belong to their segments."""
        self._trials = Trials()


def _refuses_form(node: NodeView) -> Refusal | None:
    if node.node.bodies:
        return Refusal("it has bodies, which the core runs", "nodes without bodies")
    for what, names, kinds in (
        ("input", node.node.inputs, node.inputs),
        ("output", node.node.outputs, node.outputs),
    ):
        for index, (name, kind) in enumerate(zip(names, kinds, strict=False)):
            if not name:
                continue
            if not isinstance(kind, TensorType):
                shown = "of unknown type" if kind is None else f"a {kind}"
                return Refusal(f"{what} {index} is {shown}", "tensors of known type")
            if kind.dtype in PACKED and node.constants(name) is None:
                return Refusal(
                    f"{what} {index} is {kind.dtype}, which onnxruntime packs and seamline "
                    "does not",
                    f"{kind.dtype} constants",
                )
    return None


def _sizes_follow_from_data(node: NodeView) -> bool:
    """Tell whether only running finds an output's size; sizes yet unknown are no reason."""
    if node.op_type in _SIZED_BY_DATA:
        return True
    if node.domain in ("", "ai.onnx.ml"):
        return False
    kinds = [k for n, k in zip(node.node.outputs, node.outputs, strict=False) if n]
    return any(isinstance(k, TensorType) and k.shape is None for k in kinds)
