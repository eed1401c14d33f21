"""
Pins: what a caller says of where nodes run, and which nodes that means.

A pin is a node's name, a pattern of names or an operator. A name is stronger than a
pattern, a pattern than an operator; every pin must match something.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

from seamline.errors import PinError, near
from seamline.graph import Node
from seamline.provider import Device

__all__ = ["pinned_nodes", "refuse_pin"]


def pinned_nodes(
    nodes: Sequence[Node], pins: Mapping[str, str], devices: Mapping[str, Device]
) -> dict[str, tuple[str, str]]:
    """Give for each pinned node its provider and the pin; every pin must match."""
    names = {node.name: node for node in nodes}
    ranked: list[tuple[int, str, list[str]]] = []
    for pin, provider in pins.items():
        if not isinstance(provider, str):
            raise PinError(
                f"pin {pin!r} -> {provider!r}: a provider is given by its name"
            )
        if provider not in devices:
            raise PinError(
                f"pin {pin!r} -> {provider!r}: the session has no such provider"
                f"{near(provider, devices)} (it has: {', '.join(devices)})"
            )
        ranked.append(_matches(pin, nodes, names))
    found: dict[str, tuple[str, str]] = {}
    for _, pin, matched in sorted(ranked, key=lambda item: item[0]):
        for name in matched:
            found.setdefault(name, (pins[pin], pin))
    return found


def _matches(
    pin: str, nodes: Sequence[Node], names: Mapping[str, Node]
) -> tuple[int, str, list[str]]:
    if pin in names:
        return 0, pin, [pin]
    by_pattern = [name for name in names if fnmatch.fnmatchcase(name, pin)]
    if by_pattern:
        return 1, pin, by_pattern
    by_op = [n.name for n in nodes if pin in _operator_names(n)]
    if by_op:
        return 2, pin, by_op
    candidates = [*names, *{n.op_type for n in nodes}]
    raise PinError(
        f"pin {pin!r} matches no node name, pattern or operator of the model"
        f"{near(pin, candidates)}"
    )


def refuse_pin(node: Node, pinned: tuple[str, str] | None) -> None:
    """Refuse a pin that names a node of the core's; a pattern may sweep over it."""
    if pinned is not None and pinned[1] in (node.name, *_operator_names(node)):
        raise PinError(
            f"pin {pinned[1]!r} puts node {node.name!r} ({node.qualified_op}) on "
            f"{pinned[0]!r}, and the core itself runs that operator on the host; pin the "
            "nodes of its bodies"
        )


def _operator_names(node: Node) -> tuple[str, ...]:
    own = () if node.domain else (f"ai.onnx::{node.op_type}",)
    return (node.op_type, node.qualified_op, *own)
