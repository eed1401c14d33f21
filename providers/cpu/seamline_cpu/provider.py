"""The CPU provider: the table of kernels, and how many threads they may use."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs

from seamline.errors import RecordingError
from seamline.kernels import KernelProvider, KernelSegment
from seamline.provider import (
    Array,
    BuildContext,
    Claim,
    NodeView,
    Recording,
    Refusal,
    SegmentSpec,
    View,
)
from seamline_cpu.blas_threads import BlasThreads
from seamline_cpu.capturable import not_capturable
from seamline_cpu.kernels import TABLE
from seamline_cpu.recording import CpuRecording

__all__ = ["CpuProvider", "CpuSegment"]


@attrs.define(eq=False)
class CpuSegment(KernelSegment):
    """
    A segment of kernels whose BLAS uses no more threads than the provider may.

    Attributes
    ----------
    binding
        Counts bindings: a recording holds one of them.
    """

    limit: BlasThreads = attrs.field(kw_only=True)
    binding: int = attrs.field(default=0, init=False)

    def bind(
        self,
        views: Mapping[str, View],
        workspaces: Mapping[str, View],
        host: Mapping[str, Array] | None = None,
    ) -> None:
        """Make every node's function over the arrays given."""
        self.binding += 1
        KernelSegment.bind(self, views, workspaces, host)

    def run(self) -> Mapping[str, Array] | None:
        """Put the limit in place, and call every function in order."""
        self.limit.apply()
        return KernelSegment.run(self)

    def timed(
        self, clock: Callable[[], int], report: Callable[[str, int, int], None]
    ) -> None:
        """Put the limit in place, run, and report each node's name, start and end."""
        self.limit.apply()
        KernelSegment.timed(self, clock, report)

    def record(self) -> Recording:
        """Make lists of its commands; see :mod:`seamline_cpu.recording`."""
        if self._finds_sizes:
            raise RecordingError(
                "its output's size is found by running it",
                provider=self.provider,
                segment=self.spec.name,
                node=self.spec.nodes[0].name,
            )
        return CpuRecording.of(self, self.spec.nodes, self._runs)

    def close(self) -> None:
        """Forget the arrays; recordings are refused from now on."""
        self.binding += 1
        KernelSegment.close(self)


class CpuProvider(KernelProvider):
    """
    Runs nodes on the host by NumPy and compiled kernels.

    Parameters
    ----------
    options
        ``num_threads``: 0 for as many as the process may use.
    """

    captures = True
    records_around = True

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        chosen = dict(options or {})
        chosen["num_threads"] = int(chosen.get("num_threads") or 0) or _cores()
        super().__init__(TABLE, chosen)
        self._limit = BlasThreads(chosen["num_threads"])

    def claim(self, node: NodeView) -> Claim | Refusal:
        """Offer the first kernel that takes the node, and say whether it is recorded."""
        answer = super().claim(node)
        if isinstance(answer, Refusal) or answer.sizes_at_run:
            return answer
        return _recorded(answer, not_capturable(node))

    def build(self, segment: SegmentSpec, context: BuildContext) -> CpuSegment:
        """Bind each node's kernel, under this provider's limit on BLAS."""
        made = cast(KernelSegment, super().build(segment, context))
        return CpuSegment(
            made.provider,
            made.spec,
            made.kernels,
            made.context,
            made.options,
            limit=self._limit,
        )

    def close(self) -> None:
        """Give BLAS back the number of threads that it had."""
        self._limit.close()


@functools.lru_cache(maxsize=1024)  # a model's nodes share a few claims
def _recorded(claim: Claim, reason: str | None) -> Claim:
    return attrs.evolve(claim, not_capturable=reason)


def _cores() -> int:
    """Count the cores that this process may run on, which a container may have cut."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
