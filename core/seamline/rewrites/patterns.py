"""
Expressions of several nodes, written down as they are and found in a graph.

A pattern is a tuple ``(operator, part, ...)`` whose parts are patterns, numbers, or names:
a number stands for a constant of one element with that value, to float32's rounding; a
name for any value, and each time for the same. ``Add`` and ``Mul`` match in either order.
:func:`choice` stands for any one of several.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import attrs
import onnx_ir as ir

from seamline.rewriting import Rewriting

__all__ = ["Found", "Pattern", "choice", "clipped", "scaled", "search"]

Pattern: TypeAlias = "str | float | tuple[object, ...] | _Choice"
_EITHER_WAY = frozenset({"Add", "Mul"})
_CLOSE = 1e-6  # two float32 roundings of one number


@attrs.frozen
class _Choice:
    of: tuple[Pattern, ...]


def choice(*patterns: Pattern) -> Pattern:
    """Match any of several patterns, the first that fits."""
    return _Choice(patterns)


def scaled(part: Pattern, factor: float) -> Pattern:
    """Match a part times a factor, or divided by its inverse."""
    return choice(("Mul", part, factor), ("Div", part, 1 / factor))


def clipped(part: Pattern, low: float, high: float) -> Pattern:
    """Match a ``Clip`` with these bounds, as inputs or as attributes."""
    return ("Clip", part, low, high)


@attrs.frozen(eq=False)
class Found:
    """Nodes of a match, the last one first, and the values that names stand for."""

    nodes: tuple[ir.Node, ...]
    values: dict[str, ir.Value]


def search(work: Rewriting, node: ir.Node, patterns: Sequence[Pattern]) -> Found | None:
    """Find the first pattern that ends in a node."""
    for pattern in patterns:
        for found in _nodes(work, node, pattern, Found((), {})):
            return found
    return None


def _nodes(
    work: Rewriting, node: ir.Node, pattern: Pattern, before: Found
) -> Iterator[Found]:
    """Give the ways in which a node is a pattern's, given what was found before."""
    if isinstance(pattern, _Choice):
        for one in pattern.of:
            yield from _nodes(work, node, one, before)
        return
    if not isinstance(pattern, tuple) or node.domain or node.op_type != pattern[0]:
        return
    if len(node.outputs) != 1:
        return
    parts: tuple[Pattern, ...] = pattern[1:]  # type: ignore[assignment]
    found = attrs.evolve(before, nodes=(*before.nodes, node))
    if node.op_type == "Clip" and len(node.inputs) == 1:
        bounds = [
            work.attribute(node, "min", -math.inf),
            work.attribute(node, "max", math.inf),
        ]
        if _is(bounds[0], parts[1]) and _is(bounds[1], parts[2]):
            yield from _all(work, list(node.inputs), parts[:1], found)
        return
    inputs = list(node.inputs)
    if len(inputs) != len(parts):
        return
    yield from _all(work, inputs, parts, found)
    if node.op_type in _EITHER_WAY:
        yield from _all(work, inputs[::-1], parts, found)


def _all(
    work: Rewriting,
    inputs: Sequence[ir.Value | None],
    parts: Sequence[Pattern],
    before: Found,
) -> Iterator[Found]:
    if not parts:
        yield before
        return
    for found in _value(work, inputs[0], parts[0], before):
        yield from _all(work, inputs[1:], parts[1:], found)


def _value(
    work: Rewriting, value: ir.Value | None, pattern: Pattern, before: Found
) -> Iterator[Found]:
    if value is None:
        return
    if isinstance(pattern, str):
        known = before.values.get(pattern)
        if known is None:
            yield attrs.evolve(before, values={**before.values, pattern: value})
        elif known is value:
            yield before
    elif isinstance(pattern, (int, float)):
        if _is(work.number(value), pattern):
            yield before
    else:
        node = value.producer()
        if node is None:
            return
        if node in before.nodes:
            return
        yield from _nodes(work, node, pattern, before)


def _is(number: float | None, wanted: object) -> bool:
    if number is None or not isinstance(wanted, (int, float)):
        return False
    return math.isclose(number, wanted, rel_tol=_CLOSE)
