"""
The contract: what the core asks of a provider, and the values that pass.

A provider answers three questions about a node, each with a reason: can it run it, by
which variant, and can that variant be captured. A claim is an offer; the core alone
decides. What is claimed and chosen is built one segment at a time, bound to buffers at
fixed addresses once, and then run without a decision, so that a run can be recorded and
replayed without Python.

:class:`seamline.kernels.KernelProvider` answers all of this from a table of
kernels; write against these protocols to compile whole segments instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import attrs

from seamline.answers import Claim, Cost, NodeView, Refusal, view_of
from seamline.devices import (
    HOST,
    Array,
    Buffer,
    Device,
    Gauges,
    Growing,
    GrowingMemory,
    Memory,
    View,
    VirtualMemory,
    VirtualMemoryError,
)
from seamline.tensors import ValueType

__all__ = [
    "CONTRACT_VERSION",
    "HOST",
    "Array",
    "Availability",
    "Buffer",
    "BuildContext",
    "Claim",
    "Cost",
    "Device",
    "Executable",
    "Gauges",
    "Growing",
    "GrowingMemory",
    "Memory",
    "NodeView",
    "Option",
    "Provider",
    "ProviderSpec",
    "Recording",
    "Refusal",
    "SegmentSpec",
    "View",
    "VirtualMemory",
    "VirtualMemoryError",
    "cuts_capture",
    "view_of",
]

CONTRACT_VERSION = 1  #: a plugin states the version that it was written for


# --- what a plugin says: frozen, comparable, printable --------------------------------


@attrs.frozen
class Availability:
    """A probe's answer: usable, or not usable, why, and how to fix it."""

    usable: bool
    why: str = ""
    fix: str = ""


@attrs.frozen
class Option:
    """
    One option of a provider; values arrive as text too, as in ONNX Runtime.

    Attributes
    ----------
    kind
        ``int``, ``float``, ``bool`` or ``str``.
    choices
        The values allowed; empty for any.
    """

    name: str
    kind: type
    default: Any
    help: str = ""
    choices: tuple[Any, ...] = ()
    minimum: float | None = None


@attrs.frozen
class ProviderSpec:
    """
    What a plugin says of one provider, before anything of it is made.

    Attributes
    ----------
    create
        Makes the provider from validated options. Opens no device before that.
    probe
        Says whether it can be used here; cheap, and touches no device.
    aliases
        Other names that it answers to, such as ONNX Runtime's.
    peer
        Opens a model file with a number of threads on the runtime that this provider
        wraps, without seamline, and gives a function from feeds to outputs: what
        ``seamline bench --peer`` measures beside.
    here
        Says what it finds on this machine and would choose, and why, by a word for each;
        ``seamline providers`` asks where it can be used. Opens no device.
    """

    name: str
    create: Callable[[Mapping[str, Any]], Provider]
    summary: str = ""
    contract_version: int = CONTRACT_VERSION
    probe: Callable[[], Availability] = lambda: Availability(True)
    options: tuple[Option, ...] = ()
    aliases: tuple[str, ...] = ()
    peer: Callable[[str, int], Callable[[Mapping[str, Any]], list[Any]]] | None = None
    here: Callable[[], Mapping[str, str]] | None = None


# --- resources of running: closed by whoever opened them ------------------------------


class Recording(Protocol):
    """
    A segment recorded over the addresses it was bound to; replay takes no decision.

    One of a provider that records around nodes may have ``left``, a mapping from each node
    that it runs as before to the reason.
    """

    def replay(self) -> None:
        """Run what was recorded, again."""
        ...

    def close(self) -> None:
        """Give the recording back."""
        ...


@attrs.frozen(eq=False)
class SegmentSpec:
    """
    What a provider is asked to build: nodes in order, all types sized.

    Attributes
    ----------
    name
        Unique in its plan; for messages.
    inputs
        Values that come from outside, constants excepted.
    outputs
        Values that are read outside.
    opsets
        The model's imported version by domain.
    """

    name: str
    nodes: tuple[NodeView, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opsets: Mapping[str, int] = attrs.field(factory=dict)


class BuildContext(Protocol):
    """What the core lends to a build."""

    def resident(self, key: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """
        Keep something made from constants, such as packed weights, for the session.

        Called again with the same key it gives the first result, so programs for
        several shape signatures share it. Name the constants in the key, never their
        addresses: an address outlives what lay there. The pages of a mapped file that
        hold a constant which is named are let go: what is packed need not be twice in memory.
        """
        ...


@runtime_checkable
class Executable(Protocol):
    """A built segment, bound to buffers once."""

    def bind(
        self,
        views: Mapping[str, View],
        workspaces: Mapping[str, View],
        host: Mapping[str, Array] | None = None,
    ) -> None:
        """
        Take the place of every value, constants too, and of each node's workspace.

        Called before the first run, and again if an outside address changes. ``host``
        has the inputs that the claims read on the host, where the device is another.
        """
        ...

    def run(self) -> Mapping[str, Array] | None:
        """
        Run. Where the claim said ``sizes_at_run``, give the outputs, on the host, by name.

        Raises
        ------
        KernelError
            A kernel failed or refused its data; names the node.
        """
        ...

    def record(self) -> Recording:
        """
        Record, after a warm-up in which everything is compiled and sized.

        Raises
        ------
        RecordingError
            Names the node and what it did that cannot be recorded.
        """
        ...

    def close(self) -> None:
        """Give everything back; a second call does nothing."""
        ...


@runtime_checkable
class Provider(Protocol):
    """
    What the core asks of a provider, in this order: claim, memory, build, close.

    Attributes
    ----------
    device
        Where its values live. Providers on one device share values without copies.
    captures
        Its segments can be recorded; nodes whose claim is not capturable are cut out.
        A provider that also has ``records_around = True`` is not cut: its recordings run
        such nodes in place, and name them in ``left``.
    facts
        It may have ``facts()``, a mapping of what it found and chose while running, such
        as how many threads it really has; ``explain`` shows it once a model has run. One
        that compiles may have ``warm()``, which compiles all that it has and says so in a
        line; ``warming()``, after which it may take every core to compile what models
        need; and ``cached()``, a mapping that counts what was compiled and what loaded:
        ``seamline warm`` uses them.
    owns_intermediates
        It finds its own room for values inside a segment (a whole-segment compiler).
    """

    name: str
    device: Device
    captures: bool
    owns_intermediates: bool

    def claim(self, node: NodeView) -> Claim | Refusal:
        """Offer to run a node, or refuse it with a reason; depends only on the node."""
        ...

    def infer(self, node: NodeView) -> Sequence[ValueType | None] | None:
        """Give output types of an operator that ONNX does not define; None if unknown."""
        ...

    def memory(self) -> Memory | None:
        """Give the device's memory; None to use the host's."""
        ...

    def build(self, segment: SegmentSpec, context: BuildContext) -> Executable:
        """Build a segment of nodes that it claimed, and no other."""
        ...

    def close(self) -> None:
        """Give everything back; a second call does nothing."""
        ...


def cuts_capture(provider: Provider) -> bool:
    """Tell whether a provider's segments are cut at what cannot be recorded."""
    return provider.captures and not getattr(provider, "records_around", False)
