"""
Inside a node with bodies: which inner node diverges, and in which turn.

A body is a model as soon as its inputs have values. So the turns of a Loop or Scan are
gone through one by one, each from what the first list gave for the turn before, and both
lists run the body over equal values; the first turn whose outputs differ is compared as
any model is, and what is found there is named by the way to it. Outputs that agree in
every turn, while the whole differs, say that rounding grew from turn to turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import onnx
from onnx import helper, numpy_helper

from seamline.errors import SeamlineError
from seamline.provider import Array
from seamline_testing.excerpts import Excerpt, ExcerptError
from seamline_testing.sides import Closeness, Side

if TYPE_CHECKING:
    from seamline_testing.compare import Comparison, Divergence

__all__ = ["descended"]

_TURNS = 200  #: each opens the body on both lists
Sides = tuple[Side, Side]
Compare = Callable[[onnx.ModelProto, Sides, Mapping[str, Any], Closeness], "Comparison"]
#: Takes a body, with inputs by name, and gives its outputs by the first list.
Step = Callable[[onnx.GraphProto, Mapping[str, Any]], Mapping[str, Any]]


class _Found(Exception):  # noqa: N818 - it ends the walk, which is no error of anyone's
    """The first body over equal inputs whose outputs differ, and which turn it is."""

    def __init__(self, where: str, body: Excerpt, output: str) -> None:
        super().__init__(where)
        self.where, self.body, self.output = where, body, output


def descended(
    outer: Divergence, sides: Sides, closeness: Closeness, compare: Compare
) -> Divergence:
    """
    Give the node inside that diverges, or the outer one and why none was found.

    Parameters
    ----------
    outer
        A node with bodies and its excerpt, which diverges.
    compare
        Finds the first diverging node of a model, as ``compare.compare`` does.
    """
    try:
        said = _looked_into(outer, sides, closeness, compare)
    except SeamlineError as error:
        said = f"its body cannot be looked into: {error}"
    return attrs.evolve(outer, inside=said) if isinstance(said, str) else said


def _looked_into(
    outer: Divergence, sides: Sides, closeness: Closeness, compare: Compare
) -> Divergence | str:
    whole = outer.excerpt
    if whole is None:
        return "there are no inputs to run its body with"
    try:
        turns = _walk(whole, _stepping(whole, sides, closeness))
    except _Found as found:
        inner = compare(found.body.model(), sides, found.body.feeds, closeness)
        within = inner.divergence
        if within is None:
            return (
                f"{found.where}: output {found.output!r} of its body differs, and no node "
                "of it diverges alone"
            )
        where = f"{found.where} of {outer.node.name!r}"
        return attrs.evolve(
            within,
            index=outer.index,
            owners=(outer.node.name, *within.owners),
            inside=f"{where}, {within.inside}" if within.inside else where,
        )
    return (
        f"{turns} turns of its body agree over equal inputs: the difference grows from "
        "turn to turn"
    )


def _stepping(whole: Excerpt, sides: Sides, closeness: Closeness) -> Step:
    """Give the function that runs a body on both lists, and raises where they differ."""
    turn = 0

    def step(body: onnx.GraphProto, given: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal turn
        part = _body(whole, body, given)
        model = part.model()
        ours, theirs = (
            dict(zip(part.outputs, side.run(model, part.feeds), strict=True))
            for side in sides
        )
        for name in part.outputs:
            if closeness.difference(ours[name], theirs[name], part.operators):
                where = body.name if whole.operators == ("If",) else f"turn {turn}"
                raise _Found(where, part, name)
        turn += 1
        return ours

    return step


def _body(whole: Excerpt, body: onnx.GraphProto, given: Mapping[str, Any]) -> Excerpt:
    """Take a body out, with its inputs and what it captures."""
    if body.sparse_initializer:
        raise ExcerptError(f"the body {body.name!r} holds sparse tensors")
    held = {t.name: numpy_helper.to_array(t) for t in body.initializer}
    inside = {*given, *held, *(name for node in body.node for name in node.output)}
    read = _read(body) - inside
    return attrs.evolve(
        whole,
        nodes=tuple(body.node),
        outputs=tuple(dict.fromkeys(value.name for value in body.output)),
        fed={**_of(whole.fed, read), **given},
        constants={**_of(whole.constants, read), **held},
        declared={name: whole.declared.get(name) for name in read},
    )


def _of(values: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}


def _read(graph: onnx.GraphProto) -> set[str]:
    """Give every name that a graph reads, its bodies at any depth included."""
    found = {value.name for value in graph.output}
    for node in graph.node:
        found.update(filter(None, node.input))
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _read(attribute.g)
    return found


# --- turns ----------------------------------------------------------------------------


def _walk(whole: Excerpt, step: Step) -> int:
    """Go through the turns of a node with bodies; give how many there were."""
    (node,) = whole.nodes
    values = {**whole.fed, **whole.constants}
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    given = [values[name] if name else None for name in node.input]
    if node.op_type == "If":
        name = (
            "then_branch" if bool(np.asarray(given[0]).reshape(())) else "else_branch"
        )
        body = onnx.GraphProto()
        body.CopyFrom(attributes[name])
        body.name = name
        step(body, {})
        return 1
    if node.op_type == "Loop":
        return _loop(attributes["body"], given, step)
    if node.op_type == "Scan" and whole.opsets.get("", 0) >= 9:
        return _scan(attributes, given, step)
    raise ExcerptError(f"what {node.op_type} does with its bodies is not known here")


def _loop(body: onnx.GraphProto, given: Sequence[Any], step: Step) -> int:
    first, second, *carried = given if len(given) > 1 else (*given, None)
    limit = _TURNS if first is None else min(_TURNS, int(first.reshape(())))
    going, turn = second is None or bool(second.reshape(())), 0
    names = [value.name for value in body.input]
    outputs = [value.name for value in body.output]
    while going and turn < limit:
        fixed = (np.array(turn, np.int64), np.array(True))
        made = step(body, dict(zip(names, (*fixed, *carried), strict=True)))
        going = bool(np.asarray(made[outputs[0]]).reshape(()))
        carried = [made[name] for name in outputs[1 : 1 + len(carried)]]
        turn += 1
    return turn


def _scan(attributes: Mapping[str, Any], given: Sequence[Any], step: Step) -> int:
    body, count = attributes["body"], attributes["num_scan_inputs"]
    states, scanned = list(given[:-count]), given[-count:]
    axes = attributes.get("scan_input_axes") or [0] * count
    backwards = attributes.get("scan_input_directions") or [0] * count
    rows = [
        list(_rows(x, axis, back=bool(back)))
        for x, axis, back in zip(scanned, axes, backwards, strict=True)
    ]
    names = [value.name for value in body.input]
    outputs = [value.name for value in body.output]
    turns = min(_TURNS, len(rows[0]))
    for turn in range(turns):
        made = step(
            body, dict(zip(names, (*states, *(r[turn] for r in rows)), strict=True))
        )
        states = [made[name] for name in outputs[: len(states)]]
    return turns


def _rows(x: Array, axis: int, *, back: bool) -> Iterator[Array]:
    moved = np.moveaxis(x, axis, 0)
    for row in moved[::-1] if back else moved:
        yield np.ascontiguousarray(row).reshape(row.shape)
