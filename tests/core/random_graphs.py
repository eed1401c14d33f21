"""Random models for property tests, and their values by definition, node by node."""

from __future__ import annotations

import attrs
import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tests.core.toy_kernels import DEFINITIONS

_UNARY = ("Neg", "Abs", "Relu", "Identity", "Transpose2")
_BINARY = ("Add", "Mul", "Sub")


@attrs.define
class Case:
    """A model, feeds for it, and the names of the nodes in it, bodies included."""

    model: object
    feeds: dict
    names: list


class _Maker:
    """Writes a graph; values are kept by a tag, and those of one tag have one shape."""

    def __init__(self, draw):
        self.draw = draw
        self.names = []
        self.count = 0
        self.pools = [{}]

    def fresh(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def node(self, op, inputs, outputs, **attributes):
        name = self.fresh("n")
        self.names.append(name)
        return helper.make_node(op, inputs, outputs, name=name, **attributes)

    def pick(self, tag=None):
        pool = self.pools[-1]
        tags = [tag] if tag is not None else sorted(pool)
        tag = self.draw(st.sampled_from(tags))
        return self.draw(st.sampled_from(pool[tag])), tag

    def add(self, name, tag):
        self.pools[-1].setdefault(tag, []).append(name)

    def unary(self):
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

    def binary(self):
        one, tag = self.pick()
        other, _ = self.pick(tag)
        out = self.fresh("v")
        yield self.node(self.draw(st.sampled_from(_BINARY)), [one, other], [out])
        self.add(out, tag)

    def split(self):
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

    def nonzero(self):
        value, _ = self.pick("main")
        where, out = self.fresh("v"), self.fresh("v")
        yield self.node("NonZero", [value], [where])
        yield self.node("Cast", [where], [out], to=TensorProto.FLOAT)
        self.add(out, f"dynamic {out}")

    def reshape(self):
        value, _ = self.pick("main")
        out = self.fresh("v")
        yield self.node("Reshape", [value, "flat"], [out], allowzero=1)
        self.add(out, "flat")

    def shape(self):
        value, _ = self.pick()
        size, out = self.fresh("v"), self.fresh("v")
        yield self.node("Shape", [value], [size])
        yield self.node("ConstantOfShape", [size], [out])
        self.add(out, f"zeros {out}")

    def body(self, inputs, tag_of_inputs, kind):
        """Write a body that reads values around it; give its nodes and one value of it."""
        self.pools.append({tag: list(names) for tag, names in self.pools[-1].items()})
        for name in inputs:
            self.add(name, tag_of_inputs)
        nodes = []
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

    def condition(self):
        branches = {}
        for side in ("then_branch", "else_branch"):
            nodes, result = self.body([], "main", "If")
            branches[side] = helper.make_graph(
                nodes,
                self.fresh("g"),
                [],
                [helper.make_empty_tensor_value_info(result)],
            )
        out = self.fresh("v")
        yield self.node("If", ["cond"], [out], **branches)
        self.add(out, "main")

    def loop(self):
        turn, going, carried = self.fresh("i"), self.fresh("c"), self.fresh("s")
        nodes, result = self.body([carried], "main", "Loop")
        go = self.fresh("c")
        nodes.append(self.node("Identity", [going], [go]))
        row = self.fresh("r")
        nodes.append(self.node("Identity", [result], [row]))
        info = helper.make_tensor_value_info
        body = helper.make_graph(
            nodes,
            self.fresh("g"),
            [
                info(turn, TensorProto.INT64, []),
                info(going, TensorProto.BOOL, []),
                info(carried, TensorProto.FLOAT, None),
            ],
            [
                info(go, TensorProto.BOOL, []),
                info(result, TensorProto.FLOAT, None),
                info(row, TensorProto.FLOAT, None),
            ],
        )
        start, _ = self.pick("main")
        out, rows = self.fresh("v"), self.fresh("v")
        yield self.node("Loop", ["turns", "", start], [out, rows], body=body)
        self.add(out, "main")
        self.add(rows, f"rows {rows}")


@st.composite
def cases(draw, *, dynamic=True):
    """Draw a model with feeds; without ``dynamic``, every size is known before it runs."""
    sizes = draw(st.sampled_from([(2, 3), (4, 2), (2, 0), (2, 1)]))
    maker = _Maker(draw)
    stored = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes) - 1
    for name in ("x", "z", "weight", "given"):
        maker.add(name, "main")
    kinds = [maker.unary, maker.binary, maker.binary, maker.split, maker.shape]
    if dynamic:
        kinds += [maker.nonzero, maker.reshape, maker.condition, maker.loop]
    nodes = []
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=7)):
        nodes += kind()
    everything = sorted({name for names in maker.pools[0].values() for name in names})
    # An output may be an input, an initializer, a constant, an intermediate, or come twice.
    picked = draw(st.lists(st.sampled_from(everything), min_size=1, max_size=4))
    last = [name for name in nodes[-1].output if name]
    outputs = list(dict.fromkeys([*picked, *last]))
    info = helper.make_tensor_value_info
    constant = helper.make_node(
        "Constant", [], ["given"], value=numpy_helper.from_array(stored * 2, "given")
    )
    graph = helper.make_graph(
        [constant, *nodes],
        "g",
        [
            info("x", TensorProto.FLOAT, sizes),
            info("z", TensorProto.FLOAT, ["rows", sizes[1]]),
            info("flat", TensorProto.INT64, [1]),
            info("cond", TensorProto.BOOL, []),
            info("turns", TensorProto.INT64, []),
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(stored, "weight")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10
    )
    feeds = {
        "x": draw(_arrays(sizes)),
        "z": draw(_arrays(sizes)),
        "flat": np.array([np.prod(sizes)], np.int64),
        "cond": np.array(draw(st.booleans())),
        "turns": np.array(draw(st.integers(0, 3)), np.int64),
    }
    return Case(model, feeds, maker.names)


def _arrays(sizes):
    count = int(np.prod(sizes))
    items = st.lists(st.integers(-3, 3), min_size=count, max_size=count)
    return items.map(lambda flat: np.array(flat, np.float32).reshape(sizes))


@st.composite
def masks(draw, names):
    """Draw for each node who declines it; at least one of the three does not."""
    declined = {"a": set(), "b": set(), "far": set()}
    for name in names:
        for who in draw(st.sampled_from(_SOME_DECLINE)):
            declined[who].add(name)
    return declined


_SOME_DECLINE = [(), ("a",), ("b",), ("far",), ("a", "b"), ("a", "far"), ("b", "far")]


# --- values by definition -------------------------------------------------------------


def evaluate(graph, feeds, outer=None):
    """Give a graph's outputs by definition: every node in order, each from NumPy."""
    values = dict(outer or {})
    values.update({t.name: numpy_helper.to_array(t) for t in graph.initializer})
    values.update(feeds)
    for node in graph.node:
        given = [values[name] if name else None for name in node.input]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        found = _run(node, given, attributes, values)
        for name, value in zip(node.output, found, strict=True):
            values[name] = np.asarray(value)
    return [values[output.name] for output in graph.output]


def _run(node, given, attributes, values):
    if node.op_type == "Constant":
        return [numpy_helper.to_array(attributes["value"])]
    if node.op_type == "If":
        side = "then_branch" if given[0] else "else_branch"
        return evaluate(attributes[side], {}, values)
    if node.op_type == "Loop":
        return _loop(attributes["body"], given, values)
    found = DEFINITIONS[node.op_type](*given, **attributes)
    return found if isinstance(found, tuple) else (found,)


def _loop(body, given, values):
    carried, rows = given[2], []
    names = [value.name for value in body.input]
    for turn in range(int(given[0])):
        fed = (np.int64(turn), np.bool_(True), carried)
        feeds = dict(zip(names, fed, strict=True))
        _, carried, row = evaluate(body, feeds, values)
        rows.append(row)
    return carried, np.stack(rows) if rows else np.zeros(
        (0, *carried.shape), np.float32
    )
