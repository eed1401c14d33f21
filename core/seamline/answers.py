"""
A node as a provider is asked about it, and the two answers: a claim or a refusal.

An answer may depend on nothing but the node, and always carries its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from seamline.devices import Array
from seamline.tensors import TensorType, ValueType

if TYPE_CHECKING:
    import onnx

    from seamline.graph import Node

__all__ = ["Claim", "Cost", "NodeView", "Refusal", "view_of"]


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
    bounded
        Inputs of which the kernel touches no more than positions or lengths, which it reads
        as it runs, reach; past that there may be no memory.
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
    bounded: frozenset[int] = frozenset()


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
