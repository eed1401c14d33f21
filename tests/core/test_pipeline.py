"""The stages together: threads, failures, fallback, defaults, and whose arrays are whose."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.core.failing_toys import TEXT, OddError, Raw, failing_table, wanted
from tests.core.toy_kernels import definitions_table
from tests.core.toys import FAR, Toy, model, open_over, toys

from seamline.errors import (
    BuildError,
    KernelError,
)
from seamline.kernels import KernelTable
from seamline.provider import Claim

f32 = np.float32
# --- whose arrays are whose -----------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "far"])
def test_two_runs_give_arrays_that_nothing_shares(name):
    pipeline = open_over(model(TEXT), toys()[name])
    x = np.array([1, -2, 3], f32)
    (first,) = pipeline.run({"x": x})
    kept = first.copy()
    (second,) = pipeline.run({"x": 10 * x})
    np.testing.assert_array_equal(first, kept)
    assert not np.may_share_memory(first, second)
    first[...] = 0
    np.testing.assert_array_equal(pipeline.run({"x": 10 * x})[0], second)
    np.testing.assert_array_equal(x, [1, -2, 3])
    pipeline.close()


def test_an_output_asked_for_twice_is_given_twice():
    pipeline = open_over(model(TEXT), toys()["a"])
    one, other = pipeline.run({"x": np.ones(2, f32)}, ["y", "y"])
    np.testing.assert_array_equal(one, other)
    assert not np.may_share_memory(one, other)
    pipeline.close()


def test_feeds_of_any_layout_are_read_as_what_they_say():
    pipeline = open_over(
        model("g (float[a, b] x) => (y) { y = Neg(x) }"), toys()["far"]
    )
    whole = np.arange(24, dtype=f32).reshape(4, 6)
    for x in (whole.T, whole[::-1, ::2], np.broadcast_to(whole[:1], (3, 6))):
        np.testing.assert_array_equal(pipeline.run({"x": x})[0], -x)
    pipeline.close()


# --- threads --------------------------------------------------------------------------


def test_four_threads_may_run_one_session_with_different_shapes():
    made = toys({"a": ["two"]})
    pipeline = open_over(model(TEXT), made["a"], made["far"])
    problems = []

    def work(number):
        try:
            for turn in range(12):
                x = np.arange(number + turn % 3 + 1, dtype=f32) - number
                np.testing.assert_array_equal(pipeline.run({"x": x})[0], wanted(x))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipeline.close()
    assert problems == []
    assert made["far"].own.content == 0


# --- failures name their place, and the session goes on -------------------------------


@pytest.mark.parametrize("device", [None, FAR])
@pytest.mark.parametrize(("at", "kind"), [("bind", BuildError), ("run", KernelError)])
def test_a_failure_names_provider_segment_and_node_and_the_session_stays_usable(
    at, kind, device
):
    table, switch = failing_table("a", at=at)
    toy = Toy(table, **({"device": device} if device else {}))
    pipeline = open_over(model(TEXT), toy)
    x = np.array([1, -2], f32)
    for _ in range(2):
        with pytest.raises(kind, match="Abs: not today") as caught:
            pipeline.run({"x": x})
        error = caught.value
        assert (error.provider, error.segment, error.node) == ("a", "a:one", "two")
        assert isinstance(error.__cause__, OddError)
    switch["on"] = False
    np.testing.assert_array_equal(pipeline.run({"x": x})[0], wanted(x))
    pipeline.close()
    assert toy.calls.open == 0


@pytest.mark.parametrize(("at", "kind"), [("build", BuildError), ("run", KernelError)])
def test_an_error_that_names_nothing_is_given_its_provider_and_segment(at, kind):
    raw = Raw(definitions_table("a"))
    raw.fails = at
    pipeline = open_over(model(TEXT), raw)
    with pytest.raises(kind, match="OddError: not today") as caught:
        pipeline.run({"x": np.ones(2, f32)})
    assert (caught.value.provider, caught.value.segment) == ("a", "a:one")
    raw.fails = ""
    assert pipeline.run({"x": np.ones(2, f32)})[0].tolist() == [2, 2]
    pipeline.close()


def test_an_arena_that_cannot_be_had_is_a_build_error():
    far = toys()["far"]
    pipeline = open_over(model(TEXT), far)
    far.calls.fail_at = len(far.calls.names)
    with pytest.raises(BuildError, match="allocate"):
        pipeline.run({"x": np.ones(2, f32)})
    assert pipeline.run({"x": np.ones(2, f32)})[0].tolist() == [2, 2]
    pipeline.close()
    assert far.own.content == 0


# --- defaults that may be fed ---------------------------------------------------------


def test_a_default_holds_until_it_is_fed_and_again_afterwards():
    text = """g (float[2] x, float[2] w, float[2] v) => (y)
    <float[2] w = {1, 2}, float[2] v = {10, 20}> { a = Add(x, w) y = Add(a, v) }"""
    for name in ("a", "far"):
        made = toys()[name]
        pipeline = open_over(model(text), made)
        x, other = np.zeros(2, f32), np.array([5, 6], f32)
        for _ in range(2):
            assert pipeline.run({"x": x})[0].tolist() == [11, 22]
            assert pipeline.run({"x": x, "w": other})[0].tolist() == [15, 26]
            assert pipeline.run({"x": x, "v": other})[0].tolist() == [6, 8]
            assert pipeline.run({"x": x, "v": other, "w": other})[0].tolist() == [
                10,
                12,
            ]
        pipeline.close()
        assert made.calls.open == 0


def test_a_default_that_is_an_output_comes_back_as_fed():
    text = (
        "g (float[2] x, float[2] w) => (y, w) <float[2] w = {1, 2}> { y = Add(x, w) }"
    )
    pipeline = open_over(model(text), toys()["a"])
    x, other = np.zeros(2, f32), np.array([5, 6], f32)
    assert pipeline.run({"x": x})[1].tolist() == [1, 2]
    assert pipeline.run({"x": x, "w": other})[1].tolist() == [5, 6]
    pipeline.close()


def test_a_default_that_sizes_depend_on_may_be_fed():
    text = (
        "g (float[6] x, int64[2] s) => (y) <int64[2] s = {2, 3}> { y = Reshape(x, s) }"
    )
    pipeline = open_over(model(text), toys()["a"])
    x = np.arange(6, dtype=f32)
    assert pipeline.run({"x": x})[0].shape == (2, 3)
    assert pipeline.run({"x": x, "s": np.array([3, 2])})[0].shape == (3, 2)
    pipeline.close()


# --- opening and closing --------------------------------------------------------------


def test_closing_twice_does_nothing_and_closes_everything_once():
    made = toys()
    pipeline = open_over(model(TEXT), made["a"], made["far"])
    pipeline.run({"x": np.ones(2, f32)})
    pipeline.close()
    pipeline.close()
    assert made["a"].is_closed
    assert made["far"].is_closed
    assert made["a"].calls.open == 0


def test_a_claim_with_aliases_past_a_nodes_outputs_is_taken():
    # A kernel declares them for its whole form; this node leaves parts out.
    table = KernelTable("a")

    class Wide(Toy):
        def claim(self, node):
            said = super().claim(node)
            return Claim("wide", aliases=((3, 4),)) if isinstance(said, Claim) else said

    table.simple("Neg")(lambda x: -x)
    pipeline = open_over(model("g (float[2] x) => (y) { y = Neg(x) }"), Wide(table))
    assert pipeline.run({"x": np.ones(2, f32)})[0].tolist() == [-1, -1]
    pipeline.close()
