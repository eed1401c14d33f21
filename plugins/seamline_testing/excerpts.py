"""
Part of a model as a model of its own, with the values that its nodes read.

What the part reads and does not make is either fed, or stands in the model as a
constant: as it was in the model that it comes from, since a claim may depend on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from seamline.errors import SeamlineError
from seamline.graph import Graph, Node
from seamline.provider import Array
from seamline.tensors import TensorType, ValueType, dtype_name, onnx_dtype

__all__ = ["Excerpt", "ExcerptError", "excerpt_of"]


class ExcerptError(SeamlineError):
    """A part of a model cannot stand alone; says which value is in the way."""


@attrs.frozen(eq=False)
class Excerpt:
    """
    Nodes with what they read.

    Attributes
    ----------
    nodes
        In order; each with the names of the model that it comes from.
    outputs
        The values that are asked for.
    fed, constants
        Values by name: arrays, or lists of arrays where a node reads a sequence.
    declared
        Types of fed values in the model that they come from; sizes that it leaves open
        stay open, as a claim may depend on that too.
    """

    nodes: tuple[onnx.NodeProto, ...]
    outputs: tuple[str, ...]
    fed: Mapping[str, Any]
    constants: Mapping[str, Array]
    declared: Mapping[str, ValueType | None]
    opsets: Mapping[str, int]
    ir_version: int

    @property
    def feeds(self) -> dict[str, Array]:
        """Give the feeds of :meth:`model`; a sequence is fed element by element."""
        flat: dict[str, Array] = {}
        for name, value in self.fed.items():
            flat |= _elements(name, value) if isinstance(value, list) else {name: value}
        return flat

    @property
    def operators(self) -> tuple[str, ...]:
        """Give the types of its nodes, bodies left out."""
        return tuple(node.op_type for node in self.nodes)

    def model(self) -> onnx.ModelProto:
        """Give the model; sequences are built in it."""
        lists = {name: v for name, v in self.fed.items() if isinstance(v, list)}
        graph = helper.make_graph(
            [*(_sequence(name, v) for name, v in lists.items()), *self.nodes],
            "excerpt",
            [self._input(name, array) for name, array in self.feeds.items()],
            [helper.make_empty_tensor_value_info(name) for name in self.outputs],
            [_tensor(name, array) for name, array in self.constants.items()],
        )
        imports = [
            helper.make_opsetid(d, version) for d, version in self.opsets.items()
        ]
        return helper.make_model(
            graph, opset_imports=imports, ir_version=self.ir_version
        )

    def _input(self, name: str, array: Array) -> onnx.ValueInfoProto:
        kind = self.declared.get(name)
        sizes: Sequence[int | str] | None = array.shape
        if isinstance(kind, TensorType):
            sizes = None if kind.shape is None else _open(name, array.shape, kind.shape)
        number = int(onnx_dtype(dtype_name(array.dtype)))
        return helper.make_tensor_value_info(name, number, sizes)

    def __str__(self) -> str:
        values = {**self.feeds, **self.constants}
        return ", ".join(
            f"{name}: {dtype_name(array.dtype)}{list(array.shape)}"
            for name, array in values.items()
        )


def _open(
    name: str, sizes: Sequence[int], declared: Sequence[object]
) -> list[int | str]:
    pairs = zip(sizes, declared, strict=True)
    return [
        n if isinstance(d, int) else f"{name}_{i}" for i, (n, d) in enumerate(pairs)
    ]


def _elements(name: str, value: Sequence[Array]) -> dict[str, Array]:
    return {f"{name}/{index}": item for index, item in enumerate(value)}


def _sequence(name: str, value: Sequence[Array]) -> onnx.NodeProto:
    if not value:
        raise ExcerptError(f"{name!r} is an empty sequence, which has no element type")
    return helper.make_node(
        "SequenceConstruct", list(_elements(name, value)), [name], f"{name}/sequence"
    )


def _tensor(name: str, array: Array) -> onnx.TensorProto:
    if array.dtype.kind == "O":
        return numpy_helper.from_array(array, name)
    kind = onnx_dtype(dtype_name(array.dtype))
    return ir.to_proto(ir.tensor(array, dtype=kind, name=name))


def excerpt_of(
    graph: Graph,
    nodes: Iterable[Node],
    outputs: Collection[str],
    values: Mapping[str, Any],
    *,
    types: Mapping[str, ValueType | None],
    fixed: Collection[str] = (),
) -> Excerpt:
    """
    Take nodes out of a main graph.

    Parameters
    ----------
    values
        Every value that they read and do not make, constants of the graph excepted.
    types
        What is known of the types of values before any feed.
    fixed
        Names among ``values`` that were constants by the time that claims were asked for.

    Raises
    ------
    ExcerptError
        They read an absent optional, which nothing can stand for.
    """
    nodes = tuple(nodes)
    made = {name for node in nodes for name in node.writes}
    fed: dict[str, Any] = {}
    constants: dict[str, Array] = {}
    for name in dict.fromkeys(name for node in nodes for name in node.reads):
        if name in made:
            continue
        value = values[name] if name in values else graph.constant(name)
        if value is None or (isinstance(value, list) and any(v is None for v in value)):
            raise ExcerptError(f"{name!r} is an absent optional, which cannot be fed")
        given = name in values and name not in fixed
        if given or isinstance(value, list):
            fed[name] = value
        else:
            constants[name] = value
    return Excerpt(
        tuple(node.to_proto() for node in nodes), tuple(outputs), fed, constants,
        {name: types.get(name) for name in fed}, dict(graph.opsets),
        int(graph.model.ir_version or 10),
    )  # fmt: skip
