"""
Types of values, and values known without running: symbolic at load, sized per signature.

Inference is onnx-shape-inference's, one node at a time, so that a *part* of a graph can be
resolved: the nodes that remain after a size was found at run time, or the body of a loop
whose carried shapes have changed. It also follows small integer tensors (``Shape``,
``Gather``, ``Concat`` ...), which is what makes most shape arithmetic known once the
inputs' sizes are. Operators that it lacks go to ONNX's own inference, then to the
provider that may know them, then to what the file declares.

The library writes what it finds into the IR, so a resolution holds a lock on the model,
forgets what an earlier one left, and gives its answer as values.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping

import attrs

from seamline.constants import Values
from seamline.declared_types import is_sized, merged
from seamline.graph import Graph, Node
from seamline.node_types import Infer, NodeTypes, Types
from seamline.provider import Array
from seamline.tensors import TensorType, ValueType

__all__ = [
    "CONTROL_FLOW",
    "Infer",
    "Resolved",
    "Settled",
    "resolve",
    "resolve_static",
]

CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
_lock = threading.RLock()


@attrs.frozen
class Settled:
    """
    The sized outputs of a node that were found before any feed.

    They hold for every signature in which its inputs have these types, and the same ones
    of them are known: nothing else goes into them.
    """

    inputs: tuple[ValueType | None, ...]
    known: tuple[bool, ...]
    outputs: tuple[ValueType | None, ...]


@attrs.frozen(eq=False)
class Resolved:
    """
    What is known of a part of a graph before it runs.

    Attributes
    ----------
    types
        Type of every value seen; None where nothing is known.
    known
        Arrays of values that depend on sizes and constants alone.
    settled
        By node name, what need not be found again; filled before any feed.
    """

    types: Mapping[str, ValueType | None]
    known: Mapping[str, Array]
    settled: Mapping[str, Settled] = attrs.field(factory=dict)


def resolve(
    graph: Graph,
    nodes: Iterable[Node],
    given: Mapping[str, ValueType | None],
    known: Values,
    infer: Infer,
    settled: Mapping[str, Settled] | None = None,
) -> Resolved:
    """
    Resolve nodes in order, from the types of the values that come from outside.

    Parameters
    ----------
    given
        Types of every outside value that the nodes read.
    known
        Arrays of outside values that are known: constants, and what was resolved before.
    settled
        What :func:`resolve_static` settled for the same model and constants.

    Raises
    ------
    PlanError
        A node's inputs cannot go together; names the node.
    """
    with _lock:
        resolution = _Pass(graph, dict(given), known, infer)
        return resolution.run(nodes, settled or {})


def resolve_static(
    graph: Graph,
    known: Values,
    infer: Infer,
    settled: Mapping[str, Settled] | None = None,
) -> Resolved:
    """
    Give what is known of every value of the model, bodies included, before any feed.

    Sizes that depend on feeds are symbols or None. Claims are collected on these types.

    Parameters
    ----------
    settled
        What was settled of the same nodes before, by name.
    """
    with _lock:
        given: Types = {name: graph.types.get(name) for name in graph.inputs}
        resolution = _Pass(graph, given, known, infer)
        found: dict[str, Settled] = {}
        resolution.deep(graph, found, settled or {})
        return Resolved(resolution.nodes.types, resolution.nodes.known, found)


class _Pass:
    """One pass over nodes, and over the bodies in them."""

    def __init__(
        self,
        graph: Graph,
        given: Types,
        known: Values,
        infer: Infer,
    ) -> None:
        self.nodes = NodeTypes(graph, given, known, infer)

    def run(self, nodes: Iterable[Node], settled: Mapping[str, Settled]) -> Resolved:
        for node in nodes:
            before = settled.get(node.name)
            if before is not None and self._holds(before, node):
                self._take(node, before)
            else:
                self.nodes.node(node)
        return Resolved(self.nodes.types, self.nodes.known)

    def _take(self, node: Node, before: Settled) -> None:
        self.nodes.types.update(zip(node.inputs, before.inputs, strict=True))
        self.nodes.types.update(zip(node.outputs, before.outputs, strict=True))

    def deep(
        self,
        graph: Graph,
        settled: dict[str, Settled],
        earlier: Mapping[str, Settled],
    ) -> None:
        """Resolve a graph and the bodies in it, each body before its owner's outputs."""
        for node in graph.nodes:
            for name, body in node.bodies.items():
                self._enter(node, name, body)
                self.deep(body, settled, earlier)
                self.nodes.tell(body.outputs)  # its owner's inference reads them there
            before = earlier.get(node.name)
            if before is not None and self._holds(before, node):
                self._take(node, before)
                settled[node.name] = before
                continue
            carries = self.nodes.node(node)
            outputs = tuple([self.nodes.types.get(name) for name in node.outputs])
            if not carries and not node.bodies and all(map(is_sized, outputs)):
                inputs = tuple([self.nodes.types.get(name) for name in node.inputs])
                given = tuple([self.nodes.is_known(name) for name in node.inputs])
                settled[node.name] = Settled(inputs, given, outputs)

    def _holds(self, before: Settled, node: Node) -> bool:
        """Tell whether a node's inputs are what they were; constants unseen so far are."""
        for name, kind, known in zip(
            node.inputs, before.inputs, before.known, strict=True
        ):
            if name in self.nodes.types:
                if (
                    self.nodes.types[name] != kind
                    or self.nodes.is_known(name) is not known
                ):
                    return False
            elif name and not known:
                return False
        return True

    def _enter(self, node: Node, attribute: str, body: Graph) -> None:
        """Give a body's inputs the types that its owner's inputs bring."""
        given = [
            self.nodes.types.get(n, self.nodes.graph.types.get(n)) if n else None
            for n in node.inputs
        ]
        if node.op_type == "Scan" and node.since_version == 8:
            given = given[1:]  # the lengths of the batch's entries are not the body's
        for index, name in enumerate(body.inputs):
            declared = body.types.get(name)
            brought: ValueType | None = given[index] if index < len(given) else None
            if node.op_type == "Loop" and index < 2:
                brought = TensorType("bool" if index else "int64", ())
            elif isinstance(brought, TensorType):
                # Sizes may change from turn to turn; the element type may not.
                brought = TensorType(brought.dtype, None)
            self.nodes.types[name] = merged(brought, declared)


def _in_a_child() -> None:
    """Free the lock, which a thread that the child does not have may hold."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_child)
