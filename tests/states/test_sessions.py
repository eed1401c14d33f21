"""States through the front door: what is fed, given, bound, explained and opened anew."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import ALONE, model
from tests.states.decoders import PLUGINS, Appending

import seamline
from seamline import InferenceSession, SessionOptions, State
from seamline.errors import FeedError


def opened(cache, **chosen):
    chosen.setdefault("states", cache.states)
    return InferenceSession(
        model(cache.text, 24), providers=["cpu"], settings=ALONE, plugins=PLUGINS, **chosen
    )  # fmt: skip


def test_a_state_is_neither_an_input_nor_an_output_of_a_run():
    cache = Appending(8)
    with opened(cache) as session:
        assert [arg.name for arg in session.get_inputs()] == ["x", "at"]
        assert [arg.name for arg in session.get_outputs()] == ["z"]
        feeds = cache.step(0, 3)
        (z,) = session.run(None, feeds)
        np.testing.assert_array_equal(z, -feeds["x"])
        with pytest.raises(FeedError, match="past"):
            session.run(None, {**cache.step(3), "past": cache.rows})


def test_a_state_that_is_asked_for_is_a_copy_of_its_live_part():
    cache = Appending(8)
    with opened(cache) as session:
        present, z = session.run(["present", "z"], cache.step(0, 3))
        np.testing.assert_array_equal(present, z)
        present[...] = 0
        np.testing.assert_array_equal(session.states.read("past"), z)


def test_options_carry_states_as_well():
    cache = Appending(8)
    options = SessionOptions(states=cache.states)
    with opened(cache, sess_options=options, states=()) as session:
        session.run(None, cache.step(0))
        assert list(session.states) == ["past"]


def test_bound_runs_leave_states_where_they_are():
    cache = Appending(8)
    with opened(cache) as session:
        binding = session.io_binding()
        binding.bind_output("z")
        for at in range(3):
            feeds = cache.step(at)
            for name, array in feeds.items():
                binding.bind_cpu_input(name, array)
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], -feeds["x"])
        cache.hold(session.states)


def test_an_explanation_shows_place_room_live_and_committed():
    cache = Appending(512)
    with opened(cache) as session:
        session.run(None, cache.step(0, 3))
        said = session.explain().data["states"]["past"]
        assert (said["room"], said["lengths"], said["granules"]) == (512, [3], 2)
        text = str(session.explain())
        assert "state      past -> present: float32[1, 2, 512, 64], room 512" in text
        assert "live 3 (1.5 KiB), 128.0 KiB committed in 2 granules of 64.0 KiB" in text
        assert session.explain().to_html()


def test_sizes_that_the_model_leaves_open_come_from_free_dimensions_or_the_state():
    text = (
        Appending(8)
        .text.replace("float[1,2,8,64]", "float[b,2,r,64]")
        .replace("int64[1]", "int64[b]")
        .replace("float[1,2,n,64]", "float[b,2,n,64]")
    )
    cache = Appending(8)
    cache.text = text
    options = SessionOptions()
    options.add_free_dimension_override_by_name("b", 1)
    shaped = [State("past", "present", 2, 8, "at", ("x", 2), shape=(1, 2, 8, 64))]
    for chosen in ({"sess_options": options}, {"states": shaped}):
        with opened(cache, **chosen) as session:
            session.run(None, cache.step(0, 3))
            assert session.states.facts()["past"]["type"] == "float32[1, 2, 8, 64]"


def test_other_providers_begin_with_empty_states():
    cache = Appending(8)
    with opened(cache) as session:
        session.run(None, cache.step(0, 3))
        session.set_providers(["twin"])
        assert session.states.facts()["past"]["place"] is None
        session.run(None, cache.step(0))
        cache.hold(session.states)


def test_two_sessions_of_a_process_have_states_of_their_own():
    one, other = Appending(8), Appending(8)
    with opened(one) as first, opened(other) as second:
        first.run(None, one.step(0, 3))
        second.run(None, other.step(0, 5))
        first.run(None, one.step(3))
        one.hold(first.states)
        other.hold(second.states)


def test_a_session_without_states_has_none():
    cache = Appending(8)
    with opened(cache, states=()) as session:
        assert not session.states
        past = np.zeros((1, 2, 8, 64), np.float32)
        present, _ = session.run(None, {**cache.step(0), "past": past})
        np.testing.assert_array_equal(present, cache.rows)
        assert isinstance(seamline.StateError("a", "b"), seamline.RunError)
