"""
Random models, and their values by definition.

What is drawn has every feature that a partition must get right: values read twice,
outputs left out, outputs that are inputs or constants or come twice, sizes of zero, sizes
known only at run time, branches and loops that read values around them.

All values are small integers that every drawn type holds exactly, so the definition in
float64 is the only right answer, however a provider rounds, fuses or orders its sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import onnx
from hypothesis import assume
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from seamline.provider import Array
from seamline.tensors import numpy_dtype, onnx_dtype
from seamline_testing.defined_values import largest, values_of

__all__ = ["DTYPES", "Case", "cases", "evaluate"]

#: Types to draw over, with the largest whole number up to which each holds all of them.
DTYPES: Mapping[str, int] = {
    "float32": 2**24,
    "float64": 2**53,
    "float16": 2**11,
    "bfloat16": 2**8,
    "int32": 2**31 - 1,
    "int64": 2**53,
}
_UNARY = ("Neg", "Abs", "Relu", "Identity", "Transpose2")
_BINARY = ("Add", "Mul", "Sub")
_Nodes: TypeAlias = Iterator[onnx.NodeProto]


@attrs.define
class Case:
    """A model, feeds for it, and the names of the nodes in it, bodies included."""

    model: onnx.ModelProto
    feeds: dict[str, Array]
    names: list[str]
    dtype: str = "float32"


class _Maker:
    """Writes a graph; values are kept by a tag, and those of one tag have one shape."""

    def __init__(self, draw: Callable[..., Any], dtype: str) -> None:
        self.draw = draw
        self.dtype = dtype
        self.kind = int(onnx_dtype(dtype))
        self.names: list[str] = []
        self.count = 0
        self.pools: list[dict[str, list[str]]] = [{}]

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def node(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> onnx.NodeProto:
        name = self.fresh("n")
        self.names.append(name)
        return helper.make_node(op, inputs, outputs, name=name, **attributes)

    def pick(self, tag: str | None = None) -> tuple[str, str]:
        pool = self.pools[-1]
        chosen = tag or self.draw(st.sampled_from(sorted(pool)))
        return self.draw(st.sampled_from(pool[chosen])), chosen

    def add(self, name: str, tag: str) -> None:
        self.pools[-1].setdefault(tag, []).append(name)

    def unary(self) -> _Nodes:
        value, tag = self.pick()
        op = self.draw(st.sampled_from(_UNARY))
        out = self.fresh("v")
        if op == "Transpose2":  # back again, so that the tag keeps its shape
            turned = self.fresh("v")
            yield self.node("Transpose", [value], [turned])
            self.add(turned, f"turned {tag}")
            yield self.node("Transpose", [turned], [out])
        else:
            yield self.node(op, [value], [out])
        self.add(out, tag)

    def binary(self) -> _Nodes:
        one, tag = self.pick()
        other, _ = self.pick(tag)
        out = self.fresh("v")
        yield self.node(self.draw(st.sampled_from(_BINARY)), [one, other], [out])
        self.add(out, tag)

    def split(self) -> _Nodes:
        value, _ = self.pick("main")
        left, right = self.fresh("v"), self.fresh("v")
        dropped = self.draw(st.booleans())
        outputs = [left, "" if dropped else right]
        yield self.node("Split", [value], outputs, axis=0, num_outputs=2)
        self.add(left, "half")
        if not dropped:
            self.add(right, "half")
            joined = self.fresh("v")
            yield self.node("Concat", [right, left], [joined], axis=0)
            self.add(joined, "main")

    def nonzero(self) -> _Nodes:
        value, _ = self.pick("main")
        where, out = self.fresh("v"), self.fresh("v")
        yield self.node("NonZero", [value], [where])
        yield self.node("Cast", [where], [out], to=self.kind)
        self.add(out, f"dynamic {out}")

    def reshape(self) -> _Nodes:
        value, _ = self.pick("main")
        out = self.fresh("v")
        yield self.node("Reshape", [value, "flat"], [out], allowzero=1)
        self.add(out, "flat")

    def shape(self) -> _Nodes:
        value, _ = self.pick()
        size, out = self.fresh("v"), self.fresh("v")
        zero = helper.make_tensor("zero", self.kind, [1], [0])
        yield self.node("Shape", [value], [size])
        yield self.node("ConstantOfShape", [size], [out], value=zero)
        self.add(out, f"zeros {out}")

    def body(
        self, inputs: Sequence[str], kind: str
    ) -> tuple[list[onnx.NodeProto], str]:
        """Write a body that reads values around it; give its nodes and one value of it."""
        self.pools.append({tag: list(names) for tag, names in self.pools[-1].items()})
        for name in inputs:
            self.add(name, "main")
        nodes: list[onnx.NodeProto] = []
        for _ in range(self.draw(st.integers(0 if kind == "If" else 1, 2))):
            nodes += self.draw(st.sampled_from([self.unary, self.binary]))()
        result, _ = self.pick("main")
        if kind == "Loop" and result in (*inputs, *self.pools[0]["main"]):
            # Loop's outputs are its body's own.
            out = self.fresh("v")
            nodes.append(self.node("Add", [result, inputs[0]], [out]))
            result = out
        self.pools.pop()
        return nodes, result

    def condition(self) -> _Nodes:
        branches = {}
        for side in ("then_branch", "else_branch"):
            nodes, result = self.body([], "If")
            output = helper.make_empty_tensor_value_info(result)
            branches[side] = helper.make_graph(nodes, self.fresh("g"), [], [output])
        out = self.fresh("v")
        yield self.node("If", ["cond"], [out], **branches)
        self.add(out, "main")

    def loop(self) -> _Nodes:
        turn, going, carried = self.fresh("i"), self.fresh("c"), self.fresh("s")
        nodes, result = self.body([carried], "Loop")
        go, row = self.fresh("c"), self.fresh("r")
        nodes.append(self.node("Identity", [going], [go]))
        nodes.append(self.node("Identity", [result], [row]))
        info = helper.make_tensor_value_info
        body = helper.make_graph(
            nodes,
            self.fresh("g"),
            [
                info(turn, TensorProto.INT64, []),
                info(going, TensorProto.BOOL, []),
                info(carried, self.kind, None),
            ],
            [
                info(go, TensorProto.BOOL, []),
                info(result, self.kind, None),
                info(row, self.kind, None),
            ],
        )
        start, _ = self.pick("main")
        out, rows = self.fresh("v"), self.fresh("v")
        yield self.node("Loop", ["turns", "", start], [out, rows], body=body)
        self.add(out, "main")
        self.add(rows, f"rows {rows}")


@st.composite
def cases(
    draw: Callable[..., Any], *, dynamic: bool = True, dtype: str = "float32"
) -> Case:
    """Draw a model with feeds; without ``dynamic``, every size is known before it runs."""
    sizes = draw(st.sampled_from([(2, 3), (4, 2), (2, 0), (2, 1)]))
    maker = _Maker(draw, dtype)
    for name in ("x", "z", "weight", "given"):
        maker.add(name, "main")
    kinds = [maker.unary, maker.binary, maker.binary, maker.split, maker.shape]
    if dynamic:
        kinds += [maker.nonzero, maker.reshape, maker.condition, maker.loop]
    nodes: list[onnx.NodeProto] = []
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=7)):
        nodes += kind()
    everything = sorted({name for names in maker.pools[0].values() for name in names})
    # An output may be an input, an initializer, a constant, an intermediate, or come twice.
    picked = draw(st.lists(st.sampled_from(everything), min_size=1, max_size=4))
    last = [name for name in nodes[-1].output if name]
    outputs = list(dict.fromkeys([*picked, *last]))
    model = _model(maker, nodes, outputs, sizes)
    feeds = {
        "x": draw(_arrays(sizes, dtype)),
        "z": draw(_arrays(sizes, dtype)),
        "flat": np.array([np.prod(sizes)], np.int64),
        "cond": np.array(draw(st.booleans())),
        "turns": np.array(draw(st.integers(0, 3)), np.int64),
    }
    assume(largest(model.graph, _wide(feeds)) <= DTYPES[dtype])
    return Case(model, feeds, maker.names, dtype)


def _model(
    maker: _Maker,
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    sizes: tuple[int, ...],
) -> onnx.ModelProto:
    dtype = numpy_dtype(maker.dtype)
    stored = (np.arange(np.prod(sizes)).reshape(sizes) - 1).astype(dtype)
    doubled = numpy_helper.from_array(stored * dtype.type(2), "given")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["given"], value=doubled), *nodes],
        "g",
        [
            info("x", maker.kind, sizes),
            info("z", maker.kind, ["rows", sizes[1]]),
            info("flat", TensorProto.INT64, [1]),
            info("cond", TensorProto.BOOL, []),
            info("turns", TensorProto.INT64, []),
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(stored, "weight")],
    )
    opset = helper.make_opsetid("", 18)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def _arrays(sizes: tuple[int, ...], dtype: str) -> st.SearchStrategy[Array]:
    count = int(np.prod(sizes))
    items = st.lists(st.integers(-3, 3), min_size=count, max_size=count)
    return items.map(
        lambda flat: np.array(flat).reshape(sizes).astype(numpy_dtype(dtype))
    )


def evaluate(
    graph: onnx.GraphProto, feeds: Mapping[str, Array], dtype: str = "float32"
) -> list[Array]:
    """Give the outputs of a drawn graph by definition, in the types that it declares."""
    found = values_of(graph, _wide(feeds))
    return [
        value.astype(numpy_dtype(dtype)) if value.dtype.kind == "f" else value
        for value in found
    ]


def _wide(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {n: v.astype(np.float64) if n in ("x", "z") else v for n, v in feeds.items()}
