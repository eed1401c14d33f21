"""
Build a plan: open its arenas, have every segment built, and bind it all once.

A program holds fixed addresses. Building is the only step that allocates, and it undoes
itself: if any part of it fails, whatever was opened before is closed again, in reverse.
What a run will do is laid down as a list of functions of no arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeAlias

import attrs
import numpy as np

from seamline.bodies import Bodies, BodyRunner
from seamline.capture import CapturedSegment
from seamline.chain_capture import CapturedChain, grouped
from seamline.engine import Engine
from seamline.errors import BuildError, SeamlineError
from seamline.excursions import Chain
from seamline.graph import Node
from seamline.moves import Feeder, Fetcher, feeders, fetchers
from seamline.placement import Choice
from seamline.planned import HostStep, Plan, Segment, Step, whole
from seamline.provider import (
    HOST,
    Buffer,
    Device,
    Executable,
    SegmentSpec,
    View,
    view_of,
)
from seamline.segment_building import build_segment
from seamline.staging import Edges, Staged, stage
from seamline.tensors import TensorType
from seamline.timings import Profile

__all__ = ["Action", "Program", "build"]

Action: TypeAlias = Callable[[], object]


_Choices: TypeAlias = Mapping[str, Choice]


@attrs.define(eq=False)
class Program:
    """
    A built plan: fixed buffers, bound segments, a list of actions.

    Attributes
    ----------
    objects
        Values of the present run that are no tensors at fixed places: sequences,
        optionals, and arrays whose size was found by running.
    actions
        What a run does, in order; one for each step, or for a chain of them.
    captured
        Segments that are recorded, or were to be, by step.
    chains
        Chains of segments that are, by id.
    edges, staged
        Copies that recordings take in, by what is recorded, and by value, device and
        whether they go there.
    stale
        A node was quarantined, so the next run plans anew.
    """

    plan: Plan
    engine: Engine
    outer: Program | None
    objects: dict[str, Any] = attrs.field(factory=dict)
    actions: list[tuple[Step | Chain, Action]] = attrs.field(factory=list)
    executables: dict[str, Executable] = attrs.field(factory=dict)
    captured: dict[str, CapturedSegment] = attrs.field(factory=dict)
    chains: dict[str, CapturedChain] = attrs.field(factory=dict)
    edges: dict[str, Edges] = attrs.field(factory=dict)
    staged: dict[tuple[str, Device, bool], Staged] = attrs.field(factory=dict)
    stale: bool = False
    bodies: dict[str, Mapping[str, BodyRunner]] = attrs.field(factory=dict)
    rest: BodyRunner | None = None
    profile: Profile | None = None
    feeders: tuple[Feeder, ...] = ()
    fetchers: tuple[Fetcher, ...] = ()
    _arenas: dict[Device, Buffer] = attrs.field(factory=dict)
    _views: dict[tuple[str, Device], View] = attrs.field(factory=dict)
    _places: dict[str, tuple[Device, ...]] | None = None
    _stack: ExitStack = attrs.field(factory=ExitStack)

    def view(self, name: str, device: Device = HOST) -> View:
        """Give the fixed place of a value on a device."""
        found = self._views.get((name, device))
        if found is None:
            found = self._find(name, device)
            # The host's constants are the graph's to keep: unpacked ones go with their reader.
            if device != HOST or name not in self.plan.known:
                self._views[name, device] = found
        return found

    def _find(self, name: str, device: Device) -> View:
        slot = self.plan.slots.get((name, device))
        if slot is not None:
            memory = self.engine.memories[device]
            return memory.view(
                self._arenas[device], slot.offset, self.plan.tensor(name)
            )
        state = self.plan.states.get((name, device))
        if state is not None:
            engine, kind = self.engine, self.plan.tensor(name)
            return engine.states.view(state, device, engine.memories[device], kind)
        array = self.plan.known.get(name)
        if array is not None:
            if device == HOST:
                return array
            return self.engine.upload(name, device, np.asarray(array, order="C"))
        if self.outer is not None:
            return self.outer.view(name, device)
        raise KeyError(f"value {name!r} has no place on {device}")

    def places(self, name: str) -> tuple[Device, ...]:
        """Give the devices on which a value lies, its home first."""
        if self._places is None:
            self._places = _places(self.plan)
        found = self._places.get(name)
        if found is not None:
            return found
        return (HOST,) if self.outer is None else self.outer.places(name)

    def holds(self, name: str, device: Device) -> bool:
        """Tell whether a value has a fixed place on a device, here or around."""
        if self.plan.lies(name, device) or name in self.plan.known:
            return True
        return self.outer is not None and self.outer.holds(name, device)

    def host_value(self, name: str) -> Any:
        """Give a value for the host to read: an array, a list, or None."""
        if name in self.objects:
            return self.objects[name]
        array = self.plan.known.get(name)
        if array is not None:
            return array
        return self.view(name, HOST)

    def spec(self, step: Segment, nodes: Mapping[str, Node]) -> SegmentSpec:
        """Describe a segment to its provider."""
        get, types = self.plan.known.get, self.plan.types
        views = tuple(view_of(nodes[name], types, get) for name in step.nodes)
        opsets = self.plan.region.graph.opsets
        return SegmentSpec(step.id, views, step.inputs, step.outputs, opsets)

    def bind(
        self, executable: Executable, spec: SegmentSpec, choices: _Choices
    ) -> None:
        """Give a built segment its places; values that have none yet are left out."""
        views, host = self.lent(spec, choices)
        executable.bind(views, self._workspaces(spec, choices), host)

    def lent(
        self, spec: SegmentSpec, choices: _Choices
    ) -> tuple[dict[str, View], dict[str, View]]:
        """Give the places of a segment's values, and of those it reads on the host."""
        views: dict[str, View] = {}
        host: dict[str, View] = {}
        made = {name for node in spec.nodes for name in node.node.writes}
        for node in spec.nodes:
            choice = choices[node.name]
            for index, name in enumerate(node.node.inputs):
                inside = name in made and not self.plan.lies(name, choice.device)
                if not name or inside:
                    continue
                if index in choice.claim.host_inputs:
                    host[name] = self.view(name, HOST)
                if index not in choice.claim.host_inputs or choice.device == HOST:
                    views[name] = self.view(name, choice.device)
            for name in node.node.writes:
                if self.plan.lies(name, choice.device):
                    views[name] = self.view(name, choice.device)
        return views, host

    def _workspaces(self, spec: SegmentSpec, choices: _Choices) -> dict[str, View]:
        found: dict[str, View] = {}
        for node in spec.nodes:
            slot = self.plan.workspaces.get(node.name)
            if slot is not None:
                device = choices[node.name].device
                kind = TensorType("uint8", (slot.nbytes,))
                memory = self.engine.memories[device]
                found[node.name] = memory.view(self._arenas[device], slot.offset, kind)
        return found

    def bar(self, name: str, device: Device, why: str) -> None:
        """Keep the copy of a fed value out of recordings from now on."""
        staged = self.staged.get((name, device, True))
        if staged is not None:
            unit = staged.edge.unit
            captured = self.captured.get(unit) or self.chains.get(unit)
            if captured is not None:
                captured.bar(staged, why)

    def defer(self, close: Callable[[], object]) -> None:
        """Close something with the program, before what was opened earlier."""
        self._stack.callback(close)

    def close(self) -> None:
        """Close executables, bodies and arenas, the last opened first."""
        try:
            self._stack.close()
        finally:
            self._views.clear()
            self.objects.clear()
            self.actions.clear()


def _places(plan: Plan) -> dict[str, tuple[Device, ...]]:
    copied = {(step.value, step.target) for step in plan.transfers}
    found: dict[str, tuple[Device, ...]] = {}
    for name, device in (*plan.slots, *plan.states):
        others = found.get(name, ())
        found[name] = (
            (*others, device) if (name, device) in copied else (device, *others)
        )
    return found


def build(
    plan: Plan, engine: Engine, bodies: Bodies, outer: Program | None = None
) -> Program:
    """
    Build a plan.

    Parameters
    ----------
    bodies
        Makes runners for bodies of control flow and for the rest.
    outer
        The program whose values the region captures.

    Raises
    ------
    BuildError
        A provider could not build a segment; names provider and segment. Everything
        opened before is closed.
    """
    # Imported here: an action of control flow runs programs.
    from seamline.actions import action_for

    program = Program(plan, engine, outer)
    try:
        for device, nbytes in plan.arenas.items():
            buffer = engine.memories[device].allocate(nbytes)
            program.defer(buffer.close)
            program._arenas[device] = buffer
        nodes = {node.name: node for node in plan.region.nodes}
        stage(program)
        for step in plan.steps:
            if isinstance(step, Segment):
                build_segment(program, step, nodes)
            elif isinstance(step, HostStep):
                _open_bodies(program, nodes[step.node], bodies)
            program.actions.append((step, action_for(program, step, nodes)))
        grouped(program)
        if plan.rest is not None:
            program.rest = bodies(plan.rest, program)
            program.defer(program.rest.close)
        program.feeders, program.fetchers = feeders(program), fetchers(program)
    except BaseException as error:
        program.close()
        if isinstance(error, SeamlineError) or not isinstance(error, Exception):
            raise
        raise BuildError(f"{type(error).__name__}: {error}") from error
    return program


def _open_bodies(program: Program, node: Node, bodies: Bodies) -> None:
    runners: dict[str, BodyRunner] = {}
    program.bodies[node.name] = runners
    for name, body in node.bodies.items():
        runners[name] = bodies(whole(body), program)
        program.defer(runners[name].close)
