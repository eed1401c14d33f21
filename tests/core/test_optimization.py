"""What graph optimization may change, what it may not, and what it says of both."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from tests.core.toy_kernels import definitions_table
from tests.core.toys import Toy, model, open_over, toys

import seamline
from seamline.errors import PinError
from seamline.explain import diff
from seamline.graph import load
from seamline.levels import GraphOptimizationLevel, level_of
from seamline.optimization import optimize
from seamline.pipeline import Pipeline

f32 = np.float32
ALL = GraphOptimizationLevel.ORT_ENABLE_ALL
CHAIN = """g (float[2,3] x) => (float[3,2] y) {
    [same] a = Identity(x)
    [turn] b = Transpose <perm = [1, 0]> (a)
    [negate] c = Neg(b)
    [back] d = Transpose <perm = [1, 0]> (c)
    [again] e = Transpose <perm = [1, 0]> (d)
    [last] y = Abs(e)
}"""
CONV = """g (float[1,2,4,4] x, float[1,3,4,4] z) => (float[1,3,4,4] y)
<float[3,2,1,1] w = {1, 2, 3, 4, 5, 6}, float[3] b = {1, -2, 3}> {
    [conv] c = Conv(x, w, b)
    [sum] s = Add(c, z)
    [rectify] y = Relu(s)
}"""
X = np.arange(6, dtype=f32).reshape(2, 3)


def over_toys(text, level="all", **chosen):
    made = toys()
    return open_over(
        model(text), made["a"], made["b"], graph_optimization_level=level, **chosen
    )


def names(pipeline):
    return [node.name for node in pipeline.graph.walk()]


def on_cpu(text, level="all", **chosen):
    chosen.setdefault("providers", ["cpu"])
    return Pipeline.open(model(text), graph_optimization_level=level, **chosen)


# -- levels ------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["all", "ORT_ENABLE_ALL", 99])
def test_a_level_has_onnxruntimes_name_and_number_and_a_short_one(given):
    assert level_of(given) is ALL


def test_a_level_that_is_none_is_refused_and_names_those_that_are():
    with pytest.raises(ValueError, match=r"'extra'.*none, basic, extended"):
        level_of("extra")


def test_without_optimization_the_graph_is_the_one_that_was_loaded():
    graph = load(model(CHAIN))
    optimized = optimize(
        graph, [toys()["a"]], level=GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    assert optimized.graph is graph
    assert optimized.rewrites == optimized.left == ()


def test_a_session_optimizes_fully_unless_told_otherwise():
    for options, wanted in ((None, 1), (seamline.SessionOptions(), 3)):
        if options is not None:
            options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        with seamline.InferenceSession(model(CONV), options, ["cpu"]) as session:
            assert len(session.get_provider_graph_assignment_info()) == 1
            assert len(session._pipeline.graph.nodes) == wanted


def test_basic_makes_no_operator_that_onnx_does_not_have():
    pipeline = on_cpu(CONV, "basic")
    assert {node.domain for node in pipeline.graph.walk()} == {""}
    pipeline.close()


# -- what is rewritten -------------------------------------------------------------------


def test_nodes_that_do_nothing_are_removed_and_listed_with_their_reason():
    pipeline = over_toys(CHAIN)
    assert names(pipeline) == ["turn", "negate", "last"]
    assert [(r.rule, r.nodes, r.made) for r in pipeline.optimized.rewrites] == [
        ("identity", ("same",), {}),
        ("transposes", ("again", "back"), {}),
    ]
    assert all(rewrite.reason for rewrite in pipeline.optimized.rewrites)
    np.testing.assert_array_equal(pipeline.run({"x": X})[0], X.T)
    pipeline.close()


def test_the_graph_given_stays_as_it_was():
    graph = load(model(CHAIN))
    before = [(n.name, n.inputs, n.outputs) for n in graph.walk()]
    optimized = optimize(graph, [toys()["a"]], level=ALL)
    assert optimized.graph is not graph
    assert [(n.name, n.inputs, n.outputs) for n in graph.walk()] == before
    assert [n.name for n in graph.model.graph] == [n.name for n in graph.nodes]


def test_a_fused_node_has_the_first_ones_name_and_the_last_ones_output():
    pipeline = on_cpu(CONV)
    (node,) = pipeline.graph.nodes
    assert (node.name, node.qualified_op) == ("conv", "com.microsoft::FusedConv")
    assert node.inputs == ("x", "w", "b", "z")
    assert node.outputs == ("y",)
    pipeline.close()


def test_bodies_are_rewritten_and_what_they_read_from_outside_is_followed():
    pipeline = over_toys(
        """g (bool c, float[2] x) => (y) {
            a = Identity(x)
            y = If(c) <
                then_branch = t () => (p) { [inner] q = Identity(a) p = Neg(q) },
                else_branch = e () => (r) { r = Abs(a) }>
        }"""
    )
    assert "inner" not in names(pipeline)
    for c, sign in ((True, -1), (False, 1)):
        got = pipeline.run({"c": np.array(c), "x": np.array([1, 2], f32)})[0]
        np.testing.assert_array_equal(got, sign * np.array([1, 2], f32))
    pipeline.close()


# -- what is left ------------------------------------------------------------------------


def test_an_output_of_the_graph_never_disappears():
    text = CONV.replace(
        "=> (float[1,3,4,4] y)", "=> (float[1,3,4,4] y, float[1,3,4,4] c)"
    )
    pipeline = on_cpu(text)
    assert pipeline.graph.outputs == ("y", "c")
    assert "conv" in names(pipeline)
    x, z = np.ones((1, 2, 4, 4), f32), np.ones((1, 3, 4, 4), f32)
    y, c = pipeline.run({"x": x, "z": z})
    np.testing.assert_array_equal(c[0, :, 0, 0], [4, 5, 14])
    np.testing.assert_array_equal(y, np.maximum(c + z, 0))
    pipeline.close()


def test_an_identity_that_gives_an_output_stays():
    pipeline = over_toys("g (float[2] x) => (y) { [only] y = Identity(x) }")
    assert names(pipeline) == ["only"]
    pipeline.close()


def test_a_value_that_a_body_reads_is_not_fused_away():
    pipeline = on_cpu(
        """g (bool t, float[1,2,4,4] x) => (y, p) <float[3,2,1,1] w = {1, 2, 3, 4, 5, 6}> {
            [conv] c = Conv(x, w)
            [rectify] y = Relu(c)
            p = If(t) <
                then_branch = a () => (q) { q = Neg(c) },
                else_branch = b () => (r) { r = Abs(c) }>
        }"""
    )
    assert "rectify" in names(pipeline)
    x = np.full((1, 2, 4, 4), -1, f32)
    y, p = pipeline.run({"t": np.array(True), "x": x})
    assert not y.any()
    np.testing.assert_array_equal(p[0, :, 0, 0], [3, 7, 11])
    pipeline.close()


@pytest.mark.parametrize("pin", ["rectify", "rect*", "Relu"])
def test_a_pinned_node_is_not_fused_away_whatever_the_pin(pin):
    pipeline = on_cpu(CONV, providers=["cpu", "reference"], pins={pin: "reference"})
    assert names(pipeline) == ["conv", "rectify"]
    assert pipeline.assignments()["rectify"] == "reference"
    left = {one.rule: (one.node, one.why) for one in pipeline.optimized.left}
    assert left["convolution-activation"] == ("conv", f"'rectify' is pinned by {pin!r}")
    pipeline.close()


def test_a_pin_that_matches_nothing_is_an_error_as_ever():
    with pytest.raises(PinError, match="matches no node"):
        on_cpu(CONV, pins={"nobody": "cpu"})


def test_a_fused_operator_that_nobody_claims_is_not_made_and_the_refusal_is_kept():
    table = definitions_table("a")
    table.simple("Conv")(lambda x, w, b: np.einsum("nchw,mc->nmhw", x, w[:, :, 0, 0]))
    pipeline = open_over(model(CONV), Toy(table), graph_optimization_level="all")
    assert names(pipeline) == ["conv", "sum", "rectify"]
    (left,) = pipeline.optimized.left
    assert left.rule == "convolution-residual"
    assert left.why.startswith(
        "no provider claims com.microsoft::FusedConv: a: no kernel"
    )
    pipeline.close()


def test_a_fused_operator_of_a_less_preferred_provider_is_not_made():
    pipeline = on_cpu(CONV, providers=["reference", "cpu"])
    assert names(pipeline) == ["conv", "sum", "rectify"]
    why = pipeline.optimized.left[0].why
    assert why == (
        "FusedConv would be cpu's, and part of it is now reference's, which comes first"
    )
    pipeline.close()


def test_a_caller_who_overrides_a_weight_gets_what_the_model_says():
    pipeline = on_cpu(
        """g (float[1,2,2,2] x, float[3] s) => (y)
        <float[3] s = {1, 2, 3}, float[3] t = {0, 1, 2}, float[3] m = {1, 1, 1},
         float[3] v = {1, 4, 9}, float[3,2,1,1] w = {1, 2, 3, 4, 5, 6}> {
            c = Conv(x, w)
            y = BatchNormalization <epsilon = 0.0> (c, s, t, m, v)
        }"""
    )
    assert [node.op_type for node in pipeline.graph.nodes][-1] == "Conv"
    x = np.ones((1, 2, 2, 2), f32)
    c = np.array([3, 7, 11], f32)
    for feeds, s in (({}, [1, 2, 3]), ({"s": np.array([5, 6, 7], f32)}, [5, 6, 7])):
        want = np.array(s, f32) * (c - 1) / [1, 2, 3] + [0, 1, 2]
        got = pipeline.run({"x": x, **feeds})[0][0, :, 0, 0]
        np.testing.assert_allclose(got, want, rtol=1e-6)
    pipeline.close()


def test_numbers_that_a_caller_may_override_are_not_looked_at():
    pipeline = on_cpu(
        """g (float[1,2,2,2] x, float low) => (y)
        <float low = {0}, float[3,2,1,1] w = {1, 2, 3, 4, 5, 6}> {
            c = Conv(x, w)
            [clip] y = Clip(c, low)
        }"""
    )
    assert "clip" in names(pipeline)
    x = np.full((1, 2, 2, 2), -1, f32)
    got = pipeline.run({"x": x, "low": np.array(-5, f32)})[0][0, :, 0, 0]
    np.testing.assert_array_equal(got, [-3, -5, -5])
    pipeline.close()


def test_a_broadcast_sum_is_not_taken_for_a_residual():
    text = CONV.replace("float[1,3,4,4] z", "float[1,3,1,1] z")
    pipeline = on_cpu(text)
    assert "sum" in names(pipeline)
    pipeline.close()


def test_open_sizes_of_one_name_are_one_size_and_of_two_are_not():
    text = CONV.replace("float[1,2,4,4] x", "float[N,2,H,4] x")
    for size, fused in (("float[N,3,H,4] z", True), ("float[N,3,K,4] z", False)):
        open_text = text.replace("float[1,3,4,4] z", size).replace(
            "=> (float[1,3,4,4] y)", "=> (y)"
        )
        pipeline = on_cpu(open_text)
        assert ("sum" not in names(pipeline)) is fused
        pipeline.close()


# -- explaining --------------------------------------------------------------------------


def test_explain_lists_every_rewrite_and_a_diff_shows_them():
    said = {}
    for level in ("none", "all"):
        pipeline = on_cpu(CONV, level)
        said[level] = pipeline.explain()
        pipeline.close()
    optimized = json.loads(said["all"].to_json())["optimized"]
    assert optimized["level"] == "ORT_ENABLE_ALL"
    assert optimized["rewrites"] == [
        {
            "id": "convolution-residual conv",
            "nodes": ["conv", "sum"],
            "made": {"conv": "com.microsoft::FusedConv"},
            "reason": "the sum is made while it is in the cache",
        },
        {
            "id": "convolution-activation conv",
            "nodes": ["conv", "rectify"],
            "made": {"conv": "com.microsoft::FusedConv"},
            "reason": "Relu of each block while it is in the cache",
        },
    ]
    assert "rewritten  1 convolution-residual, 1 convolution-activation" in str(
        said["all"]
    )
    lines = diff(said["none"].data, said["all"].data)
    assert "~ optimized.level: ORT_DISABLE_ALL -> ORT_ENABLE_ALL" in lines
    assert any("convolution-activation conv" in line for line in lines)
    assert "convolution-activation conv" in said["all"].to_html()


def test_explain_says_what_was_left_and_why():
    pipeline = on_cpu(CONV, providers=["reference", "cpu"])
    text = str(pipeline.explain())
    pipeline.close()
    assert "left       1 convolution-residual: FusedConv would be cpu's" in text


def test_the_optimized_model_is_one_that_onnx_reads():
    graph = load(model(CONV))
    pipeline = on_cpu(CONV)
    import onnx_ir as ir

    proto = ir.to_proto(pipeline.graph.model)
    pipeline.close()
    assert isinstance(proto, onnx.ModelProto)
    assert {o.domain for o in proto.opset_import} >= {"com.microsoft"}
    assert len(graph.nodes) == 3
