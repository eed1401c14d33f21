"""
A recorded segment: lists of commands, and between them the kernels that need Python.

Consecutive commands become one list, which worker threads run in step from one call into
compiled code; elementwise ones over arrays of one size become one command, see
:mod:`seamline_cpu.chains`. A kernel that calls NumPy or BLAS stays where it is, between two lists: to
cut the segment there would cost more than it saves, since on the host the seam's price is
the call itself. Kernels that have nothing to do are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from seamline.errors import KernelError, RecordingError
from seamline.kernels import Run
from seamline.provider import NodeView
from seamline_cpu.binding import nothing
from seamline_cpu.chains import chained
from seamline_cpu.commands import Native, in_list
from seamline_cpu.table import IN_PYTHON

if TYPE_CHECKING:
    from seamline_cpu.provider import CpuSegment

__all__ = ["CpuRecording"]


@attrs.define(eq=False)
class CpuRecording:
    """
    Implements :class:`~seamline.provider.Recording`.

    Attributes
    ----------
    left
        Nodes that still run in Python, and why.
    calls
        What a replay calls, in order, and the first node that each does.
    """

    segment: CpuSegment
    binding: int
    left: Mapping[str, str]
    calls: tuple[tuple[Callable[[], object], NodeView], ...]
    _runs: tuple[Callable[[], object], ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._runs = tuple([call for call, _ in self.calls])

    @classmethod
    def of(
        cls, segment: CpuSegment, nodes: Sequence[NodeView], runs: Sequence[Run]
    ) -> CpuRecording:
        """
        Record a bound segment.

        Raises
        ------
        RecordingError
            No node is made of commands; names the first.
        """
        calls: list[tuple[Callable[[], object], NodeView]] = []
        left: dict[str, str] = {}
        pending: list[tuple[Native, NodeView]] = []
        for node, run in zip(nodes, runs, strict=True):
            if isinstance(run, Native):
                pending.append((run, node))
            elif run is not nothing:
                left[node.name] = IN_PYTHON
                calls += [*_listed(pending), (run, node)]
                pending = []
        calls += _listed(pending)
        if left and len(left) == len(calls):
            raise RecordingError(
                IN_PYTHON,
                provider=segment.provider,
                segment=segment.spec.name,
                node=next(iter(left)),
            )
        return cls(segment, segment.binding, left, tuple(calls))

    def replay(self) -> None:
        """
        Run what was recorded, over what lies at its addresses now.

        Raises
        ------
        RecordingError
            It is closed, or its segment was bound elsewhere since; nothing was run.
        KernelError
            A kernel in Python failed; names the node.
        """
        segment = self.segment
        if segment.binding != self.binding:
            raise RecordingError(
                "its segment was bound to other places or closed since; record it again",
                provider=segment.provider,
                segment=segment.spec.name,
            )
        if self.left:
            segment.limit.apply()
        at = 0
        try:
            for at, call in enumerate(self._runs):  # noqa: B007 - named if it fails
                call()
        except Exception as error:
            raise segment._failed(KernelError, self.calls[at][1], error) from error

    def close(self) -> None:
        """Forget the lists; a second call does nothing."""
        self.binding = -1
        self.calls = self._runs = ()


def _listed(
    pending: Sequence[tuple[Native, NodeView]],
) -> list[tuple[Callable[[], object], NodeView]]:
    """Give runs of commands as one list, with their checks after it; one as it is."""
    if not pending:
        return []
    first, node = pending[0]
    if len(pending) == 1 and len(first.rows) == 1:
        return [(first, node)]
    runs = tuple([run for run, _ in pending])
    rows, chains = chained(runs)
    checks = [(check, node) for run, node in pending for check in run.checks]
    return [(in_list(rows, (runs, chains)), node), *checks]
