"""
The contract: what the core asks of a provider, and the values that pass.

A provider answers three questions about a node, each with a reason: can it run it, by
which variant, and can that variant be captured. A claim is an offer; the core alone
decides. What is claimed and chosen is built one segment at a time, bound to buffers at
fixed addresses once, and then run without a decision, so that a run can be recorded and
replayed without Python.

Whoever owns memory says what it holds, in the same words for the host and for every
device. :class:`seamline.kernels.KernelProvider` answers all of this from a table of
kernels; write against these protocols to compile whole segments instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import attrs
import numpy as np

from seamline.tensors import TensorType, ValueType

if TYPE_CHECKING:
    import onnx

    from seamline.graph import Node

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
]

CONTRACT_VERSION = 1  #: a plugin states the version that it was written for

Array: TypeAlias = np.ndarray[Any, Any]
#: What a kernel sees of a value: an ndarray on the host, a device's own array elsewhere.
View: TypeAlias = Any


# --- values of planning: frozen, comparable, printable --------------------------------


@attrs.frozen(cache_hash=True)
class Device:
    """
    Where values live.

    >>> str(Device("cuda", 1))
    'cuda:1'
    """

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


HOST = Device("cpu")  #: where feeds come from and fetches go to


@attrs.frozen
class Cost:
    """What a node needs, in structure; time comes from measured rates, or not at all."""

    flops: int
    bytes_read: int
    bytes_written: int


@attrs.frozen
class Claim:
    """
    An offer to run a node. The core decides.

    Attributes
    ----------
    variant
        Which implementation ("numpy", "avx512-vnni", "cublaslt").
    because
        Why that variant and not another.
    not_capturable
        None, or why the variant cannot be recorded.
    host_inputs
        Inputs that are read on the host before the run: shapes, axes, repeats.
    aliases
        (output, input) pairs that may share memory when the input dies here.
    views
        (output, input) pairs where the output is the input's bytes under another shape.
    sizes_at_run
        The kernel itself finds its outputs' sizes and allocates them (NonZero).
    lazy_weights
        Inputs that may be paged in just before the run.
    workspace_nbytes
        Scratch bytes, from the arena.
    resident_nbytes
        Bytes kept for the session, such as packed weights.
    cost
        None where unknown, and then never a reason to move the node.
    """

    variant: str
    because: str = ""
    not_capturable: str | None = None
    host_inputs: frozenset[int] = frozenset()
    aliases: tuple[tuple[int, int], ...] = ()
    views: tuple[tuple[int, int], ...] = ()
    sizes_at_run: bool = False
    lazy_weights: frozenset[int] = frozenset()
    workspace_nbytes: int = 0
    resident_nbytes: int = 0
    cost: Cost | None = None


@attrs.frozen
class Refusal:
    """A no, and what would have been a yes."""

    because: str
    accepts: str = ""

    def __str__(self) -> str:
        return (
            f"{self.because} (accepts {self.accepts})" if self.accepts else self.because
        )


@attrs.frozen(eq=False)
class NodeView:
    """
    A node as a provider sees it: read-only, typed; a claim may depend on nothing else.

    Attributes
    ----------
    node
        The node itself. Its usual facts are repeated here as properties.
    inputs, outputs
        Types; None for an input or output left out, or where the type is unknown.
        When claims are collected sizes may be symbols; at build all are integers.
    constants
        Gives the array of a value that is known before any run, by name, or None.
    """

    node: Node
    inputs: tuple[ValueType | None, ...]
    outputs: tuple[ValueType | None, ...]
    constants: Callable[[str], Array | None]

    @property
    def name(self) -> str:
        """Give the node's name, unique in its model."""
        return self.node.name

    @property
    def op_type(self) -> str:
        """Give the operator's name."""
        return self.node.op_type

    @property
    def domain(self) -> str:
        """Give the operator's domain; empty for ONNX's own."""
        return self.node.domain

    @property
    def since_version(self) -> int:
        """Give the opset version that last changed the operator for this model."""
        return self.node.since_version

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Give the attributes that the node carries, as Python values and arrays."""
        return self.node.attributes

    def has_input(self, index: int) -> bool:
        """Tell whether an input is given; '' in the file means that it is not."""
        return index < len(self.node.inputs) and self.node.inputs[index] != ""

    def has_output(self, index: int) -> bool:
        """Tell whether an output is asked for."""
        return index < len(self.node.outputs) and self.node.outputs[index] != ""

    def constant(self, index: int) -> Array | None:
        """Give the value of an input that is known before any run, read-only."""
        return (
            self.constants(self.node.inputs[index]) if self.has_input(index) else None
        )

    def tensor(self, index: int) -> TensorType | None:
        """Give the type of an input if it is a given tensor of known type."""
        kind = self.inputs[index] if index < len(self.inputs) else None
        return kind if isinstance(kind, TensorType) else None

    def to_proto(self) -> onnx.NodeProto:
        """Give the node in ONNX's own form, with the names of this graph."""
        return self.node.to_proto()


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
    """

    name: str
    create: Callable[[Mapping[str, Any]], Provider]
    summary: str = ""
    contract_version: int = CONTRACT_VERSION
    probe: Callable[[], Availability] = lambda: Availability(True)
    options: tuple[Option, ...] = ()
    aliases: tuple[str, ...] = ()
    peer: Callable[[str, int], Callable[[Mapping[str, Any]], list[Any]]] | None = None


# --- resources of running: closed by whoever opened them ------------------------------


@attrs.frozen
class Gauges:
    """Bytes: live, mapped into address space, held physically."""

    content: int = 0
    mapped: int = 0
    owned: int = 0


class Buffer(Protocol):
    """A run of bytes at an address that does not move while it is open."""

    @property
    def device(self) -> Device:
        """Say where it lies."""
        ...

    @property
    def address(self) -> int:
        """Give the first byte's address on its device."""
        ...

    @property
    def nbytes(self) -> int:
        """Give its length in bytes."""
        ...

    def close(self) -> None:
        """Give the bytes back; a second call does nothing."""
        ...


class VirtualMemory(Protocol):
    """
    Address space and pages apart: the driver's verbs, on the host and on devices.

    ``unmap`` returns only when no work that may still read the range is in flight.
    """

    @property
    def granularity(self) -> int:
        """Give the bytes of one granule, as the driver reports it."""
        ...

    def reserve(self, nbytes: int) -> int:
        """Reserve addresses without pages; give the first one."""
        ...

    def create(self, nbytes: int) -> int:
        """Create physical pages; give their handle."""
        ...

    def map(self, address: int, handle: int) -> None:
        """Put pages at reserved addresses."""
        ...

    def unmap(self, address: int, nbytes: int) -> None:
        """Take pages away once nothing in flight reads them."""
        ...

    def release(self, handle: int) -> None:
        """Give pages back."""
        ...

    def free(self, address: int, nbytes: int) -> None:
        """Give reserved addresses back."""
        ...

    def gauges(self) -> Gauges:
        """Give the bytes held now."""
        ...


class Memory(Protocol):
    """What holds values on one device."""

    @property
    def device(self) -> Device:
        """Say which device."""
        ...

    @property
    def virtual(self) -> VirtualMemory | None:
        """Give the device's virtual memory, if it has any."""
        ...

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate bytes, aligned for any kernel of the device."""
        ...

    def view(self, buffer: Buffer, offset: int, kind: TensorType) -> View:
        """Show bytes of a buffer as a C-contiguous tensor; copies nothing."""
        ...

    def write(self, target: View, source: Array) -> None:
        """Copy from the host; returns when ``source`` may be changed."""
        ...

    def read(self, source: View, target: Array) -> None:
        """Copy to the host; returns when ``target`` holds the value."""
        ...

    def gauges(self) -> Gauges:
        """Give the bytes held now."""
        ...


class Recording(Protocol):
    """A segment recorded over the addresses it was bound to; replay takes no decision."""

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
        addresses: an address outlives what lay there.
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


def view_of(
    node: Node,
    types: Mapping[str, ValueType | None],
    constants: Callable[[str], Array | None],
) -> NodeView:
    """Look at a node through the types and constants known at some stage."""
    get = types.get
    return NodeView(
        node,
        tuple([get(name) if name else None for name in node.inputs]),
        tuple([get(name) if name else None for name in node.outputs]),
        constants,
    )
