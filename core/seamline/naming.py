"""
One name, one value: names settled over a whole model, bodies included.

ONNX lets the two branches of an ``If`` use the same names, and files in use let a body
reuse ("shadow") a name of the graph around it. The IR links values as objects, so which
one is meant is already decided, by the innermost scope. Here each value gets a name of
its own: the outer graph keeps its names, then bodies claim theirs in the order of the
file, and a name that is taken gets the first free suffix (``a``, ``a_1``, ``a_2``).
Names of the main graph's inputs and outputs therefore never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from seamline.errors import ModelError

__all__ = ["bodies_of", "check_no_shadowing", "settle_names", "walk_graphs"]


class _Names:
    """Names given so far, and those that somebody in the file still has a right to."""

    def __init__(self, reserved: set[str]) -> None:
        self._taken: set[str] = set()
        self._reserved = reserved
        self._next: dict[str, int] = {}

    def claim(self, name: str | None, otherwise: str) -> str:
        """Give a name of the file, or one of ours, which gives way to all of those."""
        free_as_it_is = (
            name not in self._taken if name else otherwise not in self._reserved
        )
        name = name or otherwise
        if free_as_it_is and name not in self._taken:
            self._taken.add(name)
            return name
        # Counting on from the last suffix keeps ten thousand equal names linear.
        number = self._next.get(name, 0) + 1
        while (free := f"{name}_{number}") in self._taken or free in self._reserved:
            number += 1
        self._next[name] = number
        self._taken.add(free)
        return free


def bodies_of(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """Give a node's bodies by attribute name; a list of graphs counts them: ``a[0]``."""
    for name, attr in node.attributes.items():
        if attr.is_ref():
            continue
        if attr.type == ir.AttributeType.GRAPH:
            yield name, attr.as_graph()
        elif attr.type == ir.AttributeType.GRAPHS:
            for index, graph in enumerate(attr.as_graphs()):
                yield f"{name}[{index}]", graph


def walk_graphs(graph: ir.Graph) -> Iterator[tuple[ir.Graph, tuple[ir.Node, ...]]]:
    """
    Give a graph and the bodies in it, each after the graph around it, with its nodes.

    The nodes come as a tuple because the IR's own list is a linked one, slow to walk.
    """
    stack = [graph]
    while stack:
        current = stack.pop()
        nodes = tuple(current)
        yield current, nodes
        inner = [
            body for node in nodes if node.attributes for _, body in bodies_of(node)
        ]
        stack += reversed(inner)


def _own_values(graph: ir.Graph, nodes: Iterable[ir.Node]) -> list[ir.Value]:
    """Give the values that a graph itself defines, each once."""
    values = dict.fromkeys(graph.inputs)
    values.update(dict.fromkeys(graph.initializers.values()))
    return [*values, *[value for node in nodes for value in node.outputs]]


def _is_absent(value: ir.Value) -> bool:
    """Tell whether a node leaves out this output, which has no name."""
    return not value.uses() and not value.is_graph_output()


def _under(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """Give a tensor under another name; the caller's own keeps the one it has."""
    shape = ir.Shape(tensor.shape.numpy())
    if isinstance(tensor, ir.StringTensor):
        return ir.StringTensor(tensor.string_data(), shape=shape, name=name)
    return ir.LazyTensor(lambda: tensor, tensor.dtype, shape, name=name)


def _rename(value: ir.Value, name: str) -> None:
    if value.const_value is not None:
        value.const_value = _under(value.const_value, name)
    value.name = name


def settle_names(graph: ir.Graph) -> None:
    """
    Give every value and every node of a model a name that nothing else has.

    A node without a name is called after its operator and its place in the file, bodies
    counted where they stand: ``Add_12``.
    """
    graphs = [
        (_own_values(current, nodes), nodes) for current, nodes in walk_graphs(graph)
    ]
    names = _Names({v.name for values, _ in graphs for v in values if v.name})
    labels = _Names({node.name for _, nodes in graphs for node in nodes if node.name})
    index = 0
    for values, nodes in graphs:
        for value in values:
            old = value.name
            if not old and _is_absent(value):
                continue
            name = names.claim(old, "value")
            if name != old:
                _rename(value, name)
        for node in nodes:
            old = node.name
            label = labels.claim(old, f"{node.op_type}_{index}")
            if label != old:
                node.name = label
            index += 1


def check_no_shadowing(graph: ir.Graph, file: str) -> None:
    """
    Refuse a body that reuses a name of a graph around it, as the standard does.

    Raises
    ------
    ModelError
        Names the value and the body.
    """
    stack: list[tuple[ir.Graph, frozenset[str]]] = [(graph, frozenset())]
    while stack:
        current, outer = stack.pop()
        nodes = tuple(current)
        own = {value.name for value in _own_values(current, nodes) if value.name}
        if reused := sorted(own & outer):
            raise ModelError(
                file,
                f"value {reused[0]!r}",
                f"the body {current.name!r} defines it again although a graph around "
                "it does; the standard forbids that (strict=True)",
            )
        inner = [b for node in nodes if node.attributes for _, b in bodies_of(node)]
        visible = outer | own if inner else outer
        stack += [(body, visible) for body in inner]
