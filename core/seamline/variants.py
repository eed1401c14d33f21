"""
A session's engines: one for the model as it is, one for each set of defaults that is fed.

An initializer that is also an input is a constant until a caller feeds it. Constants
decide what is folded, packed and planned, so each set of fed defaults has an engine of
its own, made when it is first fed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np

from seamline.checked_calls import memory_of
from seamline.constants import Constants
from seamline.engine import Capture, Engine
from seamline.folding import Folding, fold
from seamline.graph import Graph
from seamline.memory import HostMemory
from seamline.opened import Opened
from seamline.placement import Placement
from seamline.planned import Plan, Region
from seamline.provider import HOST, Array, Device, Memory
from seamline.runner import Runner
from seamline.seam_policy import SeamPolicy
from seamline.state_rules import hold
from seamline.state_store import States

__all__ = ["Variant", "Variants", "check_programs"]


_NONE: frozenset[str] = frozenset()


@attrs.define(eq=False)
class Variant:
    """The model with some defaults fed: its engine, its runner, and what was folded."""

    engine: Engine
    runner: Runner
    folding: Folding


@attrs.define(eq=False)
class Variants:
    """
    Makes variants of a placed model, and closes them.

    Attributes
    ----------
    capacity
        Programs that each runner keeps.
    capture
        What they record.
    quarantined
        Nodes that made recording fail, and why, in whichever variant.
    states
        What the session keeps between runs, whichever variant runs.
    """

    graph: Graph
    opened: Opened
    placement: Placement
    policy: SeamPolicy
    capacity: int
    capture: Capture = attrs.field(factory=Capture)
    quarantined: dict[str, str] = attrs.field(factory=dict)
    states: States = attrs.field(factory=States)
    _overridable: tuple[str, ...] = attrs.field(init=False)
    _made: dict[frozenset[str], Variant] = attrs.field(factory=dict)
    _stack: ExitStack = attrs.field(factory=ExitStack)

    def __attrs_post_init__(self) -> None:
        self._overridable = self.graph.overridable

    def of(self, fed: frozenset[str], constants: Constants | None = None) -> Variant:
        """
        Give the variant for a set of fed defaults, made where there is none yet.

        Parameters
        ----------
        constants
            The model's constants without these, where they were read already.
        """
        found = self._made.get(fed)
        if found is None:
            found = self._made[fed] = self._make(fed, constants)
        return found

    def all(self) -> tuple[Variant, ...]:
        """Give the variants made so far."""
        return tuple(self._made.values())

    def fed(self, feeds: Mapping[str, Any]) -> frozenset[str]:
        """Give the defaults that feeds replace."""
        if not self._overridable:
            return _NONE
        return frozenset(name for name in self._overridable if name in feeds)

    def place(self, placement: Placement) -> None:
        """Close every program, and make the next ones by another placement."""
        self.placement = placement
        for variant in self._made.values():
            variant.runner.close()
            variant.engine.placement = placement

    def home_of(self, name: str) -> tuple[Device, Memory]:
        """Say where the node lies that writes an output, and give the memory there."""
        node = next(node for node in self.graph.nodes if name in node.writes)
        device = self.placement.choices[node.name].device
        return device, self.of(frozenset()).engine.memories[device]

    def close(self) -> None:
        """Close runners and engines, the last made first; a second call does nothing."""
        self._stack.close()

    def _make(self, fed: frozenset[str], constants: Constants | None) -> Variant:
        with ExitStack() as stack:
            known = constants if constants is not None else Constants(self.graph, fed)
            engine = self._engine(known)
            stack.callback(engine.close)
            runner = self._runner(engine, fed)
            stack.callback(runner.close)
            variant = Variant(engine, runner, self._fold(engine))
            self._stack.push(stack.pop_all())
        return variant

    def _engine(self, constants: Constants) -> Engine:
        memories: dict[Device, Memory] = {HOST: HostMemory()}
        for provider in self.opened.providers.values():
            memory = memory_of(provider)
            if memory is not None:
                memories[provider.device] = memory
        return Engine(
            self.opened.providers, self.placement, constants, memories, self.capacity,
            self.capture, self.quarantined, states=self.states,
        )  # fmt: skip

    def _runner(self, engine: Engine, fed: frozenset[str]) -> Runner:
        graph = self.graph
        fixed = set(graph.overridable) - fed
        inputs = tuple(name for name in graph.inputs if name not in fixed)
        region = Region(graph.name, graph, graph.nodes, inputs, (), graph.outputs)
        return Runner(engine, region, check=self._check)

    def _check(self, plan: Plan, outer: Sequence[Plan]) -> None:
        if not outer:
            hold(self.states, plan)
        self.policy.hold(plan, outer)

    def _fold(self, engine: Engine) -> Folding:
        def once(region: Region) -> dict[str, Array]:
            runner = Runner(engine, region)
            try:
                with np.errstate(all="ignore"):
                    return runner.run({}, {})
            finally:
                runner.close()

        types = self.placement.claims.types
        return fold(self.graph, engine.constants, types.get, once)


def check_programs(programs: object) -> None:
    """
    Refuse what is no number of programs to keep.

    Raises
    ------
    ValueError
        It is no count, or 0.
    """
    if type(programs) is not int or programs < 1:
        raise ValueError(f"programs= is a count, 1 or more; it was given {programs!r}")
