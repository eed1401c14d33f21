"""The CPU provider: the table of kernels, and how many threads they may use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs

from seamline.errors import KernelError, ProviderOptionError, RecordingError
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
from seamline_cpu.commands import all_commands, putting_off
from seamline_cpu.compiling import compile_all
from seamline_cpu.cores import read_pinning, usable
from seamline_cpu.crew import crew, pin, unpin
from seamline_cpu.jit_cache import counts, folders
from seamline_cpu.kernels import TABLE, int8_choice, nbits_choice
from seamline_cpu.kernels.convolution import convolved
from seamline_cpu.profiled import AtNodeError, Part, parts_of
from seamline_cpu.recording import CpuRecording
from seamline_cpu.trace import is_traced_here

__all__ = ["CpuProvider", "CpuSegment"]


@attrs.define(eq=False)
class CpuSegment(KernelSegment):
    """
    A segment of kernels whose BLAS uses no more threads than the provider may.

    Attributes
    ----------
    binding
        Counts bindings: a recording holds one of them.
    compilers
        Processes that compile what is missing; more than 1 for ``seamline warm`` only.
    """

    limit: BlasThreads = attrs.field(kw_only=True)
    compilers: int = attrs.field(default=1, kw_only=True)
    binding: int = attrs.field(default=0, init=False)
    _parts: list[Part] | None = attrs.field(default=None, init=False)

    def bind(
        self,
        views: Mapping[str, View],
        workspaces: Mapping[str, View],
        host: Mapping[str, Array] | None = None,
    ) -> None:
        """Make every node's function over the arrays given."""
        self.binding += 1
        self._parts = None
        if self.compilers > 1:
            self._compile(views, workspaces, host)
        KernelSegment.bind(self, views, workspaces, host)

    def _compile(self, *bound: Any) -> None:
        """Compile what binding needs, by several processes; errors are left to binding."""
        compiled, wanted = -1, 0
        while compiled < wanted:
            compiled = wanted
            with putting_off() as commands, contextlib.suppress(Exception):
                KernelSegment.bind(self, *bound)
            wanted += len(commands)
            compile_all(commands, self.compilers)

    def run(self) -> Mapping[str, Array] | None:
        """Put the limit in place, and call every function in order."""
        self.limit.apply()
        return KernelSegment.run(self)

    def timed(self, clock: Callable[[], int], report: Callable[..., None]) -> None:
        """
        Run as a replay would, and report each node's name, start and end.

        Of a node that is made of commands, ``report`` gets as fourth what
        :func:`seamline_cpu.trace.facts_of` says.
        """
        self.limit.apply()
        if self._finds_sizes or not is_traced_here():
            KernelSegment.timed(self, clock, report)
            return
        if self._parts is None:
            self._parts = parts_of(self.spec.nodes, self._runs)
        try:
            for part in self._parts:
                part.timed(clock, report)
        except AtNodeError as error:
            raise self._failed(KernelError, error.node, error.error) from error.error

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
        self._parts = None
        KernelSegment.close(self)


class CpuProvider(KernelProvider):
    """
    Runs nodes on the host by NumPy and compiled kernels.

    Parameters
    ----------
    options
        ``num_threads``: 0 for as many as the process may use. ``pinning``: where worker
        threads run; see :func:`seamline_cpu.cores.read_pinning`. ``int4_variant``: which
        instructions multiply by weights of 2, 4 and 8 bits, ``int8_variant``: bytes by
        bytes; empty for the best there are. ``convolution``: ``direct`` for sums of the
        products themselves; empty for the fastest form.

    Raises
    ------
    ProviderOptionError
        ``pinning`` cannot be read, or another session has the workers elsewhere.
    """

    captures = True
    records_around = True

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        chosen = dict(options or {})
        chosen["num_threads"] = int(chosen.get("num_threads") or 0) or usable()
        super().__init__(TABLE, chosen)
        try:
            self._pinning = read_pinning(chosen.get("pinning") or "auto")
            pin(self._pinning)
        except ValueError as error:
            raise ProviderOptionError("cpu", str(error)) from error
        self._open = True
        self._compilers = 1
        self._limit = BlasThreads(chosen["num_threads"])

    def claim(self, node: NodeView) -> Claim | Refusal:
        """Offer the first kernel that takes the node, and say why that one."""
        answer = nbits_choice.explained(super().claim(node), node, self.options)
        answer = int8_choice.explained(answer, node, self.options)
        return convolved(answer, node, self.options)

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
            compilers=self._compilers,
        )

    def facts(self) -> Mapping[str, object]:
        """
        Say how wide it runs: what was asked for, and what there is by now.

        Workers are shared by the process and made on first use, so ``width`` is 1 until
        a command was first shared out.
        """
        wanted, workers = int(self.options["num_threads"]), crew().workers
        return {
            "num_threads": wanted,
            "width": min(wanted, len(workers) + 1),
            "cores": usable(),
            "pinning": str(crew().pinning),
        }

    def cached(self) -> Mapping[str, object]:
        """Count what this process compiled and what it found compiled, and say where."""
        return {**counts, "cache": folders()}

    def warm(self) -> str:
        """Compile every command, or load it from the cache; say how many there are."""
        made = all_commands()
        compile_all(made, usable())
        return f"{len(made)} commands are ready"

    def warming(self) -> None:
        """Compile what models need by as many processes as there are cores, from now on."""
        self._compilers = usable()

    def close(self) -> None:
        """Give BLAS back the number of threads that it had; a second call does nothing."""
        self._limit.close()
        if self._open:
            self._open = False
            unpin(self._pinning)
