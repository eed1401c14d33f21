"""
Cut a region into segments and name every seam, for one shape signature.

The sizes of the inputs are known here. Nodes whose results follow from sizes and
constants alone are resolved and do not run. A node whose output size is found only by
running it becomes a step of its own, and everything that depends on it is left as the
``rest``: a region that is planned, by this same function, when its sizes are known. What
remains is cut, laid out in memory and described; nothing is allocated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import attrs

from seamline.agenda import Due, agenda
from seamline.claims import CORE, infer_with
from seamline.collector import collector_paused
from seamline.constants import Constants, Known
from seamline.crossings import cross
from seamline.edges import edged
from seamline.excursions import AUTO, chained
from seamline.layout import Reading, lay_out
from seamline.placement import Placement
from seamline.planned import HostStep, Plan, Region, Seam, Segment, Step, whole
from seamline.provider import HOST, Array, Device, Provider, cuts_capture
from seamline.seams import name_seams
from seamline.segmentation import cut
from seamline.shapes import resolve
from seamline.state_rules import kept_sizes, read_whole
from seamline.states import Settled
from seamline.tensors import ValueType

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
    quarantined: Mapping[str, str] | None = None,
    states: Mapping[str, Settled] = MappingProxyType({}),
    form: str = AUTO,
    never: str = "",
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
    quarantined
        Nodes that made recording fail, and why: segments are cut around them.
    states
        Inputs that the session keeps in places of its own.
    form
        How excursions to the host are made; see :func:`seamline.excursions.chained`.
    never
        Why nothing is recorded; empty where segments are.

    Raises
    ------
    PlanError
        Inputs that cannot go together; names the node.
    UnclaimedNodeError
        With sizes known, no provider runs a node.
    """
    outside = constants.with_known(known or {})
    infer = kept_sizes(infer_with(list(providers.values())), states)
    found = resolve(
        region.graph,
        region.nodes,
        given,
        outside,
        infer,
        placement.claims.settled,
    )
    together = constants.with_known({**(known or {}), **found.known})
    making = _Making(
        region, placement, providers, found.types, together, where or {},
        quarantined or {}, states,
    )  # fmt: skip
    plan = making.plan()
    links = chained(plan.steps, providers, making.waiting, form, never)
    if links.excursions:
        plan = attrs.evolve(plan, excursions=links.excursions, chains=links.chains)
    edges = () if never else edged(plan, providers)
    return attrs.evolve(plan, edges=edges) if edges else plan


class _Making:
    def __init__(
        self,
        region: Region,
        placement: Placement,
        providers: Mapping[str, Provider],
        types: Mapping[str, ValueType | None],
        known: Known,
        where: Mapping[str, tuple[Device, ...]],
        quarantined: Mapping[str, str],
        states: Collection[str],
    ) -> None:
        self.region, self.placement, self.providers = region, placement, providers
        self.types, self.where = types, where
        self.known, self.quarantined, self.states = known, quarantined, states
        self.written: Collection[str] = ()
        self.waiting: set[str] = set()  #: nodes that read on the host what is computed

    def plan(self) -> Plan:
        todo = agenda(
            self.region, self.placement, self.providers, self.types, self.known
        )
        todo = attrs.evolve(todo, due=tuple([self._due(run) for run in todo.due]))
        order, joined = self._segments(todo.due)
        bare, readings = self._steps(order, todo.kept)
        crossings = cross(
            bare,
            readings,
            self.region,
            self.types,
            self.known,
            where=self.where,
            early=todo.early,
        )
        layout = lay_out(
            readings,
            self.types,
            self.known,
            {feed.value: feed.devices for feed in crossings.feeds},
            crossings.copies,
            self._internal(bare),
            todo.kept,
            self.states,
        )
        return Plan(
            region=self.region,
            types=self.types,
            known=self.known,
            resolved=todo.resolved,
            unused=todo.unused,
            choices={due.node.name: due.choice for due in todo.due},
            steps=crossings.steps,
            seams=self._seams(crossings.steps, readings),
            feeds=crossings.feeds,
            slots=layout.slots,
            shared=layout.shared,
            workspaces=layout.workspaces,
            arenas=layout.arenas,
            peak=layout.peak,
            rest=todo.rest(),
            joined=joined,
            states=layout.states,
            whole=read_whole(readings, layout.states),
        )

    def _seams(
        self, steps: Sequence[Step], readings: Sequence[Reading]
    ) -> tuple[Seam, ...]:
        by_node = {reading.node.name: reading for reading in readings}
        cutting = {name for name, one in self.providers.items() if cuts_capture(one)}
        return name_seams(steps, by_node, self.types, cutting, self.quarantined)

    def _due(self, run: Due) -> Due:
        """Give a node's claim its reason where recording failed there."""
        why = self.quarantined.get(run.node.name)
        if why is None:
            return run
        claim = attrs.evolve(run.choice.claim, not_capturable=why)
        return attrs.evolve(run, choice=attrs.evolve(run.choice, claim=claim))

    def _segments(self, runs: Sequence[Due]) -> tuple[list[list[Due]], bool]:
        writer = {name: i for i, run in enumerate(runs) for name in run.node.writes}
        self.written = writer.keys()
        before = [
            [writer[name] for name in run.node.reads if name in writer] for run in runs
        ]
        result = cut([self._colour(run) for run in runs], before)
        groups = [[runs[i] for i in group] for group in result.segments]
        # Nothing here depends on a step of its own, so those go last.
        return sorted(groups, key=lambda group: group[0].alone), result.complete

    def _colour(self, run: Due) -> tuple[str, bool] | None:
        if self._waits(run):
            self.waiting.add(run.node.name)
            return None
        if run.alone:
            return None
        apart = run.node.name in self.quarantined or (
            run.choice.claim.not_capturable is not None
            and cuts_capture(self.providers[run.choice.provider])
        )
        return run.choice.provider, apart

    def _waits(self, run: Due) -> bool:
        """Tell whether a node of a device reads on the host what this plan computes."""
        choice = run.choice
        return choice.device != HOST and any(
            index in choice.claim.host_inputs
            and name not in self.known
            and name in self.written
            for index, name in enumerate(run.node.inputs)
        )

    def _steps(
        self, groups: Sequence[Sequence[Due]], keep: frozenset[str]
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
        group: Sequence[Due],
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
            self._not_capturable(group),
            group[0].alone,
        )

    def _not_capturable(self, group: Sequence[Due]) -> str | None:
        """Give the first reason; where its provider records around nodes, only if all have."""
        reasons = [run.choice.claim.not_capturable for run in group]
        provider = self.providers.get(group[0].choice.provider)
        if provider is None or (provider.captures and not cuts_capture(provider)):
            return None if None in reasons else reasons[0]
        return next(filter(None, reasons), None)

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
