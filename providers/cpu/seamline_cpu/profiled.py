"""A segment's run under a profile: its commands in lists, as a replay runs them, but timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import attrs

from seamline.kernels import Run
from seamline.provider import NodeView
from seamline_cpu.binding import nothing
from seamline_cpu.commands import Native
from seamline_cpu.trace import TracedList, facts_of

__all__ = ["AtNodeError", "Part", "parts_of"]

#: Takes a node's name, start and end, and facts of a node made of commands.
Report = Callable[..., None]


@attrs.define(eq=False)
class Part:
    """
    Neighbouring nodes: several that are commands, or one that Python runs.

    Attributes
    ----------
    idle
        Nodes among them that have nothing to do.
    """

    nodes: Sequence[NodeView]
    run: TracedList | Run
    idle: Sequence[NodeView] = ()

    def timed(self, clock: Callable[[], int], report: Report) -> None:
        """Run, and report each node; what a node raises comes with its name set."""
        begun = clock()
        try:
            self.run()
        except Exception as error:
            raise AtNodeError(self.nodes[0], error) from error
        ended = clock()
        for node in self.idle:
            report(node.name, begun, begun)
        if isinstance(self.run, TracedList):
            self._report(self.run, ended, report)
        else:
            report(self.nodes[0].name, begun, ended)

    def _report(self, traced: TracedList, ended: int, report: Report) -> None:
        found = traced.shares()
        starts = [min(share.start for share in commands[0]) for commands in found]
        after = [b for _, b in pairwise([*starts, ended])]
        for node, commands, start, then in zip(
            self.nodes, found, starts, after, strict=True
        ):
            end = max(share.end for share in commands[-1])
            report(node.name, start, end, facts_of(commands, then))
        for node, run in zip(self.nodes, traced.runs, strict=True):
            for check in run.checks:
                try:
                    check()
                except Exception as error:
                    raise AtNodeError(node, error) from error


class AtNodeError(Exception):
    """Carries what a node raised to where errors are given their words."""

    def __init__(self, node: NodeView, error: Exception) -> None:
        super().__init__(str(error))
        self.node, self.error = node, error


def parts_of(nodes: Sequence[NodeView], runs: Sequence[Run]) -> list[Part]:
    """Divide a bound segment as its recording would be divided."""
    found: list[Part] = []
    held: list[tuple[NodeView, Native]] = []
    idle: list[NodeView] = []

    def close() -> None:
        if held:
            listed = TracedList([run for _, run in held])
            found.append(Part([node for node, _ in held], listed, tuple(idle)))
            held.clear()
            idle.clear()

    for node, run in zip(nodes, runs, strict=True):
        if run is nothing:
            idle.append(node)
        elif isinstance(run, Native):
            held.append((node, run))
        else:
            close()
            found.append(Part((node,), run, tuple(idle)))
            idle.clear()
    close()
    if idle:
        found.append(Part((idle[-1],), nothing, tuple(idle[:-1])))
    return found
