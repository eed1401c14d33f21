"""
The provider ``reference``: each node by ONNX's own reference implementation.

A node becomes a model of one node, read by ``onnx.reference.ReferenceEvaluator``. Reading
it finds the implementation, or the function body that defines the operator, and runs
nothing; so claiming is asking.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from seamline.kernel_table import Kernel, KernelTable
from seamline.kernels import KernelProvider, KernelSegment
from seamline.provider import (
    Array,
    BuildContext,
    Claim,
    Executable,
    NodeView,
    Refusal,
    SegmentSpec,
)
from seamline.tensors import TensorType, numpy_dtype, onnx_dtype

__all__ = ["ReferenceProvider"]

_NOT_CAPTURABLE = "onnx.reference runs in Python"
# Only running finds their outputs' sizes, though inference may name them.
_SIZED_BY_DATA = frozenset(
    {"Compress", "NonMaxSuppression", "NonZero", "StringSplit", "Unique"}
)
# onnx.reference keeps one implementation of these, and older versions meant another thing.
_MEANT_SINCE = {
    "Add": 7, "And": 7, "Div": 7, "Equal": 7, "Greater": 7, "Less": 7, "Mul": 7, "Or": 7,
    "Pow": 7, "Sub": 7, "Xor": 7, "Hardmax": 13, "LogSoftmax": 13, "Softmax": 13,
    "Resize": 11, "BatchNormalization": 14,
}  # fmt: skip


class ReferenceProvider(KernelProvider):
    """
    Runs any operator that ``onnx.reference`` implements.

    Nothing here is tuned: it is what a model falls back on when the alternative is not
    to run, and what other providers are compared with.
    """

    def __init__(self) -> None:
        super().__init__(KernelTable("reference", variant="onnx.reference"))

    def claim(self, node: NodeView) -> Claim | Refusal:
        """Offer a node of tensors that onnx.reference implements."""
        if node.node.bodies:
            return Refusal(
                "it has bodies, which the core runs node by node",
                "nodes without bodies",
            )
        for what, names, kinds in (
            ("input", node.node.inputs, node.inputs),
            ("output", node.node.outputs, node.outputs),
        ):
            for index, (name, kind) in enumerate(zip(names, kinds, strict=False)):
                if name and not isinstance(kind, TensorType):
                    shown = "of unknown type" if kind is None else f"a {kind}"
                    return Refusal(
                        f"{what} {index} is {shown}", "tensors of known type"
                    )
        oldest = _MEANT_SINCE.get(node.op_type, 1)
        if not node.domain and node.since_version < oldest:
            return Refusal(
                f"onnx.reference has no {node.op_type} of version {node.since_version}",
                f"version {oldest} and later",
            )
        try:
            evaluator_of(node)
        except Exception as error:  # its loader raises five unrelated types
            return Refusal(
                f"onnx.reference has no {node.node.qualified_op} of version "
                f"{node.since_version}: {str(error).splitlines()[0] if str(error) else error!r}"
            )
        return Claim(
            "onnx.reference",
            not_capturable=_NOT_CAPTURABLE,
            sizes_at_run=node.op_type in _SIZED_BY_DATA,
        )

    def build(self, segment: SegmentSpec, context: BuildContext) -> Executable:
        """Read each node into an evaluator of its own."""
        return KernelSegment(
            self.name,
            segment,
            [_kernel(n) for n in segment.nodes],
            context,
            self.options,
        )


def evaluator_of(node: NodeView) -> ReferenceEvaluator:
    """
    Read a node into an evaluator; finds its implementation and runs nothing.

    Raises
    ------
    Exception
        Whatever onnx.reference raises when it has no implementation.
    """
    proto = node.to_proto()
    for attribute in proto.attribute:
        if attribute.type == onnx.AttributeProto.UNDEFINED:
            raise ValueError(f"attribute {attribute.name!r} has no type")
    given = dict(zip(node.node.inputs, node.inputs, strict=False))
    graph = onnx.helper.make_graph(
        [proto],
        node.name or "node",
        [_value(n, k) for n, k in given.items() if n],
        [
            _value(n, k)
            for n, k in zip(node.node.outputs, node.outputs, strict=False)
            if n
        ],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid(node.domain, node.since_version)]
    )
    return ReferenceEvaluator(model)


def _value(name: str, kind: object) -> onnx.ValueInfoProto:
    if not isinstance(kind, TensorType):
        return onnx.ValueInfoProto(name=name)
    return onnx.helper.make_tensor_value_info(
        name, int(onnx_dtype(kind.dtype)), kind.shape
    )


def _kernel(node: NodeView) -> Kernel:
    """Give the node's evaluator as a kernel from arrays to arrays."""
    return Kernel(
        node.op_type, node.domain, (node.since_version, node.since_version), _run_of(node),
        True, {}, "onnx.reference", "", None, frozenset(), (), (),
        node.op_type in _SIZED_BY_DATA, _NOT_CAPTURABLE, None, None, None,
    )  # fmt: skip


def _run_of(view: NodeView) -> Callable[..., tuple[Array | None, ...]]:
    node, kinds, evaluator = view.node, view.outputs, evaluator_of(view)
    asked = list(node.writes)

    def run(*inputs: Array | None, **attributes: object) -> tuple[Array | None, ...]:
        # Copies: some of its operators write what they were given.
        feeds = {
            n: None if a is None else a.copy()
            for n, a in zip(node.inputs, inputs, strict=False)
            if n
        }
        given = dict(zip(asked, evaluator.run(asked, feeds), strict=True))
        return tuple(
            [
                _typed(given[name], kind) if name else None
                for name, kind in zip(node.outputs, kinds, strict=True)
            ]
        )

    return run


def _typed(value: Any, kind: object) -> Array:
    """
    Hold strings as objects, and integers in the width that the node gives.

    NumPy finds a width of text, and sums a scalar's small integers in 64 bits; cut to
    their width again they are what they would have been all along, since integers wrap.
    """
    array = np.asarray(value)
    if not isinstance(kind, TensorType):
        return array
    if kind.dtype == "string":
        return array if array.dtype == object else array.astype(object)
    wanted = numpy_dtype(kind.dtype)
    same = array.dtype.kind == wanted.kind and wanted.kind in "iu"
    return array.astype(wanted, copy=False) if same else array
