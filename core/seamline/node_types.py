"""
The types of one node's outputs, and their values where sizes and constants decide them.

onnx-shape-inference is asked first; where it may be wrong, or leaves open what ONNX
finds, ONNX's own inference is; for operators that ONNX does not define, the provider that
may know them; and last what the file declares.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from seamline.constants import Values
from seamline.declared_types import held, is_open, is_sized
from seamline.errors import PlanError
from seamline.graph import Graph, Node
from seamline.ir_types import IrTypes, forget
from seamline.onnx_inference import (
    FOLLOWED,
    guesses,
    infer_by_onnx,
    is_defined,
    refined,
    strays,
)
from seamline.operand_types import operands_differ
from seamline.provider import Array, NodeView, view_of
from seamline.repetition import form_of
from seamline.tensors import TensorType, ValueType, dtype_name, numpy_dtype

__all__ = ["Infer", "NodeTypes", "Types"]

#: Views: the output is the input's bytes, so a constant's view is a constant.
_VIEWS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})

#: Asks providers for the output types of an operator that ONNX does not define.
Infer: TypeAlias = Callable[[NodeView], Sequence[ValueType | None] | None]
Types: TypeAlias = dict[str, ValueType | None]


class NodeTypes:
    """
    Finds types node by node, in order; holds those found so far.

    Attributes
    ----------
    types
        Type of every value seen; None where nothing is known.
    known
        Arrays of values that depend on sizes and constants alone.
    """

    def __init__(
        self,
        graph: Graph,
        given: Types,
        known: Values,
        infer: Infer,
    ) -> None:
        # Imported here: it brings sympy, which a program that only loads does not need.
        import onnx_shape_inference as osi

        osi.registry.collect()
        self.registry: Any = osi.registry
        self.context: Any = osi.ShapeInferenceContext(
            dict(graph.opsets), policy="override"
        )
        self.notes: IrTypes = IrTypes(self.context)
        self.graph = graph
        self.types = given
        self.outside = known
        self.known: dict[str, Array] = {}
        self.infer = infer
        self._placed: set[str] = set()
        self._repeated: dict[Hashable, tuple[ValueType | None, ...]] = {}
        self._unfollowed: set[str] = set()  # results that carry no values

    def constant(self, name: str) -> Array | None:
        """Give a value that is known without running, or None."""
        found = self.known.get(name)
        return found if found is not None else self.outside.get(name)

    def is_known(self, name: str) -> bool:
        """Tell whether a value is known without running; reads no data."""
        return name in self.known or name in self.outside

    # -- one node ----------------------------------------------------------------------

    def node(self, node: Node) -> bool:
        """Find a node's outputs; tell whether one carries values beside its type."""
        form = self._form(node)
        found = self._repeated.get(form) if form is not None else None
        if found is not None:
            self._repeat(node, found)
            return False
        self._find(node)
        if self._learn(node):
            return True
        self._unfollowed.update(node.writes)
        outputs = tuple([self.types[name] for name in node.outputs if name])
        if form is not None and all(map(is_sized, outputs)):
            self._repeated[form] = outputs
        return False

    def tell(self, names: Iterable[str]) -> None:
        """Tell the IR what was found, where another than these nodes will look at it."""
        for name in names:
            if name in self.types and name not in self._placed:
                self._place(name)

    def _form(self, node: Node) -> Hashable | None:
        if self._unfollowed.isdisjoint(node.inputs):
            return None  # all inputs may be values that are followed
        return form_of(node, self.types, self.graph.types)

    def _repeat(self, node: Node, found: Sequence[ValueType | None]) -> None:
        """Take the outputs of a node of the same form; the IR is told if it asks."""
        for name in node.inputs:
            if name and name not in self.types:
                self.types[name] = self.graph.types[name]
        for name, kind in zip(node.outputs, found, strict=True):
            self.types[name] = kind
            self._placed.discard(name)
        self._unfollowed.update(node.outputs)

    def _find(self, node: Node) -> None:
        """Ask each who may know a node's output types, and keep them."""
        for name in node.inputs:
            if name and name not in self._placed:
                self._place(name)
        for name in node.writes:
            forget(self.graph.values[name])
        if reason := operands_differ(node, self.types):
            raise PlanError(f"node {node.name!r} ({node.qualified_op}): {reason}")
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
                self.types[name] = held(node, name, kind, self.graph.types.get(name))
                self._placed.add(name)
                if index >= len(told) or self.types[name] != told[index]:
                    self.notes.tell(self.graph.values[name], self.types[name])

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
        return [self.notes.read(value) for value in node.source.outputs]

    def _native(self, node: Node) -> list[ValueType | None]:
        """Ask ONNX's own inference, where ONNX has the operator."""
        if not is_defined(node):
            return []
        return infer_by_onnx(self.graph, node, self.types, self.constant)

    def _completed(
        self, node: Node, found: list[ValueType | None]
    ) -> list[ValueType | None]:
        """Fill in what the library left open though all that the node reads is sized."""
        if all(map(is_sized, found)):
            return found
        asked = [k for n, k in zip(node.outputs, found, strict=False) if n]
        if node.bodies or not is_defined(node):
            return found
        if None not in asked and not any(map(is_open, asked)):
            return found
        ready = all(not n or is_sized(self.types.get(n)) for n in node.inputs)
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
        array = self.outside.get(name)
        if name not in self.types and array is not None:
            self.types[name] = TensorType(dtype_name(array.dtype), array.shape)
        kind = self.types.get(name, self.graph.types.get(name))
        self.types[name] = kind
        keep = (
            value.const_value if value.is_initializer() and array is not None else None
        )
        forget(value)
        if keep is not None:
            value.const_value = keep
        elif array is not None and array.size <= 4096 and array.dtype.kind in "iufb":
            value.const_value = ir.tensor(array)
        self.notes.tell(value, kind)

    def _said(self, node: Node) -> str:
        return ", ".join(
            str(self.types.get(n) or "?") if n else "-" for n in node.inputs
        )
