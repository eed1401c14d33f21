"""
The rules of memory that a plan is held to: room for everything, and no bytes used twice.

Time is the position of a node in the order of the steps. A value is alive from the node
that writes it (or the copy that brings it) to the last that reads it, and to the end if
it is an output or is read by what is planned later.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import attrs

from seamline.graph import Node
from seamline.planned import HostStep, Plan, Segment, Slot, Transfer
from seamline.provider import HOST, Device
from seamline.tensors import TensorType, nbytes_of

__all__ = ["broken_memory"]

_ALIGNMENT = 64
_Key = tuple[str, Device]


def broken_memory(plan: Plan) -> Iterator[str]:
    """Give the rules of memory that a plan breaks, as sentences."""
    yield from _sizes(plan)
    lives = _Lives(plan)
    yield from lives.homeless()
    yield from lives.overlaps()
    yield from lives.overwritten()


def _sizes(plan: Plan) -> Iterator[str]:
    for (name, device), slot in plan.slots.items():
        kind = plan.types.get(name)
        if not isinstance(kind, TensorType) or not kind.is_sized:
            yield f"value {name!r} has bytes on {device}, and no size"
        elif slot.nbytes != nbytes_of(kind):
            yield f"value {name!r} has {slot.nbytes} bytes for {nbytes_of(kind)}"
        yield from _inside(plan, f"value {name!r}", slot, device)
    for node, slot in plan.workspaces.items():
        device = plan.choices[node].device
        if slot.nbytes != plan.choices[node].claim.workspace_nbytes:
            yield f"the workspace of {node!r} has {slot.nbytes} bytes"
        yield from _inside(plan, f"the workspace of {node!r}", slot, device)


def _inside(plan: Plan, what: str, slot: Slot, device: Device) -> Iterator[str]:
    if slot.offset < 0 or slot.offset + slot.nbytes > plan.arenas.get(device, 0):
        yield f"{what} leaves the arena of {device}"
    if slot.offset % _ALIGNMENT:
        yield f"{what} is not aligned: it lies at {slot.offset}"


@attrs.define
class _Span:
    """Bytes that one or more values share, and the time in which any is alive."""

    what: str
    device: Device
    slot: Slot
    first: int
    last: int


class _Lives:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.at: dict[str, int] = {}  # node -> time
        self.born: dict[_Key, int] = {}
        self.dies: dict[_Key, int] = {}
        self.nodes = {node.name: node for node in plan.region.nodes}
        self.home: dict[str, Device] = {}  # where a node writes it
        for feed in plan.feeds:
            for device in feed.devices:
                self.born[feed.value, device] = -1
        for step in plan.steps:
            if isinstance(step, Transfer):
                self._read(step.value, step.source, len(self.at))
                self.born[step.value, step.target] = len(self.at)
            for name in _nodes_of(step):
                self._run(self.nodes[name], len(self.at))
        self.end = len(self.at)
        self._keep()

    def _run(self, node: Node, at: int) -> None:
        self.at[node.name] = at
        choice = self.plan.choices[node.name]
        for index, name in enumerate(node.inputs):
            on_host = index in choice.claim.host_inputs
            self._read(name, HOST if on_host else choice.device, at)
        for name in node.captures:
            for device in self._devices(name):
                self._read(name, device, at)
        for name in node.writes:
            self.born[name, choice.device] = at
            self.home[name] = choice.device

    def _read(self, name: str, device: Device, at: int) -> None:
        self.dies[name, device] = max(at, self.dies.get((name, device), -1))

    def _devices(self, name: str) -> list[Device]:
        return [device for device in self.plan.arenas if (name, device) in self.born]

    def _keep(self) -> None:
        kept = set(self.plan.region.outputs)
        if self.plan.rest is not None:
            kept.update(name for node in self.plan.rest.nodes for name in node.reads)
        for name in kept:
            for device in self._devices(name):
                self._read(name, device, self.end)

    def homeless(self) -> Iterator[str]:
        """Check that what crosses from step to step has bytes, and what is late has none."""
        late = {
            name
            for step in self.plan.steps
            if isinstance(step, HostStep)
            or (isinstance(step, Segment) and step.sizes_at_run)
            for node in _nodes_of(step)
            for name in self.nodes[node].writes
        }
        crossing = {
            name
            for step in self.plan.steps
            if isinstance(step, Segment)
            for name in step.outputs
        }
        for name, device in self.born:
            placed = self.plan.lies(name, device)
            if name in late and placed:
                yield f"value {name!r} is late, and has bytes on {device} all the same"
            fed = self.born[name, device] == -1 and isinstance(
                self.plan.types.get(name), TensorType
            )
            if not placed and (fed or name in crossing - late):
                yield f"value {name!r} has no bytes on {device}"

    # -- no bytes used twice -----------------------------------------------------------

    def _root(self, name: str, device: Device) -> _Key:
        """Follow shared bytes to their first value; a copy on another device has its own."""
        seen = {name}
        while name in self.plan.shared and self.home.get(name) == device:
            name = self.plan.shared[name]
            if name in seen:
                break
            seen.add(name)
        return name, device

    def _spans(self) -> Iterator[_Span]:
        groups: dict[_Key, _Span] = {}
        for (name, device), slot in self.plan.slots.items():
            first = self.born.get((name, device), -1)
            last = max(first, self.dies.get((name, device), -1))
            key = self._root(name, device)
            span = groups.setdefault(
                key, _Span(f"value {key[0]!r}", device, slot, first, last)
            )
            span.first, span.last = min(span.first, first), max(span.last, last)
            if slot.offset != span.slot.offset and slot.nbytes:
                span.what += f" (not where {name!r} is, which shares its bytes)"
                yield attrs.evolve(span, slot=slot)
        yield from groups.values()
        for node, slot in self.plan.workspaces.items():
            device, at = self.plan.choices[node].device, self.at[node]
            yield _Span(f"the workspace of {node!r}", device, slot, at, at)

    def overlaps(self) -> Iterator[str]:
        """Check that bytes alive at one time are apart."""
        alive: dict[Device, list[tuple[int, int, _Span]]] = {}
        ends: list[tuple[int, int, _Span]] = []
        spans = sorted(
            (s for s in self._spans() if s.slot.nbytes), key=lambda s: s.first
        )
        for number, span in enumerate(spans):
            here = alive.setdefault(span.device, [])
            while ends and ends[0][0] < span.first:
                _, order, gone = ends.pop(0)
                alive[gone.device].remove((gone.slot.offset, order, gone))
            item = (span.slot.offset, number, span)
            index = bisect.bisect(here, item[:2], key=lambda entry: entry[:2])
            for _, _, other in (
                *here[max(index - 1, 0) : index],
                *here[index : index + 1],
            ):
                if _cross(span.slot, other.slot):
                    yield f"{span.what} and {other.what} use the same bytes at one time"
            here.insert(index, item)
            bisect.insort(ends, (span.last, number, span), key=lambda entry: entry[:2])

    def overwritten(self) -> Iterator[str]:
        """Check that shared bytes are views, or die where they are written in place."""
        writer = {name: self.nodes[n] for n in self.at for name in self.nodes[n].writes}
        family: dict[_Key, list[str]] = {}
        for name, device in (*self.plan.slots, *self.plan.states):
            family.setdefault(self._root(name, device), []).append(name)
        for name in self.plan.shared:
            node = writer.get(name)
            if node is None:
                yield f"value {name!r} shares bytes, and no node writes it"
                continue
            yield from self._shares(
                name, node, family[self._root(name, self.home[name])]
            )

    def _shares(self, name: str, node: Node, family: list[str]) -> Iterator[str]:
        claim, device = self.plan.choices[node.name].claim, self.home[name]
        output = node.outputs.index(name)
        given = {i for i, value in enumerate(node.inputs) if value in family}
        if device != HOST:
            given -= claim.host_inputs
        if any((output, i) in claim.views for i in given):
            return
        if not any((output, i) in claim.aliases for i in given):
            yield f"value {name!r} shares bytes, and {node.name!r} did not offer it"
            return
        at = self.at[node.name]
        if len({node.inputs[i] for i in given}) > 1:
            yield f"{node.name!r} writes {name!r} over an input that it reads twice"
        for other in family:
            # A copy is born at the moment of the node that it is made for.
            older = self.born[other, device] <= at and other not in node.writes
            if older and self.dies.get((other, device), -1) > at:
                yield f"{node.name!r} writes {name!r} over {other!r}, which is read later"


def _cross(one: Slot, other: Slot) -> bool:
    return (
        one.offset < other.offset + other.nbytes
        and other.offset < one.offset + one.nbytes
    )


def _nodes_of(step: Segment | HostStep | Transfer) -> tuple[str, ...]:
    if isinstance(step, Segment):
        return step.nodes
    return (step.node,) if isinstance(step, HostStep) else ()
