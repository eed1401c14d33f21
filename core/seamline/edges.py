"""
Which copies between the host and a device are part of a recording.

A recording of a device can begin with copies from memory that the host shares with it, and
end with copies to such memory. Then the host's half of a copy is one in its own memory, and
waiting for a result is looking at a word; no call of the driver is made for either. Such a
copy is an *edge* of the recording: a feed or a copy of the plan that comes before the first
step that reads it on the device, or one that follows the recording that computed it.

The host's half stays where the plan has it, so places of the host are used in the plan's
order. Only the device's half moves, to the recording's beginning or end. It can, if no step
reads the value on the device before the recording, and if nothing but the recording writes
it. Everything here follows from the plan; nothing is allocated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from seamline.graph import Node
from seamline.planned import HostStep, Plan, Segment, Transfer
from seamline.provider import HOST, Device, Provider
from seamline.tensors import TensorType, nbytes_of

__all__ = ["Edge", "edge_limit", "edged"]


@attrs.frozen
class Edge:
    """
    A copy between the host and a device whose device half is in a recording.

    Attributes
    ----------
    unit
        Id of the segment, or of the chain, that is recorded with it.
    inward
        It goes to the device.
    step
        Id of the plan's copy; empty where it is an input or an output of the region.
    """

    value: str
    device: Device
    nbytes: int
    unit: str
    inward: bool
    step: str

    @property
    def id(self) -> str:
        """Give an id: a value crosses to a device once, and from it once."""
        ends = (str(HOST), str(self.device))
        source, target = ends if self.inward else ends[::-1]
        return f"{self.value}:{source}->{target}"


def edge_limit(provider: Provider) -> int:
    """Give the bytes of the largest value whose copy a provider's recordings take in."""
    if not hasattr(provider, "record_chain"):
        return 0
    return int(getattr(provider, "edge_limit", 0))


def edged(plan: Plan, providers: Mapping[str, Provider]) -> tuple[Edge, ...]:
    """Find the copies of a plan, feeds and results among them, that recordings take in."""
    found: list[Edge] = []
    for name, provider in providers.items():
        limit = edge_limit(provider)
        if provider.captures and provider.device != HOST and limit > 0:
            finding = _Finding(plan, name, provider.device, limit)
            if finding.units:
                found += finding.inward()
                found += finding.outward()
    return tuple(found)


class _Finding:
    def __init__(self, plan: Plan, name: str, device: Device, limit: int) -> None:
        self.plan, self.name, self.device, self.limit = plan, name, device, limit
        self.units: dict[str, str] = {}  #: what is recorded, by step inside it
        for chain in plan.chains:
            if chain.provider == name:
                self.units.update({step.id: chain.id for step in chain.steps})
        for segment in plan.segments:
            if self._is_recorded(segment):
                self.units.setdefault(segment.id, segment.id)
        self.nodes = {node.name: node for node in plan.region.nodes}

    def inward(self) -> Iterator[Edge]:
        """Find feeds and copies to the device that the first reader's recording takes in."""
        for feed in self.plan.feeds:
            if self.device in feed.devices:
                yield from self._to(feed.value, 0, "")
        for place, step in enumerate(self.plan.steps):
            if isinstance(step, Transfer) and self._is_edge(step, HOST, self.device):
                yield from self._to(step.value, place + 1, step.id)

    def outward(self) -> Iterator[Edge]:
        """Find copies from the device and results that their writer's recording takes in."""
        writers = {
            name: self.units[step.id]
            for step in self.plan.segments
            if step.provider == self.name and step.id in self.units
            for name in step.outputs
        }
        for step in self.plan.transfers:
            if self._is_edge(step, self.device, HOST) and step.value in writers:
                yield from self._made(step.value, writers[step.value], step.id, False)
        for name in dict.fromkeys(self.plan.region.outputs):
            # What has a place on the host as well is read there.
            if name in writers and (name, HOST) not in self.plan.slots:
                yield from self._made(name, writers[name], "", False)

    def _is_recorded(self, segment: Segment) -> bool:
        return (
            segment.provider == self.name
            and not segment.sizes_at_run
            and segment.not_capturable is None
        )

    def _is_edge(self, step: Transfer, source: Device, target: Device) -> bool:
        is_inside = step.id in self.units
        return not is_inside and (step.source, step.target) == (source, target)

    def _to(self, value: str, start: int, step: str) -> Iterator[Edge]:
        readers = [
            one
            for one in self.plan.steps[start:]
            if _reads(one, value, self.device, self.nodes)
        ]
        if not readers or not all(
            isinstance(one, Segment) and one.provider == self.name for one in readers
        ):
            return
        unit = self.units.get(readers[0].id)
        if unit is not None:
            yield from self._made(value, unit, step, True)

    def _made(self, value: str, unit: str, step: str, inward: bool) -> Iterator[Edge]:
        kind = self.plan.types.get(value)
        has_place = (value, self.device) in self.plan.slots
        if has_place and isinstance(kind, TensorType) and kind.dtype != "string":
            nbytes = nbytes_of(kind)
            if 0 < nbytes <= self.limit:
                yield Edge(value, self.device, nbytes, unit, inward, step)


def _reads(step: object, value: str, device: Device, nodes: Mapping[str, Node]) -> bool:
    """Tell whether a step may read a value on a device."""
    if isinstance(step, Transfer):
        return step.value == value and step.source == device
    if isinstance(step, HostStep):  # what a body captures, it may read there
        return value in nodes[step.node].reads
    assert isinstance(step, Segment)
    return step.device == device and value in step.inputs
