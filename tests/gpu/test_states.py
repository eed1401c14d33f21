"""States on a GPU: its own granule, kernels compiled, recordings that outlive growth."""

from __future__ import annotations

import numpy as np
import pytest
from tests.states.decoders import Appending, Attending, Grouped, captured, opened

from seamline.states import StateError


def test_three_hundred_steps_over_four_boundaries_are_one_recording():
    cache = Appending(320, apart=1024, width=8)
    grown = set()
    with opened(cache.text, cache.states, "cuda", emulates=False) as session:
        for at in range(300):
            feeds = cache.step(at)
            (z,) = session.run(feeds)
            np.testing.assert_array_equal(z, -feeds["x"])
            facts = session.states.facts()["past"]
            want = cache.committed(cache.live, facts["granule"])
            assert facts["committed_nbytes"] == want
            if facts["granules"] not in grown or at % 60 == 7:
                cache.hold(session.states)
            grown.add(facts["granules"])
        assert sorted(grown) == [2, 4, 6, 8, 10]
        assert session.runner.built == 1
        assert [s.events for s in captured(session)] == [["recorded"]]


@pytest.mark.parametrize("kind", [Attending, Grouped])
@pytest.mark.parametrize("record", [False, True])
def test_attention_reads_across_boundaries_in_two_generations(record, kind):
    decoder = kind(16384, heads=8, kept=2, width=128)  # 4096 tokens fill a granule
    with opened(
        decoder.source, decoder.states, "cuda", emulates=False, record=record
    ) as session:
        for _ in range(2):
            for count in (4090, *[1] * 12, 4080, *[1] * 12):
                feeds, want = decoder.step(count)
                (z,) = session.run(feeds)
                np.testing.assert_allclose(z, want, rtol=2e-5, atol=5e-6)
            facts = session.states.facts()
            assert {f["whole"] for f in facts.values()} == {""}
            assert [f["granules"] for f in facts.values()] == [6, 6]
            np.testing.assert_array_equal(session.states.read("pk"), decoder.keys)
            session.states.reset()
            decoder.reset()
        assert session.runner.built == 3


def test_verified_replays_leave_a_state_as_one_run_would():
    cache = Appending(320, apart=1024, width=8)
    with opened(
        cache.text, cache.states, "cuda", emulates=False, verify_capture=6
    ) as session:
        for at in range(60, 72):
            session.run(cache.step(at))
        assert [s.events for s in captured(session)] == [
            ["recorded", *["verified"] * 6]
        ]
        cache.hold(session.states)


def test_a_limit_that_is_reached_is_an_error_before_anything_runs():
    cache = Appending(64, heads=1, apart=1024, width=32)
    limit = {"gpu_mem_limit": 3 * (2 << 20)}
    with opened(
        cache.text, cache.states, "cuda", emulates=False, options=limit
    ) as session:
        for at in range(32):
            session.run(cache.step(at))
        feeds = {**cache.step(31), "at": np.array([32 * cache.apart])}
        with pytest.raises(StateError, match=r"take 2097152 bytes more"):
            session.run(feeds)
        session.states.truncate(16 * cache.apart)
        cache.written[16 * cache.apart :] = False
        session.run(cache.step(16))
        cache.hold(session.states)
