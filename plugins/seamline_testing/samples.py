"""
Small models that the kit asks every provider about, with values of any number of seeds.

Each is a node or a short chain whose result follows from its definition in a line of
NumPy. They are not there to test operators, which is for the numerics, but to have
something that is surely right to hold lifecycle, threads and memory to.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
import numpy as np
import onnx
from onnx import helper, numpy_helper

from seamline.claims import collect
from seamline.constants import Constants
from seamline.graph import Graph, load
from seamline.provider import Array, NodeView, view_of
from seamline.tensors import TensorType, ValueType, onnx_dtype, type_of_array
from seamline_testing.values import false_bytes

__all__ = ["OPERATORS", "SAMPLES", "Sample", "far_from", "views_in", "views_of"]

_OPSET = 18
_SHAPE = (17, 33)  #: odd on purpose: whoever rounds up to a vector writes past the end


@attrs.frozen(eq=False)
class Sample:
    """
    A small model and how to make values for it.

    Attributes
    ----------
    inputs
        Shape of every input, by name; their values are small and of ``dtype``.
    constants
        Values that stand in the model, by name.
    define
        The model's one output from its inputs, in float64 or exact integers.
    """

    name: str
    dtype: str
    nodes: tuple[onnx.NodeProto, ...]
    inputs: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, Array]
    define: Callable[..., Any]

    def model(self, symbolic: str = "") -> onnx.ModelProto:
        """Give the model; ``symbolic``: ``sizes`` or ``types`` that it leaves open."""
        kind = int(onnx_dtype(self.dtype))
        sizes = {
            name: [f"{name}{axis}" for axis in range(len(shape))] if symbolic else shape
            for name, shape in self.inputs.items()
        }
        graph = helper.make_graph(
            list(self.nodes),
            "sample",
            [
                helper.make_tensor_value_info(
                    name, kind, None if symbolic == "types" else shape
                )
                for name, shape in sizes.items()
            ],
            [helper.make_empty_tensor_value_info(self.nodes[-1].output[0])],
            [numpy_helper.from_array(v, name) for name, v in self.constants.items()],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10
        )

    def feeds(self, seed: int) -> dict[str, Array]:
        """Give values that no other seed gives: small integers, which every type holds."""
        spread = np.random.default_rng([zlib.crc32(self.name.encode()), seed])
        dtype = np.dtype(onnx_dtype(self.dtype).numpy())
        low = 0 if dtype.kind in "bu" else -7
        high = 2 if dtype.kind == "b" else 8
        return {
            name: spread.integers(low, high, shape).astype(dtype)
            for name, shape in self.inputs.items()
        }

    def expected(self, feeds: Mapping[str, Array]) -> Array:
        """Give the output by definition, in float64, exact integers or booleans."""
        wide = (
            np.float64
            if np.dtype(onnx_dtype(self.dtype).numpy()).kind not in "biu"
            else None
        )
        given = [x if wide is None else x.astype(wide) for x in feeds.values()]
        return np.asarray(self.define(*given))

    @functools.cached_property
    def read(self) -> tuple[Graph, Mapping[str, ValueType | None]]:
        """Give the model as a graph, with the types of its values."""
        return _read(self.model())

    def views(self, symbolic: str = "") -> tuple[NodeView, ...]:
        """Give its nodes as a provider sees them."""
        return views_of(*(_read(self.model(symbolic)) if symbolic else self.read))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Give the names of its outputs."""
        return self.read[0].outputs

    def kind(self, name: str) -> TensorType:
        """Give the type of a value."""
        found = self.read[1].get(name)
        if not isinstance(found, TensorType):  # constants carry no declared type
            found = type_of_array(np.asarray(self.constants[name]))
        return found


def _read(model: onnx.ModelProto) -> tuple[Graph, Mapping[str, ValueType | None]]:
    graph = load(model)
    return graph, collect(graph, ()).types  # no provider is asked: ONNX's own types


def views_of(
    graph: Graph, types: Mapping[str, ValueType | None]
) -> tuple[NodeView, ...]:
    """Give a graph's nodes as a provider sees them."""
    known = Constants(graph).get
    return tuple(view_of(node, types, known) for node in graph.nodes)


def views_in(model: onnx.ModelProto) -> tuple[NodeView, ...]:
    """Give a model's nodes as a provider sees them before any feed."""
    return views_of(*_read(model))


def far_from(got: Array, want: Array) -> str:
    """
    Say how a value is grossly wrong, or nothing.

    What is looked for here are races, stale values and lost writes, which give other
    numbers altogether; rounding is for the numerics. So a hundredth of the largest value
    is allowed, which every float type keeps, and nothing for integers.
    """
    if got.shape != want.shape:
        return f"it has the shape {list(got.shape)}, not {list(want.shape)}"
    if odd := false_bytes(got):
        return odd
    if want.dtype.kind in "biu":
        wrong = got != want
    else:
        wide = got.astype(np.float64)
        with np.errstate(over="ignore"):  # what the type cannot hold is infinite in it
            want = want.astype(got.dtype).astype(np.float64)
        finite = np.abs(want[np.isfinite(want)])
        slack = 0.01 * max(1.0, float(finite.max(initial=0)))
        with np.errstate(
            invalid="ignore"
        ):  # of equal infinities there is no difference
            wrong = ~(
                (wide == want) | (np.abs(wide - want) <= slack)
            )  # NaN is wrong too
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements are wrong, the first at "
        f"{list(at)}: {got[at]}, not {want[at]}"
    )


def _softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


_WEIGHTS = np.random.default_rng(5).integers(-3, 4, (33, 9)).astype(np.float32)
_OTHER = np.random.default_rng(6).integers(-3, 4, (33, 9)).astype(np.float32)
_FLOATS = ("float32", "float16", "float64")

# name: (operator, its attributes, types, shapes of inputs, constants, definition)
_Row = tuple[
    str, dict[str, Any], Iterable[str], int, dict[str, Array], Callable[..., Any]
]
_ROWS: dict[str, _Row] = {
    "Add": ("Add", {}, (*_FLOATS, "int32", "int64"), 2, {}, np.add),
    "Mul": ("Mul", {}, (*_FLOATS, "int32", "int64"), 2, {}, np.multiply),
    "Sub": ("Sub", {}, (*_FLOATS, "int32", "int64"), 2, {}, np.subtract),
    "Relu": ("Relu", {}, _FLOATS, 1, {}, lambda x: np.maximum(x, 0)),
    "Neg": ("Neg", {}, (*_FLOATS, "int32"), 1, {}, np.negative),
    "Abs": ("Abs", {}, (*_FLOATS, "int32"), 1, {}, np.abs),
    "Sigmoid": ("Sigmoid", {}, _FLOATS, 1, {}, lambda x: 1 / (1 + np.exp(-x))),
    "Tanh": ("Tanh", {}, _FLOATS, 1, {}, np.tanh),
    "Exp": ("Exp", {}, ("float32",), 1, {}, np.exp),
    "Softmax": ("Softmax", {"axis": -1}, _FLOATS, 1, {}, _softmax),
    "Transpose": ("Transpose", {"perm": [1, 0]}, ("float32", "int64"), 1, {}, np.transpose),
    "Identity": ("Identity", {}, ("float32",), 1, {}, np.array),
    "Reshape": (
        "Reshape", {}, ("float32",), 1, {"shape": np.array([33, 17])},
        lambda x: x.reshape(33, 17),
    ),
    "Gather": (
        "Gather", {"axis": 0}, ("float32",), 1, {"at": np.array([3, 0, 16, 3])},
        lambda x: x[[3, 0, 16, 3]],
    ),
    "ReduceSum": (
        "ReduceSum", {"keepdims": 0}, ("float32",), 1, {"axes": np.array([1])},
        lambda x: x.sum(1),
    ),
    "MatMul": (
        "MatMul", {}, ("float32",), 1, {"weights": _WEIGHTS}, lambda x: x @ _WEIGHTS,
    ),
    "MatMul_other": (
        "MatMul", {}, ("float32",), 1, {"weights": _OTHER}, lambda x: x @ _OTHER,
    ),
    "Concat": (
        "Concat", {"axis": 0}, ("float32",), 2, {}, lambda x, z: np.concatenate([x, z]),
    ),
    "Not": ("Not", {}, ("bool",), 1, {}, np.logical_not),
    "And": ("And", {}, ("bool",), 2, {}, np.logical_and),
}  # fmt: skip


def _sample(name: str, dtype: str, row: _Row) -> Sample:
    op, attributes, _, count, constants, define = row
    inputs: dict[str, tuple[int, ...]] = {n: _SHAPE for n in ("x", "z")[:count]}  # noqa: C420 - its keys are str
    node = helper.make_node(
        op, [*inputs, *constants], ["y"], name=f"the_{op}", **attributes
    )
    return Sample(f"{name}/{dtype}", dtype, (node,), inputs, constants, define)


def _chain() -> Sample:
    nodes = (
        helper.make_node("Add", ["x", "z"], ["sum"], name="the_Add"),
        helper.make_node("Relu", ["sum"], ["kept"], name="the_Relu"),
        helper.make_node("Mul", ["kept", "z"], ["y"], name="the_Mul"),
    )
    shapes = {"x": _SHAPE, "z": _SHAPE}
    return Sample(
        "chain/float32", "float32", nodes, shapes, {}, lambda x, z: np.maximum(x + z, 0) * z
    )  # fmt: skip


SAMPLES: tuple[Sample, ...] = (
    _chain(),
    *(_sample(name, dtype, row) for name, row in _ROWS.items() for dtype in row[2]),
)
#: How many of them differ by more than their type.
OPERATORS = len({sample.name.partition("/")[0] for sample in SAMPLES})
