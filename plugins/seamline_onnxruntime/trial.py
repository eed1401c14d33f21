"""
Asks onnxruntime what it can run, by letting it load models of one node.

Loading resolves the operator, its version, its types and its attributes to a kernel and
makes that kernel, in about a millisecond. It is the only answer that counts what
onnxruntime does besides looking in its kernel table: it inlines function bodies, and it
runs float16 nodes in float32 between casts.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import attrs
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from seamline.provider import NodeView
from seamline.tensors import TensorType, ValueType, dtype_name, ort_type
from seamline_onnxruntime.model import ir_version_for, name_all_pieces, value_info

__all__ = ["Answer", "Trials", "has_own_kernel", "kernel_types", "reason_of"]


@attrs.frozen
class Answer:
    """What onnxruntime said: None, or why not; and its outputs' types."""

    why: str | None
    outputs: tuple[ValueType | None, ...] = ()


class Trials:
    """Trial loads, each made once for a kind of node."""

    def __init__(self) -> None:
        self._answers: dict[tuple[object, ...], Answer] = {}
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._options = options

    def ask(self, node: NodeView, *, sizes: bool = False) -> Answer:
        """
        Load a node, or remember how that went.

        Parameters
        ----------
        sizes
            Declare the inputs' sizes too, so that the outputs' sizes are found.
        """
        kinds = node.inputs if sizes else tuple(map(_dtype_only, node.inputs))
        key = (
            node.domain,
            node.op_type,
            node.since_version,
            kinds,
            tuple([bool(name) for name in (*node.node.inputs, *node.node.outputs)]),
            tuple([(name, _key_of(value)) for name, value in node.attributes.items()]),
        )
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._load_at_all(node, kinds)
        return answer

    def _load_at_all(
        self, node: NodeView, kinds: tuple[ValueType | None, ...]
    ) -> Answer:
        """
        Load a node at its own version, and at the last opset that still has it.

        A function's body is written for one opset. At a later one onnxruntime keeps the
        function where an operator of the body has changed since, and then it has no
        kernel. What the node's model imports is not told, and lies between the two.
        """
        answer = self._load(node, kinds, node.since_version)
        if answer.why is not None or (kernel_types(node) and has_own_kernel(node)):
            return answer
        last = _last_with(node.domain, node.op_type, node.since_version)
        if last == node.since_version:
            return answer
        later = self._load(node, kinds, last)
        if later.why is None:
            return answer
        return Answer(f"in models of later opsets, such as {last}: {later.why}")

    def _load(
        self, node: NodeView, kinds: tuple[ValueType | None, ...], opset: int
    ) -> Answer:
        proto = _anonymous(node)
        declared = zip(proto.input, kinds, strict=False)
        graph = helper.make_graph(
            [proto],
            "trial",
            [value_info(name, kind) for name, kind in declared if name],
            [onnx.ValueInfoProto(name=name) for name in proto.output if name],
        )
        opsets = {node.domain: opset}
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()],
            ir_version=ir_version_for(opsets),
        )
        try:
            session = ort.InferenceSession(
                model.SerializeToString(),
                self._options,
                providers=["CPUExecutionProvider"],
            )
        except Exception as error:  # its exceptions share no base below Exception
            return Answer(reason_of(error))
        found = {o.name: _kind(o.type, o.shape) for o in session.get_outputs()}
        return Answer(None, tuple([found.get(name) for name in proto.output]))


def reason_of(error: Exception) -> str:
    """Give what onnxruntime said, without its codes."""
    said = " ".join(str(error).split())
    return said.rsplit(" : ", 1)[-1] if said.startswith("[ONNXRuntimeError]") else said


def kernel_types(node: NodeView) -> tuple[str, ...]:
    """Give every type that kernels of the node's operator and version are registered for."""
    found: dict[str, None] = {}
    for kernel in _kernels().get((node.domain, node.op_type), ()):
        first, last = kernel.version_range
        if first <= node.since_version <= last:
            for names in kernel.type_constraints.values():
                found.update(dict.fromkeys(names))
    return tuple(name.removeprefix("tensor(").removesuffix(")") for name in found)


def has_own_kernel(node: NodeView) -> bool:
    """Tell whether a kernel is registered that takes input 0 as it is."""
    kind = node.tensor(0)
    types = kernel_types(node)
    return kind is None or not types or ort_type(kind)[7:-1] in types


@cache
def _last_with(domain: str, op_type: str, since_version: int) -> int:
    """Give the last opset with this version of a function; its own for other operators."""
    try:
        schema = onnx.defs.get_schema(op_type, since_version, domain)
    except onnx.defs.SchemaError:  # an operator of onnxruntime's own
        return since_version
    has_body = schema.has_function  # type: ignore[attr-defined]  # not in its stubs
    if not (has_body or schema.has_context_dependent_function):  # type: ignore[attr-defined]
        return since_version
    last = onnx.defs.onnx_opset_version() if not domain else since_version
    while onnx.defs.get_schema(op_type, last, domain).since_version > since_version:
        last -= 1
    return max(last, since_version)


@cache
def _kernels() -> dict[tuple[str, str], list[Any]]:
    """Give the CPU's kernels by operator; empty where this build does not tell."""
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    table: dict[tuple[str, str], list[Any]] = {}
    for kernel in getattr(state, "get_all_opkernel_def", list)():
        if kernel.provider == "CPUExecutionProvider":
            table.setdefault((kernel.domain, kernel.op_name), []).append(kernel)
    return table


_SPELLED = {"float": "float32", "double": "float64"}


def _kind(spelled: str, shape: list[int | str | None]) -> ValueType | None:
    """Read a type; an empty shape means a scalar or unknown sizes, so it says unknown."""
    if not spelled.startswith("tensor("):
        return None
    name = spelled[7:-1]
    try:
        dtype = dtype_name(_SPELLED.get(name, name))
    except TypeError:
        return None
    return TensorType(dtype, tuple(shape) if shape else None)


def _anonymous(node: NodeView) -> onnx.NodeProto:
    """Give the node under names that mean nothing, since the answer is kept for others."""
    proto = node.to_proto()
    proto.name = "node"
    proto.input[:] = [f"in{i}" if name else "" for i, name in enumerate(proto.input)]
    proto.output[:] = [f"out{i}" if name else "" for i, name in enumerate(proto.output)]
    name_all_pieces(node, proto)
    return proto


def _key_of(value: Any) -> object:
    """Give something hashable for an attribute; 1 and 1.0 are different attributes."""
    if isinstance(value, np.ndarray):
        return (value.dtype.name, value.shape, repr(value.tolist()))
    return repr(value)


def _dtype_only(kind: ValueType | None) -> ValueType | None:
    return TensorType(kind.dtype, None) if isinstance(kind, TensorType) else kind
