"""What depends on constants alone is run once, when a session opens."""

from __future__ import annotations

import numpy as np
from tests.core.toy_kernels import definitions_table
from tests.core.toys import Toy, model, open_over, toys

from seamline.constants import Constants
from seamline.folding import fold
from seamline.graph import load
from seamline.kernels import KernelTable

f32 = np.float32
TEXT = """g (float[2] x) => (y) <float[2] w = {1, 2}> {
    [first] a = Neg(w)
    [second] b = Add(a, w)
    [third] y = Mul(x, a)
}"""


def opened(text, **chosen):
    made = toys()
    return open_over(model(text), made["a"], made["b"], **chosen), made


def test_nodes_of_constants_are_run_once_and_are_in_no_plan():
    pipeline, _ = opened(TEXT)
    assert pipeline.folding.nodes == ("first", "second")
    plan = pipeline.plan()
    assert [node for segment in plan.segments for node in segment.nodes] == ["third"]
    x = np.array([3, 4], f32)
    np.testing.assert_array_equal(pipeline.run({"x": x})[0], -x * [1, 2])
    pipeline.close()


def test_only_what_is_read_is_kept():
    pipeline, _ = opened(TEXT)
    assert pipeline.folding.nbytes == 8
    assert list(pipeline.engine.constants.folded) == ["a"]
    assert not pipeline.engine.constants.folded["a"].flags.writeable
    pipeline.close()


def test_what_ran_for_folding_is_closed():
    pipeline, made = opened(TEXT)
    assert made["a"].calls.open == 0
    pipeline.close()


def test_nodes_in_bodies_are_folded_too():
    pipeline, _ = opened(
        """g (bool c, float[2] x) => (y) <float[2] w = {1, 2}> {
            y = If(c) <
                then_branch = t () => (p) { [inner] a = Neg(w) p = Mul(x, a) },
                else_branch = e () => (q) { [whole] q = Neg(w) }>
        }"""
    )
    assert pipeline.folding.nodes == ("inner", "whole")
    for c, wanted in ((True, [-3, -8]), (False, [-1, -2])):
        got = pipeline.run({"c": np.array(c), "x": np.array([3, 4], f32)})
        np.testing.assert_array_equal(got[0], np.array(wanted, f32))
    pipeline.close()


def test_an_initializer_that_a_caller_may_override_is_folded_for_those_who_do_not():
    pipeline, _ = opened(
        "g (float[2] w, float[2] x) => (y) <float[2] w = {1, 2}> { a = Neg(w) y = Add(a, x) }"
    )
    x = np.array([10, 20], f32)
    np.testing.assert_array_equal(pipeline.run({"x": x})[0], [9, 18])
    fed = {"x": x, "w": np.array([5, 5], f32)}
    np.testing.assert_array_equal(pipeline.run(fed)[0], [5, 15])
    np.testing.assert_array_equal(pipeline.run({"x": x})[0], [9, 18])
    pipeline.close()


def test_a_draw_is_never_folded():
    table = definitions_table("a")
    table.simple("RandomNormalLike")(
        lambda w: np.random.default_rng().normal(size=w.shape)
    )
    source = model(
        "g () => (y) <double[4] w = {0, 0, 0, 0}> { r = RandomNormalLike(w) y = Neg(r) }"
    )
    pipeline = open_over(source, Toy(table))
    assert pipeline.folding.nodes == ()
    assert not np.array_equal(pipeline.run({})[0], pipeline.run({})[0])
    pipeline.close()


def test_a_node_that_fails_is_left_to_the_run_that_meets_it():
    table = KernelTable("a")

    @table.simple("Neg")
    def neg(x):
        raise ArithmeticError("no such thing")

    table.simple("Abs")(lambda x: np.abs(x))
    source = model(
        """g (bool c, float[2] x) => (y) <float[2] w = {1, 2}> {
            y = If(c) <
                then_branch = t () => (p) { p = Abs(x) },
                else_branch = e () => (q) { q = Neg(w) }>
        }"""
    )
    pipeline = open_over(source, Toy(table))
    assert pipeline.folding.nodes == ()
    assert "no such thing" in pipeline.folding.left
    x = np.array([-1, 2], f32)
    np.testing.assert_array_equal(
        pipeline.run({"c": np.array(True), "x": x})[0], abs(x)
    )
    pipeline.close()


def test_folding_stops_at_its_limit_and_says_so():
    graph = load(model(TEXT))
    constants = Constants(graph)
    pipeline, _ = opened(TEXT)
    found = fold(graph, constants, pipeline.types.get, lambda region: {}, limit=8)
    assert found.nodes == ("first",)
    assert "'second' and others would take more than 8 bytes" in found.left
    pipeline.close()


def test_constants_that_are_outputs_are_folded():
    pipeline, _ = opened("g () => (y, w) <float[2] w = {1, 2}> { y = Neg(w) }")
    y, w = pipeline.run({})
    np.testing.assert_array_equal(y, -w)
    y[...] = 7
    np.testing.assert_array_equal(pipeline.run({})[0], [-1, -2])
    pipeline.close()


def test_constants_are_copied_to_a_device_once_for_all_programs():
    made = toys()
    pipeline = open_over(
        model("g (float[n] x) => (y) <float[1] w = {2}> { y = Mul(x, w) }"), made["far"]
    )
    for size in (1, 2, 3):
        pipeline.run({"x": np.ones(size, f32)})
    names = made["far"].calls.names
    # Three arenas, one constant.
    assert names.count("allocate") == 4
    pipeline.close()
    assert made["far"].own.content == 0
