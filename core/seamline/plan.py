"""
Cut a region into segments and name every seam, for one shape signature.

The sizes of the inputs are known here. Nodes whose results follow from sizes and
constants alone are resolved and do not run. A node whose output size is found only by
running it becomes a step of its own, and everything that depends on it is left as the
``rest``: a region that is planned, by this same function, when its sizes are known. What
remains is cut, laid out in memory and described; nothing is allocated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from seamline.claims import CORE, ask, infer_with
from seamline.collector import collector_paused
from seamline.constants import Constants, Known
from seamline.errors import PinError, UnclaimedNodeError
from seamline.graph import Node
from seamline.layout import Reading, lay_out
from seamline.placement import Choice, Placement
from seamline.planned import (
    Feed,
    HostStep,
    Plan,
    Region,
    Segment,
    Step,
    Transfer,
    whole,
)
from seamline.provider import HOST, Array, Claim, Device, Provider, view_of
from seamline.seams import name_seams
from seamline.segmentation import cut
from seamline.shapes import resolve
from seamline.tensors import TensorType, ValueType, nbytes_of

__all__ = ["Plan", "Region", "partition", "whole"]


@collector_paused()
def partition(
    region: Region,
    placement: Placement,
    providers: Mapping[str, Provider],
    constants: Constants,
    given: Mapping[str, ValueType | None],
    *,
    known: Mapping[str, Array] | None = None,
    where: Mapping[str, tuple[Device, ...]] | None = None,
) -> Plan:
    """
    Plan a region.

    Parameters
    ----------
    given
        Types of its inputs and captures; sized, where they are tensors.
    known
        Values of captures that were known when the outside was planned.
    where
        Devices on which captures lie; the host where not said.

    Raises
    ------
    PlanError
        Inputs that cannot go together; names the node.
    UnclaimedNodeError
        With sizes known, no provider runs a node.
    """
    outside = constants.with_known(known or {})
    infer = infer_with(list(providers.values()))
    found = resolve(region.graph, region.nodes, given, outside.get, infer)
    together = constants.with_known({**(known or {}), **found.known})
    making = _Making(region, placement, providers, found.types, together, where or {})
    return making.plan()


@attrs.frozen
class _Run:
    """A node that runs in this plan."""

    node: Node
    choice: Choice
    alone: bool  # decided by the core, or sized at run: a step of its own, at the end


class _Making:
    def __init__(
        self,
        region: Region,
        placement: Placement,
        providers: Mapping[str, Provider],
        types: Mapping[str, ValueType | None],
        known: Known,
        where: Mapping[str, tuple[Device, ...]],
    ) -> None:
        self.region, self.placement, self.providers = region, placement, providers
        self.types, self.where = types, where
        self.known = known
        self.resolved: list[str] = []
        self.unused: list[str] = []
        self.blocked: list[Node] = []
        self.late: set[str] = set()  # values whose size is found by running
        self.written: Collection[str] = ()

    # -- which nodes run now, later, never -----------------------------------------------

    def plan(self) -> Plan:
        runs = self._sort_out()
        order, joined = self._segments(runs)
        keep = self._kept()
        steps, readings = self._steps(order, keep)
        homes = self._homes(readings)
        steps, copies, feeds = self._transfers(steps, readings, homes)
        layout = lay_out(
            readings,
            self.types,
            self.known,
            {feed.value: feed.devices for feed in feeds},
            copies,
            self._internal(steps),
            keep,
        )
        return Plan(
            region=self.region,
            types=self.types,
            known=self.known,
            resolved=tuple(self.resolved),
            unused=tuple(self.unused),
            choices={run.node.name: run.choice for run in runs},
            steps=tuple(steps),
            seams=name_seams(
                steps,
                {r.node.name: r for r in readings},
                self.types,
                {name for name, one in self.providers.items() if one.captures},
            ),
            feeds=tuple(feeds),
            slots=layout.slots,
            shared=layout.shared,
            workspaces=layout.workspaces,
            arenas=layout.arenas,
            peak=layout.peak,
            rest=self._rest(),
            joined=joined,
        )

    def _sort_out(self) -> list[_Run]:
        runs: list[_Run] = []
        needed = self._needed()
        for node in self.region.nodes:
            if all(name in self.known for name in node.writes):
                self.resolved.append(node.name)
                continue
            if node.name not in needed:
                self.unused.append(node.name)
                continue
            if any(name in self.late for name in node.reads):
                self.blocked.append(node)
                self.late.update(node.writes)
                continue
            choice = self._choose(node)
            alone = (
                choice.provider == CORE
                or choice.claim.sizes_at_run
                or not self._sized(node)
            )
            if alone:
                self.late.update(node.writes)
            runs.append(_Run(node, choice, alone))
        return runs

    def _needed(self) -> set[str]:
        """Give the nodes that an output depends on, once known values are taken as given."""
        values = {name for name in self.region.outputs if name not in self.known}
        nodes: set[str] = set()
        for node in reversed(self.region.nodes):
            if any(name in values for name in node.writes):
                nodes.add(node.name)
                values.update(name for name in node.reads if name not in self.known)
        return nodes

    def _sized(self, node: Node) -> bool:
        kinds = [self.types.get(name) for name in node.writes]
        return all(isinstance(kind, TensorType) and kind.is_sized for kind in kinds)

    def _choose(self, node: Node) -> Choice:
        """Ask the chosen provider again, now that sizes are known; others if it refuses."""
        choice = self.placement.of(node)
        if choice.provider == CORE:
            return choice
        view = view_of(node, self.types, self.known.get)
        said: dict[str, str] = {}
        others = [name for name in self.placement.order if name != choice.provider]
        for name in (choice.provider, *others):
            if name not in self.placement.claims.offers(node.name):
                continue
            provider = self.providers[name]
            answer = ask(provider, view)
            if isinstance(answer, Claim):
                reason = choice.reason
                if said:
                    reason = f"with sizes known, refused by {', '.join(said)}"
                return Choice(name, provider.device, answer, reason, choice.pinned)
            said[name] = f"with sizes known: {answer}"
            if choice.pinned:
                raise PinError(
                    f"node {node.name!r} ({node.qualified_op}) is {choice.reason} to "
                    f"{name!r}, which refuses it with sizes known: {answer}"
                )
        raise UnclaimedNodeError({node.name: node.qualified_op}, {node.name: said})

    def _kept(self) -> frozenset[str]:
        names = set(self.region.outputs)
        for node in self.blocked:
            names.update(node.reads)
        return frozenset(names)

    def _rest(self) -> Region | None:
        if not self.blocked:
            return None
        made = {name for node in self.blocked for name in node.writes}
        late = [name for name in self._rest_reads() if name in self.late]
        # What follows from sizes is handed on too: its node is resolved, not blocked.
        early = [name for name in self._rest_reads() if name in self.known.values]
        early += self._early()
        return Region(
            f"{self.region.name}+",
            self.region.graph,
            tuple(self.blocked),
            tuple(late),
            tuple(early),
            tuple(name for name in dict.fromkeys(self.region.outputs) if name in made),
        )

    def _rest_reads(self) -> list[str]:
        made = {name for node in self.blocked for name in node.writes}
        reads = [
            name for node in self.blocked for name in node.reads if name not in made
        ]
        return list(dict.fromkeys(reads))

    def _early(self) -> list[str]:
        """Give the values that the rest reads where this plan has put them."""
        return [
            n for n in self._rest_reads() if n not in self.late and n not in self.known
        ]

    # -- segments ------------------------------------------------------------------------

    def _segments(self, runs: Sequence[_Run]) -> tuple[list[list[_Run]], bool]:
        writer = {name: i for i, run in enumerate(runs) for name in run.node.writes}
        self.written = writer.keys()
        before = [
            [writer[name] for name in run.node.reads if name in writer] for run in runs
        ]
        result = cut([self._colour(run) for run in runs], before)
        groups = [[runs[i] for i in group] for group in result.segments]
        # Nothing here depends on a step of its own, so those go last.
        return sorted(groups, key=lambda group: group[0].alone), result.complete

    def _colour(self, run: _Run) -> tuple[str, bool] | None:
        if run.alone or self._waits(run):
            return None
        captures = self.providers[run.choice.provider].captures
        return (
            run.choice.provider,
            captures and run.choice.claim.not_capturable is not None,
        )

    def _waits(self, run: _Run) -> bool:
        """Tell whether a node of a device reads on the host what this plan computes."""
        choice = run.choice
        return choice.device != HOST and any(
            index in choice.claim.host_inputs
            and name not in self.known
            and name in self.written
            for index, name in enumerate(run.node.inputs)
        )

    def _steps(
        self, groups: Sequence[Sequence[_Run]], keep: frozenset[str]
    ) -> tuple[list[Step], list[Reading]]:
        readers: dict[str, set[int]] = {}
        for index, group in enumerate(groups):
            for run in group:
                for name in run.node.reads:
                    readers.setdefault(name, set()).add(index)
        steps: list[Step] = []
        readings: list[Reading] = []
        for index, group in enumerate(groups):
            start, last = len(readings), len(readings) + len(group) - 1
            first = group[0]
            provider = self.providers.get(first.choice.provider)
            fused = provider is not None and provider.owns_intermediates
            for at, run in enumerate(group, start):
                span = (start, last) if fused else (at, at)
                readings.append(Reading(run.node, run.choice, at, span, run.alone))
            if first.choice.provider == CORE:
                steps.append(HostStep(first.node.name))
            else:
                steps.append(self._segment(group, index, readers, keep))
        return steps, readings

    def _segment(
        self,
        group: Sequence[_Run],
        index: int,
        readers: Mapping[str, set[int]],
        keep: frozenset[str],
    ) -> Segment:
        made = {name: None for run in group for name in run.node.writes}
        reads = dict.fromkeys(name for run in group for name in run.node.reads)
        outputs = [n for n in made if n in keep or readers.get(n, set()) - {index}]
        choice = group[0].choice
        return Segment(
            f"{choice.provider}:{group[0].node.name}",
            choice.provider,
            choice.device,
            tuple(run.node.name for run in group),
            tuple(n for n in reads if n not in made and n not in self.known),
            tuple(outputs if not group[0].alone else made),
            next(
                (
                    r.choice.claim.not_capturable
                    for r in group
                    if r.choice.claim.not_capturable
                ),
                None,
            ),
            group[0].alone,
        )

    def _internal(self, steps: Sequence[Step]) -> frozenset[str]:
        names: set[str] = set()
        nodes = {node.name: node for node in self.region.nodes}
        for step in steps:
            if (
                isinstance(step, Segment)
                and self.providers[step.provider].owns_intermediates
            ):
                made = {n for name in step.nodes for n in nodes[name].writes}
                names |= made - set(step.outputs)
        return frozenset(names)

    # -- who reads what where ------------------------------------------------------------

    def _homes(self, readings: Sequence[Reading]) -> dict[str, tuple[Device, ...]]:
        homes: dict[str, tuple[Device, ...]] = {}
        for name in self.region.captures:
            homes[name] = self.where.get(name, (HOST,))
        for reading in readings:
            for name in reading.node.writes:
                homes[name] = (reading.choice.device,)
        return homes

    def _transfers(
        self,
        steps: Sequence[Step],
        readings: Sequence[Reading],
        homes: Mapping[str, tuple[Device, ...]],
    ) -> tuple[list[Step], dict[tuple[str, Device], int], list[Feed]]:
        """Put before each step the copies that it is the first to need."""
        inputs: dict[str, list[Device]] = {name: [] for name in self.region.inputs}
        copies: dict[tuple[str, Device], int] = {}
        by_node = {reading.node.name: reading for reading in readings}
        result: list[Step] = []
        for unit in _units(steps, by_node):
            members = [by_node[name] for step in unit for name in _nodes_of(step)]
            at = members[0].span[0]
            for name, device in self._needs(members):
                if name in inputs:
                    if device not in inputs[name]:
                        inputs[name].append(device)
                elif device not in homes.get(name, ()) and (name, device) not in copies:
                    copies[name, device] = at
                    size = self._nbytes(name)
                    result.append(Transfer(name, homes[name][0], device, size))
            result += unit
        for name in self._early():
            if name in inputs and HOST not in inputs[name]:
                inputs[name].append(HOST)
        feeds = [Feed(name, tuple(devices)) for name, devices in inputs.items()]
        return result, copies, feeds

    def _needs(self, readings: Sequence[Reading]) -> list[tuple[str, Device]]:
        made = {name for r in readings for name in r.node.writes}
        needs: dict[tuple[str, Device], None] = {}
        for reading in readings:
            for index, name in enumerate(reading.node.inputs):
                if name and name not in made and name not in self.known:
                    needs[name, reading.device_of(index)] = None
            for name in reading.node.captures:
                if name in self.region.inputs:
                    needs[name, HOST] = None
        return list(needs)

    def _nbytes(self, name: str) -> int:
        kind = self.types.get(name)
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
