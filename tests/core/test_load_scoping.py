from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, parser
from tests.core.loaded_graphs import all_names, f32, run_by_onnxruntime

from seamline.errors import ModelError, UnsafeModelError
from seamline.graph import load
from seamline.limits import LoadLimits

HEAD = '<ir_version: 10, opset_import: ["" : 18]>\n'
CAPTURES = (
    HEAD
    + """
g (bool flag, float[2] x) => (float[2] y)
<float[2] gain = {10, 20}, float[2] bias = {0.5, -0.5}, float zero = {0}> {
    total = ReduceSum<keepdims = 0>(x)
    y = If(flag) <
        then_branch = outer_then () => (float[2] ty) {
            positive = Greater(total, zero)
            ty = If(positive) <
                then_branch = inner_then () => (float[2] a) { a = Mul(x, gain) },
                else_branch = inner_else () => (float[2] b) { b = Sub(gain, bias) }
            >
        },
        else_branch = outer_else () => (float[2] ey) { ey = Identity(bias) }
    >
}"""
)
SHADOWS = (
    HEAD
    + """
g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
    t = Neg(x)
    u = If(c) <
        then_branch = yes () => (float[2] t) <float[2] w = {10, 20}> {
            x = Mul(w, w)
            t = Add(x, w)
        },
        else_branch = no () => (float[2] t) { t = Add(x, w) }
    >
    y = Add(u, t)
}"""
)


def nested(levels):
    """If in If; each level adds x of the outermost graph."""
    info = helper.make_tensor_value_info

    def branch(k):
        out = [info(f"o{k}", TensorProto.FLOAT, [2])]
        if k == levels:
            last = [helper.make_node("Identity", ["x"], [f"o{k}"])]
            return helper.make_graph(last, f"t{k}", [], out)
        other = helper.make_graph(
            [helper.make_node("Neg", ["x"], [f"e{k}"])],
            f"f{k}",
            [],
            [info(f"e{k}", TensorProto.FLOAT, [2])],
        )
        nodes = [
            helper.make_node(
                "If", ["c"], [f"i{k}"], then_branch=branch(k + 1), else_branch=other
            ),
            helper.make_node("Add", [f"i{k}", "x"], [f"o{k}"]),
        ]
        return helper.make_graph(nodes, f"t{k}", [], out)

    top = branch(0)
    inputs = [info("c", TensorProto.BOOL, []), info("x", TensorProto.FLOAT, [2])]
    graph = helper.make_graph(list(top.node), "g", inputs, list(top.output))
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def in_bytes(levels):
    """Write bodies in bodies by hand: no proto of that depth can be put together."""

    def field(number, data):
        size, length = len(data), b""
        while size > 127:
            length += bytes([size & 127 | 128])
            size >>= 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + data

    graph = b""
    for _ in range(levels):
        attribute = field(1, b"then_branch") + b"\xa0\x01\x05" + field(6, graph)
        graph = field(1, field(4, b"If") + field(5, attribute))
    return b"\x08\x0a" + field(7, graph) + field(8, b"\x10\x12")


def test_captures_are_found_at_any_depth_initializers_and_inputs_included():
    graph = load(parser.parse_model(CAPTURES))
    outer = graph.nodes[-1]
    assert outer.captures == ("total", "zero", "x", "gain", "bias")
    inner = outer.bodies["then_branch"].nodes[-1]
    assert inner.captures == ("x", "gain", "bias")
    assert inner.bodies["else_branch"].captures == ("gain", "bias")
    assert graph.captures == ()
    assert set(graph.constants) == {"gain", "bias", "zero"}


@pytest.mark.parametrize(
    ("flag", "x", "expected"),
    [
        (True, f32(1, 2), f32(10, 40)),
        (True, f32(-3, 1), f32(9.5, 20.5)),
        (False, f32(7, 7), f32(0.5, -0.5)),
    ],
)
def test_what_only_an_inner_body_reads_has_its_value(flag, x, expected):
    feeds = {"flag": np.array(flag), "x": x}
    got = run_by_onnxruntime(load(parser.parse_model(CAPTURES)), feeds)
    np.testing.assert_array_equal(got[0], expected)


@pytest.mark.parametrize(
    ("flag", "expected"), [(True, f32(109, 418)), (False, f32(1, 2))]
)
def test_a_shadowing_name_means_the_inner_value_and_is_renamed(flag, expected):
    graph = load(parser.parse_model(SHADOWS))
    names = all_names(graph)
    assert len(names) == len(set(names))
    assert graph.inputs == ("c", "x")
    assert graph.outputs == ("y",)
    got = run_by_onnxruntime(graph, {"c": np.array(flag), "x": f32(1, 2)})
    np.testing.assert_array_equal(got[0], expected)


def test_a_new_name_takes_none_that_the_file_uses_elsewhere():
    model = parser.parse_model(
        SHADOWS.replace("u = If", "t_1 = If").replace("(u,", "(t_1,")
    )
    graph = load(model)
    names = all_names(graph)
    assert "t_1" in graph.nodes[1].outputs
    assert len(names) == len(set(names))


def test_renaming_leaves_the_callers_model_alone():
    model = parser.parse_model(SHADOWS)
    before = model.SerializeToString()
    load(model)
    assert model.SerializeToString() == before
    as_ir = ir.from_proto(model)
    load(as_ir)
    assert (
        ir.to_proto(as_ir).SerializeToString()
        == ir.to_proto(ir.from_proto(model)).SerializeToString()
    )


def test_branches_may_use_the_same_names():
    text = """g (bool c, float x) => (float y) { y = If(c) <
        then_branch = t () => (float r) {m = Neg(x) r = Abs(m)},
        else_branch = e () => (float r) {m = Abs(x) r = Neg(m)}> }"""
    graph = load(parser.parse_model(HEAD + text), strict=True)
    (owner,) = graph.nodes
    assert owner.bodies["then_branch"].outputs == ("r",)
    assert owner.bodies["else_branch"].outputs == ("r_1",)
    assert owner.captures == ("x",)


def test_strict_refuses_shadowing_and_names_value_and_body():
    with pytest.raises(ModelError, match=r"'t'.*'(yes|no)'.*strict"):
        load(parser.parse_model(SHADOWS), strict=True)


def test_a_body_may_give_an_outer_value():
    text = """g (bool c, float x) => (float y) { p = Neg(x) y = If(c) <
        then_branch = t () => (float p) {},
        else_branch = e () => (float q) {q = Abs(x)}> }"""
    graph = load(parser.parse_model(HEAD + text))
    owner = graph.nodes[-1]
    assert owner.captures == ("p", "x")
    feeds = {"c": np.array(True), "x": np.array(3, np.float32)}
    assert run_by_onnxruntime(graph, feeds)[0] == -3


def test_a_loop_body_has_its_own_inputs():
    text = """g (int64 n, bool c, float x) => (float y, float[k] s) {
        y, s = Loop(n, c, x) <body = b (int64 i, bool go, float v)
            => (bool go2, float w, float w) {go2 = Identity(go) w = Add(v, x)}> }"""
    graph = load(parser.parse_model(HEAD + text))
    body = graph.nodes[0].bodies["body"]
    assert body.inputs == ("i", "go", "v")
    assert body.outputs == ("go2", "w", "w")
    assert graph.nodes[0].captures == ("x",)


def test_a_name_that_nothing_gives_is_an_error_with_near_names():
    model = parser.parse_model(HEAD + "g (float image) => (float y) {y = Neg(imgae)}")
    model.graph.node[0].name = "first"
    with pytest.raises(ModelError, match=r"'first'.*'imgae'.*did you mean 'image'"):
        load(model)


def test_a_name_of_a_sibling_body_cannot_be_seen():
    text = """g (bool c, float x) => (float y) { y = If(c) <
        then_branch = t () => (float r) {m = Neg(x) r = Abs(m)},
        else_branch = e () => (float q) {q = Abs(m)}> }"""
    with pytest.raises(ModelError, match="'m'"):
        load(parser.parse_model(HEAD + text))


def test_an_output_that_nothing_gives_is_an_error():
    model = parser.parse_model(HEAD + "g (float x) => (float y) {z = Neg(x)}")
    with pytest.raises(ModelError, match="output 'y'"):
        load(model)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("y = Neg(x) y = Abs(x)", "'y' is given already"),
        ("x = Neg(x) y = Abs(x)", "'x' is given already"),
        ("w = Neg(x) y = Abs(w)", "'w' is given already"),
    ],
)
def test_a_name_given_twice_in_one_graph_is_an_error(body, what):
    text = HEAD + "g (float x) => (float y) <float w = {1}> {" + body + "}"
    with pytest.raises(ModelError, match=what):
        load(parser.parse_model(text))


def test_two_inputs_or_initializers_of_one_name_are_an_error():
    model = parser.parse_model(
        HEAD + "g (float x) => (float y) <float w = {1}> {y = Add(x, w)}"
    )
    twice = onnx.ModelProto()
    twice.CopyFrom(model)
    twice.graph.input.append(model.graph.input[0])
    with pytest.raises(ModelError, match="two inputs have the name 'x'"):
        load(twice)
    twice.CopyFrom(model)
    twice.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(ModelError, match="two initializers have the name 'w'"):
        load(twice)


def test_nodes_without_names_get_names_from_their_place():
    text = HEAD + "g (float x) => (float y) {a = Neg(x) b = Abs(a) y = Neg(b)}"
    model = parser.parse_model(text)
    model.graph.node[2].name = "Neg_0"
    names = [node.name for node in load(model).nodes]
    assert names == ["Neg_0_1", "Abs_1", "Neg_0"]
    assert names == [node.name for node in load(model).nodes]


def test_nodes_of_one_name_are_told_apart():
    model = parser.parse_model(
        HEAD + "g (float x) => (float y) {a = Neg(x) y = Neg(a)}"
    )
    for node in model.graph.node:
        node.name = "same"
    assert [node.name for node in load(model).nodes] == ["same", "same_1"]


@pytest.mark.parametrize("flag", [True, False])
def test_twenty_five_levels_of_bodies_load(flag):
    graph = load(nested(25).SerializeToString())
    assert sum(1 for _ in graph.graphs()) == 51
    assert set(graph.nodes[0].captures) == {"c", "x"}
    got = run_by_onnxruntime(graph, {"c": np.array(flag), "x": f32(0.5, -2)})
    np.testing.assert_array_equal(got[0], f32(0.5, -2) * (26 if flag else 0))


def test_sixty_levels_are_past_protobuf_and_an_error(tmp_path):
    path = tmp_path / "deep.onnx"
    path.write_bytes(in_bytes(60))
    with pytest.raises(ModelError, match=r"deep\.onnx.*protobuf"):
        load(path)


def test_a_cap_on_depth_can_be_lowered_and_raised():
    with pytest.raises(UnsafeModelError, match=r"6 deep.*max_depth"):
        load(nested(8), limits=LoadLimits(max_depth=5))
    assert load(nested(8), limits=LoadLimits(max_depth=8)).nodes
    with pytest.raises(UnsafeModelError, match="max_depth"):
        load(ir.from_proto(nested(8)), limits=LoadLimits(max_depth=5))


def test_forty_levels_are_refused_before_anything_walks_them():
    deep = ir.from_proto(nested(8))
    for _ in range(40):
        inner = ir.AttrGraph("then_branch", deep.graph)
        node = ir.Node("", "If", [], [inner], num_outputs=1)
        deep = ir.Model(ir.Graph([], [], nodes=[node]), ir_version=10)
        deep.opset_imports[""] = 18
    with pytest.raises(UnsafeModelError, match=r"33 deep.*32"):
        load(deep)
