"""Which function of a model calls which, and what their expansion would come to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import onnx_ir as ir

from seamline.errors import ModelError
from seamline.limits import LoadLimits, too_deep, too_many_nodes
from seamline.naming import walk_graphs

__all__ = ["FunctionId", "called", "callees_first", "calls_in", "check_size"]

FunctionId: TypeAlias = tuple[str, str, str]  #: domain, name, overload


def calls_in(
    graph: ir.Graph, functions: Mapping[FunctionId, ir.Function]
) -> Iterator[ir.Node]:
    """Give the nodes that call a function, those in bodies too."""
    for _, nodes in walk_graphs(graph):
        for node in nodes:
            if node.op_identifier() in functions:
                yield node


def called(function: FunctionId) -> str:
    """Spell a function's name for messages."""
    domain, name, overload = function
    return f"{domain}::{name}" + (f":{overload}" if overload else "")


def _callees(
    function: ir.Function, functions: Mapping[FunctionId, ir.Function]
) -> list[FunctionId]:
    found = [node.op_identifier() for node in calls_in(function.graph, functions)]
    return list(dict.fromkeys(found))


def callees_first(
    functions: Mapping[FunctionId, ir.Function], file: str
) -> list[FunctionId]:
    """
    Order functions so that none stands before one that it calls.

    Raises
    ------
    ModelError
        Functions call each other in a circle, which is shown.
    """
    calls = {key: _callees(function, functions) for key, function in functions.items()}
    order: list[FunctionId] = []
    done: set[FunctionId] = set()
    for start in functions:
        path = {start: iter(calls[start])} if start not in done else {}
        while path:
            current, rest = next(reversed(path.items()))
            callee = next(rest, None)
            if callee is None:
                path.popitem()
                done.add(current)
                order.append(current)
            elif callee in path:
                names = list(path)
                ring = [*names[names.index(callee) :], callee]
                raise ModelError(
                    file,
                    f"function {called(callee)}",
                    f"it calls itself: {' -> '.join(map(called, ring))}",
                )
            elif callee not in done:
                path[callee] = iter(calls[callee])
    return order


def check_size(
    model: ir.Model, order: list[FunctionId], file: str, limits: LoadLimits
) -> None:
    """
    Count what expansion would give: two calls at each of forty levels make 2**40.

    Raises
    ------
    UnsafeModelError
        It would go past a limit.
    """
    nodes: dict[FunctionId, int] = {}
    depth: dict[FunctionId, int] = {}

    def extent(graph: ir.Graph) -> tuple[int, int]:
        called = [n.op_identifier() for _, inner in walk_graphs(graph) for n in inner]
        deepest = max((depth.get(key, 0) for key in called), default=0)
        return sum(nodes.get(key, 1) for key in called), deepest

    for key in order:
        total, deepest = extent(model.functions[key].graph)
        nodes[key], depth[key] = max(total, 1), deepest + 1
    total, deepest = extent(model.graph)
    if total > limits.max_nodes:
        raise too_many_nodes(file, total, limits)
    if deepest > limits.max_depth:
        raise too_deep(file, "its functions", deepest, limits)
