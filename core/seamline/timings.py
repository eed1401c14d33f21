"""Who hears of a run, and what each step and seam took, over several runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Protocol

import attrs

__all__ = ["Profile", "Timings"]


class Profile(Protocol):
    """Takes what a run did, as it happens."""

    def event(
        self,
        name: str,
        category: str,
        start_ns: int,
        end_ns: int,
        args: Mapping[str, object],
    ) -> None:
        """Note something with a beginning and an end, by ``time.perf_counter_ns``."""
        ...


@attrs.define(eq=False)
class Timings:
    """
    Implements :class:`seamline.run.Profile`: keeps durations by step, and the gaps before.

    A gap is the time from one step's end to the next one's start, transfers left out: what
    the host spends between segments. Medians are given, so one slow run does not count.

    Examples
    --------
    >>> timings = Timings()
    >>> timings.event("cpu:a", "Segment", 0, 4000, {})
    >>> timings.event("cpu:b", "Segment", 5000, 6000, {})
    >>> timings.steps(), timings.gaps()
    ({'cpu:a': 4.0, 'cpu:b': 1.0}, {'cpu:b': 1.0})
    """

    _steps: dict[str, list[float]] = attrs.field(factory=dict)
    _gaps: dict[str, list[float]] = attrs.field(factory=dict)
    _nodes: dict[str, list[float]] = attrs.field(factory=dict)
    _last: int | None = None

    def event(
        self,
        name: str,
        category: str,
        start_ns: int,
        end_ns: int,
        args: Mapping[str, object],
    ) -> None:
        """Note a step or a node."""
        took = (end_ns - start_ns) / 1000
        if category == "Node" and "op_name" in args:
            self._nodes.setdefault(name.removesuffix("_kernel_time"), []).append(took)
            return
        step = (
            f"core:{name.removesuffix('_kernel_time')}" if category == "Node" else name
        )
        self._steps.setdefault(step, []).append(took)
        if self._last is not None:
            self._gaps.setdefault(step, []).append((start_ns - self._last) / 1000)
        self._last = end_ns

    def begin(self) -> None:
        """Begin a run: its first step has no step before it."""
        self._last = None

    def steps(self) -> dict[str, float]:
        """Give the median microseconds of each step, transfers among them."""
        return {name: statistics.median(took) for name, took in self._steps.items()}

    def gaps(self) -> dict[str, float]:
        """Give the median microseconds that the host spent before each step."""
        return {name: statistics.median(took) for name, took in self._gaps.items()}

    def nodes(self) -> dict[str, float]:
        """Give the median microseconds of each node, where nodes could be told apart."""
        return {name: statistics.median(took) for name, took in self._nodes.items()}
