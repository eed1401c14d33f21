"""Sessions with states over three providers: grown under one recording, and given back."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tests.core.toys import model
from tests.cuda.emulation.mapped import GRANULE
from tests.states.decoders import (
    PROVIDERS,
    Appending,
    Attending,
    Grouped,
    captured,
    opened,
)


def cache_for(provider, **chosen):
    """Give a cache of 320 steps, of which a granule of each head takes 64."""
    apart = 16 if provider == "cuda" else 1  # each element is a call of Python there
    return Appending(320, apart=apart, width=GRANULE // 256 // apart, **chosen)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_three_hundred_steps_over_four_boundaries_are_one_recording(provider):
    cache = cache_for(provider)
    grown = set()
    with opened(cache.text, cache.states, provider) as session:
        for at in range(300):
            feeds = cache.step(at)
            (z,) = session.run(feeds)
            np.testing.assert_array_equal(z, -feeds["x"])
            if at in (0, 63, 64, 65, 127, 128, 200, 299):
                facts = session.states.facts()["past"]
                want = cache.committed(cache.live, facts["granule"])
                assert facts["committed_nbytes"] == want
                assert facts["lengths"] == [cache.live]
                cache.hold(session.states)
                grown.add(facts["granules"])
        assert session.runner.built == 1
        (segment,) = captured(session)
        assert (segment.state, segment.events) == ("recorded", ["recorded"])
        assert len(grown) == 5
        assert facts["granule"] == GRANULE


@pytest.mark.parametrize("provider", PROVIDERS)
def test_eager_and_recorded_steps_leave_the_same_bytes(provider):
    left = []
    for record in (False, True):
        cache = cache_for(provider)
        with opened(cache.text, cache.states, provider, record=record) as session:
            for at in range(70):
                session.run(cache.step(at))
            states = [segment.state for segment in captured(session)]
            assert (states == ["recorded"]) is record
            cache.hold(session.states)
            left.append(
                session.states.read("present")[:, :, cache.written[: cache.live]]
            )
    assert left[0].tobytes() == left[1].tobytes()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_second_generation_is_as_the_first_and_begins_with_no_pages(provider):
    cache = cache_for(provider)
    with opened(cache.text, cache.states, provider) as session:
        for _ in range(2):
            for at in range(0, 70, 3):
                session.run(cache.step(at))
            cache.hold(session.states)
            session.states.reset()
            cache.forget()
            facts = session.states.facts()["past"]
            assert (facts["lengths"], facts["committed_nbytes"]) == ([0], 0)
            assert session.states.read("past").shape[2] == 0
        assert session.runner.built == 1
        assert [s.events for s in captured(session)] == [["recorded"]]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_verified_replays_leave_a_state_as_one_run_would(provider):
    cache = cache_for(provider)
    with opened(cache.text, cache.states, provider, verify_capture=6) as session:
        for at in range(60, 72):
            session.run(cache.step(at))
        (segment,) = captured(session)
        assert segment.events == ["recorded", *["verified"] * 6]
        cache.hold(session.states)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_prompts_and_steps_are_two_programs_over_one_place(provider):
    cache = cache_for(provider)
    with opened(cache.text, cache.states, provider) as session:
        session.run(cache.step(0, 30))
        place = session.states.facts()["past"]["place"]
        for at in range(60, 70):
            session.run(cache.step(at))
        assert session.runner.built == 2
        assert session.states.facts()["past"]["place"] == place
        cache.hold(session.states)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_is_cut_gives_its_pages_back_and_is_written_anew(provider):
    cache = cache_for(provider)
    with opened(cache.text, cache.states, provider) as session:
        for at in (0, 70, 130):
            session.run(cache.step(at))
        before = session.states.facts()["past"]["granules"]
        cut = 10 * cache.apart
        session.states.truncate(cut)
        facts = session.states.facts()["past"]
        assert facts["committed_nbytes"] == cache.committed(cut, facts["granule"])
        assert facts["granules"] < before
        assert facts["lengths"] == [cut]
        cache.written[cut:] = False
        for at in range(10, 80, 2):
            session.run(cache.step(at))
        cache.hold(session.states)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_value_handed_in_is_what_the_next_run_goes_on_from(provider):
    cache = cache_for(provider)
    batch, heads, _, width = cache.sizes
    sizes = batch, heads, 66 * cache.apart, width
    given = np.random.default_rng(1).standard_normal(sizes).astype(np.float32)
    with opened(cache.text, cache.states, provider) as session:
        session.states.write("past", given)
        np.testing.assert_array_equal(session.states.read("past"), given)
        cache.rows[:, :, : sizes[2]] = given
        cache.written[: sizes[2]] = True
        session.run(cache.step(66))
        cache.hold(session.states)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_sequences_of_other_lengths_have_pages_of_their_own(provider):
    cache = cache_for(provider, batch=2)
    with opened(cache.text, cache.states, provider) as session:
        for at in range(0, 70, 3):
            feeds = cache.step(at)
            feeds["at"] = np.array([at, at // 4]) * cache.apart
            session.run(feeds)
        facts = session.states.facts()["past"]
        lengths = [69 * cache.apart + 1, 17 * cache.apart + 1]
        assert facts["lengths"] == lengths
        assert facts["committed_nbytes"] == cache.committed(lengths, facts["granule"])
        got = session.states.read("past")
        seen = cache.written[: lengths[0]]
        np.testing.assert_array_equal(
            got[0][:, seen], cache.rows[0, :, : lengths[0]][:, seen]
        )
        assert not got[1, :, lengths[1] :].any()
        np.testing.assert_array_equal(got[1, :, lengths[1] - 1], -feeds["x"][1, :, 0])


@pytest.mark.parametrize("provider", ["cpu", "twin"])
def test_attention_reads_as_far_as_lengths_say_across_boundaries(provider):
    steps = (250, *[1] * 12, 240, *[1] * 12)
    decoder = Attending(1200)
    with opened(decoder.text, decoder.states, provider, verify_capture=2) as session:
        for generation in range(2):
            for count in steps:
                feeds, want = decoder.step(count)
                (z,) = session.run(feeds)
                np.testing.assert_allclose(z, want, rtol=2e-5, atol=2e-6)
            facts = session.states.facts()
            assert {f["whole"] for f in facts.values()} == {""}
            assert facts["pk"]["lengths"] == facts["pv"]["lengths"] == [sum(steps)]
            assert facts["pk"]["granules"] > decoder.kept
            assert facts["pk"]["granules"] < facts["pk"]["room_nbytes"] / (1 << 16)
            np.testing.assert_array_equal(session.states.read("pk"), decoder.keys)
            np.testing.assert_array_equal(session.states.read("yv"), decoder.values)
            session.states.reset()
            decoder.reset()
            assert generation < 2
        assert session.runner.built == len(set(steps))


def test_grouped_attention_keeps_its_caches_in_place_though_their_size_is_fed():
    decoder = Grouped(1200)
    source = model(decoder.text, 24)
    source.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    with opened(source, decoder.states, verify_capture=2) as session:
        for _ in range(2):
            for count in (250, *[1] * 12):
                feeds, want = decoder.step(count)
                (z,) = session.run(feeds)
                np.testing.assert_allclose(z, want, rtol=2e-5, atol=2e-6)
            facts = session.states.facts()
            assert {f["whole"] for f in facts.values()} == {""}
            assert [f["granules"] for f in facts.values()] == [4, 4]
            np.testing.assert_array_equal(session.states.read("pk"), decoder.keys)
            session.states.reset()
            decoder.reset()
        assert session.runner.built == 2


def test_attention_on_the_device_does_not_touch_what_has_no_pages():
    decoder = Attending(96, heads=1, kept=1, width=256)  # 64 tokens fill a granule
    with opened(decoder.text, decoder.states, "cuda") as session:
        for _ in range(3):
            feeds, want = decoder.step()
            (z,) = session.run(feeds)
            np.testing.assert_allclose(z, want, rtol=2e-5, atol=2e-6)
        facts = session.states.facts()
        assert [facts[name]["granules"] for name in ("pk", "pv")] == [1, 1]
        assert {f["whole"] for f in facts.values()} == {""}
        np.testing.assert_array_equal(session.states.read("pk"), decoder.keys)
        assert [s.events for s in captured(session)] == [["recorded"]]


def test_what_lies_past_the_live_part_is_not_read():
    decoder = Attending(600)
    with opened(decoder.text, decoder.states) as session:
        feeds, _ = decoder.step(5)
        session.run(feeds)
        for name in ("pk", "pv"):
            place = session.states.place(name)
            kept, spoilt = place.saved(), place.saved()
            spoilt[...] = 0xFF  # NaN, which no weight of zero makes good
            place.restore(spoilt)
            place.write(place.spread(kept)[:, :, :5])
        for _ in range(6):
            feeds, want = decoder.step()
            (z,) = session.run(feeds)
            np.testing.assert_allclose(z, want, rtol=2e-5, atol=2e-6)
