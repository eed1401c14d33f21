"""Copies that recordings take in, on a device: right at every size, failure and end."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="the extra 'cuda' is not installed")

from tests.core.toys import ALONE, model
from tests.gpu.test_seams import PINS, TEXT, Opened, f32, values

import seamline_cpu.plugin
import seamline_cuda.plugin
from seamline.devices import Gauges
from seamline.errors import KernelError, SeamlineError
from seamline.pipeline import Pipeline
from seamline_cuda import edges

ALONE_TEXT = "g (float[n] x) => (float[n] y) { [a] a = Neg(x) [b] y = Abs(a) }"
#: Six values each way, of which some are odd in size, or large, or bytes.
MANY = """g (float[n] a, float[n] b, int8[3] c, float16[5] d, float[6000] e, float[3] f)
    => (u, v, w, x, y, z) { u = Neg(a) v = Neg(b) w = Neg(c) x = Neg(d) y = Neg(e) z = Neg(f) }"""


class Session:
    """A session over the device alone; closed with nothing left."""

    def __init__(self, text=ALONE_TEXT, *, limit=None, **chosen):
        asked = {} if limit is None else {"edge_limit": limit}
        self.pipeline = Pipeline.open(
            model(text, 23),
            providers=[("cuda", asked), "cpu"],
            plugins=[seamline_cuda.plugin, seamline_cpu.plugin],
            settings=ALONE,
            **chosen,
        )
        self.memory = self.pipeline.providers["cuda"].memory()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pipeline.close()
        assert self.memory.gauges() == Gauges()

    def right(self, x):
        (y,) = self.pipeline.run({"x": x})
        np.testing.assert_array_equal(y, np.abs(x))

    @property
    def captured(self):
        (captured,) = self.pipeline.runner.latest().captured.values()
        return captured


def test_feeds_and_results_are_right_at_every_size_and_verified():
    with Session(verify_capture=1) as opened:
        for size in (1, 3, 4, 1023, 4096, 5000, 32768):
            for scale in (1, -2, 3, 4):
                opened.right(values(size, scale))
            assert opened.captured.events == ["recorded", "verified"]
            assert len(opened.captured.recording.inward) == 1


def test_many_values_odd_ones_and_large_ones_are_all_taken_in():
    rng = np.random.default_rng(3)
    with Session(MANY, verify_capture=1) as opened:
        for turn in range(4):
            feeds = {
                "a": values(9, turn), "b": values(9, -turn),
                "c": rng.integers(-9, 9, 3).astype(np.int8),
                "d": rng.standard_normal(5).astype(np.float16),
                "e": values(6000, turn + 1), "f": values(3, turn),
            }  # fmt: skip
            for got, fed in zip(
                opened.pipeline.run(feeds), feeds.values(), strict=True
            ):
                np.testing.assert_array_equal(got, -fed)
        recording = opened.captured.recording
        assert (len(recording.inward), len(recording.outward)) == (6, 6)


@pytest.mark.parametrize("form", ["eager", "mailbox", "host_node"])
def test_what_lies_between_two_recordings_goes_by_their_rooms(form):
    with Opened(TEXT, pins=PINS, seam_form=form, verify_capture=1) as opened:
        for size in (8, 700):
            for scale in (1, 2, -3, 4):
                opened.right(values(size, scale))
        plan = opened.pipeline.explain().data["plan"]
        assert plan["edges"]
        assert {edge["value"] for edge in plan["edges"]} >= {"x", "y", "z"}


def test_copies_of_recordings_are_counted_with_their_bytes():
    with Session() as opened:
        for _ in range(3):
            opened.right(values(100))
        before = dict(opened.memory.transfers.counts())
        for _ in range(5):
            opened.right(values(100))
        after = opened.memory.transfers.counts()
        for way in ("in", "out"):
            assert after[f"copies_{way}"] - before[f"copies_{way}"] == 5
            assert after[f"bytes_{way}"] - before[f"bytes_{way}"] == 5 * 400
        opened.captured.close()
        assert opened.memory.transfers.counts() == after


def test_values_above_the_limit_and_recordings_without_edges_copy_as_before():
    with Session(limit=399) as opened:
        for _ in range(3):
            opened.right(values(100))
        assert not opened.pipeline.runner.latest().plan.edges
    with Session(limit=0) as opened:
        for _ in range(3):
            opened.right(values(1))
        assert not opened.pipeline.runner.latest().plan.edges


def test_replays_are_counted_anew_before_their_word_is_full():
    with Session() as opened:
        for _ in range(3):
            opened.right(values(8))
        shared = opened.captured.recording.edges
        shared.memory.synchronize()
        # As it is after so many replays.
        shared.launched = shared._read = edges._LAST
        shared._taken.value = shared._given.value = edges._LAST
        for scale in (1, 2, 3):
            opened.right(values(8, scale))
        assert shared.launched == 3


def test_a_feed_that_does_not_fit_its_place_is_refused_and_the_session_goes_on():
    with Session() as opened:
        for _ in range(3):
            opened.right(values(8))
        with pytest.raises(SeamlineError, match="float64"):
            opened.pipeline.run({"x": values(8).astype(np.float64)})
        opened.right(values(8, 2))


def test_the_next_values_wait_until_a_long_replay_has_taken_the_last():
    """Nothing goes to the host, so a run returns while its work is in flight."""
    text = "g (float[n] x) => (float[200000] y) { [a] a = Neg(x) [b] y = Expand(a, s) }"
    text = text.replace(
        "=> (float[200000] y)", "=> (float[200000] y) <int64[1] s = {200000}>"
    )
    with Session(text) as opened:
        for turn in range(6):
            (y,) = opened.pipeline.run({"x": values(1, turn)})
            np.testing.assert_array_equal(y, np.full(200000, 3.0 * turn, f32))
        recording = opened.captured.recording
        assert (len(recording.inward), len(recording.outward)) == (1, 0)


def test_data_that_a_kernel_refuses_is_raised_where_the_result_is_read():
    text = """g (float[4,3] x, int64[2] i) => (float[2,3] y) { t = Neg(x)
        [pick] y = Gather(t, i) }"""
    with Session(text) as opened:
        x = np.arange(12, dtype=f32).reshape(4, 3)

        def right():
            (y,) = opened.pipeline.run({"x": x, "i": np.array([3, 0])})
            np.testing.assert_array_equal(y, -x[[3, 0]])

        for _ in range(3):
            right()
        with pytest.raises(KernelError) as caught:
            opened.pipeline.run({"x": x, "i": np.array([0, 99])})
        assert caught.value.node == "pick"
        right()


def test_a_closed_recording_gives_its_rooms_back_and_is_made_anew():
    with Session() as opened:
        for scale in (1, 2, 3):
            opened.right(values(8, scale))
        held = opened.memory.gauges().content
        opened.captured.executable.binding += 1  # as another binding would
        opened.right(values(8, 5))
        assert opened.captured.events[-1] == "recorded again"
        assert opened.memory.gauges().content == held
        opened.right(values(8, 6))


@pytest.mark.hardware("the order of memory between two chips is not emulated")
@pytest.mark.parametrize("size", [16, 1024, 4096, 20000])
def test_thousands_of_replays_each_take_and_give_the_newest_values(size):
    with Session() as opened:
        base = values(size)
        for turn in range(3000):
            opened.right(base * f32(1 + turn % 97))
        assert opened.captured.state == "recorded"
