"""
A random model's values by definition: every node in order, each a line of NumPy.

Elements are held in float64 whatever type they have, since what is drawn is whole and
small enough for every type; sizes, indices and conditions are held as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from seamline.provider import Array

__all__ = ["DEFINITIONS", "largest", "values_of"]


def _split(x: Array, *, axis: int, num_outputs: int) -> tuple[Array, ...]:
    return tuple(np.array_split(x, num_outputs, axis))


#: Operator -> its function from arrays and attributes.
DEFINITIONS: Mapping[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "Cast": lambda x, *, to: x.astype(np.float64),
    "Concat": lambda *xs, axis: np.concatenate(xs, axis),
    "ConstantOfShape": lambda s, *, value: np.zeros(tuple(s)),
    "Identity": np.array,
    "Mul": np.multiply,
    "Neg": np.negative,
    "NonZero": lambda x: np.array(np.nonzero(x), np.int64).reshape(max(x.ndim, 1), -1),
    "Relu": lambda x: np.maximum(x, 0),
    "Reshape": lambda x, shape, *, allowzero: x.reshape(tuple(shape)),
    "Shape": lambda x: np.array(x.shape, np.int64),
    "Split": _split,
    "Sub": np.subtract,
    "Transpose": np.transpose,
}


def values_of(graph: onnx.GraphProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Give a graph's outputs; elements, those of the feeds too, in float64."""
    return _Run(feeds).outputs(graph, dict(feeds))


def largest(graph: onnx.GraphProto, feeds: Mapping[str, Array]) -> float:
    """Give the largest magnitude of any element on the way; NaN where there is one."""
    run = _Run(feeds)
    run.outputs(graph, dict(feeds))
    return run.largest


class _Run:
    """One evaluation, bodies included; remembers how large its values were."""

    def __init__(self, feeds: Mapping[str, Array]) -> None:
        self.largest = 0.0
        for value in feeds.values():
            self.note(value)

    def note(self, value: Array) -> None:
        if value.dtype.kind == "f" and value.size:
            self.largest = float(np.maximum(self.largest, np.abs(value).max()))

    def outputs(self, graph: onnx.GraphProto, values: dict[str, Array]) -> list[Array]:
        for tensor in graph.initializer:
            values[tensor.name] = _wide(numpy_helper.to_array(tensor))
        with np.errstate(all="ignore"):
            for node in graph.node:
                given = [values[name] if name else None for name in node.input]
                found = self.node(node, given, values)
                for name, value in zip(node.output, found, strict=True):
                    values[name] = np.asarray(value)
                    self.note(values[name])
        return [values[output.name] for output in graph.output]

    def node(
        self,
        node: onnx.NodeProto,
        given: Sequence[Any],
        values: Mapping[str, Array],
    ) -> Sequence[Array]:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            return [_wide(numpy_helper.to_array(attributes["value"]))]
        if node.op_type == "If":
            side = "then_branch" if given[0] else "else_branch"
            return self.outputs(attributes[side], dict(values))
        if node.op_type == "Loop":
            return self.loop(attributes["body"], given, values)
        found = DEFINITIONS[node.op_type](*given, **attributes)
        return found if isinstance(found, tuple) else (found,)

    def loop(
        self, body: onnx.GraphProto, given: Sequence[Any], values: Mapping[str, Array]
    ) -> Sequence[Array]:
        carried, rows = given[2], []
        names = [value.name for value in body.input]
        for turn in range(int(given[0])):
            fed = (np.array(turn), np.array(True), carried)
            inner = {**values, **dict(zip(names, fed, strict=True))}
            _, carried, row = self.outputs(body, inner)
            rows.append(row)
        return carried, np.stack(rows) if rows else np.zeros((0, *carried.shape))


def _wide(value: Array) -> Array:
    return value.astype(np.float64)
