"""
Rewrite a graph before providers are asked: fewer nodes, the same values.

This stage stands between load and claim. Its levels are ONNX Runtime's. *Basic* removes
nodes that do nothing and folds constant arithmetic into convolutions; *extended* makes
fused operators, which are ONNX Runtime's (``com.microsoft``) where it has them. A fused
operator is made only where a provider of the session claims it; outputs of a graph,
pinned nodes, and anything that could be noticed from outside stay. Every rewrite is
listed with its reason, and so is every place where a rule fits and was not applied.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from seamline.claims import infer_with
from seamline.cloning import copy_model
from seamline.collector import collector_paused
from seamline.constants import Constants
from seamline.graph import Graph, Node
from seamline.levels import GraphOptimizationLevel
from seamline.naming import walk_graphs
from seamline.provider import Provider
from seamline.rewriting import Left, Rewrite, Rewriting, Rules
from seamline.shapes import Settled, resolve_static
from seamline.tensors import TensorType, ValueType

__all__ = ["Optimized", "optimize"]

_SWEEPS = 32  # over all nodes; a chain of fusions takes one each


@attrs.frozen(eq=False)
class Optimized:
    """
    A graph after its rewrites.

    Attributes
    ----------
    graph
        The graph given, where nothing was rewritten.
    rewrites
        In the order in which they were made.
    left
        Nodes that a rule fits and that were left as they are.
    settled
        Types that rules had found, of nodes that are in the graph as they were.
    """

    graph: Graph
    level: GraphOptimizationLevel
    rewrites: tuple[Rewrite, ...] = ()
    left: tuple[Left, ...] = ()
    settled: Mapping[str, Settled] = attrs.field(factory=dict, repr=False)

    def described(self) -> dict[str, Any]:
        """Give what was done as JSON knows it, with ids that a diff compares by."""
        rewrites = [
            {
                "id": f"{one.rule} {one.nodes[0]}",
                "nodes": list(one.nodes),
                "made": dict(one.made),
                "reason": one.reason,
            }
            for one in self.rewrites
        ]
        left = [{"id": f"{one.rule} {one.node}", "why": one.why} for one in self.left]
        return {"level": self.level.name, "rewrites": rewrites, "left": left}


@collector_paused()
def optimize(
    graph: Graph,
    providers: Sequence[Provider],
    *,
    level: GraphOptimizationLevel,
    pins: Mapping[str, str] | None = None,
    constants: Constants | None = None,
    accuracy_level: int = 0,
) -> Optimized:
    """
    Rewrite a copy of a graph; the graph given stays as it is.

    Parameters
    ----------
    providers
        The session's, most preferred first; asked whether they claim what rules make.
    pins
        Node name, pattern or operator -> provider: what they match is not rewritten.
    constants
        The graph's, where they were read already.
    accuracy_level
        MatMulNBits', for products that are made of dequantised weights: at 4 activations
        may be of 8 bits.
    """
    stages = tuple(_stages(level))
    if not stages or not providers:
        return Optimized(graph, level)
    work = _rewriting(graph, providers, pins or {}, constants or Constants(graph))
    work.accuracy_level = accuracy_level
    for rules in stages:
        _apply(work, rules)
    left = tuple(work.left.values())
    if not work.rewrites:
        return Optimized(graph, level, left=left, settled=work.settled)
    made = _built(work)
    return Optimized(made, level, tuple(work.rewrites), left, _still(made, work))


def _still(made: Graph, work: Rewriting) -> dict[str, Settled]:
    """Give what was settled of nodes that no rule took or made, which may take their names."""
    if not work.settled:
        return {}
    touched = {name for one in work.rewrites for name in (*one.nodes, *one.made)}
    found: dict[str, Settled] = {}
    for node in made.walk():
        before = None if node.name in touched else work.settled.get(node.name)
        if before is not None and len(node.inputs) == len(before.inputs):
            found[node.name] = before
    return found


def _stages(level: GraphOptimizationLevel) -> Iterator[Rules]:
    if level >= GraphOptimizationLevel.ORT_ENABLE_BASIC:
        from seamline.rewrites import BASIC, EXTENDED

        yield BASIC
        if level >= GraphOptimizationLevel.ORT_ENABLE_EXTENDED:
            yield from EXTENDED


def _rewriting(
    graph: Graph,
    providers: Sequence[Provider],
    pins: Mapping[str, str],
    constants: Constants,
) -> Rewriting:
    fixed = Constants(graph, frozenset(graph.overridable))

    def infer() -> Mapping[str, ValueType | None]:
        named = attrs.evolve(graph, types=_with_symbols(graph))
        found = resolve_static(named, constants, infer_with(providers))
        work.settled = found.settled
        return found.types

    model = copy_model(graph.model, graph.file)
    pinned = _pinned(list(graph.walk()), pins)
    work = Rewriting(graph, model, providers, pinned, fixed.get, constants, infer)
    return work


def _with_symbols(graph: Graph) -> dict[str, ValueType | None]:
    """
    Give types in which each size of an input that is left open is a symbol of its own.

    Two values of one symbol are of one size, which is how a rule knows that nothing is
    broadcast. Symbols get names that inference can calculate with.
    """
    types, names = dict(graph.types), dict[str, str]()
    for name in graph.inputs:
        kind = types.get(name)
        if isinstance(kind, TensorType) and kind.shape is not None:
            sizes = [
                size
                if isinstance(size, int)
                else names.setdefault(
                    size or f"{name}.{axis}", f"input_size_{len(names)}"
                )
                for axis, size in enumerate(kind.shape)
            ]
            types[name] = TensorType(kind.dtype, tuple(sizes))
    return types


def _pinned(nodes: Sequence[Node], pins: Mapping[str, str]) -> dict[str, str]:
    """Give the nodes that any pin matches; one that matches none is placement's error."""
    names = {node.name for node in nodes}
    found: dict[str, str] = {}
    for pin in pins:
        matched = (
            [pin]
            if pin in names
            else [name for name in names if fnmatch.fnmatchcase(name, pin)]
        )
        if not matched:
            matched = [n.name for n in nodes if pin in (n.op_type, n.qualified_op)]
        found.update(dict.fromkeys(matched, pin))
    return found


def _apply(work: Rewriting, rules: Rules) -> None:
    """Offer every node to the rules of its operator until nothing changes."""
    for _ in range(_SWEEPS):
        changed = False
        for graph, nodes in list(walk_graphs(work.model.graph)):
            for node in nodes:
                for rule in rules.get(node.op_type, ()):
                    if node.graph is graph and rule(work, node):
                        changed = True
        if not changed:
            return


def _built(work: Rewriting) -> Graph:
    from seamline.building import GraphBuilder

    graph = work.graph
    builder = GraphBuilder(work.model, graph.file, strict=False, keep=graph.keep)
    return builder.build()
