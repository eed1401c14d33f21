"""
What a plan is made of. Values only: nothing here decides, allocates or runs.

A *region* is what is planned: nodes with an inside and an outside. A main graph is one, a
body of control flow is one, and so are the nodes that remain after a size was found at
run time. That all three are the same is why loops and data-dependent sizes need no second
executor.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import attrs

from seamline.constants import Known
from seamline.graph import Graph, Node
from seamline.placement import Choice
from seamline.provider import Device
from seamline.tensors import TensorType, ValueType

if TYPE_CHECKING:
    from seamline.edges import Edge
    from seamline.excursions import Chain, Excursion

__all__ = [
    "Feed",
    "HostStep",
    "Plan",
    "Region",
    "Seam",
    "SeamCause",
    "Segment",
    "Slot",
    "Step",
    "Transfer",
    "whole",
]


@attrs.frozen(eq=False)
class Region:
    """
    Nodes with an inside and an outside.

    Attributes
    ----------
    inputs
        Values that are written anew for each run.
    captures
        Outer values that are read where they lie.
    outputs
        Values that are asked for, in order; one may be asked for twice.
    """

    name: str
    graph: Graph = attrs.field(repr=False)
    nodes: tuple[Node, ...] = attrs.field(repr=False)
    inputs: tuple[str, ...]
    captures: tuple[str, ...]
    outputs: tuple[str, ...]


def whole(graph: Graph) -> Region:
    """Look at a graph, or a body, as a region."""
    return Region(
        graph.name, graph, graph.nodes, graph.inputs, graph.captures, graph.outputs
    )


class SeamCause(enum.Enum):
    """Why execution leaves a segment."""

    HOST_NODE = "the node runs on the host"
    CONTROL_FLOW = "the host decides what runs next"
    DYNAMIC_SHAPE = "a shape is known only after running"
    NOT_CAPTURABLE = "the variant cannot be recorded"
    RECORDING_FAILED = "recording failed at this node"
    TRANSFER = "a value crosses devices or providers"


@attrs.frozen
class Segment:
    """
    Nodes that one provider runs without returning to the host.

    Attributes
    ----------
    id
        Provider and first node: the same in two plans that cut alike.
    nodes
        Node names in the order they run.
    inputs, outputs
        Values read from outside (constants excepted), and values read outside.
    not_capturable
        None, or why it cannot be recorded.
    sizes_at_run
        Its one node's output sizes are found only by running it.
    """

    id: str
    provider: str
    device: Device
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    not_capturable: str | None = None
    sizes_at_run: bool = False


@attrs.frozen
class HostStep:
    """A node that the core itself runs: control flow, sequences, optionals."""

    node: str

    @property
    def id(self) -> str:
        """Give an id like a segment's."""
        return f"core:{self.node}"


@attrs.frozen
class Transfer:
    """One copy of one value to one device."""

    value: str
    source: Device
    target: Device
    nbytes: int

    @property
    def id(self) -> str:
        """Give an id: a value crosses to a device once."""
        return f"{self.value}->{self.target}"


Step: TypeAlias = Segment | HostStep | Transfer


@attrs.frozen
class Seam:
    """
    The place where execution leaves one step for another, with its cause.

    Attributes
    ----------
    after, before
        Ids of the steps; '' for the region's inputs or outputs.
    values
        What crosses.
    nbytes
        Bytes of these values; None where a size is found only at run time.
    copied_nbytes
        Bytes that are copied for it; the rest is read in place.
    why
        What the cause rests on: the node and the provider's reason.
    """

    cause: SeamCause
    after: str
    before: str
    values: tuple[str, ...]
    nbytes: int | None
    copied_nbytes: int
    why: str

    @property
    def id(self) -> str:
        """Give an id that two plans with this seam share."""
        return f"{self.cause.name}:{self.after}|{self.before}"

    def __str__(self) -> str:
        return f"seam: {self.cause.value} [{', '.join(self.values)}]"


@attrs.frozen
class Slot:
    """Bytes of a device's arena that hold one value, or one node's workspace."""

    offset: int
    nbytes: int


@attrs.frozen
class Feed:
    """An input of the region, and the devices that it is written to before a run."""

    value: str
    devices: tuple[Device, ...]


@attrs.frozen
class Plan:
    """
    The decision for one shape signature.

    Attributes
    ----------
    types
        Types of all values of the region that are known; sized unless found at run time.
    known
        Values known before the run; nodes that only make such values do not run.
    resolved
        Names of those nodes.
    unused
        Nodes that no output depends on; they do not run.
    choices
        Provider and claim of every node that runs.
    slots
        Where values lie, by (value, device).
    shared
        Value -> value whose bytes it shares: views, and outputs written in place.
    workspaces
        Node name -> scratch bytes on its device.
    arenas
        Bytes of one arena for each device.
    peak
        Bytes alive at the worst moment, by device.
    states
        Values that lie in the place of a state, by (value, device) -> the state's input.
    whole
        State -> why all of it is read, or may be.
    rest
        What can be planned only when sizes found by this plan are known.
    joined
        No two segments of one provider could be joined.
    excursions, chains
        What lies between segments of a device that records chains, and which segments
        are recorded as one; see :mod:`seamline.excursions`.
    edges
        Copies that recordings take in; see :mod:`seamline.edges`.
    """

    region: Region = attrs.field(eq=False, repr=False)
    types: Mapping[str, ValueType | None] = attrs.field(repr=False)
    known: Known = attrs.field(eq=False, repr=False)
    resolved: tuple[str, ...]
    unused: tuple[str, ...]
    choices: Mapping[str, Choice] = attrs.field(repr=False)
    steps: tuple[Step, ...]
    seams: tuple[Seam, ...]
    feeds: tuple[Feed, ...]
    slots: Mapping[tuple[str, Device], Slot] = attrs.field(repr=False)
    shared: Mapping[str, str] = attrs.field(repr=False)
    workspaces: Mapping[str, Slot] = attrs.field(repr=False)
    arenas: Mapping[Device, int]
    peak: Mapping[Device, int]
    rest: Region | None = attrs.field(default=None, eq=False)
    joined: bool = True
    states: Mapping[tuple[str, Device], str] = attrs.field(factory=dict, repr=False)
    whole: Mapping[str, str] = attrs.field(factory=dict)
    excursions: tuple[Excursion, ...] = ()
    chains: tuple[Chain, ...] = ()
    edges: tuple[Edge, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Give the segments in order."""
        return tuple(step for step in self.steps if isinstance(step, Segment))

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """Give the transfers in order."""
        return tuple(step for step in self.steps if isinstance(step, Transfer))

    def lies(self, name: str, device: Device) -> bool:
        """Tell whether a value has a fixed place on a device."""
        return (name, device) in self.slots or (name, device) in self.states

    def tensor(self, name: str) -> TensorType:
        """Give the type of a tensor of the region."""
        kind = self.types[name]
        if not isinstance(kind, TensorType):
            raise TypeError(f"{name!r} is {kind or 'of unknown type'}, not a tensor")
        return kind
