"""From the IR to a :class:`seamline.graph.Graph`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from seamline.attributes import constant_of, python_value, value_type
from seamline.errors import ModelError
from seamline.graph import Graph, Node
from seamline.inlining import inline_functions
from seamline.limits import LoadLimits
from seamline.model_file import OpenedModel
from seamline.naming import bodies_of, check_no_shadowing, settle_names
from seamline.ordering import sorted_nodes
from seamline.scoping import resolve_scopes
from seamline.sequence_map import expand_sequence_maps
from seamline.signatures import check_signature
from seamline.tensors import TensorType, ValueType, dtype_name, unheld
from seamline.versions import OLDEST_OPSET, since_version

__all__ = ["GraphBuilder", "build_graph"]

_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def build_graph(opened: OpenedModel, limits: LoadLimits, *, strict: bool) -> Graph:
    """
    Build the graph of a model that was read: scopes, functions, names, then order.

    Raises
    ------
    ModelError, UnsafeModelError
        See :func:`seamline.graph.load`.
    """
    graph, file = opened.model.graph, opened.file
    resolve_scopes(graph, file)
    inline_functions(opened.model, file, limits)
    if strict:
        check_no_shadowing(graph, file)
    settle_names(graph)
    if expand_sequence_maps(graph, file):
        settle_names(graph)
    return GraphBuilder(opened.model, file, strict=strict, keep=opened.keep).build()


class GraphBuilder:
    """
    Builds the graphs of one model, whose names are settled and whose scopes are checked.

    Parameters
    ----------
    model
        The IR model, without functions.
    file
        What messages call it.
    strict
        Refuse nodes that are out of order.
    keep
        What must live as long as the graph: the mappings of its data.
    """

    def __init__(
        self, model: ir.Model, file: str, *, strict: bool, keep: object = None
    ) -> None:
        self._model = model
        self._file = file
        self._strict = strict
        self._keep = keep
        self._opsets = {
            "" if domain == "ai.onnx" else domain: version
            for domain, version in model.opset_imports.items()
        }
        self._since: dict[tuple[str, str], int] = {}
        self._values: dict[str, ir.Value] = {}
        self._types: dict[str, ValueType | None] = {}

    def build(self) -> Graph:
        """Give the main graph, with everything in it."""
        return self._graph(self._model.graph, self._model.graph.name or "")

    def _graph(self, graph: ir.Graph, name: str) -> Graph:
        """Build one graph; recursion is bounded by the cap on depth."""
        own: set[str] = set()
        for value in (*graph.inputs, *graph.initializers.values()):
            self._note(value, own)
        constants = {
            self._name(value): self._initializer(value)
            for value in graph.initializers.values()
        }
        nodes = self._nodes(graph, own, constants)
        outputs = tuple([self._name(value) for value in graph.outputs])
        return Graph(
            name=name,
            file=self._file,
            nodes=sorted_nodes(nodes, self._file, strict=self._strict),
            inputs=tuple([self._name(value) for value in graph.inputs]),
            outputs=outputs,
            types=self._types,
            constants=constants,
            opsets=self._opsets,
            values=self._values,
            model=self._model,
            captures=_captures(nodes, outputs, own),
            keep=self._keep,
        )

    def _nodes(
        self, graph: ir.Graph, own: set[str], constants: dict[str, ir.TensorProtocol]
    ) -> list[Node]:
        """Give the nodes in the order of the file; Constants go to ``constants``."""
        nodes = []
        for source in graph:
            self._since_version(source)
            opset = self._opsets[source.domain]
            check_signature(source, opset, self._file)
            for value in source.outputs:
                if value.name:
                    self._note(value, own)
            tensor = constant_of(source, self._file)
            if tensor is None:
                nodes.append(self._node(source))
            else:
                name = self._name(source.outputs[0])
                constants[name] = tensor
                shape = tuple(tensor.shape.numpy())
                self._types[name] = TensorType(dtype_name(tensor.dtype), shape)
        return nodes

    def _name(self, value: ir.Value) -> str:
        if not value.name:
            raise ModelError(self._file, "a value", "it has no name")
        return value.name

    def _note(self, value: ir.Value, own: set[str]) -> None:
        name = value.name or self._name(value)
        own.add(name)
        self._values[name] = value
        if value.type is not None and (kind := value_type(value)) is not None:
            if reason := unheld(kind):
                raise ModelError(
                    self._file, f"value {name!r}", f"its type is {kind}: {reason}"
                )
            self._types[name] = kind

    def _initializer(self, value: ir.Value) -> ir.TensorProtocol:
        tensor = value.const_value
        if tensor is None:
            raise ModelError(self._file, f"tensor {value.name!r}", "it has no data")
        declared = self._types.get(value.name or "")
        stored = TensorType(dtype_name(tensor.dtype), tuple(tensor.shape.numpy()))
        if isinstance(declared, TensorType) and not _may_be(declared, stored):
            # Kernels trust types: what lies behind shorter data would be read.
            raise ModelError(
                self._file,
                f"tensor {value.name!r}",
                f"it is {stored}, and the input of that name is declared as {declared}",
            )
        return tensor

    def _node(self, node: ir.Node) -> Node:
        attributes: Mapping[str, Any] = {}
        bodies: Mapping[str, Graph] = {}
        captures: dict[str, None] = {}
        if node.attributes:
            attributes = {
                name: python_value(attr, node, self._file)
                for name, attr in node.attributes.items()
                if attr.type not in _GRAPHS
            }
            bodies = {
                name: self._graph(body, body.name or name)
                for name, body in bodies_of(node)
            }
            for body in bodies.values():
                captures.update(dict.fromkeys(body.captures))
        return Node(
            name=node.name or "",
            op_type=node.op_type,
            domain=node.domain,
            since_version=self._since_version(node),
            inputs=tuple([v.name or "" if v is not None else "" for v in node.inputs]),
            outputs=tuple([v.name or "" for v in node.outputs]),
            attributes=attributes,
            source=node,
            bodies=bodies,
            captures=tuple(captures),
        )

    def _since_version(self, node: ir.Node) -> int:
        key = (node.domain, node.op_type)
        known = self._since.get(key)
        if known is None:
            opset = self._opsets.get(node.domain)
            if opset is None:
                raise ModelError(
                    self._file,
                    f"node {node.name!r}",
                    f"it is {node.domain or 'ai.onnx'}::{node.op_type}, and the model "
                    f"has no opset import for the domain {node.domain or 'ai.onnx'!r}",
                )
            known = since_version(node.op_type, node.domain, opset)
            if not node.domain and opset < OLDEST_OPSET:
                self._check_old(node, opset, known)
            self._since[key] = known
        return known

    def _check_old(self, node: ir.Node, opset: int, since: int) -> None:
        if since != since_version(node.op_type, "", OLDEST_OPSET):
            raise ModelError(
                self._file,
                f"node {node.name!r}",
                f"it is {node.op_type} of opset {opset}, which changed by opset "
                f"{OLDEST_OPSET}, the oldest that is read. To fix: "
                "onnx.version_converter.convert_version",
            )


def _may_be(declared: TensorType, stored: TensorType) -> bool:
    if declared.dtype != stored.dtype:
        return False
    if declared.shape is None or stored.shape is None:
        return True
    return len(declared.shape) == len(stored.shape) and all(
        not isinstance(dim, int) or dim == size
        for dim, size in zip(declared.shape, stored.shape, strict=True)
    )


def _captures(
    nodes: list[Node], outputs: tuple[str, ...], own: set[str]
) -> tuple[str, ...]:
    """Give what a graph reads from the graphs around it, in first use."""
    found: dict[str, None] = {}
    for node in nodes:
        for name in node.reads:
            if name not in own:
                found[name] = None
    for name in outputs:
        if name not in own:
            found[name] = None
    return tuple(found)
