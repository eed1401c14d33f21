"""
Whether a plan can keep its states: each in one place, its output written over its input.

What size an output has that inference leaves open. And how much of each must have pages. A kernel that keeps to what lengths reach says so in
its claim (``bounded``); where any other node reads a state, all of it has them, with the
reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from seamline.errors import PlanError
from seamline.graph import Node
from seamline.layout import Reading
from seamline.node_types import Infer
from seamline.planned import Plan
from seamline.provider import Device, NodeView
from seamline.states import Settled
from seamline.tensors import TensorType, ValueType

if TYPE_CHECKING:
    from seamline.state_store import States

__all__ = ["hold", "read_whole"]

_Key = tuple[str, Device]


def kept_sizes(infer: Infer, states: Mapping[str, Settled]) -> Infer:
    """
    Give a state's output the sizes of its room where inference leaves them open.

    GroupQueryAttention's caches are as long as a number that is fed says; a state's output
    is as long as its input, or it could not be kept.
    """
    rooms = {one.state.output: one.kind for one in states.values()}
    if not rooms:
        return infer

    def sized(node: NodeView) -> Sequence[ValueType | None] | None:
        found = infer(node)
        if found is None:
            return None
        pairs = zip(node.node.outputs, found, strict=False)
        return [_filled(kind, rooms.get(name)) for name, kind in pairs]

    return sized


def _filled(kind: ValueType | None, room: TensorType | None) -> ValueType | None:
    if room is None or not isinstance(kind, TensorType) or kind.is_sized:
        return kind
    if kind.dtype != room.dtype or len(kind.shape or room.sizes) != len(room.sizes):
        return kind
    sizes = zip(kind.shape or room.sizes, room.sizes, strict=True)
    return room if all(not isinstance(d, int) or d == n for d, n in sizes) else kind


def read_whole(
    readings: Sequence[Reading], states: Mapping[_Key, str]
) -> dict[str, str]:
    """Give the states that are read whole, and by whom."""
    found: dict[str, str] = {}
    for reading in readings:
        node, claim = reading.node, reading.choice.claim
        for index, name in enumerate(node.inputs):
            state = states.get((name, reading.device_of(index)))
            if state is None or index in claim.bounded:
                continue
            shared = [o for o, i in claim.views if i == index and o < len(node.outputs)]
            if any((node.outputs[o], reading.choice.device) in states for o in shared):
                continue  # a view touches nothing
            found.setdefault(
                state,
                f"{node.name!r} ({node.qualified_op} by {reading.choice.provider}) does not "
                f"say that it keeps to the live part of input {index}",
            )
    return found


def hold(states: States, plan: Plan) -> None:
    """
    Hold a plan to the states.

    Raises
    ------
    PlanError
        One cannot be kept in place; says why, and what to do.
    """
    for name, settled in states.settled.items():
        why = _broken(plan, name, settled.state.output)
        if why:
            raise PlanError(f"state {name!r}: {why}")


def _broken(plan: Plan, given: str, output: str) -> str | None:
    devices = [
        d for (n, d), state in plan.states.items() if n == given and state == given
    ]
    if not devices:
        return "no node that runs reads it; leave it out of states="
    if len(devices) > 1:
        where = " and ".join(map(str, devices))
        return f"it is read on {where}; pin the nodes that read it to one provider"
    one, other = plan.types.get(given), plan.types.get(output)
    if one != other:
        return _other_type(plan, output, one, other)
    mine = {n for (n, _), state in plan.states.items() if state == given}
    if output not in mine:
        return _not_in_place(plan, given, output)
    return _leaves(plan, mine)


def _other_type(plan: Plan, output: str, one: object, other: object) -> str:
    writer = _writer(plan.region.nodes, output)
    by = f"{writer.name!r} ({writer.qualified_op})" if writer else "nothing"
    longer = (
        isinstance(one, TensorType)
        and isinstance(other, TensorType)
        and other.shape is not None
        and one.shape is not None
        and len(one.shape) == len(other.shape)
    )
    if longer:
        return (
            f"its output {output!r}, written by {by}, is {other} where it is {one}: the model "
            "puts what is new behind what is past, so both change size at each step. To fix: "
            "export it with a cache of fixed room that is written at a position "
            "(TensorScatter, or GroupQueryAttention with past and present of one size)"
        )
    return (
        f"its output {output!r}, written by {by}, is {other or '?'}, not {one or '?'}"
    )


def _not_in_place(plan: Plan, given: str, output: str) -> str:
    writer = _writer(plan.region.nodes, output)
    if writer is None or writer.name not in plan.choices:
        return f"nothing that runs writes its output {output!r}"
    choice = plan.choices[writer.name]
    by = f"{writer.name!r} ({writer.qualified_op} by {choice.provider})"
    index = writer.outputs.index(output)
    offered = [i for o, i in choice.claim.aliases if o == index]
    if not offered:
        return (
            f"its output {output!r} is written by {by}, which does not write over an input. "
            "To fix: write it by TensorScatter, or pin the node to a provider that does"
        )
    return (
        f"its output {output!r} is written by {by} elsewhere than over {given!r}: that is "
        "read later, or by another provider. To fix: let readers take the output"
    )


def _leaves(plan: Plan, mine: AbstractSet[str]) -> str | None:
    """Say where a value in the state's place is read from elsewhere."""
    for step in plan.transfers:
        if step.value in mine:
            return (
                f"{step.value!r} would be copied to {step.target}, whole, at each run; pin "
                "the nodes that read it to one provider"
            )
    for node in plan.region.nodes:
        if not mine.isdisjoint(node.captures):
            return (
                f"it is read inside {node.name!r} ({node.qualified_op}), by its bodies"
            )
    if plan.rest is not None:
        for node in plan.rest.nodes:
            if not mine.isdisjoint(node.reads):
                return f"{node.name!r} reads it once a size is found by running"
    return None


def _writer(nodes: Sequence[Node], name: str) -> Node | None:
    return next((node for node in nodes if name in node.writes), None)
