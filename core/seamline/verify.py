"""
Hold a plan to the rules that make it right, whoever made it.

Every rule is checked from the plan's own words: its region, its steps, its claims, its
slots. Nothing is shared with the code that makes plans, so a mistake there is not
repeated here. A broken rule is a sentence; a plan without any is empty.

What a plan does not say is taken on trust: where captures lie outside it, and which
providers find room for the values inside their segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from seamline.claims import Claims
from seamline.graph import Node
from seamline.placement import Choice
from seamline.planned import HostStep, Plan, Segment, Transfer
from seamline.provider import HOST, Device
from seamline.tensors import TensorType, nbytes_of
from seamline.verify_memory import broken_memory

__all__ = ["verify"]


def verify(plan: Plan, claims: Claims | None = None) -> tuple[str, ...]:
    """
    Give the rules that a plan breaks, as sentences; none for a plan that may be built.

    Parameters
    ----------
    claims
        What the providers said; with it, nodes on providers that declined them are found.
    """
    checking = _Checking(plan)
    found = [*checking.nodes(), *checking.steps(), *checking.outputs()]
    if claims is not None:
        found += checking.declined(claims)
    if not found:  # what follows relies on an order that exists
        found += [*checking.cycles(), *checking.joinable(), *broken_memory(plan)]
    return tuple(found)


@attrs.define
class _Where:
    """The devices that each value has reached by some step."""

    at: dict[str, set[Device]]

    def has(self, name: str, device: Device) -> bool:
        return device in self.at.get(name, ())


class _Checking:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.by_name = {node.name: node for node in plan.region.nodes}
        self.step_of: dict[str, int] = {}
        for index, step in enumerate(plan.steps):
            for name in _nodes_of(step):
                self.step_of[name] = index
        self.writer = {
            value: name
            for name in self.step_of
            if name in self.by_name
            for value in self.by_name[name].writes
        }

    # -- every node once -------------------------------------------------------------

    def nodes(self) -> Iterator[str]:
        """Check that each node of the region runs once, or has one reason not to."""
        plan = self.plan
        said: dict[str, list[str]] = {name: [] for name in self.by_name}
        rest = [node.name for node in plan.rest.nodes] if plan.rest else []
        for where, names in (
            ("steps", [n for step in plan.steps for n in _nodes_of(step)]),
            ("resolved", plan.resolved),
            ("unused", plan.unused),
            ("rest", rest),
        ):
            for name in names:
                if name not in said:
                    yield f"node {name!r} of {where} is not in the region"
                else:
                    said[name].append(where)
        for name, places in said.items():
            if len(places) != 1:
                yield f"node {name!r} is in {' and '.join(places) or 'no step'}"
        yield from self._idle(set(plan.resolved), set(plan.unused))

    def _idle(self, resolved: set[str], unused: set[str]) -> Iterator[str]:
        plan = self.plan
        later = plan.rest.nodes if plan.rest else ()
        running = [self.by_name[n] for n in self.step_of if n in self.by_name]
        wanted = {name for node in (*running, *later) for name in node.reads}
        wanted.update(plan.region.outputs)
        for name, node in self.by_name.items():
            unknown = [v for v in node.writes if v not in plan.known]
            if name in resolved and unknown:
                yield f"node {name!r} is resolved, but {unknown[0]!r} is not known"
            if name in unused and wanted.intersection(unknown):
                yield f"node {name!r} is unused, but its output is read"

    # -- values are there when and where they are read ---------------------------------

    def steps(self) -> Iterator[str]:
        """Check steps in order: who runs them, what they read, what they copy."""
        where = _Where({feed.value: set(feed.devices) for feed in self.plan.feeds})
        for step in self.plan.steps:
            if isinstance(step, Transfer):
                yield from self._transfer(step, where)
                continue
            if isinstance(step, Segment):
                yield from self._members(step)
            for name in _nodes_of(step):
                if name in self.by_name and name in self.plan.choices:
                    yield from self._reads(self.by_name[name], where)
                elif name in self.by_name:
                    yield f"node {name!r} runs, and nobody was chosen for it"

    def _members(self, segment: Segment) -> Iterator[str]:
        late = segment.sizes_at_run
        if not segment.nodes or (late and len(segment.nodes) > 1):
            yield f"segment {segment.id!r} has {len(segment.nodes)} nodes"
        for name in segment.nodes:
            choice = self.plan.choices.get(name)
            if choice is None:
                continue
            if (choice.provider, choice.device) != (segment.provider, segment.device):
                yield (
                    f"node {name!r} is {choice.provider}'s on {choice.device}, and in "
                    f"segment {segment.id!r} on {segment.device}"
                )

    def _reads(self, node: Node, where: _Where) -> Iterator[str]:
        choice, plan = self.plan.choices[node.name], self.plan
        for index, name in enumerate(node.inputs):
            device = _read_at(choice, index)
            if not name or name in plan.known or where.has(name, device):
                continue
            if name in plan.region.captures or self._is_object(name):
                continue
            yield f"node {node.name!r} reads {name!r} on {device}, where it is not"
        for name in node.captures:
            outer = name in plan.region.captures or name in plan.known
            if not outer and name not in where.at:
                yield f"a body of node {node.name!r} reads {name!r} before it is made"
        for name in node.writes:
            if name in where.at:
                yield f"value {name!r} is written again by node {node.name!r}"
            where.at.setdefault(name, set()).add(choice.device)

    def _is_object(self, name: str) -> bool:
        """Tell whether an input is a sequence, or absent: it is kept, not written."""
        kind = self.plan.types.get(name)
        return name in self.plan.region.inputs and not isinstance(kind, TensorType)

    def _transfer(self, step: Transfer, where: _Where) -> Iterator[str]:
        name, plan = step.value, self.plan
        captured = name in plan.region.captures
        if name in plan.known:
            yield f"transfer {step.id!r} moves a value that is known"
        if not captured and not where.has(name, step.source):
            yield f"transfer {step.id!r} reads {name!r} on {step.source}, where it is not"
        if where.has(name, step.target) or step.source == step.target:
            yield f"transfer {step.id!r} moves {name!r} to where it is"
        kind = plan.types.get(name)
        if not isinstance(kind, TensorType) or not kind.is_sized:
            yield f"transfer {step.id!r} moves {kind or 'a value of unknown type'}"
        elif step.nbytes != nbytes_of(kind):
            yield f"transfer {step.id!r} says {step.nbytes} bytes of {nbytes_of(kind)}"
        where.at.setdefault(name, set()).add(step.target)

    def outputs(self) -> Iterator[str]:
        """Check that every output comes from somewhere."""
        plan = self.plan
        later = plan.rest.outputs if plan.rest else ()
        outside = {*plan.region.inputs, *plan.region.captures, *later}
        for name in plan.region.outputs:
            if (
                name not in outside
                and name not in self.writer
                and name not in plan.known
            ):
                yield f"output {name!r} is made by nothing"

    def declined(self, claims: Claims) -> Iterator[str]:
        """Check that every provider offered to run what it was given."""
        for name, choice in self.plan.choices.items():
            offers = claims.offers(name)
            # Where nobody offered, the types were unknown; it was asked when they were not.
            if offers and choice.provider not in offers:
                yield f"node {name!r} is on {choice.provider}, which declined it"

    # -- the segments as a whole -------------------------------------------------------

    def _parents(self) -> Mapping[int, set[int]]:
        parents: dict[int, set[int]] = {i: set() for i in self.step_of.values()}
        for name, index in self.step_of.items():
            for value in self.by_name[name].reads:
                source = self.step_of.get(self.writer.get(value, ""), index)
                if source != index:
                    parents[index].add(source)
        return parents

    def cycles(self) -> Iterator[str]:
        """Check that no segment waits on itself: then each is convex, and all orderable."""
        parents = {index: set(deps) for index, deps in self._parents().items()}
        after: dict[int, list[int]] = {}
        for index, deps in parents.items():
            for dep in deps:
                after.setdefault(dep, []).append(index)
        ready = [index for index, deps in parents.items() if not deps]
        done = 0
        while ready:
            index = ready.pop()
            done += 1
            for later in after.get(index, ()):
                parents[later].discard(index)
                if not parents[later]:
                    ready.append(later)
        if done != len(parents):
            stuck = [self.plan.steps[i].id for i, deps in parents.items() if deps]
            yield f"segments wait on each other: {', '.join(stuck)}"

    def joinable(self) -> Iterator[str]:
        """Check that no two segments alike could be one, where the plan says so."""
        if not self.plan.joined:
            return
        parents = self._parents()
        above: dict[int, int] = {}
        alike: dict[tuple[str, bool], list[int]] = {}
        for index in sorted(parents):
            bits = sum(1 << dep for dep in parents[index])
            for dep in parents[index]:
                bits |= above[dep]
            above[index] = bits
            step = self.plan.steps[index]
            if not isinstance(step, Segment) or self._stands_alone(step):
                continue
            key = (step.provider, step.not_capturable is None)
            for other in alike.get(key, ()):
                # A third step between them would be above one and have the other above it.
                if not any(above[dep] >> other & 1 for dep in parents[index]):
                    yield f"segments {self.plan.steps[other].id!r} and {step.id!r} could be one"
            alike.setdefault(key, []).append(index)

    def _stands_alone(self, segment: Segment) -> bool:
        """Tell whether a segment has to be one node: it is late, or waits for the host."""
        if segment.sizes_at_run:
            return True
        node, choice = (
            self.by_name[segment.nodes[0]],
            self.plan.choices[segment.nodes[0]],
        )
        return segment.device != HOST and any(
            name in self.writer and index in choice.claim.host_inputs
            for index, name in enumerate(node.inputs)
        )


def _nodes_of(step: Segment | HostStep | Transfer) -> tuple[str, ...]:
    if isinstance(step, Segment):
        return step.nodes
    return (step.node,) if isinstance(step, HostStep) else ()


def _read_at(choice: Choice, index: int) -> Device:
    return HOST if index in choice.claim.host_inputs else choice.device
