"""
What is copied where: each value once to each device that reads it elsewhere than it lies.

A copy stands before the first step that needs it. Inputs of the region are written to the
devices that read them, and need no copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from seamline.constants import Known
from seamline.layout import Reading
from seamline.planned import Feed, HostStep, Region, Segment, Step, Transfer
from seamline.provider import HOST, Device
from seamline.tensors import TensorType, ValueType, nbytes_of

__all__ = ["Crossings", "cross"]


@attrs.frozen
class Crossings:
    """
    Steps with the copies between them.

    Attributes
    ----------
    copies
        Position in time of each copy, by value and target.
    feeds
        Where the region's inputs are written.
    """

    steps: tuple[Step, ...]
    copies: Mapping[tuple[str, Device], int]
    feeds: tuple[Feed, ...]


def cross(
    steps: Sequence[Step],
    readings: Sequence[Reading],
    region: Region,
    types: Mapping[str, ValueType | None],
    known: Known,
    *,
    where: Mapping[str, tuple[Device, ...]],
    early: Collection[str],
) -> Crossings:
    """
    Put before each step the copies that it is the first to need.

    Parameters
    ----------
    where
        Devices on which captures lie; the host where not said.
    early
        Values that are read on the host after the last step.
    """
    inputs: dict[str, list[Device]] = {name: [] for name in region.inputs}
    homes = _homes(region, readings, where)
    copies: dict[tuple[str, Device], int] = {}
    by_node = {reading.node.name: reading for reading in readings}
    result: list[Step] = []
    for unit in _units(steps, by_node):
        members = [by_node[name] for step in unit for name in _nodes_of(step)]
        at = members[0].span[0]
        for name, device in _needs(members, known, inputs):
            if name in inputs:
                if device not in inputs[name]:
                    inputs[name].append(device)
            elif device not in homes.get(name, ()) and (name, device) not in copies:
                copies[name, device] = at
                size = _nbytes(types.get(name))
                result.append(Transfer(name, homes[name][0], device, size))
        result += unit
    for name in early:
        if name in inputs and HOST not in inputs[name]:
            inputs[name].append(HOST)
    feeds = [Feed(name, tuple(devices)) for name, devices in inputs.items()]
    return Crossings(tuple(result), copies, tuple(feeds))


def _homes(
    region: Region,
    readings: Sequence[Reading],
    where: Mapping[str, tuple[Device, ...]],
) -> dict[str, tuple[Device, ...]]:
    homes = {name: where.get(name, (HOST,)) for name in region.captures}
    for reading in readings:
        for name in reading.node.writes:
            homes[name] = (reading.choice.device,)
    return homes


def _needs(
    readings: Sequence[Reading], known: Known, inputs: Collection[str]
) -> list[tuple[str, Device]]:
    made = {name for r in readings for name in r.node.writes}
    needs: dict[tuple[str, Device], None] = {}
    for reading in readings:
        for index, name in enumerate(reading.node.inputs):
            if name and name not in made and name not in known:
                needs[name, reading.device_of(index)] = None
        for name in reading.node.captures:
            if name in inputs:
                needs[name, HOST] = None
    return list(needs)


def _nbytes(kind: ValueType | None) -> int:
    return nbytes_of(kind) if isinstance(kind, TensorType) and kind.is_sized else 0


def _nodes_of(step: Step) -> tuple[str, ...]:
    if isinstance(step, Segment):
        return step.nodes
    return (step.node,) if isinstance(step, HostStep) else ()


def _units(
    steps: Sequence[Step], readings: Mapping[str, Reading]
) -> Iterator[Sequence[Step]]:
    """Give steps one by one, the late ones together: a body may read any copy they make."""
    late = [step for step in steps if readings[_nodes_of(step)[0]].late]
    for step in steps[: len(steps) - len(late)]:
        yield (step,)
    if late:
        yield late
