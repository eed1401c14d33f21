"""
The stages in order, for one model: load, collect, place, then plan, build and run.

A pipeline owns the providers that it opened and every program it built, and closes them
in reverse. ``run`` may be called from several threads; runs take turns, since a program's
values lie at fixed places.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import attrs
import numpy as np

from seamline.claims import Claims, collect
from seamline.constants import Constants
from seamline.engine import Engine
from seamline.errors import BuildError, RunError, SeamlineError
from seamline.folding import Folding, fold
from seamline.graph import Graph, load
from seamline.memory import HostMemory
from seamline.opened import Opened, open_providers
from seamline.placement import Placement, place
from seamline.planned import Plan, Region
from seamline.provider import HOST, Array, Device, Memory, Provider
from seamline.replacing import replace
from seamline.runner import Runner
from seamline.samples import weightless_feeds
from seamline.seam_policy import SeamPolicy
from seamline.tensors import ValueType
from seamline.timings import Profile, Timings

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from seamline.explain import Explanation
    from seamline.limits import LoadLimits
    from seamline.settings import Settings

__all__ = ["Fallback", "Pipeline", "SeamlineWarning"]

Fallback = Literal["error", "warn", "allow"]
_REPLACEMENTS = 16  # builds that may fail before a session gives up


class SeamlineWarning(UserWarning):
    """Something was done another way than asked for, and says why."""


@attrs.define(eq=False)
class Pipeline:
    """
    A model opened over providers.

    Attributes
    ----------
    types
        What is known of each value's type before any feed.
    notes
        What was dropped, moved or left, and why; shown by ``explain``.
    """

    graph: Graph
    opened: Opened
    fallback: Fallback
    pins: Mapping[str, str]
    policy: SeamPolicy
    capacity: int
    notes: list[str]
    claims: Claims
    placement: Placement
    engine: Engine
    folding: Folding
    runner: Runner
    _stack: ExitStack
    _lock: threading.RLock = attrs.field(factory=threading.RLock)
    _overrides: dict[frozenset[str], Runner] = attrs.field(factory=dict)
    _closed: bool = False

    @classmethod
    def open(
        cls,
        source: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
        *,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] = ("cpu",),
        pins: Mapping[str, str] | None = None,
        fallback: Fallback = "error",
        seams: Literal["allow", "warn", "error"] = "allow",
        max_seams: int | None = None,
        limits: LoadLimits | None = None,
        programs: int = 8,
        settings: Settings | None = None,
        plugins: Sequence[Any] = (),
    ) -> Pipeline:
        """
        Load a model, ask the providers, and place every node.

        Parameters
        ----------
        providers
            Names in order of preference, with options where given.
        pins
            Node name, pattern of names or operator -> provider.
        fallback
            What happens where a named provider is unavailable, breaks the contract or
            cannot build what it claimed, and where no named provider claims a node:
            an error, or ``cpu`` takes over with or without a warning.
        programs
            Programs kept, one for each shape signature.
        plugins
            Plugins beside the installed ones.

        Raises
        ------
        ModelError, ProviderError, PlanError
            See :mod:`seamline.errors`.
        """
        with ExitStack() as stack:
            graph = load(source, limits=limits)
            opened = open_providers(providers, fallback, settings, tuple(plugins))
            stack.callback(opened.close)
            constants = Constants(graph)
            claims = collect(graph, list(opened.providers.values()), constants)
            self = cls._placed(graph, opened, fallback, dict(pins or {}), claims, constants,
                               SeamPolicy(seams, max_seams), programs, stack)  # fmt: skip
            self._stack = stack.pop_all()
        return self

    @classmethod
    def _placed(
        cls,
        graph: Graph,
        opened: Opened,
        fallback: Fallback,
        pins: Mapping[str, str],
        claims: Claims,
        constants: Constants,
        policy: SeamPolicy,
        capacity: int,
        stack: ExitStack,
    ) -> Pipeline:
        notes = list(opened.notes)
        for broken in claims.quarantined.values():
            if fallback == "error" and broken.provider in opened.named:
                raise broken
            notes.append(str(broken))
        devices = {name: provider.device for name, provider in opened.providers.items()}
        placement = place(claims, devices, named=opened.named, pins=pins)
        engine = _engine(opened, placement, constants, capacity)
        stack.callback(engine.close)
        runner = _runner(engine, graph, (), policy)
        stack.callback(runner.close)
        self = cls(graph, opened, fallback, pins, policy, capacity, notes, claims, placement,
                   engine, Folding(), runner, stack)  # fmt: skip
        self._told_fallbacks()
        self.folding = self._fold(engine)
        for note in notes if fallback == "warn" else ():
            warnings.warn(note, SeamlineWarning, stacklevel=4)
        return self

    @property
    def types(self) -> Mapping[str, ValueType | None]:
        """Give what is known of each value's type before any feed."""
        return self.claims.types

    @property
    def providers(self) -> Mapping[str, Provider]:
        """Give the opened providers, most preferred first."""
        return self.opened.providers

    @property
    def provider_options(self) -> Mapping[str, Mapping[str, Any]]:
        """Give the options that each provider was opened with."""
        return self.opened.options

    def assignments(self) -> Mapping[str, str]:
        """Give the provider of every node, bodies included."""
        return {
            name: choice.provider for name, choice in self.placement.choices.items()
        }

    # -- running -------------------------------------------------------------------------

    def run(
        self,
        feeds: Mapping[str, Any],
        fetches: Sequence[str] | None = None,
        *,
        profile: Profile | None = None,
    ) -> list[Any]:
        """
        Run the model.

        Parameters
        ----------
        feeds
            Checked arrays by input name; lists for sequences, None for an empty optional.
            A value that the model gives a default for may be left out.
        fetches
            Output names; all, in order, where left out.

        Returns
        -------
        list
            Fresh arrays that nothing else holds.

        Raises
        ------
        RunError
            A build or a kernel failed, and the session stays usable; or it is closed.
        """
        names = list(self.graph.outputs if fetches is None else fetches)
        start = time.perf_counter_ns()
        error: SeamlineError | None = None
        with self._lock, np.errstate(all="ignore"):
            if self._closed:
                raise RunError(f"the pipeline of {self.graph.name!r} is closed")
            try:
                results = self._run(feeds, profile)
            except SeamlineError as raised:
                error = raised
                raise
            finally:
                self._finished(start, error)
        given: list[Any] = []
        for position, name in enumerate(names):
            value = results[name]
            again = name in names[:position]
            given.append(
                value.copy() if again and isinstance(value, np.ndarray) else value
            )
        return given

    def _run(self, feeds: Mapping[str, Any], profile: Profile | None) -> dict[str, Any]:
        for _ in range(_REPLACEMENTS):
            runner = self._runner_for(feeds)
            inputs = {name: feeds[name] for name in runner.region.inputs}
            try:
                return runner.run(inputs, {}, self.opened.watching(profile))
            except BuildError as error:
                if self.fallback == "error" or not self._replaced(error):
                    raise
        raise RunError(f"{_REPLACEMENTS} builds failed; see the notes of explain()")

    def _finished(self, start: int, error: BaseException | None) -> None:
        self.opened.run_finished(start, time.perf_counter_ns(), error)

    def _runner_for(self, feeds: Mapping[str, Any]) -> Runner:
        overridden = frozenset(name for name in self.graph.overridable if name in feeds)
        if not overridden:
            return self.runner
        if overridden not in self._overrides:
            constants = Constants(self.graph, overridden)
            engine = _engine(self.opened, self.placement, constants, self.capacity)
            self._stack.callback(engine.close)
            folding = self._fold(engine)
            if folding.left and folding.left != self.folding.left:
                self._note(f"with {', '.join(sorted(overridden))} fed: {folding.left}")
            runner = _runner(engine, self.graph, tuple(overridden), self.policy)
            self._stack.callback(runner.close)
            self._overrides[overridden] = runner
        return self._overrides[overridden]

    # -- folding, and nodes whose provider failed ----------------------------------------

    def _fold(self, engine: Engine) -> Folding:
        def once(region: Region) -> dict[str, Array]:
            runner = Runner(engine, region)
            try:
                with np.errstate(all="ignore"):
                    return runner.run({}, {})
            finally:
                runner.close()

        return fold(self.graph, engine.constants, self.types.get, once)

    def _replaced(self, error: BuildError) -> bool:
        """Give a failed segment's nodes to others; tell whether that was possible."""
        devices = {name: provider.device for name, provider in self.providers.items()}
        found = replace(
            error,
            self.claims,
            self.placement,
            devices,
            named=self.opened.named,
            pins=self.pins,
        )
        if found is None:
            return False
        self.claims, self.placement = found.claims, found.placement
        self._note(*found.notes)
        self._reset()
        return True

    def _note(self, *notes: str) -> None:
        self.notes.extend(notes)
        for note in notes if self.fallback == "warn" else ():
            warnings.warn(note, SeamlineWarning, stacklevel=6)

    def _reset(self) -> None:
        self.runner.close()
        self.engine.placement = self.placement
        for runner in self._overrides.values():
            runner.close()
            runner.engine.placement = self.placement

    def _told_fallbacks(self) -> None:
        for node, said in self.placement.fallbacks.items():
            who = self.placement.choices[node].provider
            why = "; ".join(f"{name}: {reason}" for name, reason in said.items())
            self.notes.append(f"node {node!r} falls back to {who}: {why}")

    # -- explaining ----------------------------------------------------------------------

    def plan(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Plan:
        """
        Give the plan of the last run, or one for the shapes given.

        Symbolic and unknown sizes that are not given count as 1.
        """
        latest = self.runner.latest()
        if shapes is None and latest is not None:
            return latest.plan
        types = {name: self.types.get(name) for name in self.runner.region.inputs}
        return self.runner.plan(weightless_feeds(types, shapes or {}))

    def explain(
        self,
        shapes: Mapping[str, Sequence[int]] | None = None,
        timings: Timings | None = None,
    ) -> Explanation:
        """Explain who said what of which node, and what the plan for these shapes does."""
        from seamline.explain import explain

        with self._lock:
            return explain(self, self.plan(shapes), timings)

    def measure(self, feeds: Mapping[str, Any], runs: int = 5) -> Timings:
        """Run a few times and keep what each step and each seam took; see ``explain``."""
        timings = Timings()
        self.run(feeds)
        for _ in range(runs):
            timings.begin()
            self.run(feeds, profile=timings)
        return timings

    def close(self) -> None:
        """Close programs, constants and providers; a second call does nothing."""
        with self._lock:
            self._closed = True
            self._stack.close()


def _engine(
    opened: Opened, placement: Placement, constants: Constants, capacity: int
) -> Engine:
    memories: dict[Device, Memory] = {HOST: HostMemory()}
    for provider in opened.providers.values():
        memory = provider.memory()
        if memory is not None:
            memories[provider.device] = memory
    return Engine(opened.providers, placement, constants, memories, capacity)


def _runner(
    engine: Engine, graph: Graph, overridden: tuple[str, ...], policy: SeamPolicy
) -> Runner:
    fixed = set(graph.overridable) - set(overridden)
    inputs = tuple(name for name in graph.inputs if name not in fixed)
    region = Region(graph.name, graph, graph.nodes, inputs, (), graph.outputs)
    return Runner(engine, region, check=policy.hold)
