"""
Copies of IR graphs, with substitutions; nodes may stand in any order.

``onnx_ir`` copies graphs too, and needs them sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs
import onnx_ir as ir

from seamline.limits import LoadLimits, too_deep, too_many_nodes
from seamline.naming import bodies_of

__all__ = ["GraphCopier", "check_extent", "copy_model"]

_KIND = ir.AttributeType


def _same(name: str | None) -> str | None:
    return name


@attrs.define(eq=False)
class GraphCopier:
    """
    Copies nodes and graphs.

    Attributes
    ----------
    values
        What stands for a value in the copy; grows. None stands for an input left out;
        what is not in it belongs to a graph around, and stays itself.
    resolve
        Gives the attribute to use for one of a node, or None to leave it out.
    rename
        Gives the names of copied values and nodes.
    """

    values: dict[ir.Value, ir.Value | None]
    resolve: Callable[[ir.Attr], ir.Attr | None] = lambda attr: attr
    rename: Callable[[str | None], str | None] = _same

    def nodes(self, nodes: Iterable[ir.Node]) -> list[ir.Node]:
        """Copy nodes that belong to one graph."""
        nodes = list(nodes)
        for node in nodes:
            for value in node.outputs:
                self._value(value)
        return [self._node(node) for node in nodes]

    def graph(self, graph: ir.Graph) -> ir.Graph:
        """Copy a graph; recursion is bounded by the cap on depth."""
        inputs = [self._value(value) for value in graph.inputs]
        stored = [self._value(value) for value in graph.initializers.values()]
        nodes = self.nodes(graph)
        outputs = [self._output(value) for value in graph.outputs]
        return ir.Graph(
            inputs,
            outputs,
            nodes=nodes,
            initializers=stored,
            doc_string=graph.doc_string,
            opset_imports=dict(graph.opset_imports),
            name=graph.name,
            metadata_props=dict(graph.metadata_props),
        )

    def _value(self, value: ir.Value) -> ir.Value:
        known = self.values.get(value)
        if known is not None:
            return known
        copy = ir.Value(
            name=self.rename(value.name) if value.name else value.name,
            type=value.type,
            shape=None if value.shape is None else value.shape.copy(),
            doc_string=value.doc_string,
            const_value=value.const_value,
            metadata_props=dict(value.metadata_props) or None,
        )
        self.values[value] = copy
        return copy

    def _output(self, value: ir.Value) -> ir.Value:
        known = self.values.get(value)
        # Nothing gives it here; scoping finds it by name, or refuses it.
        return ir.Value(name=value.name) if known is None else known

    def _node(self, node: ir.Node) -> ir.Node:
        attributes = []
        for attr in node.attributes.values():
            given = self.resolve(attr)
            if given is not None:
                attributes.append(self._attribute(given))
        return ir.Node(
            node.domain,
            node.op_type,
            [None if v is None else self.values.get(v, v) for v in node.inputs],
            attributes,
            overload=node.overload,
            outputs=[self._value(value) for value in node.outputs],
            name=self.rename(node.name or node.op_type) if node.name else node.name,
            doc_string=node.doc_string,
            metadata_props=dict(node.metadata_props) or None,
        )

    def _attribute(self, attr: ir.Attr) -> ir.Attr:
        if attr.is_ref():
            return attr
        if attr.type == _KIND.GRAPH:
            return ir.AttrGraph(attr.name, self.graph(attr.as_graph()))
        if attr.type == _KIND.GRAPHS:
            return ir.AttrGraphs(attr.name, [self.graph(g) for g in attr.as_graphs()])
        return attr


def check_extent(graph: ir.Graph, file: str, limits: LoadLimits) -> None:
    """
    Check depth and number of nodes, by a loop.

    Raises
    ------
    UnsafeModelError
        The graph goes past a limit.
    """
    nodes = 0
    stack = [(graph, 0)]
    while stack:
        current, depth = stack.pop()
        nodes += len(current)
        if depth > limits.max_depth:
            raise too_deep(file, f"graph {current.name!r}", depth, limits)
        if nodes > limits.max_nodes:
            raise too_many_nodes(file, nodes, limits)
        for node in current:
            if node.attributes:
                stack += [(body, depth + 1) for _, body in bodies_of(node)]


def copy_model(
    model: ir.Model, file: str, limits: LoadLimits | None = None
) -> ir.Model:
    """Copy a whole model; tensors are shared, nothing else is. None: it was checked."""
    if limits is not None:
        check_extent(model.graph, file, limits)
    functions = []
    for function in model.functions.values():
        if limits is not None:
            check_extent(function.graph, file, limits)
        functions.append(
            ir.Function(
                function.domain,
                function.name,
                function.overload,
                graph=GraphCopier({}).graph(function.graph),
                attributes=_attributes(function.attributes),
            )
        )
    return ir.Model(
        GraphCopier({}).graph(model.graph),
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        functions=functions,
        metadata_props=dict(model.metadata_props),
    )


def _attributes(attributes: Mapping[str, ir.Attr]) -> list[ir.Attr]:
    return list(attributes.values())
