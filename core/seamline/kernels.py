"""
A provider from a table of kernels: everything the contract asks, in one class.

>>> import numpy as np
>>> table = KernelTable("mine")
>>> @table.simple("Relu", dtypes=("float32",))
... def relu(x):
...     return np.maximum(x, 0)
>>> spec = provider_spec(table, summary="Relu, and nothing else")
>>> spec.create({}).name
'mine'
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from seamline.errors import BuildError, ContractError, KernelError, RecordingError
from seamline.kernel_table import Call, Kernel, KernelTable, NotCapturable, Run
from seamline.provider import (
    HOST,
    Array,
    Availability,
    BuildContext,
    Claim,
    Device,
    Executable,
    Memory,
    NodeView,
    Option,
    Provider,
    ProviderSpec,
    Recording,
    Refusal,
    SegmentSpec,
    View,
)
from seamline.simple_kernels import bind_simple, finds_sizes, named_results
from seamline.tensors import ValueType

__all__ = [
    "Call",
    "KernelProvider",
    "KernelSegment",
    "KernelTable",
    "NotCapturable",
    "Run",
    "provider_spec",
]


def provider_spec(
    table: KernelTable,
    *,
    summary: str = "",
    options: tuple[Option, ...] = (),
    aliases: tuple[str, ...] = (),
    probe: Callable[[], Availability] = lambda: Availability(True),
) -> ProviderSpec:
    """Give the spec of a host provider that runs a table."""

    def create(chosen: Mapping[str, Any]) -> Provider:
        return KernelProvider(table, chosen)

    return ProviderSpec(
        table.name, create, summary, probe=probe, options=options, aliases=aliases
    )


class KernelProvider:
    """
    A provider that answers for a :class:`KernelTable`.

    Parameters
    ----------
    table
        The kernels.
    options
        Validated options; kernels see them as ``call.options``.
    device
        Where its values live; the host unless a subclass brings its own memory.
    """

    captures = False
    owns_intermediates = False

    def __init__(
        self,
        table: KernelTable,
        options: Mapping[str, Any] | None = None,
        *,
        device: Device = HOST,
    ) -> None:
        self.name: str = table.name
        self.table = table
        self.device: Device = device
        self.options: Mapping[str, Any] = dict(options or {})

    def claim(self, node: NodeView) -> Claim | Refusal:
        """Offer the first kernel that takes the node."""
        kernel = self.table.find(node)
        return kernel if isinstance(kernel, Refusal) else kernel.claim(node)

    def infer(self, node: NodeView) -> Sequence[ValueType | None] | None:
        """Ask the table."""
        return self.table.inferred(node)

    def memory(self) -> Memory | None:
        """Use the host's memory; subclasses bring their own."""
        return None

    def build(self, segment: SegmentSpec, context: BuildContext) -> Executable:
        """Bind each node's kernel; see :class:`KernelSegment`."""
        kernels = []
        for node in segment.nodes:
            kernel = self.table.find(node)
            if isinstance(kernel, Refusal):
                raise ContractError(self.name, f"asked to build {node.node}: {kernel}")
            kernels.append(kernel)
        return KernelSegment(self.name, segment, kernels, context, self.options)

    def close(self) -> None:
        """Hold nothing that needs giving back."""


@attrs.define(eq=False)
class KernelSegment:
    """
    A segment of kernels: bound, it is a flat list of functions of no arguments.

    Implements :class:`~seamline.provider.Executable`.
    """

    provider: str
    spec: SegmentSpec
    kernels: Sequence[Kernel]
    context: BuildContext
    options: Mapping[str, Any]
    _runs: list[Run] = attrs.field(factory=list, init=False)
    #: Its one node gives arrays whose sizes nobody knew.
    _finds_sizes: bool = attrs.field(default=False, init=False)

    def bind(
        self,
        views: Mapping[str, View],
        workspaces: Mapping[str, View],
        host: Mapping[str, Array] | None = None,
    ) -> None:
        """Make every node's function over the arrays given."""
        runs: list[Run] = []
        read = views if host is None else host
        for node, kernel in zip(self.spec.nodes, self.kernels, strict=True):
            on_host = kernel.host_inputs
            call = Call(
                node,
                tuple(
                    [
                        (read if i in on_host else views)[name] if name else None
                        for i, name in enumerate(node.node.inputs)
                    ]
                ),
                tuple(
                    [views.get(name) if name else None for name in node.node.outputs]
                ),
                self.context,
                self.options,
                workspaces.get(node.name),
            )
            try:
                self._finds_sizes = finds_sizes(kernel, call)
                runs.append(
                    bind_simple(kernel, call, self.provider, finds=self._finds_sizes)
                    if kernel.simple
                    else kernel.function(call)
                )
            except (Exception, SystemExit) as error:
                raise self._failed(BuildError, node, error) from error
        self._runs = runs

    def run(self) -> Mapping[str, Array] | None:
        """Call every function in order."""
        calls = iter(self._runs)
        result: object = None
        try:
            for call in calls:
                result = call()
        except (Exception, SystemExit) as error:
            index = len(self._runs) - operator.length_hint(calls) - 1
            raise self._failed(KernelError, self.spec.nodes[index], error) from error
        return named_results(self.spec.nodes[-1], result) if self._finds_sizes else None

    def timed(self, clock: Callable[[], int], report: Callable[..., None]) -> None:
        """
        Run, and report each node's name, start and end by ``clock``.

        A segment that knows more of a node gives ``report`` a mapping as fourth.
        """
        for node, call in zip(self.spec.nodes, self._runs, strict=True):
            start = clock()
            try:
                call()
            except (Exception, SystemExit) as error:
                raise self._failed(KernelError, node, error) from error
            report(node.name, start, clock())

    def record(self) -> Recording:
        """Refuse: these kernels run in Python."""
        node = self.spec.nodes[0]
        raise RecordingError(
            "its kernels run in Python, which cannot be recorded",
            provider=self.provider,
            segment=self.spec.name,
            node=node.name,
        )

    def close(self) -> None:
        """Forget the arrays."""
        self._runs = []

    def _failed(
        self, kind: type[BuildError | KernelError], node: NodeView, error: BaseException
    ) -> BuildError | KernelError:
        said = str(error) or type(error).__name__
        if isinstance(error, SystemExit):
            said = f"SystemExit: {error}"
        return kind(
            f"{node.node.qualified_op}: {said}",
            provider=self.provider,
            segment=self.spec.name,
            node=node.name,
        )
