"""
Copies that recordings take in: feeds, results and what lies between two recordings.

Over the simulated device, whose host cannot touch its pages: a value that was neither
staged nor copied is poison, or ends the process.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.testing.twin.test_chains import PATIENCE, AwkwardPlugin, Opened, X, f32

from seamline.errors import CaptureMismatchError, KernelError, RecordingError
from seamline_testing.twin import Fault, Faults, How, Step

LIMIT = {"edge_limit": 1 << 16}
ALONE = "g (float[n] x) => (y) { [a] a = Neg(x) [b] y = Abs(a) }"


def edges_of(opened):
    return {edge["id"]: edge for edge in opened.said()["edges"]}


def calls(opened, monkeypatch):
    """Count a memory's writes and reads from now on."""
    memory, made = opened.twin.memory(), []
    for name in ("write", "read"):
        real = getattr(memory, name)

        def noting(*given, real=real, name=name):
            made.append(name)
            return real(*given)

        monkeypatch.setattr(type(memory), name, staticmethod(noting))
    return made


# --- right, and by rooms only ---------------------------------------------------------


def test_feeds_and_results_of_a_recorded_segment_go_by_its_rooms(monkeypatch):
    with Opened(ALONE, pins={}, asked=LIMIT) as opened:
        for scale in (1, 2):
            (y,) = opened.run(X * f32(scale))
            np.testing.assert_array_equal(y, np.abs(X * f32(scale)))
        made = calls(opened, monkeypatch)
        for scale in (3, -4, 5):
            (y,) = opened.run(X * f32(scale))
            np.testing.assert_array_equal(y, np.abs(X * f32(scale)))
        assert made == []
        monkeypatch.undo()
        said = edges_of(opened)
        assert set(said) == {"x:cpu:0->twin:0", "y:twin:0->cpu:0"}
        assert {one["unit"] for one in said.values()} == {"twin:a"}
        explained = opened.pipeline.explain()
        assert "in the recording of twin:a" in str(explained)
        assert explained.to_html().count("Copies inside recordings") == 1


@pytest.mark.parametrize("form", ["eager", "mailbox", "host_node"])
def test_excursions_and_what_is_around_them_are_right_and_verified(form, monkeypatch):
    with Opened(asked=LIMIT, seam_form=form, verify_capture=2) as opened:
        for scale in (1, 2, -1, 3, -0.5):
            opened.right(X * f32(scale))
        program = opened.pipeline.runner.latest()
        units = [*program.chains.values(), *program.captured.values()]
        recorded = [one for one in units if one.recording is not None]
        assert recorded
        for one in recorded:
            assert one.events == ["recorded", "verified", "verified"]
        made = calls(opened, monkeypatch)
        opened.right(X * f32(7))
        assert made == []
        monkeypatch.undo()


def test_a_copy_above_the_limit_goes_as_before_and_has_no_edge():
    with Opened(ALONE, pins={}, asked={"edge_limit": 15}) as opened:
        for scale in (1, 2, 3):
            (y,) = opened.run(X * f32(scale))
            np.testing.assert_array_equal(y, np.abs(X * f32(scale)))
        assert not edges_of(opened)


def test_what_is_in_a_recording_was_decided_by_the_plan_before_anything_ran():
    with Opened(asked=LIMIT, seam_form="eager") as opened:
        plan = opened.pipeline.plan({"x": (4,)})
        assert [(e.value, e.inward, e.unit) for e in plan.edges] == [
            ("x", True, "twin:a"), ("b", True, "twin:c"), ("d", True, "twin:e"),
            ("a", False, "twin:a"), ("c", False, "twin:c"),
            ("y", False, "twin:e"), ("z", False, "twin:e"),
        ]  # fmt: skip


def test_a_value_that_a_body_may_read_first_on_the_device_has_no_edge():
    text = """g (float[n] x, bool c) => (y) {
        [r] p = If(c) <then_branch = t () => (p) { [tp] p = Neg(x) },
                       else_branch = e () => (q) { [eq] q = Abs(x) }>
        [s] q = Neg(x) [t] y = Add(p, q) }"""
    with Opened(text, pins={}, asked=LIMIT) as opened:
        for c in (True, False, True, True):
            (y,) = opened.pipeline.run({"x": X, "c": np.array(c)})
            np.testing.assert_array_equal(y, (-X if c else np.abs(X)) - X)
        assert not [e for e in opened.plan.edges if e.value == "x"]


def test_a_body_of_control_flow_has_edges_of_its_own():
    text = """g (float[n] x, int64 k) => (y) <bool t = {1}> {
        y = Loop(k, t, x) <body = b (int64 i, bool c, float[n] s) => (bool d, float[n] r) {
            d = Identity(c) [n] u = Neg(s) [m] r = Add(u, u) }> }"""
    with Opened(text, pins={}, asked=LIMIT) as opened:
        for k in (3, 4, 1):
            (y,) = opened.pipeline.run({"x": X, "k": np.array(k)})
            np.testing.assert_array_equal(y, X * f32((-2) ** k))


# --- coming and going -----------------------------------------------------------------


def test_a_run_that_is_profiled_runs_its_nodes_over_what_was_staged():
    class Silent:
        def event(self, *given):
            pass

    for form in ("eager", "mailbox"):
        with Opened(asked=LIMIT, seam_form=form) as opened:
            for scale, profile in enumerate(
                (None, None, None, Silent(), None, Silent())
            ):
                x = X * f32(scale + 1)
                y, _ = opened.pipeline.run({"x": x}, profile=profile)
                np.testing.assert_array_equal(y, (-x) * (np.abs(x) - x))


def test_a_recording_that_no_longer_holds_is_made_anew_with_what_was_staged():
    with Opened(ALONE, pins={}, asked=LIMIT) as opened:
        for scale in (1, 2, 3):
            opened.run(X * f32(scale))
        (captured,) = opened.pipeline.runner.latest().captured.values()
        captured.executable.binding += 1  # as another binding would
        (y,) = opened.run(X * f32(9))
        np.testing.assert_array_equal(y, np.abs(X) * 9)
        assert captured.events[-1] == "recorded again"
        (y,) = opened.run(X * f32(-3))
        np.testing.assert_array_equal(y, np.abs(X) * 3)


def test_a_recording_that_is_given_up_leaves_its_feeds_on_the_device():
    with Opened(ALONE, pins={}, asked=LIMIT) as opened:
        for scale in (1, 2, 3):
            opened.run(X * f32(scale))
        (captured,) = opened.pipeline.runner.latest().captured.values()
        record = opened.twin.record_chain

        def refuse(spec):
            raise RecordingError("not today", provider="twin")

        opened.twin.record_chain = refuse
        captured.executable.binding += 1
        (y,) = opened.run(X * f32(9))
        np.testing.assert_array_equal(y, np.abs(X) * 9)
        assert captured.state == "recorded"
        assert "copies are in no recording: not today" in captured.events
        opened.twin.record_chain = record
        (y,) = opened.run(X * f32(4))
        np.testing.assert_array_equal(y, np.abs(X) * 4)


class Wrong:
    """A recording that is wrong at one of its edges."""

    def __init__(self, inner, *, stale):
        self.inner, self.is_stale = inner, stale
        # Rooms that nothing is copied from.
        rooms = [room.copy() for room in inner.inward]
        self.inward = rooms if stale else inner.inward

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def given(self):
        self.inner.given()
        if not self.is_stale:
            self.inner.outward[0][0] += 1


@pytest.mark.parametrize("stale", [True, False])
def test_an_edge_that_is_wrong_is_found_by_verification_and_the_run_goes_on(stale):
    with Opened(ALONE, pins={}, asked=LIMIT, verify_capture=1) as opened:
        record = opened.twin.record_chain
        opened.twin.record_chain = lambda spec: Wrong(record(spec), stale=stale)
        opened.run()
        with pytest.raises(CaptureMismatchError):
            opened.run()
        (y,) = opened.run(X * f32(2))
        np.testing.assert_array_equal(y, np.abs(X) * 2)


def test_rooms_that_are_not_those_that_were_asked_for_leave_the_segment_unrecorded():
    with Opened(ALONE, pins={}, asked=LIMIT) as opened:
        record = opened.twin.record_chain

        def fewer(spec):
            made = record(spec)
            made.edges.rooms_in = ()
            return made

        opened.twin.record_chain = fewer
        for scale in (1, 2, 3):
            (y,) = opened.run(X * f32(scale))
            np.testing.assert_array_equal(y, np.abs(X) * scale)
        (captured,) = opened.pipeline.runner.latest().captured.values()
        assert captured.state == "eager"
        assert "with rooms [] inward" in captured.why


# --- what goes wrong ------------------------------------------------------------------


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_replay_that_fails_is_raised_where_its_result_is_read(nth):
    faults = Faults(Fault(Step.REPLAY, nth, How.FAIL))
    with Opened(ALONE, pins={}, faults=faults, asked=LIMIT) as opened:
        for scale in range(1, nth + 1):
            opened.run(X * f32(scale))
        with pytest.raises(KernelError, match=f"replay number {nth} was made to fail"):
            opened.run()
        for scale in (5, 6):
            (y,) = opened.run(X * f32(scale))
            np.testing.assert_array_equal(y, np.abs(X) * scale)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_read_that_fails_while_rooms_are_filled_keeps_no_recording(nth, monkeypatch):
    text = "g (float[n] x, float[n] w) => (y) { [a] y = Add(x, w) }"
    with Opened(text, pins={}, asked=LIMIT) as opened:
        feeds = {"x": X, "w": X * f32(2)}

        def right():
            np.testing.assert_array_equal(opened.pipeline.run(feeds)[0], X * f32(3))

        right()
        kind = type(opened.twin.memory())
        real, left = kind.read, [nth]

        def failing(self, source, target):
            left[0] -= 1
            if not left[0]:
                raise KernelError("made to fail")
            return real(self, source, target)

        monkeypatch.setattr(kind, "read", failing)
        with pytest.raises(KernelError, match="made to fail"):
            right()
        (captured,) = opened.pipeline.runner.latest().captured.values()
        assert captured.recording is None
        assert all(staged.room is None for staged in captured.edges.inward)
        right()
        right()
        assert captured.events == ["recorded"]


def test_sessions_with_edges_run_side_by_side():
    errors = []

    def several(opened, scale):
        try:
            for turn in range(12):
                opened.right(X * f32(scale * (turn + 1)))
        except Exception as error:
            errors.append(error)

    with (
        Opened(asked=LIMIT, seam_form="eager") as one,
        Opened(asked=LIMIT, seam_form="mailbox") as other,
    ):
        threads = [
            threading.Thread(target=several, args=given)
            for given in ((one, 2), (other, -3), (one, 5))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert not errors


def test_a_host_that_fails_between_two_recordings_leaves_both_usable():
    def fail():
        raise ZeroDivisionError("no such luck")

    for form in ("eager", "mailbox"):
        host = AwkwardPlugin(fail, due=6)
        with Opened(host=host, asked=LIMIT, seam_form=form) as opened:
            opened.right()
            opened.right()
            with pytest.raises(KernelError, match="no such luck"):
                opened.run()
            for scale in (2, 3):
                opened.right(X * f32(scale))


def test_calls_that_have_a_deadline_are_made_for_rooms_as_well():
    with Opened(asked=LIMIT, seam_form="eager", deadline=5.0) as opened:
        for scale in (1, 2, 3, 4):
            opened.right(X * f32(scale))
        assert edges_of(opened)
