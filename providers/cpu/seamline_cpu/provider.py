"""The CPU provider: the table of kernels, and how many threads they may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs

from seamline.kernels import KernelProvider, KernelSegment
from seamline.provider import Array, BuildContext, SegmentSpec
from seamline_cpu.blas_threads import BlasThreads
from seamline_cpu.kernels import TABLE

__all__ = ["CpuProvider", "CpuSegment"]


@attrs.define(eq=False)
class CpuSegment(KernelSegment):
    """A segment of kernels whose BLAS uses no more threads than the provider may."""

    limit: BlasThreads = attrs.field(kw_only=True)

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


class CpuProvider(KernelProvider):
    """
    Runs nodes on the host by NumPy and compiled kernels.

    Parameters
    ----------
    options
        ``num_threads``: 0 for as many as the process may use.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        chosen = dict(options or {})
        chosen["num_threads"] = int(chosen.get("num_threads") or 0) or _cores()
        super().__init__(TABLE, chosen)
        self._limit = BlasThreads(chosen["num_threads"])

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


def _cores() -> int:
    """Count the cores that this process may run on, which a container may have cut."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
