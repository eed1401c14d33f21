"""
What two lists of providers give for every value of a model, and for its nodes alone.

To observe a value is to make it an output of a copy of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import onnx_ir as ir

from seamline.cloning import copy_model
from seamline.graph import Graph, Node
from seamline.limits import LoadLimits
from seamline.pipeline import Pipeline
from seamline.tensors import ValueType
from seamline_testing.excerpts import Excerpt, excerpt_of
from seamline_testing.sides import Closeness, Side

__all__ = ["Observed"]


@attrs.define(eq=False)
class Observed:
    """The two lists, and what they gave for the values that are observed."""

    graph: Graph
    sides: tuple[Side, Side]
    feeds: Mapping[str, Any]
    closeness: Closeness
    types: Mapping[str, ValueType | None] = attrs.field(factory=dict)
    folded: frozenset[str] = frozenset()
    given: tuple[dict[str, Any], dict[str, Any]] = attrs.field(factory=lambda: ({}, {}))
    by: dict[str, tuple[str, str]] = attrs.field(factory=dict)

    def observe(self, nodes: Sequence[Node]) -> None:
        """Run both with what these nodes read and write as outputs."""
        wanted = dict.fromkeys(
            name
            for node in nodes
            for name in (*node.reads, *node.writes)
            if name not in self.graph.constants and name not in self.feeds
        )
        tapped = _with_outputs(self.graph, list(wanted))
        who: list[Mapping[str, str]] = []
        for side, given in zip(self.sides, self.given, strict=True):
            pipeline = side.open(tapped)
            try:
                values = pipeline.run(self.feeds, list(wanted))
                who.append(_who_ran(pipeline))
                if side is self.sides[0]:
                    self.types = dict(pipeline.types)
                self.folded |= frozenset(pipeline.folding.nodes)
            finally:
                pipeline.close()
            given.clear()
            given.update(self.feeds)
            given.update(zip(wanted, values, strict=True))
        self.by = {node.name: (who[0][node.name], who[1][node.name]) for node in nodes}

    def differs(self, node: Node) -> tuple[str, str]:
        """Give the first output of a node that differs inside the model, and how."""
        ours, theirs = self.given
        for name in node.writes:
            said = self.closeness.difference(ours[name], theirs[name], [node.op_type])
            if said:
                return name, said
        return "", ""

    def alone(self, nodes: Sequence[Node], which: int) -> Excerpt:
        """Take nodes out with the inputs that one of the lists had."""
        made = {node.name: node.writes for node in self.graph.nodes}
        fixed = {name for node in self.folded for name in made.get(node, ())}
        values = self.given[which]
        return excerpt_of(
            self.graph, nodes, nodes[-1].writes, values, types=self.types, fixed=fixed
        )

    def strays(self, node: Node, which: int) -> tuple[str, str]:
        """Say how a list gives another value inside the model than alone, or nothing."""
        excerpt = self.alone([node], which)
        values = self.sides[which].run(excerpt.model(), excerpt.feeds)
        for name, value in zip(excerpt.outputs, values, strict=True):
            inside = self.given[which][name]
            said = self.closeness.difference(value, inside, [node.op_type])
            if said:
                return name, said
        return "", ""


def _with_outputs(graph: Graph, names: Sequence[str]) -> ir.Model:
    """Copy the model, with these values as its outputs."""
    copy = copy_model(graph.model, graph.file, LoadLimits())
    values = {v.name: v for node in copy.graph for v in node.outputs}
    values |= {value.name: value for value in copy.graph.inputs}
    copy.graph.outputs.clear()
    copy.graph.outputs.extend(values[name] for name in names)
    return copy


def _who_ran(pipeline: Pipeline) -> dict[str, str]:
    return {
        name: f"{choice.provider} ({choice.claim.variant})"
        for name, choice in pipeline.placement.choices.items()
    }
