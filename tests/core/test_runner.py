"""One program for each shape signature, a bounded number of them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toy_kernels import definitions_table
from tests.core.toys import Toy, model, open_over, toys

from seamline.errors import KernelError, SeamError
from seamline.planned import SeamCause
from seamline.verify import verify

f32 = np.float32
DYNAMIC = """g (float[a] x, float[b] z) => (y) {
    [one] p = Neg(x)
    [two] n = NonZero(p)
    [three] m = Add(n, n)
    [four] y = Neg(m)
}"""


def opened(text, *names, **chosen):
    made = toys()
    pins = chosen.pop("pins", {})
    picked = [made[name] for name in names or ("a", "b", "far")]
    return open_over(model(text), *picked, pins=pins, **chosen), made


def test_a_program_is_built_for_each_shape_and_used_again():
    pipeline, _ = opened("g (float[n] x) => (y) { y = Neg(x) }")
    for size in (3, 5, 3, 5, 3):
        np.testing.assert_array_equal(
            pipeline.run({"x": np.ones(size, f32)})[0], -np.ones(size)
        )
    assert pipeline.runner.built == 2
    pipeline.close()


def test_the_least_recently_used_program_is_closed_for_a_new_one():
    pipeline, made = opened("g (float[n] x) => (y) { y = Neg(x) }", "a", programs=2)
    for size in (1, 2, 1, 3, 1):  # 2 goes when 3 comes, and 1 stays
        pipeline.run({"x": np.ones(size, f32)})
    assert pipeline.runner.built == 3
    assert made["a"].calls.open == 2
    pipeline.run({"x": np.ones(2, f32)})
    assert pipeline.runner.built == 4
    pipeline.close()
    assert made["a"].calls.open == 0


def test_programs_on_a_device_give_their_arenas_back():
    pipeline, made = opened("g (float[n] x) => (y) { y = Neg(x) }", "far", programs=1)
    held = set()
    for size in (64, 64, 64):
        for other in (size, 2 * size):
            pipeline.run({"x": np.ones(other, f32)})
        held.add(made["far"].own.content)
    assert len(held) == 1
    pipeline.close()
    assert made["far"].own.content == 0


def test_programs_of_a_body_are_bounded_too():
    text = """g (int64 n, float[a] x) => (last) {
        last = Loop(n, "", x) <body = b (int64 i, bool c, float[k] s) => (d, t) {
            d = Identity(c) t = Concat<axis = 0>(s, s) }>
    }"""
    pipeline, made = opened(text, "a", programs=3)
    got = pipeline.run({"n": np.array(8), "x": np.ones(1, f32)})
    assert got[0].shape == (256,)
    (bodies,) = pipeline.runner.latest().bodies.values()
    assert bodies["body"].built == 8
    assert made["a"].calls.open == 3
    pipeline.close()
    assert made["a"].calls.open == 0


# --- sizes found by running -----------------------------------------------------------


def test_a_size_found_by_running_is_a_seam_with_its_cause():
    pipeline, _ = opened(DYNAMIC, "a")
    plan = pipeline.plan()
    assert [s.nodes for s in plan.segments] == [("one",), ("two",)]
    assert [node.name for node in plan.rest.nodes] == ["three", "four"]
    causes = {seam.cause for seam in plan.seams}
    assert causes == {SeamCause.DYNAMIC_SHAPE}
    assert "'two' finds its outputs' sizes" in plan.seams[0].why
    pipeline.close()


@pytest.mark.parametrize(
    "pins", [{}, {"Add": "far"}, {"NonZero": "far", "Neg": "b"}], ids=str
)
def test_a_run_goes_on_after_a_size_was_found(pins):
    pipeline, made = opened(DYNAMIC, pins=pins)
    for values in ([0, 1, 2], [0, 0, 0], [1, 2, 3], [0, 5, 0]):
        x = np.array(values, f32)
        (y,) = pipeline.run({"x": x, "z": x})
        np.testing.assert_array_equal(y, -2 * np.array(np.nonzero(x)))
        assert y.dtype == np.int64
    # Counts 2, 0, 3, 1 are four signatures of what remained, over one first program.
    assert pipeline.runner.built == 1
    rest = pipeline.runner.latest().rest
    assert rest.built == 4
    assert verify(rest.latest().plan) == ()
    pipeline.close()
    assert made["far"].own.content == 0


def test_what_remains_may_find_sizes_again():
    text = """g (float[n] x) => (y) {
        n0 = NonZero(x) n1 = Cast<to = 1>(n0) n2 = NonZero(n1) y = Add(n2, n2) }"""
    pipeline, _ = opened(text, "a")
    x = np.array([3, 0, 4], f32)
    (y,) = pipeline.run({"x": x})
    inner = np.array(np.nonzero(x))
    np.testing.assert_array_equal(y, 2 * np.array(np.nonzero(inner)))
    pipeline.close()


@pytest.mark.parametrize("where", ["a", "far"])
def test_a_shape_that_is_fed_is_read_before_its_node_is_sized(where):
    text = (
        "g (float[n] x, int64[r] s) => (y) { p = Neg(x) q = Reshape(p, s) y = Abs(q) }"
    )
    pipeline, made = opened(text, pins={"Reshape": where})
    x = np.arange(12, dtype=f32)
    for shape in ([3, 4], [2, -1], [12, 1], [4, 3], [3, 4]):
        (y,) = pipeline.run({"x": x, "s": np.array(shape)})
        np.testing.assert_array_equal(y, x.reshape(shape))
    pipeline.close()
    assert made["far"].own.content == 0


def test_a_shape_that_is_computed_on_a_device_is_read_from_there():
    text = """g (float[n] x, int64[1] s) => (y) {
        d = Add(s, s) q = Reshape(x, d) y = Neg(q) }"""
    pipeline, _ = opened(text, "far")
    (y,) = pipeline.run({"x": np.arange(4, dtype=f32), "s": np.array([2])})
    np.testing.assert_array_equal(y, -np.arange(4))
    assert verify(pipeline.plan()) == ()
    pipeline.close()


def test_a_value_that_a_device_computes_and_another_node_of_it_reads_on_the_host_is_copied():
    # The size is known, the values are not: the segment is cut for the copy between.
    table = definitions_table("far")

    @table.kernel("Pow", host_inputs=[1])
    def power(call):
        def run():
            call.output(0)[...] = call.input(0) ** call.input(1)

        return run

    from tests.core.toys import FAR

    far = Toy(table, device=FAR)
    source = model("g (float[2] x, float[1] s) => (y) { d = Add(s, s) y = Pow(x, d) }")
    pipeline = open_over(source, far)
    (y,) = pipeline.run({"x": np.array([2, 3], f32), "s": np.array([1], f32)})
    np.testing.assert_array_equal(y, [4, 9])
    plan = pipeline.plan()
    assert verify(plan) == ()
    assert [(t.value, str(t.target)) for t in plan.transfers] == [("d", "cpu:0")]
    pipeline.close()


def test_builds_for_sizes_found_at_run_are_few_and_closed():
    text = "g (float[n] x, int64[r] s) => (y) { y = Reshape(x, s) }"
    pipeline, made = opened(text, "a")
    for size in (1, 2, 3, 4, 6, 12):
        pipeline.run({"x": np.ones(12, f32), "s": np.array([size, -1])})
    assert made["a"].calls.open <= 4
    pipeline.close()
    assert made["a"].calls.open == 0


def test_a_kernel_that_gives_another_size_than_was_inferred_is_an_error():
    table = definitions_table("a", ops=("Abs",))
    table.simple("Neg")(lambda x: -x[:1])
    pipeline = open_over(
        model("g (float[n] x) => (y) { [odd] y = Neg(x) }"), Toy(table)
    )
    with pytest.raises(KernelError, match=r"node 'odd'.*the plan says float32\[3\]"):
        pipeline.run({"x": np.ones(3, f32)})
    pipeline.close()


# --- policies on seams ----------------------------------------------------------------


def test_a_plan_with_more_seams_than_allowed_is_refused_each_time_before_it_is_built():
    pipeline, made = opened(DYNAMIC, "a", max_seams=1)
    for _ in range(2):
        with pytest.raises(SeamError, match="max_seams=1"):
            pipeline.run({"x": np.ones(3, f32), "z": np.ones(3, f32)})
    assert made["a"].built == []
    pipeline.close()


def test_the_plan_of_a_rest_is_held_to_the_policy_with_the_seams_before_it():
    feeds, tail = {"x": np.ones(3, f32), "z": np.ones(3, f32)}, {"four": "b"}
    pipeline, _ = opened(DYNAMIC, "a", "b", pins=tail)
    pipeline.run(feeds)
    first = pipeline.runner.latest()
    inner = first.rest.latest().plan.seams
    before = len(first.plan.seams)
    pipeline.close()
    assert inner
    pipeline, _ = opened(DYNAMIC, "a", "b", pins=tail, max_seams=before)
    with pytest.raises(SeamError, match=f"max_seams={before}"):
        pipeline.run(feeds)
    pipeline.close()
    pipeline, _ = opened(DYNAMIC, "a", "b", pins=tail, max_seams=before + len(inner))
    pipeline.run(feeds)
    pipeline.close()
