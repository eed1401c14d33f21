"""
The provider ``reference``: each node by ONNX's own reference implementation.

A node becomes a model of one node, read by ``onnx.reference.ReferenceEvaluator``. Reading
it finds the implementation, or the function body that defines the operator, and runs
nothing; so claiming is asking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from seamline.errors import ContractError
from seamline.kernel_table import Call, Kernel, KernelTable
from seamline.kernels import KernelProvider, KernelSegment
from seamline.provider import (
    Array,
    BuildContext,
    Claim,
    Executable,
    NodeView,
    Refusal,
    SegmentSpec,
    View,
)
from seamline.tensors import TensorType, onnx_dtype

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
    "Resize": 11,
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
        return ReferenceSegment(
            self.name,
            segment,
            [_kernel(n) for n in segment.nodes],
            context,
            self.options,
        )


class ReferenceSegment(KernelSegment):
    """A segment whose outputs without a place are given by name."""

    def bind(
        self,
        views: Mapping[str, View],
        workspaces: Mapping[str, View],
        host: Mapping[str, Array] | None = None,
    ) -> None:
        """Make every node's function over the arrays given; the others come in ``run``."""
        self._found: dict[str, View] = {}
        super().bind(views, workspaces, host)
        self._runs = [
            self._keeping(node, run, views)
            for node, run in zip(self.spec.nodes, self._runs, strict=True)
        ]

    def _keeping(
        self, node: NodeView, run: Callable[[], object], views: Mapping[str, View]
    ) -> Callable[[], object]:
        homeless = [
            (i, n) for i, n in enumerate(node.node.outputs) if n and n not in views
        ]
        if not homeless:
            return run
        found = self._found

        def keep() -> None:
            results: Any = run()
            for index, name in homeless:
                found[name] = results[index]

        return keep

    def run(self) -> Mapping[str, Array] | None:
        """Run every node; give the outputs that had no place, by name."""
        super().run()
        return dict(self._found) or None


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
    evaluator = evaluator_of(node)
    return Kernel(
        node.op_type, node.domain, (node.since_version, node.since_version), lambda call: _bound(call, evaluator),
        False, {}, "onnx.reference", "", None, frozenset(), (), (), False, _NOT_CAPTURABLE,
        None, None,
    )  # fmt: skip


def _bound(call: Call, evaluator: ReferenceEvaluator) -> Callable[[], object]:
    node = call.view.node
    feeds = {n: a for n, a in zip(node.inputs, call.inputs, strict=False) if n}
    asked = [n for n in node.outputs if n]
    targets = [(i, a) for i, a in enumerate(call.outputs) if a is not None]
    kinds = call.view.outputs

    def run() -> list[Array | None]:
        given = dict(zip(asked, evaluator.run(asked, feeds), strict=True))
        results = [
            _typed(given[n], k) if n else None
            for n, k in zip(node.outputs, kinds, strict=True)
        ]
        for index, target in targets:
            _put(target, results[index], node.outputs[index])
        return results

    return run


def _typed(value: Any, kind: object) -> Array:
    """Hold a result as its type says; strings are held as objects."""
    array = np.asarray(value)
    if (
        isinstance(kind, TensorType)
        and kind.dtype == "string"
        and array.dtype != object
    ):
        array = array.astype(object)
    return array


def _put(target: Array, result: Any, name: str) -> None:
    if result.shape != target.shape or result.dtype != target.dtype:
        raise ContractError(
            "reference",
            f"output {name!r} is {result.dtype}{list(result.shape)}, "
            f"the plan says {target.dtype}{list(target.shape)}",
        )
    target[...] = result
