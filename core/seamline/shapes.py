"""
Types of values, and values known without running: symbolic at load, sized per signature.

Inference is onnx-shape-inference's, one node at a time, so that a *part* of a graph can be
resolved: the nodes that remain after a size was found at run time, or the body of a loop
whose carried shapes have changed. It also follows small integer tensors (``Shape``,
``Gather``, ``Concat`` ...), which is what makes most shape arithmetic known once the
inputs' sizes are. Operators that it lacks go to ONNX's own inference, then to the
provider that may know them, then to what the file declares.

The library writes what it finds into the IR, so a resolution holds a lock on the model,
forgets what an earlier one left, and gives its answer as values.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
import onnx_ir as ir

from seamline.errors import PlanError
from seamline.graph import Graph, Node
from seamline.onnx_inference import (
    FOLLOWED,
    guesses,
    infer_by_onnx,
    ir_type,
    is_defined,
    refined,
    strays,
    value_type,
)
from seamline.provider import Array, NodeView, view_of
from seamline.tensors import (
    Dim,
    Shape,
    TensorType,
    ValueType,
    dtype_name,
    numpy_dtype,
    unheld,
)

__all__ = [
    "CONTROL_FLOW",
    "Infer",
    "Resolved",
    "Settled",
    "resolve",
    "resolve_static",
]

CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
#: Views: the output is the input's bytes, so a constant's view is a constant.
_VIEWS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
_SYMBOLS = "pkg.onnx_shape_inference.sym_data"
_lock = threading.RLock()

#: Asks providers for the output types of an operator that ONNX does not define.
Infer: TypeAlias = Callable[[NodeView], Sequence[ValueType | None] | None]
Types: TypeAlias = dict[str, ValueType | None]


@attrs.frozen
class Settled:
    """
    The sized outputs of a node that were found before any feed.

    They hold for every signature in which its inputs have these types, and the same ones
    of them are known: nothing else goes into them.
    """

    inputs: tuple[ValueType | None, ...]
    known: tuple[bool, ...]
    outputs: tuple[ValueType | None, ...]


@attrs.frozen(eq=False)
class Resolved:
    """
    What is known of a part of a graph before it runs.

    Attributes
    ----------
    types
        Type of every value seen; None where nothing is known.
    known
        Arrays of values that depend on sizes and constants alone.
    settled
        By node name, what need not be found again; filled before any feed.
    """

    types: Mapping[str, ValueType | None]
    known: Mapping[str, Array]
    settled: Mapping[str, Settled] = attrs.field(factory=dict)


def resolve(
    graph: Graph,
    nodes: Iterable[Node],
    given: Mapping[str, ValueType | None],
    known: Callable[[str], Array | None],
    infer: Infer,
    settled: Mapping[str, Settled] | None = None,
) -> Resolved:
    """
    Resolve nodes in order, from the types of the values that come from outside.

    Parameters
    ----------
    given
        Types of every outside value that the nodes read.
    known
        Arrays of outside values that are known: constants, and what was resolved before.
    settled
        What :func:`resolve_static` settled for the same model and constants.

    Raises
    ------
    PlanError
        A node's inputs cannot go together; names the node.
    """
    with _lock:
        resolution = _Resolution(graph, dict(given), known, infer)
        return resolution.run(nodes, settled or {})


def resolve_static(
    graph: Graph, known: Callable[[str], Array | None], infer: Infer
) -> Resolved:
    """
    Give what is known of every value of the model, bodies included, before any feed.

    Sizes that depend on feeds are symbols or None. Claims are collected on these types.
    """
    with _lock:
        given: Types = {name: graph.types.get(name) for name in graph.inputs}
        resolution = _Resolution(graph, given, known, infer)
        settled: dict[str, Settled] = {}
        resolution.deep(graph, settled)
        return Resolved(resolution.types, resolution.known, settled)


class _Resolution:
    """One pass over nodes; holds the types and values found so far."""

    def __init__(
        self,
        graph: Graph,
        given: Types,
        known: Callable[[str], Array | None],
        infer: Infer,
    ) -> None:
        # Imported here: it brings sympy, which a program that only loads does not need.
        import onnx_shape_inference as osi

        osi.registry.collect()
        self.registry = osi.registry
        self.context = osi.ShapeInferenceContext(dict(graph.opsets), policy="override")
        self.graph = graph
        self.types = given
        self.outside = known
        self.known: dict[str, Array] = {}
        self.infer = infer
        self._placed: set[str] = set()

    def run(self, nodes: Iterable[Node], settled: Mapping[str, Settled]) -> Resolved:
        for node in nodes:
            before = settled.get(node.name)
            if before is not None and self._holds(before, node):
                self.types.update(zip(node.inputs, before.inputs, strict=True))
                self.types.update(zip(node.outputs, before.outputs, strict=True))
            else:
                self.node(node)
        return Resolved(self.types, self.known)

    def deep(self, graph: Graph, settled: dict[str, Settled]) -> None:
        """Resolve a graph and the bodies in it, each body before its owner's outputs."""
        for node in graph.nodes:
            for name, body in node.bodies.items():
                self._enter(node, name, body)
                self.deep(body, settled)
            carries = self.node(node)
            outputs = tuple([self.types.get(name) for name in node.outputs])
            if not carries and not node.bodies and all(map(_sized, outputs)):
                inputs = tuple([self.types.get(name) for name in node.inputs])
                given = tuple([self._is_known(name) for name in node.inputs])
                settled[node.name] = Settled(inputs, given, outputs)

    def _is_known(self, name: str) -> bool:
        return name in self.known or self.outside(name) is not None

    def _holds(self, before: Settled, node: Node) -> bool:
        """Tell whether a node's inputs are what they were; constants unseen so far are."""
        for name, kind, known in zip(
            node.inputs, before.inputs, before.known, strict=True
        ):
            if name in self.types:
                if self.types[name] != kind or self._is_known(name) is not known:
                    return False
            elif name and not known:
                return False
        return True

    def constant(self, name: str) -> Array | None:
        found = self.known.get(name)
        return found if found is not None else self.outside(name)

    # -- one node ----------------------------------------------------------------------

    def node(self, node: Node) -> bool:
        """Find a node's outputs; tell whether one carries values beside its type."""
        for name in node.inputs:
            if name and name not in self._placed:
                self._place(name)
        for name in node.writes:
            _forget(self.graph.values[name])
        version = self.context.get_opset_version(node.domain)
        function = self.registry.get(node.domain, node.op_type, version)
        told: list[ValueType | None] = []
        answer = self._provided(node)
        if answer:
            found = answer
        elif function is None or self._misleads(node):
            found = self._native(node)
        else:
            told = self._library(node, function)
            found = self._completed(node, told)
        for index, name in enumerate(node.outputs):
            if name:
                kind = found[index] if index < len(found) else None
                self.types[name] = _held(
                    node, name, _merge(kind, self.graph.types.get(name))
                )
                self._placed.add(name)
                if index >= len(told) or self.types[name] != told[index]:
                    self._tell(self.graph.values[name], self.types[name])
        return self._learn(node)

    def _provided(self, node: Node) -> list[ValueType | None]:
        """Ask whoever runs an operator that ONNX does not define; the library guesses."""
        if is_defined(node):
            return []
        return list(self.infer(view_of(node, self.types, self.constant)) or ())

    def _misleads(self, node: Node) -> bool:
        if guesses(node, self.constant):
            return True
        if node.op_type not in FOLLOWED or node.domain:
            return False
        given = [
            None if one is None else self.context.get_symbolic_value(one)
            for one in node.source.inputs
        ]
        return strays(node, given, self.types.get(node.inputs[0]))

    def _library(
        self, node: Node, function: Callable[..., None]
    ) -> list[ValueType | None]:
        try:
            function(self.context, node.source)
        except Exception as error:
            if node.bodies:  # it insists on a Loop's count and condition: both optional
                return []
            raise PlanError(
                f"node {node.name!r} ({node.qualified_op}): its inputs do not go "
                f"together: {error}; they are {self._said(node)}"
            ) from error
        return [self._type(value) for value in node.source.outputs]

    def _native(self, node: Node) -> list[ValueType | None]:
        """Ask ONNX's own inference, where ONNX has the operator."""
        if not is_defined(node):
            return []
        return infer_by_onnx(self.graph, node, self.types, self.constant)

    def _completed(
        self, node: Node, found: list[ValueType | None]
    ) -> list[ValueType | None]:
        """Fill in what the library left open though all that the node reads is sized."""
        if all(map(_sized, found)):
            return found
        asked = [k for n, k in zip(node.outputs, found, strict=False) if n]
        if node.bodies or not is_defined(node):
            return found
        if None not in asked and not any(map(_is_open, asked)):
            return found
        ready = all(not n or _sized(self.types.get(n)) for n in node.inputs)
        if None not in asked and not ready:
            return found
        more = infer_by_onnx(self.graph, node, self.types, self.constant)
        return refined(found, more)

    def _learn(self, node: Node) -> bool:
        """Keep outputs that turned out to be known values; tell whether any seems so."""
        if len(node.writes) != 1 or node.bodies:
            return True
        name = node.writes[0]
        kind = self.types.get(name)
        if not isinstance(kind, TensorType) or not kind.is_sized:
            return True
        if node.op_type in _VIEWS and not node.domain:
            source = self.constant(node.inputs[0])
            if source is not None and source.size == np.prod(
                kind.sizes, dtype=np.int64
            ):
                self.known[name] = source.reshape(kind.sizes)
                return True
        value = self.graph.values[name]
        data = self.context.get_symbolic_value(value) if len(kind.sizes) <= 1 else None
        if data is None:
            return False
        if not all(isinstance(item, int) for item in data):
            return True
        if len(data) == np.prod(kind.sizes, dtype=np.int64):
            array = np.array(data, dtype=numpy_dtype(kind.dtype)).reshape(kind.sizes)
            array.flags.writeable = False
            self.known[name] = array
        return True

    # -- between our types and the IR's ------------------------------------------------

    def _place(self, name: str) -> None:
        """Tell the IR what is known of an outside value."""
        self._placed.add(name)
        value = self.graph.values[name]
        array = self.outside(name)
        if name not in self.types and array is not None:
            self.types[name] = TensorType(dtype_name(array.dtype), array.shape)
        kind = self.types.get(name, self.graph.types.get(name))
        self.types[name] = kind
        keep = (
            value.const_value if value.is_initializer() and array is not None else None
        )
        _forget(value)
        if keep is not None:
            value.const_value = keep
        elif array is not None and array.size <= 4096 and array.dtype.kind in "iufb":
            value.const_value = ir.tensor(array)
        self._tell(value, kind)

    def _tell(self, value: ir.Value, kind: ValueType | None) -> None:
        """Tell the IR a type that did not come from the library."""
        if kind is not None:
            value.type = ir_type(kind)
        if isinstance(kind, TensorType) and kind.shape is not None:
            value.shape = ir.Shape([_symbol(dim) for dim in kind.shape])
            self.context.name_anonymous_dims(value)

    def _type(self, value: ir.Value) -> ValueType | None:
        return value_type(value.type, self._shape(value.shape))

    def _shape(self, shape: ir.Shape | None) -> Shape | None:
        if shape is None:
            return None
        dims: list[Dim] = []
        for dim in shape:
            size = dim if isinstance(dim, int) else dim.value
            made_up = isinstance(size, str) and self.context.is_generated_symbol(size)
            dims.append(None if made_up else size)
        return tuple(dims)

    def _enter(self, node: Node, attribute: str, body: Graph) -> None:
        """Give a body's inputs the types that its owner's inputs bring."""
        given = [
            self.types.get(n, self.graph.types.get(n)) if n else None
            for n in node.inputs
        ]
        for index, name in enumerate(body.inputs):
            declared = body.types.get(name)
            brought: ValueType | None = given[index] if index < len(given) else None
            if node.op_type == "Loop" and index < 2:
                brought = TensorType("bool" if index else "int64", ())
            elif isinstance(brought, TensorType):
                # Sizes may change from turn to turn; the element type may not.
                brought = TensorType(brought.dtype, None)
            self.types[name] = _merge(brought, declared)

    def _said(self, node: Node) -> str:
        return ", ".join(
            str(self.types.get(n) or "?") if n else "-" for n in node.inputs
        )


def _held(node: Node, name: str, kind: ValueType | None) -> ValueType | None:
    """Give an output's type, if there can be an array of it."""
    if reason := unheld(kind):
        raise PlanError(
            f"node {node.name!r} ({node.qualified_op}): its output {name!r} comes to "
            f"{kind}: {reason}"
        )
    return kind


def _merge(found: ValueType | None, declared: ValueType | None) -> ValueType | None:
    """Fill from the file's declaration what inference left open: type and rank."""
    if found is None:
        if isinstance(declared, TensorType) and declared.shape is not None:
            # A declared size may be a leftover of another input size; a type is not.
            return TensorType(declared.dtype, (None,) * len(declared.shape))
        return declared
    if (
        isinstance(found, TensorType)
        and found.shape is None
        and isinstance(declared, TensorType)
        and declared.shape is not None
    ):
        return TensorType(found.dtype, (None,) * len(declared.shape))
    return found


def _sized(kind: ValueType | None) -> bool:
    return isinstance(kind, TensorType) and kind.is_sized


def _is_open(kind: ValueType | None) -> bool:
    return isinstance(kind, TensorType) and not kind.is_sized


def _symbol(dim: Dim) -> Dim:
    """Drop a symbol that is no identifier, such as ``?``: nothing can be said with it."""
    return None if isinstance(dim, str) and not dim.isidentifier() else dim


def _forget(value: ir.Value) -> None:
    value.shape = None
    value.type = None
    value.const_value = None
    value.metadata_props.pop(_SYMBOLS, None)
