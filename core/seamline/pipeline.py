"""
The stages in order, for one model: load, collect, place, then plan, build and run.

A pipeline owns the providers that it opened and every program it built, and closes them
in reverse. ``run`` may be called from several threads; runs take turns, since a program's
values lie at fixed places.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import attrs
import numpy as np

from seamline.engine import Capture
from seamline.errors import RunError, SeamlineError
from seamline.levels import GraphOptimizationLevel
from seamline.notes import Notes, SeamlineWarning
from seamline.opened_model import OpenedModel
from seamline.preparation import Fallback, Source, prepare
from seamline.rerouting import Rerouting
from seamline.seam_policy import SeamPolicy
from seamline.state_store import States
from seamline.states import State, settle
from seamline.timings import Profile, Timings
from seamline.variants import Variants, check_programs

if TYPE_CHECKING:
    from seamline.explain import Explanation
    from seamline.limits import LoadLimits
    from seamline.settings import Settings

__all__ = ["Fallback", "Pipeline", "SeamlineWarning"]


@attrs.define(eq=False)
class Pipeline(OpenedModel):
    """A model opened over providers."""

    _stack: ExitStack
    _lock: threading.RLock = attrs.field(factory=threading.RLock)
    _closed: bool = False
    _asked: tuple[str, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        kept = self.states.outputs
        self._asked = tuple([n for n in self.graph.outputs if n not in kept])

    @classmethod
    def open(
        cls,
        source: Source,
        *,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] = ("cpu",),
        pins: Mapping[str, str] | None = None,
        fallback: Fallback = "error",
        seams: Literal["allow", "warn", "error"] = "allow",
        max_seams: int | None = None,
        seam_form: Literal["auto", "eager", "mailbox", "host_node"] = "auto",
        limits: LoadLimits | None = None,
        programs: int = 8,
        record: bool = True,
        verify_capture: int = 0,
        graph_optimization_level: GraphOptimizationLevel | int | str = "none",
        accuracy_level: int = 0,
        deadline: float | None = None,
        states: Sequence[State] = (),
        dims: Mapping[str, int] | None = None,
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
        seam_form
            How recordings leave for the host; see :mod:`seamline.excursions`.
        programs
            Programs kept, one for each shape signature.
        record
            Record the segments of providers that can be recorded, at their second run.
        verify_capture
            Compare this many replays of each recording with a run, bit for bit.
        graph_optimization_level
            How much the graph is rewritten; see :mod:`seamline.optimization`.
        accuracy_level
            MatMulNBits', 0 to 4, for products that optimization makes of dequantised
            weights; at 4 activations may be of 8 bits.
        deadline
            Seconds that one call on a provider may take, each then on a thread of the
            provider's own; see :mod:`seamline.watch`. None: calls are direct.
        states
            Inputs that are kept between runs, each written anew by an output.
        dims
            Sizes of symbols in the types of states.
        plugins
            Plugins beside the installed ones.

        Raises
        ------
        ModelError, ProviderError, PlanError
            See :mod:`seamline.errors`.
        """
        check_programs(programs)
        policy = SeamPolicy(seams, max_seams, seam_form)
        with ExitStack() as stack:
            ready = prepare(
                stack, source, providers, pins=pins, fallback=fallback, limits=limits,
                level=graph_optimization_level, accuracy_level=accuracy_level,
                deadline=deadline, settings=settings, plugins=plugins,
            )  # fmt: skip
            notes = Notes(fallback == "warn")
            capture = Capture(record, verify_capture, seam_form)
            lock = threading.RLock()
            kept = States.of(settle(states, ready.graph, dims or {}), lock)
            stack.callback(kept.close)
            variants = Variants(
                ready.graph, ready.opened, ready.placement, policy, programs, capture,
                states=kept,
            )  # fmt: skip
            kept.locate = variants.home_of
            stack.callback(variants.close)
            variants.of(frozenset(), ready.constants)
            routes = Rerouting(
                ready.opened, fallback, ready.pins, ready.claims, ready.placement,
                variants, notes,
            )  # fmt: skip
            self = cls(
                ready.graph,
                ready.opened,
                variants,
                ready.optimized,
                routes,
                stack,
                lock,
            )
            notes.add(*ready.notes)
            self._stack = stack.pop_all()
        return self

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
            Output names; all but those of states, in order, where left out. A state that
            is asked for is copied out, its live part.

        Returns
        -------
        list
            Fresh arrays that nothing else holds.

        Raises
        ------
        RunError
            A build or a kernel failed, and the session stays usable; or it is closed.
        CaptureMismatchError
            ``verify_capture`` found a replay that differs; names the first node, which
            is not recorded any more.
        """
        names = self._asked if fetches is None else tuple(fetches)
        start = time.perf_counter_ns()
        error: SeamlineError | None = None
        with self._lock, np.errstate(all="ignore"):
            if self._closed:
                raise RunError(f"the pipeline of {self.graph.name!r} is closed")
            try:
                states = self.states
                states.refuse_fed(feeds)
                results = self._routes.run(feeds, profile)
                if states.outputs:
                    for name in states.outputs.keys() & names:
                        results[name] = states.read(name)
            except SeamlineError as raised:
                error = raised
                raise
            finally:
                self._finished(start, error)
        given = [results[name] for name in names]
        if len(set(names)) < len(names):  # nothing that is given is shared
            for position, name in enumerate(names):
                if name in names[:position] and isinstance(given[position], np.ndarray):
                    given[position] = given[position].copy()
        return given

    def _finished(self, start: int, error: BaseException | None) -> None:
        self.opened.run_finished(start, time.perf_counter_ns(), error)

    # -- explaining ----------------------------------------------------------------------

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
