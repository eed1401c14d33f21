from __future__ import annotations

import time

import numpy as np
import pytest
from onnx import TensorProto, helper, parser
from tests.core.loaded_graphs import f32, run_by_onnxruntime

from seamline.errors import ModelError
from seamline.graph import load

HEAD = '<ir_version: 10, opset_import: ["" : 18]>\n'
BRANCHES = (
    HEAD
    + """
g (float[2] x, bool flag) => (float[2] y) <float[1] two = {2}> {
    a = Mul(x, two)
    b = Add(a, x)
    c = If(flag) <
        then_branch = t () => (float[2] d2) { d1 = Neg(b)  d2 = Mul(d1, a) },
        else_branch = e () => (float[2] e1) { e1 = Identity(b) }
    >
    y = Sub(c, a)
}"""
)


def reverse(graph):
    nodes = list(graph.node)[::-1]
    del graph.node[:]
    graph.node.extend(nodes)


def reversed_everywhere():
    model = parser.parse_model(BRANCHES)
    reverse(model.graph)
    for node in model.graph.node:
        for attr in node.attribute:
            reverse(attr.g)
    return model


def stands_after_its_sources(graph):
    for each in graph.graphs():
        seen = set()
        made = {name for node in each.nodes for name in node.writes}
        for node in each.nodes:
            assert {name for name in node.reads if name in made} <= seen
            seen.update(node.writes)


def chain(count):
    """``count`` nodes in a row: y = x + count // 3."""
    info = helper.make_tensor_value_info
    nodes, last = [], "x"
    for i in range(count):
        op = ("Neg", "Neg", "Add")[i % 3]
        inputs = [last, "one"] if op == "Add" else [last]
        nodes.append(helper.make_node(op, inputs, [f"v{i}"]))
        last = f"v{i}"
    nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, [2])],
        [helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    ("flag", "expected"), [(True, f32(-8, -20)), (False, f32(1, -2))]
)
def test_nodes_in_reverse_are_sorted_in_the_graph_and_in_bodies(flag, expected):
    graph = load(reversed_everywhere())
    stands_after_its_sources(graph)
    feeds = {"x": f32(1, -2), "flag": np.array(flag)}
    np.testing.assert_array_equal(run_by_onnxruntime(graph, feeds)[0], expected)


def test_a_node_waits_for_what_its_body_reads():
    graph = load(reversed_everywhere())
    (owner,) = [node for node in graph.nodes if node.bodies]
    assert set(owner.captures) == {"a", "b"}
    assert [node.op_type for node in graph.nodes] == ["Mul", "Add", "If", "Sub"]


def test_the_order_of_the_file_is_kept_where_it_is_legal():
    text = HEAD + "g (float x) => (float a, float b, float c, float d) {"
    text += "b = Neg(x) d = Abs(c) a = Exp(x) c = Sqrt(x) }"
    assert [n.op_type for n in load(parser.parse_model(text)).nodes] == [
        "Neg",
        "Exp",
        "Sqrt",
        "Abs",
    ]


def test_strict_refuses_unsorted_nodes_and_names_node_and_tensor():
    model = parser.parse_model(
        HEAD + "g (float x) => (float y) {y = Neg(p) p = Abs(x)}"
    )
    model.graph.node[0].name = "early"
    with pytest.raises(ModelError, match=r"'early'.*before 'Abs_1'.*'p'"):
        load(model, strict=True)
    assert [node.op_type for node in load(model).nodes] == ["Abs", "Neg"]


def test_a_cycle_is_an_error_that_names_its_nodes_and_no_other():
    text = "g (float x) => (float y) { o = Exp(x) p = Add(o, r) q = Neg(p) r = Abs(q)"
    model = parser.parse_model(HEAD + text + " y = Sqrt(r) }")
    for node in model.graph.node:
        node.name = f"node_{node.op_type}"
    with pytest.raises(ModelError) as caught:
        load(model)
    said = str(caught.value)
    assert "node_Add -> node_Neg -> node_Abs -> node_Add" in said or all(
        name in said for name in ("node_Add", "node_Neg", "node_Abs", "->")
    )
    assert "node_Exp" not in said
    assert "node_Sqrt" not in said


def test_a_cycle_through_a_body_is_found():
    text = """g (bool c, float x) => (float y) {
        p = If(c) <then_branch = t () => (float a) {a = Neg(q)},
                   else_branch = e () => (float b) {b = Neg(x)}>
        q = Abs(p)  y = Neg(q) }"""
    model = parser.parse_model(HEAD + text)
    model.graph.node[0].name = "choice"
    with pytest.raises(ModelError, match="choice"):
        load(model)


def test_a_node_that_reads_its_own_output_is_a_cycle():
    model = parser.parse_model(HEAD + "g (float x) => (float y) {y = Add(x, y)}")
    with pytest.raises(ModelError, match="Add_0 -> Add_0"):
        load(model)


def test_a_long_chain_loads_without_recursion_in_linear_time():
    def seconds(count):
        data = chain(count).SerializeToString()
        best = float("inf")
        for _ in range(2):
            began = time.process_time()
            assert len(load(data).nodes) == count
            best = min(best, time.process_time() - began)
        return best

    short, long = seconds(200), seconds(1000)
    assert long < 5 * 3 * short


def test_a_reversed_chain_is_sorted():
    model = chain(1000)
    reverse(model.graph)
    graph = load(model)
    assert graph.nodes[0].inputs == ("x",)
    assert graph.nodes[-1].outputs == ("y",)
    stands_after_its_sources(graph)


def test_a_wide_sum_keeps_its_inputs_in_order():
    info = helper.make_tensor_value_info
    names = [f"v{i}" for i in range(1000)]
    nodes = [helper.make_node("Neg", ["x"], [name]) for name in names]
    nodes.insert(0, helper.make_node("Sum", names, ["y"]))
    shape = [info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = load(helper.make_model(helper.make_graph(nodes, "g", shape[:1], shape[1:])))
    assert graph.nodes[-1].inputs == tuple(names)
