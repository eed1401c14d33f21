"""
A model while it is rewritten: what rules may ask of it, and how a rewrite is made.

Rules work on a copy of the IR, node by node. A rule drafts new nodes in place of old
ones; the draft is made only if nothing of it can be noticed from outside: no value that
somebody asks for disappears, no pinned node does, and each new node is claimed by a
provider at least as preferred as those of the nodes that it replaces. Whatever is made,
and whatever was not although a rule fitted, is kept with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import onnx_ir as ir

from seamline.attributes import python_value
from seamline.claims import ask, is_core
from seamline.constants import Constants
from seamline.folding import RANDOM
from seamline.graph import Graph, Node
from seamline.naming import walk_graphs
from seamline.provider import Array, Claim, Provider, view_of
from seamline.shapes import Settled
from seamline.tensors import TensorType, ValueType
from seamline.versions import since_version

__all__ = ["CONTRIB", "OWN", "Left", "Rewrite", "Rewriting", "Rule"]

CONTRIB = "com.microsoft"  #: onnxruntime's fused operators
OWN = "seamline"  #: fused operators that it lacks, and ONNX's own for older opsets


@attrs.frozen
class Rewrite:
    """
    One rewrite.

    Attributes
    ----------
    nodes
        Names of the nodes that it replaced.
    made
        The nodes that came instead, by name: their operators. Nodes that compute
        constants are not named.
    reason
        Why it gives the same, in words.
    """

    rule: str
    nodes: tuple[str, ...]
    made: Mapping[str, str]
    reason: str


@attrs.frozen
class Left:
    """A node that a rule fits and that was left as it is, and why."""

    rule: str
    node: str
    why: str


@attrs.define(eq=False)
class Rewriting:
    """
    The copy of a model that rules change.

    Attributes
    ----------
    graph
        The model as it was.
    model
        The copy.
    providers
        The session's, most preferred first.
    pinned
        Node name -> the pin that holds it.
    known
        Gives a constant that no caller can override, by name.
    stored
        All constants of the model: a rule may compute with one that a caller can
        override, but not look at its value.
    infer
        Finds the types of all values.
    accuracy_level
        MatMulNBits', for products that rules make of dequantised weights.
    settled
        What was found with the types of values, of nodes as they were.
    """

    graph: Graph
    model: ir.Model
    providers: Sequence[Provider]
    pinned: Mapping[str, str]
    known: Callable[[str], Array | None]
    stored: Constants
    infer: Callable[[], Mapping[str, ValueType | None]]
    accuracy_level: int = 0
    rewrites: list[Rewrite] = attrs.field(factory=list)
    left: dict[tuple[str, str], Left] = attrs.field(factory=dict)
    fresh: dict[str, Array] = attrs.field(factory=dict)
    settled: Mapping[str, Settled] = attrs.field(factory=dict)
    _types: dict[str, ValueType | None] = attrs.field(factory=dict)
    _owners: dict[str, int | None] = attrs.field(factory=dict)
    _static: dict[ir.Value, bool] = attrs.field(factory=dict)
    _names: set[str] = attrs.field(factory=set)

    # -- what rules ask ------------------------------------------------------------------

    @property
    def types(self) -> dict[str, ValueType | None]:
        """Give what is known of each value's type, found when first asked for."""
        if not self._types:
            self._types = dict(self.infer())
        return self._types

    def kind(self, value: ir.Value | None) -> TensorType | None:
        """Give the type of a tensor of known type, or None."""
        found = self.types.get(value.name or "") if value is not None else None
        return found if isinstance(found, TensorType) else None

    def shape(self, value: ir.Value | None) -> tuple[int | str | None, ...] | None:
        """Give a tensor's sizes, or None where even their number is open."""
        kind = self.kind(value)
        return None if kind is None else kind.shape

    def constant(self, value: ir.Value | None) -> Array | None:
        """Give the array of a value that the model states, or None."""
        if value is None or not value.name:
            return None
        found = self.fresh.get(value.name)
        return found if found is not None else self.known(value.name)

    def number(self, value: ir.Value | None) -> float | None:
        """Give the value of a constant of one element, or None."""
        if value is None or not self._small(value):
            return None
        array = self.constant(value)
        if array is None or array.size != 1 or array.dtype.kind not in "fiu":
            return None
        return float(array.reshape(())[()])

    def is_static(self, value: ir.Value) -> bool:
        """Tell whether a value depends on constants alone, and is thus folded."""
        stack = [value]
        while stack:
            top = stack[-1]
            if top in self._static:
                stack.pop()
                continue
            node = top.producer()
            reads = [] if node is None else [v for v in node.inputs if v is not None]
            open_ = [v for v in reads if v not in self._static]
            if node is None or not open_:
                self._static[top] = self._settled(top, node, reads)
                stack.pop()
            else:
                stack += open_
        return self._static[value]

    def _settled(self, value: ir.Value, node: ir.Node | None, reads: Any) -> bool:
        if (value.name or "") in self.stored or value.name in self.fresh:
            return True
        if node is None or not reads or node.op_type in RANDOM:
            return False
        return not is_core(self.as_node(node)) and all(map(self._static.get, reads))

    def _small(self, value: ir.Value) -> bool:
        tensor = value.const_value
        return tensor is None or tensor.size == 1

    # -- nodes ---------------------------------------------------------------------------

    def only_reader(self, value: ir.Value) -> ir.Node | None:
        """Give the node that alone reads a value which nobody else asks for, or None."""
        readers = {use.node for use in value.uses()}
        if len(readers) != 1 or value.is_graph_output():
            return None
        (reader,) = readers
        producer = value.producer()
        same = producer is None or reader.graph is producer.graph
        return reader if same else None

    def as_node(self, source: ir.Node) -> Node:
        """See an IR node without bodies as providers see it."""
        file, domain = self.graph.file, source.domain
        opset = self.model.opset_imports.get(domain, 1)
        return Node(
            source.name or "",
            source.op_type,
            domain,
            since_version(source.op_type, domain, opset),
            tuple([v.name or "" if v is not None else "" for v in source.inputs]),
            tuple([v.name or "" for v in source.outputs]),
            {
                name: python_value(attr, source, file)
                for name, attr in source.attributes.items()
                if attr.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
            },
            source,
        )

    def attribute(self, node: ir.Node, name: str, default: Any) -> Any:
        """Give an attribute's value, or the default."""
        attr = node.attributes.get(name)
        return default if attr is None else python_value(attr, node, self.graph.file)

    def opset(self) -> int:
        """Give the model's opset of ONNX's own operators."""
        return int(self.model.opset_imports.get("", 0))

    def owner(self, source: ir.Node) -> int | None:
        """Give the place in order of the first provider that claims a node, or None."""
        name = source.name or ""
        if name not in self._owners:
            view = view_of(self.as_node(source), self.types, self._constant_named)
            self._owners[name] = next(
                (
                    place
                    for place, provider in enumerate(self.providers)
                    if isinstance(ask(provider, view), Claim)
                ),
                None,
            )
        return self._owners[name]

    def refusals(self, source: ir.Node) -> str:
        """Say why nobody claims a node."""
        view = view_of(self.as_node(source), self.types, self._constant_named)
        said = [f"{p.name}: {ask(p, view)}" for p in self.providers]
        return "; ".join(said)

    def _constant_named(self, name: str) -> Array | None:
        found = self.fresh.get(name)
        return found if found is not None else self.known(name)

    # -- names and records ---------------------------------------------------------------

    def free_name(self, wanted: str) -> str:
        """Give a name that no value and no node of the model has, and take it."""
        if not self._names:
            for graph, nodes in walk_graphs(self.model.graph):
                values = [*graph.inputs, *graph.initializers.values()]
                values += [value for node in nodes for value in node.outputs]
                self._names.update(value.name for value in values if value.name)
                self._names.update(node.name for node in nodes if node.name)
        name, number = wanted, 0
        while name in self._names:
            number += 1
            name = f"{wanted}_{number}"
        self._names.add(name)
        return name

    def forget(self, name: str) -> None:
        """Forget who claims a node of this name, for another takes it."""
        self._owners.pop(name, None)

    def leave(self, rule: str, node: str, why: str) -> bool:
        """Keep why a rule that fits was not applied; gives False."""
        self.left.setdefault((rule, node), Left(rule, node, why))
        return False


#: Looks at one node; tells whether it changed the model.
Rule = Callable[[Rewriting, ir.Node], bool]
Rules = Mapping[str, Iterable[Rule]]
