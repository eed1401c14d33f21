"""
Which value a name means, and whether there is one at all.

A node may read what its own graph defines, in any order of the file, or what a graph
around it defines. The standard wants every output of a body to be a value of that body;
files in use also name a value of a graph around it, and then an ``Identity`` says so.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable

import onnx_ir as ir

from seamline.errors import ModelError, near
from seamline.naming import bodies_of

__all__ = ["resolve_scopes"]


def resolve_scopes(graph: ir.Graph, file: str) -> None:
    """
    Check that everything read is defined where it can be seen.

    Raises
    ------
    ModelError
        Names the node and the value that nothing gives.
    """
    _resolve(graph, ChainMap(), [], file)


def _resolve(
    graph: ir.Graph,
    around: ChainMap[str, ir.Value],
    chain: list[set[ir.Value]],
    file: str,
) -> None:
    """Resolve one graph; recursion is bounded by the cap on depth."""
    own: set[ir.Value] = {*graph.inputs, *graph.initializers.values()}
    nodes = tuple(graph)
    for node in nodes:
        own.update(node.outputs)
    chain = [*chain, own]
    bodies = []
    for node in nodes:
        for value in node.inputs:
            if value is not None and value not in own and not _seen(value, chain):
                raise _nothing_gives(file, f"node {_what(node)!r}", value, chain)
        if node.attributes:
            bodies += [body for _, body in bodies_of(node)]
    _bind_outputs(graph, own, around, file)
    if bodies:
        names = around.new_child({v.name: v for v in own if v.name})
        for body in bodies:
            _resolve(body, names, chain, file)


def _seen(value: ir.Value, chain: list[set[ir.Value]]) -> bool:
    return any(value in scope for scope in reversed(chain))


def _what(node: ir.Node) -> str:
    return node.name or node.op_type


def _nothing_gives(
    file: str, who: str, value: ir.Value, chain: Iterable[set[ir.Value]]
) -> ModelError:
    known = [v.name for scope in chain for v in scope if v.name]
    name = value.name or ""
    return ModelError(
        file,
        who,
        f"it reads {name!r}, which no node, input or initializer gives"
        f"{near(name, known[:2000])}",
    )


def _bind_outputs(
    graph: ir.Graph,
    own: set[ir.Value],
    around: ChainMap[str, ir.Value],
    file: str,
) -> None:
    for index, value in enumerate(graph.outputs):
        if value in own:
            continue
        outer = around.get(value.name or "")
        if outer is None:
            raise ModelError(
                file,
                f"output {value.name!r} of graph {graph.name!r}",
                "no node, input or initializer gives it",
            )
        given = ir.Value(name=value.name, type=outer.type, shape=outer.shape)
        graph.append(ir.Node("", "Identity", [outer], outputs=[given]))
        graph.outputs[index] = given
        own.add(given)
