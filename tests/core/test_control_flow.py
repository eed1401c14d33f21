"""If and Loop, with bodies on any provider."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import model, open_over, ran, toys

from seamline.errors import KernelError

f32 = np.float32
WHERE = [{}, {"Add": "far", "Mul": "b"}, {"Add": "b", "Neg": "far"}]
everywhere = pytest.mark.parametrize("pins", WHERE, ids=["one", "far", "mixed"])


def check(got, *wanted):
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        other = np.asarray(other)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def vector(*values):
    return np.array(values, f32)


def pinned(text, pins):
    """Leave out pins whose operator the model does not have."""
    return {op: who for op, who in pins.items() if f"{op}(" in text}


def run(text, pins=None, **feeds):
    return ran(text, feeds, pinned(text, pins or {}))


# --- If -------------------------------------------------------------------------------

IF = """g (bool c, float[2] x) => (y, z) <float[2] w = {10, 20}> {
    a = Neg(x)
    b = Add(a, w)
    y, z = If(c) <
        then_branch = t () => (p, q) { p = Mul(b, x) q = Add(p, w) },
        else_branch = e () => (a, b) { unused = Neg(a) }>
}"""


@everywhere
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_an_if_runs_the_branch_that_one_boolean_chooses(pins, shape):
    x = vector(1, -2)
    b = -x + vector(10, 20)
    check(run(IF, pins, c=np.full(shape, True), x=x), b * x, b * x + vector(10, 20))
    check(run(IF, pins, c=np.full(shape, False), x=x), -x, b)


def test_a_condition_of_several_elements_names_the_node():
    text = IF.replace("bool c", "bool[2] c").replace("y, z = If", "[choice] y, z = If")
    with pytest.raises(KernelError, match=r"node 'choice'.*2 elements"):
        run(text, c=np.array([True, False]), x=vector(1, 2))


def test_a_branch_may_give_one_value_twice_and_both_are_the_callers():
    text = """g (bool c, float[2] x) => (y, z) {
        y, z = If(c) <
            then_branch = t () => (p, p) { p = Neg(x) },
            else_branch = e () => (x, x) { }>
    }"""
    for c, wanted in ((True, vector(-1, -2)), (False, vector(1, 2))):
        y, z = run(text, c=np.array(c), x=vector(1, 2))
        assert not np.may_share_memory(y, z)
        check([y, z], wanted, wanted)


def test_branches_may_give_different_sizes():
    text = """g (bool c, float[2] x, float[3] w) => (z) {
        y = If(c) <
            then_branch = t () => (p) { p = Neg(x) },
            else_branch = e () => (q) { q = Neg(w) }>
        z = Neg(y)
    }"""
    x, w = vector(1, 2), vector(3, 4, 5)
    check(run(text, c=np.array(True), x=x, w=w), x)
    check(run(text, c=np.array(False), x=x, w=w), w)


@everywhere
def test_what_is_two_bodies_out_is_read_where_it_lies(pins):
    text = """g (bool c, bool d, float[2] x) => (y) <float[2] w = {10, 20}> {
        a = Add(x, w)
        y = If(c) <
            then_branch = t () => (p) {
                m = Mul(a, x)
                p = If(d) <
                    then_branch = tt () => (u) { u = Add(m, a) },
                    else_branch = te () => (v) { v = Mul(m, w) }>
            },
            else_branch = e () => (q) { q = Neg(a) }>
    }"""
    x, w = vector(1, -2), vector(10, 20)
    a = x + w
    flags = {"c": np.array(True), "d": np.array(True)}
    check(run(text, pins, x=x, **flags), a * x + a)
    check(run(text, pins, x=x, **{**flags, "d": np.array(False)}), a * x * w)
    check(run(text, pins, x=x, **{**flags, "c": np.array(False)}), -a)


# --- Loop -----------------------------------------------------------------------------

LOOP = """g (int64 n, bool go, float[2] x) => (last, rows) <float[2] w = {1, 2}> {
    last, rows = Loop(n, go, x) <body = b (int64 i, bool c, float[2] s) => (d, t, r) {
        d = Identity(c) t = Add(s, w) r = Mul(t, t) }>
}"""


def loop(turns, x=(0, 1)):
    values = [vector(*x)]
    for _ in range(turns):
        values.append(values[-1] + vector(1, 2))
    rows = [value * value for value in values[1:]]
    return values[-1], np.array(rows, f32).reshape(turns, 2)


@everywhere
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_loop_runs_its_count(pins, turns):
    got = run(LOOP, pins, n=np.array(turns), go=np.array(True), x=vector(0, 1))
    check(got, *loop(turns))


def test_a_loop_whose_condition_is_false_at_once_runs_no_turn():
    check(run(LOOP, n=np.array(9), go=np.array(False), x=vector(0, 1)), *loop(0))


def test_a_count_may_be_an_array_of_one():
    text = LOOP.replace("int64 n", "int64[1] n").replace("bool go", "bool[1] go")
    check(run(text, n=np.array([2]), go=np.array([True]), x=vector(0, 1)), *loop(2))


def test_a_loop_without_a_count_runs_until_its_condition_is_false():
    text = """g (bool go, float[1] x) => (last, rows) <float[1] w = {1}, float[1] top = {4}> {
        last, rows = Loop("", go, x) <body = b (int64 i, bool c, float[1] s) => (d, t, r) {
            t = Add(s, w) d = Less(t, top) r = Identity(t) }>
    }"""
    got = run(text, go=np.array(True), x=vector(0))
    check(got, vector(4), vector(1, 2, 3, 4).reshape(4, 1))


def test_a_body_reads_its_turn():
    text = """g (int64 n, float[1] x) => (last) {
        last = Loop(n, "", x) <body = b (int64 i, bool c, float[1] s) => (d, t) {
            d = Identity(c) f = Cast<to = 1>(i) t = Add(s, f) }>
    }"""
    check(run(text, n=np.array(4), x=vector(0)), vector(0 + 1 + 2 + 3))


def test_carried_values_may_be_swapped_by_a_body():
    text = """g (int64 n, float[1] x, float[1] z) => (p, q) {
        p, q = Loop(n, "", x, z) <
            body = b (int64 i, bool c, float[1] s, float[1] t) => (d, t, s) {
                d = Identity(c) }>
    }"""
    for turns in range(4):
        got = run(text, n=np.array(turns), x=vector(1), z=vector(2))
        check(
            got, *([vector(1), vector(2)] if turns % 2 == 0 else [vector(2), vector(1)])
        )


def test_a_body_may_give_an_outer_value_as_what_is_carried():
    text = """g (int64 n, float[1] x, float[1] z) => (p) {
        w = Neg(z)
        p = Loop(n, "", x) <body = b (int64 i, bool c, float[1] s) => (d, w) {
            d = Identity(c) }>
    }"""
    check(run(text, n=np.array(0), x=vector(1), z=vector(2)), vector(1))
    check(run(text, n=np.array(2), x=vector(1), z=vector(2)), vector(-2))


def test_carried_values_may_grow():
    text = """g (int64 n, float[a] x) => (last) {
        last = Loop(n, "", x) <body = b (int64 i, bool c, float[k] s) => (d, t) {
            d = Identity(c) t = Concat<axis = 0>(s, s) }>
    }"""
    check(run(text, n=np.array(3), x=vector(1, 2)), np.tile(vector(1, 2), 8))


def test_a_sequence_may_be_carried():
    text = """g (int64 n, float[2] x) => (whole, count) {
        start = SequenceEmpty()
        last = Loop(n, "", start) <body = b (int64 i, bool c, seq(float[2]) s) => (d, t) {
            d = Identity(c) f = Cast<to = 1>(i) v = Add(x, f) t = SequenceInsert(s, v) }>
        whole = ConcatFromSequence<axis = 0, new_axis = 1>(last)
        count = SequenceLength(last)
    }"""
    got = run(text, n=np.array(3), x=vector(0, 10))
    check(got, np.array([[0, 10], [1, 11], [2, 12]], f32), np.array(3))


def test_a_body_may_read_a_sequence_around_it():
    text = """g (int64 n, float[2] x) => (last) {
        s = SequenceConstruct(x, x)
        last = Loop(n, "", x) <body = b (int64 i, bool c, float[2] v) => (d, t) {
            d = Identity(c) e = SequenceAt(s, i) t = Add(v, e) }>
    }"""
    check(run(text, n=np.array(2), x=vector(1, 2)), vector(3, 6))


def test_a_branch_may_give_a_sequence_around_it():
    text = """g (bool c, float[2] x) => (count) {
        s = SequenceConstruct(x, x)
        r = If(c) <
            then_branch = t () => (s) { },
            else_branch = e () => (q) { q = SequenceConstruct(x) }>
        count = SequenceLength(r)
    }"""
    check(run(text, c=np.array(True), x=vector(1, 2)), np.array(2))
    check(run(text, c=np.array(False), x=vector(1, 2)), np.array(1))


def test_a_branch_may_read_a_value_whose_size_was_found_by_running():
    text = """g (bool c, float[4] x) => (y) {
        n = NonZero(x)
        y = If(c) <
            then_branch = t () => (p) { p = Add(n, n) },
            else_branch = e () => (n) { }>
    }"""
    x = vector(0, 5, 0, 7)
    check(run(text, c=np.array(True), x=x), np.array([[2, 6]]))
    check(run(text, c=np.array(False), x=x), np.array([[1, 3]]))


def test_a_failure_in_a_body_names_the_node_in_it():
    text = """g (int64 n, float[2] x, int64[1] s) => (last) {
        last = Loop(n, "", x) <body = b (int64 i, bool c, float[2] v) => (d, t) {
            d = Identity(c) [inner] t = Reshape(v, s) }>
    }"""
    with pytest.raises(KernelError, match="inner") as caught:
        run(text, n=np.array(2), x=vector(1, 2), s=np.array([3]))
    assert caught.value.node == "inner"


def test_a_body_is_planned_once_for_turns_of_one_size():
    made = toys()
    pipeline = open_over(model(LOOP), made["a"])
    feeds = {"n": np.array(5), "go": np.array(True), "x": vector(0, 1)}
    for _ in range(3):
        check(pipeline.run(feeds), *loop(5))
    program = pipeline.runner.latest()
    (bodies,) = program.bodies.values()
    assert bodies["body"].built == 1
    pipeline.close()
