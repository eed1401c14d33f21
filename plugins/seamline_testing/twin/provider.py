"""The provider ``twin``: a device's contract on any machine, with faults on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from seamline.answers import Claim, NodeView, Refusal
from seamline.errors import BuildError, ContractError
from seamline.forms import ChainSpec, FormPrice, HostWork, SeamForm
from seamline.kernel import Kernel
from seamline.kernels import KernelProvider
from seamline.provider import (
    BuildContext,
    Device,
    Executable,
    Memory,
    Recording,
    SegmentSpec,
)
from seamline.serving import Spent
from seamline.tensors import ValueType
from seamline_testing.twin.chain import Excursion, TwinChain, TwinMail
from seamline_testing.twin.edges import Edges
from seamline_testing.twin.faults import Faults, InjectedError, Step
from seamline_testing.twin.kernels import claim_of, host_table, kernel_for
from seamline_testing.twin.machine import Machine
from seamline_testing.twin.memory import TwinMemory
from seamline_testing.twin.own_operators import own_table
from seamline_testing.twin.recording import TwinRecording
from seamline_testing.twin.segment import TwinSegment

__all__ = ["DEVICE", "Twin"]

DEVICE = Device("twin", 0)
_FROM = "the simulated device's own, which say nothing of another"
PRICES = (
    FormPrice(SeamForm.EAGER, 1500.0, 400.0, 400.0, _FROM),
    FormPrice(SeamForm.MAILBOX, 500.0, 200.0, 200.0, _FROM),
    FormPrice(SeamForm.HOST_NODE, 550.0, 200.0, 200.0, _FROM),
)


class Twin(KernelProvider):
    """
    A provider whose device is simulated.

    Parameters
    ----------
    options
        Those of :mod:`seamline_testing.twin.plugin`, validated.
    faults
        What goes wrong; read from ``options["faults"]`` where left out.

    Attributes
    ----------
    edge_limit
        Bytes of the largest value whose copy a recording takes in.
    open_segments
        Segments that were built and not closed.
    left
        Bytes that callers had not given back when the provider was closed.
    """

    captures = True

    def __init__(
        self, options: Mapping[str, Any] | None = None, faults: Faults | None = None
    ) -> None:
        chosen = dict(options or {})
        text = str(chosen.get("faults", ""))
        self.faults = faults if faults is not None else Faults.parse(text)
        self.faults.check(Step.CREATE_PROVIDER)
        self.edge_limit = int(chosen.get("edge_limit", 0))
        self._host = host_table(str(chosen.get("kernels", "cpu")))
        self.machine = Machine(
            DEVICE,
            self.faults,
            float(chosen.get("copy_delay", 0.0)),
            float(chosen.get("deadline", 10.0)),
            limit=int(chosen.get("memory_limit", 0)) or None,
            answers=float(chosen.get("answer_deadline", 10.0)),
        )
        self._memory = TwinMemory(self.machine)
        super().__init__(own_table(self._memory, self.machine.synchronize), chosen, device=DEVICE)  # fmt: skip
        self.open_segments = 0
        self.left = 0
        self._closed = False

    def claim(self, node: NodeView) -> Claim | Refusal:
        """Offer what the device has; see :mod:`seamline_testing.twin.kernels`."""
        if self.faults.check(Step.CLAIM):
            return 42  # type: ignore[return-value]
        kernel = kernel_for(node, self._host, self.table)
        return kernel if isinstance(kernel, Refusal) else claim_of(kernel, node)

    def infer(self, node: NodeView) -> Sequence[ValueType | None] | None:
        """Give types of the twin's own operators."""
        if self.faults.check(Step.INFER):
            return "types"  # type: ignore[return-value]
        return self.table.inferred(node)

    def memory(self) -> Memory | None:
        """Give the device's memory, always the same."""
        if self.faults.check(Step.MEMORY):
            return 42  # type: ignore[return-value]
        return self._memory

    def build(self, segment: SegmentSpec, context: BuildContext) -> Executable:
        """Find every node's kernel; binding makes it."""
        if self._may_build(segment):
            return object()  # type: ignore[return-value]
        self.machine.usable()
        kernels: list[Kernel] = []
        for node in segment.nodes:
            kernel = kernel_for(node, self._host, self.table)
            if isinstance(kernel, Refusal):
                raise ContractError(self.name, f"asked to build {node.node}: {kernel}")
            kernels.append(kernel)
        self.open_segments += 1
        # One thread: a stream is one; a pool of the host's would outlive the device.
        return _Counted(
            self.name, segment, kernels, context, {"num_threads": 1},
            machine=self.machine, memory=self._memory, owner=self,
        )  # fmt: skip

    def forms(self) -> Sequence[FormPrice]:
        """Give the forms of excursions, with their prices here."""
        return PRICES

    def record_chain(self, chain: ChainSpec) -> Recording:
        """Record segments of this twin as one, the host's work between them."""
        mail = TwinMail(self.machine)
        times = Spent(tuple([work.name for work in chain.works]))
        parts: list[TwinRecording | Excursion] = []
        for part in chain.parts:
            if isinstance(part, HostWork):
                parts.append(Excursion.of(part, mail, times, self._memory))
            elif isinstance(part, TwinSegment):
                made = part.record()
                if not isinstance(made, TwinRecording):  # a fault's
                    return made
                parts.append(made)
            else:
                said = f"a chain with a {type(part).__name__}, which it did not build"
                raise ContractError(self.name, said)
        checked = self._memory.checked
        edges = Edges(
            chain.name, self.machine,
            tuple(map(checked, chain.inward)), tuple(map(checked, chain.outward)),
        )  # fmt: skip
        return TwinChain(chain.name, self.machine, tuple(parts), mail, times, edges)

    def _may_build(self, segment: SegmentSpec) -> bool:
        try:
            return self.faults.check(Step.BUILD)
        except InjectedError as error:
            raise BuildError(
                str(error),
                provider=self.name,
                segment=segment.name,
                node=segment.nodes[0].name,
            ) from error

    def close(self) -> None:
        """End the streams and give every page back; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self.left = self._memory.gauges().content
        self.machine.close()
        self.faults.check(Step.CLOSE)


@attrs.define(eq=False)
class _Counted(TwinSegment):
    """A segment that its provider counts while it is open."""

    owner: Twin = attrs.field(kw_only=True)
    _is_open: bool = attrs.field(default=True, init=False)

    def close(self) -> None:
        """Close, and be counted once."""
        try:
            super().close()
        finally:
            if self._is_open:
                self._is_open = False
                self.owner.open_segments -= 1
