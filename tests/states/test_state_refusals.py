"""What a state is refused for, and what a run that cannot have its memory leaves."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from tests.states.decoders import PROVIDERS, Appending, opened

from seamline.errors import FeedError, PlanError, SeamlineError
from seamline.feeds import FeedCheck
from seamline.states import State, StateError
from seamline.tensors import TensorType
from seamline_testing.twin.faults import Fault, Step


def refusal(text, *states, feeds=None, **chosen):
    """Give what opening, or the first run, is refused with."""
    with (
        pytest.raises(PlanError) as found,
        opened(text, states, **chosen) as session,
    ):
        session.run(feeds)
    return str(found.value)


CONCAT = """g (float[1,2,p,4] past, float[1,2,1,4] x) => (float[1,2,q,4] present)
    { present = Concat<axis = 2>(past, x) }"""
X = {"x": np.ones((1, 2, 1, 4), np.float32)}


def test_a_model_that_concatenates_is_told_how_to_be_exported():
    said = refusal(CONCAT, State("past", "present", 2, 8), feeds=X)
    assert "float32[1, 2, 9, 4] where it is float32[1, 2, 8, 4]" in said
    assert "(Concat)" in said
    assert "TensorScatter" in said


def test_an_output_that_is_not_written_over_its_input_names_the_node_and_the_remedy():
    text = """g (float[1,2,8,4] past, float[1,2,8,4] x) => (float[1,2,8,4] present)
        { present = Where(c, past, x) }"""
    more = "<bool c = {1}>"
    text = text.replace(
        "=> (float[1,2,8,4] present)", f"=> (float[1,2,8,4] present) {more}"
    )
    feeds = {"x": np.ones((1, 2, 8, 4), np.float32)}
    said = refusal(text, State("past", "present", 2, 8), feeds=feeds)
    assert (
        "does not write over an input" in said or "elsewhere than over 'past'" in said
    )


def test_a_state_that_is_read_after_it_is_written_is_refused():
    text = """g (float[1,2,8,4] past, float[1,2,1,4] x, int64[1] at)
        => (float[1,2,8,4] present, float[1,2,8,4] z)
        { present = TensorScatter(past, x, at)  z = Add(past, present) }"""
    feeds = {**X, "at": np.array([0])}
    said = refusal(text, State("past", "present", 2, 8, "at", 1), feeds=feeds)
    assert "elsewhere than over 'past'" in said
    assert "let readers take the output" in said


def test_a_state_that_is_read_in_a_body_is_refused():
    text = """g (float[1,2,8,4] past, float[1,2,1,4] x, int64[1] at, bool c)
        => (float[1,2,8,4] present, float[1,2,8,4] z)
        { present = TensorScatter(past, x, at)
          z = If(c) <then_branch = t () => (float[1,2,8,4] a) { a = Neg(present) },
                     else_branch = e () => (float[1,2,8,4] b) { b = Abs(present) }> }"""
    feeds = {**X, "at": np.array([0]), "c": np.array(True)}
    said = refusal(text, State("past", "present", 2, 8, "at", 1), feeds=feeds)
    assert "it is read inside" in said


def test_a_state_that_two_devices_read_is_refused():
    cache = Appending(8)
    text = cache.text.replace("=> (", "=> (float[1,2,8,64] w, ").replace(
        "at) }", "at)  w = LpNormalization<axis = 0>(present) }"
    )
    with (
        pytest.raises(PlanError, match="would be copied to cpu:0, whole, at each run"),
        opened(text, cache.states, "twin", also=("cpu",)) as session,
    ):
        session.run(cache.step(0))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            State("pasd", "present", 2, 8),
            "input 'pasd' is not in the model; did you mean 'past'",
        ),
        (State("past", "presen", 2, 8), "output 'presen' is not in the model"),
        (State("past", "present", 4, 8), "axis 4 is none of rank 4"),
        (State("past", "present", 1, 3), "axis 1 is 2 in the model and 3 in the state"),
        (State("past", "present", 2, 8, "x"), "lengths 'x' are float32"),
        (State("past", "present", 2, 8, "at"), "lengths 'at' is not in the model"),
        (
            State("past", "present", 2, 8, None, ("n", 0)),
            "plus 'n' is not in the model",
        ),
        (State("past", "present"), "axis 2 (p) has no size; give shape="),
        (State("past", "present", 2, 8, shape=(1, 2, 8)), "is none of rank 4"),
    ],
)
def test_a_state_that_does_not_fit_the_model_says_what_would(state, said):
    assert said in refusal(CONCAT, state, feeds=X)


def test_one_value_is_one_state():
    twice = [State("past", "present", 2, 8), State("past", "present", 2, 8)]
    assert "named by two states" in refusal(CONCAT, *twice, feeds=X)


@pytest.mark.parametrize(
    "given", [{"axis": 2}, {"room": 3}, {"axis": 2, "room": 0}, {"lengths": "at"}]
)
def test_a_state_that_contradicts_itself_is_refused_as_it_is_made(given):
    with pytest.raises(ValueError, match="state 'a'"):
        State("a", "b", **given)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_run_that_would_leave_the_room_is_refused_and_changes_nothing(provider):
    cache = Appending(8)
    with opened(cache.text, cache.states, provider) as session:
        session.run(cache.step(0, 7))
        before = session.states.facts()
        for at, count in ((7, 2), (8, 1), (-3, 1)):
            feeds = {**cache.step(0, count), "at": np.array([at])}
            with pytest.raises(
                StateError, match=r"its room is 8|a length of -2"
            ) as error:
                session.run(feeds)
            assert error.value.state == "past"
        assert session.states.facts() == before
        cache.drawn = np.random.default_rng(7)
        session.run(cache.step(0, 7))
        session.run(cache.step(7))
        cache.hold(session.states)


def test_a_state_is_neither_fed_nor_of_another_name():
    cache = Appending(8)
    with opened(cache.text, cache.states) as session:
        with pytest.raises(FeedError, match=r"'past' is a state.*states.write"):
            session.run({**cache.step(0), "past": cache.rows})
        with pytest.raises(FeedError, match=r"'x' is no state \(there are: past\)"):
            session.states.read("x")
        for wrong in (np.zeros((1, 2, 9, 64), np.float32), np.zeros((1, 2, 3, 64))):
            with pytest.raises(
                FeedError, match=r"float32\[1, 2, 8, 64\], or less along axis 2"
            ):
                session.states.write("past", wrong)
        with pytest.raises(ValueError, match="a length is 0 or more"):
            session.states.truncate(-1)


TWO = """g (float[1,1,64,1024] a, float[1,1,64,1024] b, float[1,1,1,1024] x, int64[1] at)
    => (float[1,1,64,1024] c, float[1,1,64,1024] d)
    { c = TensorScatter(a, x, at)  d = TensorScatter(b, x, at) }"""
BOTH = [State("a", "c", 2, 64, "at", 1), State("b", "d", 2, 64, "at", 1)]


def two(at):
    x = np.full((1, 1, 1, 1024), at + 1, np.float32)
    return {"x": x, "at": np.array([at])}


def held(states):
    return {n: (f["lengths"], f["granules"]) for n, f in states.facts().items()}


@pytest.mark.parametrize("step", [Step.CREATE, Step.MAP])
@pytest.mark.parametrize("nth", [1, 2])
def test_growth_of_several_states_is_all_of_it_or_none(step, nth):
    with opened(TWO, BOTH, "twin") as session:
        for at in range(16):
            session.run(two(at))
        memory = session.providers["twin"].memory()
        before, gauges = held(session.states), memory.gauges()
        faults = session.providers["twin"].faults
        faults.plan(Fault(step, nth))
        with pytest.raises(StateError) as error:
            session.run(two(16))
        assert error.value.state == "ab"[nth - 1]
        assert error.value.nbytes == 1 << 16
        assert "nothing was run" in str(error.value)
        faults.plan()
        assert (held(session.states), memory.gauges()) == (before, gauges)
        session.run(two(16))
        assert held(session.states)["b"] == ([17], 2)
        for name in "ab":
            got = session.states.read(name)
            np.testing.assert_array_equal(got[0, 0, :, 5], np.arange(1, 18))
        assert session.runner.built == 1


@pytest.mark.parametrize("provider", ["twin", "cuda"])
def test_a_device_that_is_full_says_what_is_free_and_runs_on_after_a_cut(provider):
    option, apart = {"twin": ("memory_limit", 1), "cuda": ("gpu_mem_limit", 16)}[
        provider
    ]
    granule = 1 << 16
    cache = Appending(64, heads=1, width=granule // 64 // apart, apart=apart)
    limit = {option: 3 * granule}  # one is for what is fed and given
    with opened(cache.text, cache.states, provider, options=limit) as session:
        for at in range(32):
            session.run(cache.step(at))
        feeds = {**cache.step(31), "at": np.array([32 * apart])}
        cache.drawn = np.random.default_rng(7)
        with pytest.raises(StateError, match=r"take \d+ bytes more") as error:
            session.run(feeds)
        assert error.value.nbytes == granule
        assert session.states.facts()["past"]["granules"] == 2
        session.states.truncate(16 * apart)
        cache.written[16 * apart :] = False
        session.run(cache.step(16))
        cache.hold(session.states)


@pytest.mark.parametrize(
    "step", [Step.RESERVE, Step.CREATE, Step.MAP, Step.ALLOCATE, Step.VIEW, Step.COPY]
)
def test_whatever_fails_once_a_later_run_is_right_and_nothing_is_left(step):
    failed = 0
    for nth in range(1, 40):
        cache = Appending(130)
        with opened(cache.text, cache.states, "twin") as session:
            faults = session.providers["twin"].faults
            faults.plan(Fault(step, nth))
            for at in (0, 1, 2, 100):
                feeds = cache.step(at)
                try:
                    session.run(feeds)
                except SeamlineError:
                    failed += 1
                    session.run(feeds)
            fired = bool(faults.fired)
            faults.plan()
            cache.hold(session.states)
        if not fired:
            break
    assert failed == nth - 1 > 0


def test_a_run_that_fails_leaves_the_lengths_of_the_one_before():
    cache = Appending(8)
    with opened(cache.text, cache.states, "twin") as session:
        session.run(cache.step(0))
        session.run(cache.step(1))
        faults = session.providers["twin"].faults
        faults.plan(Fault(Step.REPLAY, 1), Fault(Step.RUN, 1))
        feeds = cache.step(2)
        with pytest.raises(Exception, match="made to fail"):
            session.run(feeds)
        assert session.states.facts()["past"]["lengths"] == [2]
        session.run(feeds)
        cache.hold(session.states)


def test_a_reader_that_keeps_to_no_length_has_the_whole_room_zeroed_and_says_who():
    text = """g (float[1,1,64,1024] a, float[1,1,1,1024] x, int64[1] at)
        => (float[1,1,64,1024] c, float s)
        { c = TensorScatter(a, x, at)  s = ReduceSum<keepdims = 0>(c) }"""
    for provider in ("cpu", "twin"):
        with opened(text, BOTH[:1], provider) as session:
            for total, at in ((1.0, 0), (3.0, 1)):
                (s,) = session.run(two(at))
                assert s == 1024 * total
            facts = session.states.facts()["a"]
            assert facts["committed_nbytes"] == facts["room_nbytes"]
            assert "(ReduceSum by" in facts["whole"]
            assert facts["whole"] in str(session.explain())
            session.states.reset()
            assert session.run(two(0))[0] == 1024


def test_a_plan_with_states_is_compared_and_printed():
    cache = Appending(8)
    with opened(cache.text, cache.states) as session:
        plan = session.plan({"x": (1, 2, 3, 64)})
        assert set(plan.states.values()) == {"past"}
        assert {name for name, _ in plan.states} == {"past", "present"}
        assert attrs.evolve(plan) == plan
        assert session.states.facts()["past"]["place"] is None
        assert "no place yet" in str(session.explain())


def test_lengths_that_lie_on_a_device_are_refused_before_anything_runs():
    class Far:
        """A tensor on the emulated device, as another library lends one."""

        def __init__(self, view):
            self.view = view

        @property
        def __cuda_array_interface__(self):
            return self.view.__cuda_array_interface__

    cache = Appending(8)
    with opened(cache.text, cache.states, "cuda") as session:
        session.run(cache.step(0))
        memory = session.providers["cuda"].memory()
        buffer = memory.allocate(8)
        view = memory.view(buffer, 0, TensorType("int64", (1,)))
        memory.write(view, np.array([1]))
        kinds = {name: session.types[name] for name in ("x", "at")}
        check = FeedCheck(kinds, memories=session.engine.memories)
        feeds = check({**cache.step(1), "at": Far(view)})
        with pytest.raises(
            StateError, match="lengths 'at' lie on cuda:0; feed them from"
        ):
            session.run(feeds)
        buffer.close()
        assert session.states.facts()["past"]["lengths"] == [1]
