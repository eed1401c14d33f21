"""One rewrite in the making: nodes drafted, then put in place of others, or thrown away."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import onnx_ir as ir

from seamline.onnx_inference import ir_type
from seamline.provider import Array
from seamline.rewriting import Rewrite, Rewriting
from seamline.tensors import TensorType, type_of_array

__all__ = ["Draft"]

_NOBODY = "no provider claims"


@attrs.define(eq=False)
class Draft:
    """
    New nodes for old ones.

    Attributes
    ----------
    old
        Nodes to replace. The first one gives its name to the node that comes instead.
    """

    work: Rewriting
    rule: str
    old: tuple[ir.Node, ...]
    _made: list[ir.Node] = attrs.field(factory=list)
    _stored: list[ir.Value] = attrs.field(factory=list)

    @property
    def name(self) -> str:
        """Give the name that new names begin with."""
        return self.old[0].name or self.old[0].op_type

    def constant(self, array: Array, hint: str) -> ir.Value:
        """Draft a constant."""
        name = self.work.free_name(f"{self.name}.{hint}")
        array = np.ascontiguousarray(array)
        value = ir.Value(name=name, const_value=ir.Tensor(array, name=name))
        self._typed(value, type_of_array(array))
        self.work.fresh[name] = array
        self._stored.append(value)
        return value

    def node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        kind: TensorType | None,
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        hint: str = "",
        outputs: int = 1,
        absent: Collection[int] = (),
    ) -> ir.Value:
        """
        Draft a node; give its first output.

        Parameters
        ----------
        kind
            Type of each output.
        hint
            What it is for; empty for the node that takes the first old node's name.
        absent
            Outputs that are left out.
        """
        given = [
            one
            if isinstance(one, ir.Attr)
            else ir.convenience.convert_attribute(n, one)
            for n, one in (attributes or {}).items()
        ]
        made = [ir.Value() for _ in range(outputs)]
        label = self.work.free_name(f"{self.name}.{hint}") if hint else self.name
        for index, value in enumerate(made):
            if index in absent:
                value.name = ""
                continue
            value.name = self.work.free_name(f"{label}.out")
            self._typed(value, kind)
        node = ir.Node(domain, op_type, inputs, given, outputs=made, name=label)
        self._made.append(node)
        self.work.forget(label)
        return made[0]

    def _typed(self, value: ir.Value, kind: TensorType | None) -> None:
        self.work.types[value.name or ""] = kind
        if kind is not None:
            value.type = ir_type(kind)
            if kind.shape is not None:
                value.shape = ir.Shape(kind.shape)

    def make(
        self, reason: str, *pairs: tuple[ir.Value, ir.Value], quiet: bool = False,
        optional: bool = False,
    ) -> bool:  # fmt: skip
        """
        Put the new nodes in place of the old ones, or leave all as it was.

        Parameters
        ----------
        pairs
            Each value that is read outside of the old nodes, and what comes for it.
        quiet
            Keep no record where a value of the old nodes is asked for.
        optional
            Keep no record where no provider claims a new node.

        Returns
        -------
        bool
            Whether it was made; if not, the reason is kept.
        """
        asked = self._asked(dict(pairs))
        why = self._why_not()
        if asked or why:
            self._throw_away()
            if (quiet and asked) or (optional and why.startswith(_NOBODY)):
                return False
            return self.work.leave(self.rule, self.name, why or asked)
        graph = self.old[-1].graph
        assert isinstance(graph, ir.Graph)
        for value in self._stored:
            graph.register_initializer(value)
        for node in self._made:
            if node.domain:
                self.work.model.opset_imports.setdefault(node.domain, 1)
        graph.insert_before(self.old[-1], self._made)
        for old, new in pairs:
            self._give(old, new)
        made = {
            node.name or "": f"{node.domain}::{node.op_type}".lstrip(":")
            for node in self._made
            if not self.work.is_static(node.outputs[0])
        }
        names = tuple(node.name or "" for node in self.old)
        self.work.rewrites.append(Rewrite(self.rule, names, made, reason))
        self._remove(self.old)
        return True

    # -- what forbids it -----------------------------------------------------------------

    def _asked(self, given: Mapping[ir.Value, ir.Value]) -> str:
        """Name a value that would disappear although somebody asks for it."""
        inside = set(self.old)
        for node in self.old:
            for value in node.outputs:
                new = given.get(value)
                if new is not None and new.producer() in self._made:
                    continue
                if new is not None and not value.is_graph_output():
                    continue
                if value.is_graph_output():
                    return f"{value.name!r} is an output of the graph"
                if any(use.node not in inside for use in value.uses()):
                    return f"{value.name!r} is read elsewhere too"
        return ""

    def _why_not(self) -> str:
        for node in self.old:
            if (pin := self.work.pinned.get(node.name or "")) is not None:
                return f"{node.name!r} is pinned by {pin!r}"
        owners = [self.work.owner(node) for node in self.old]
        best = min(
            (o for o in owners if o is not None), default=len(self.work.providers)
        )
        for node in self._made:
            self.work.forget(node.name or "")
            owner = self.work.owner(node)
            self.work.forget(node.name or "")
            if owner is None:
                what = f"{node.domain}::{node.op_type}".lstrip(":")
                return f"{_NOBODY} {what}: {self.work.refusals(node)}"
            if owner > best:
                better, worse = self.work.providers[best], self.work.providers[owner]
                return (
                    f"{node.op_type} would be {worse.name}'s, and part of it is now "
                    f"{better.name}'s, which comes first"
                )
        return ""

    # -- the IR --------------------------------------------------------------------------

    def _throw_away(self) -> None:
        for node in reversed(self._made):
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)

    def _give(self, old: ir.Value, new: ir.Value) -> None:
        """Let ``new`` be read wherever ``old`` was; a result of ours takes its name."""
        name = old.name
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        if new.producer() in self._made:
            self.work.types[name or ""] = self.work.types.get(
                name or "", self.work.types.get(new.name or "")
            )
            old.name = self.work.free_name(f"{name}.before")
            new.name, new.type = name, old.type or new.type
            new.shape = old.shape if old.shape is not None else new.shape

    def _remove(self, nodes: Sequence[ir.Node]) -> None:
        """Remove nodes, and what only they read of constants and their arithmetic."""
        stack = [v for node in nodes for v in node.inputs if v is not None]
        whole = nodes[0].graph
        if isinstance(whole, ir.Graph):
            whole.remove(nodes, safe=True)
        while stack:
            value = stack.pop()
            if (
                value.uses()
                or value.is_graph_output()
                or not self.work.is_static(value)
            ):
                continue
            node = value.producer()
            if node is None:
                graph = value.graph
                if value.is_initializer() and not value.is_graph_input() and graph:
                    graph.initializers.pop(value.name or "", None)
            elif self._unread(node) and node.name not in self.work.pinned:
                stack += [v for v in node.inputs if v is not None]
                if isinstance(node.graph, ir.Graph):
                    node.graph.remove(node, safe=True)

    def _unread(self, node: ir.Node) -> bool:
        return not any(v.uses() or v.is_graph_output() for v in node.outputs)
