"""Sessions record by themselves: what is replayed, recorded again, or left, and why."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import model

from seamline.errors import CaptureMismatchError, RecordingError
from seamline.pipeline import Pipeline
from seamline.planned import SeamCause
from seamline_testing.twin import Fault, Faults, How, Step
from seamline_testing.twin.plugin import TwinPlugin
from seamline_testing.twin.streams import Operation

f32 = np.float32
CHAIN = """g (float[n] x) => (y) {
    [a] a = Neg(x) [b] b = Abs(a) [c] c = Add(b, x) [d] y = Mul(c, c) }"""
X = np.array([1, -2, 3, -4], f32)


class Session:
    def __init__(self, text=CHAIN, *, faults=None, plugin=None, **options):
        self.faults = faults or Faults()
        self.plugin = plugin or TwinPlugin(self.faults)
        self.pipeline = Pipeline.open(
            model(text),
            providers=["twin", "cpu"],
            plugins=[self.plugin],
            **options,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pipeline.close()
        assert self.plugin.made[0].left == 0

    def run(self, x=X):
        (y,) = self.pipeline.run({"x": x})
        return y

    def right(self, x=X):
        np.testing.assert_array_equal(self.run(x), (np.abs(x) + x) ** 2)

    @property
    def counts(self):
        return {
            s: self.faults.counts.get(s, 0)
            for s in (Step.RUN, Step.RECORD, Step.REPLAY)
        }

    def captures(self):
        plan = self.pipeline.explain().data["plan"]
        return {s["nodes"][0]: s["capture"] for s in plan["segments"]}


def test_a_segment_runs_once_is_recorded_at_its_second_run_and_then_only_replayed():
    with Session() as session:
        session.right()
        assert session.counts == {Step.RUN: 1, Step.RECORD: 0, Step.REPLAY: 0}
        assert session.captures()["a"]["state"] == "waiting"
        for scale in (2, -3, 0.5):
            session.right(X * f32(scale))
        assert session.counts == {Step.RUN: 1, Step.RECORD: 1, Step.REPLAY: 3}
        assert session.captures()["a"] == {
            "state": "recorded", "why": "", "events": ["recorded"], "left": {},
        }  # fmt: skip
        assert ", recorded" in str(session.pipeline.explain())


def test_a_session_told_not_to_record_only_runs():
    with Session(record=False) as session:
        for _ in range(3):
            session.right()
        assert session.counts == {Step.RUN: 3, Step.RECORD: 0, Step.REPLAY: 0}
        assert session.captures() == {"a": None}


def test_each_shape_signature_has_a_recording_of_its_own():
    with Session() as session:
        for size in (4, 7, 4, 7, 4, 7):
            session.right(np.arange(size, dtype=f32) - 3)
        assert session.counts == {Step.RUN: 2, Step.RECORD: 2, Step.REPLAY: 4}


def test_recordings_of_programs_that_fall_out_of_the_cache_are_given_back():
    with Session(programs=1) as session:
        for size in (4, 4, 7, 7, 4, 4):
            session.right(np.arange(size, dtype=f32) - 3)
        assert session.counts[Step.RECORD] == 3


def test_a_recording_whose_host_input_changed_is_made_anew_and_says_so():
    text = "g (float[2,2] x, int64 k) => (y) { [a] a = Neg(x) [b] y = Trilu(a, k) }"
    x = np.arange(1, 5, dtype=f32).reshape(2, 2)
    with Session(text) as session:
        for k in (0, 0, 0, 1, 1, 0):
            (y,) = session.pipeline.run({"x": x, "k": np.array(k)})
            np.testing.assert_array_equal(y, np.triu(-x, k))
        (capture,) = session.captures().values()
        assert capture["state"] == "recorded"
        first, *others = capture["events"]
        assert first == "recorded"
        assert others[1::2] == ["recorded again"] * 2
        assert all("host input 'k' is baked into it" in lost for lost in others[::2])
        assert session.counts == {Step.RUN: 1, Step.RECORD: 3, Step.REPLAY: 5}


class Bent:
    """A twin's segment whose recordings are refused at some nodes, or keep old values."""

    def __init__(self, made, refused, baked):
        self.made, self.refused, self.baked = made, refused, baked

    def __getattr__(self, name):
        return getattr(self.made, name)

    def record(self):
        for node in self.made.spec.nodes:
            if node.name in self.refused:
                why, segment = "it allocates", self.made.spec.name
                raise RecordingError(
                    why, provider="twin", segment=segment, node=node.name
                )
        recording = self.made.record()
        for index, node in enumerate(self.made.spec.nodes):
            if node.name in self.baked:
                operations = list(recording.operations)
                operations[index] = self._stale(operations[index], node)
                recording.operations = tuple(operations)
        return recording

    def _stale(self, operation, node):
        machine, out = self.made.machine, self.made.bound[node.node.outputs[0]]
        with machine.shown():
            kept = machine.array(out.place, out.kind).copy()

        def work():
            machine.array(out.place, out.kind)[...] = kept

        return Operation(
            operation.what,
            work,
            operation.reads,
            operation.writes,
            named=operation.named,
        )


def bend(session, *, refused=(), baked=()):
    twin = session.plugin.made[0]
    build = twin.build
    twin.build = lambda *given: Bent(build(*given), refused, baked)


def test_a_node_that_makes_recording_fail_is_cut_out_and_the_rest_is_recorded():
    with Session() as session:
        bend(session, refused=["b"])
        for _ in range(2):
            session.right()
        assert session.captures()["a"]["state"] == "eager"
        assert "node 'b'" in session.captures()["a"]["why"]
        for scale in (2, -1, 3):
            session.right(X * f32(scale))
        plan = session.pipeline.runner.latest().plan
        assert [s.nodes for s in plan.segments] == [("a",), ("b",), ("c", "d")]
        causes = {seam.cause for seam in plan.seams}
        assert causes == {SeamCause.RECORDING_FAILED}
        assert all("'b': it allocates" in seam.why for seam in plan.seams)
        captures = session.captures()
        assert captures["a"]["state"] == captures["c"]["state"] == "recorded"
        assert captures["b"] is None
        node = session.pipeline.explain().data["plan"]["nodes"]["b"]
        assert "it allocates" in node["not_capturable"]


def test_several_nodes_that_make_recording_fail_are_cut_out_one_by_one():
    with Session() as session:
        bend(session, refused=["a", "c"])
        for _ in range(8):
            session.right()
        plan = session.pipeline.runner.latest().plan
        assert [s.nodes for s in plan.segments] == [("a",), ("b",), ("c",), ("d",)]
        states = {n: c and c["state"] for n, c in session.captures().items()}
        assert states == {"a": None, "b": "recorded", "c": None, "d": "recorded"}


def test_what_is_quarantined_stays_so_for_other_sizes():
    with Session() as session:
        bend(session, refused=["b"])
        session.right()
        session.right()
        session.right(np.arange(9, dtype=f32))
        plan = session.pipeline.runner.latest().plan
        assert [s.nodes for s in plan.segments] == [("a",), ("b",), ("c", "d")]


def test_a_recording_that_is_none_leaves_the_segment_running():
    with Session(faults=Faults(Fault(Step.RECORD, 1, How.GARBAGE))) as session:
        for _ in range(3):
            session.right()
        assert session.counts == {Step.RUN: 3, Step.RECORD: 1, Step.REPLAY: 0}
        assert "NoneType without replay" in session.captures()["a"]["why"]


def test_a_body_and_a_rest_are_recorded_too():
    text = """g (float[n] x, bool c, int64[k] s) => (y, z) {
        [r] r = Reshape(x, s)
        [z] z = Neg(r)
        y = If(c) <then_branch = t () => (p) { [p] p = Neg(x) },
                   else_branch = e () => (q) { [q] q = Abs(x) }> }"""
    with Session(text) as session:
        for turn in range(6):
            feeds = {
                "x": X * f32(turn),
                "c": np.array(turn % 2 == 0),
                "s": np.array([2, 2]),
            }
            y, z = session.pipeline.run(feeds)
            np.testing.assert_array_equal(
                y, -feeds["x"] if turn % 2 == 0 else abs(feeds["x"])
            )
            np.testing.assert_array_equal(z, -feeds["x"].reshape(2, 2))
        assert session.counts[Step.RECORD] >= 3


# --- verify_capture -------------------------------------------------------------------


def test_verified_replays_are_as_many_as_asked_for_and_the_results_stay_right():
    with Session(verify_capture=2) as session:
        for scale in (1, 2, 3, 4, 5):
            session.right(X * f32(scale))
        assert session.captures()["a"]["events"] == ["recorded", "verified", "verified"]
        # A warm-up; two verified runs, each with inputs as fed and rotated; two replays.
        assert session.counts == {Step.RUN: 5, Step.RECORD: 1, Step.REPLAY: 6}


def test_a_replay_that_keeps_an_old_value_is_found_and_its_node_named():
    with Session(verify_capture=1) as session:
        bend(session, baked=["b"])
        session.right()
        with pytest.raises(CaptureMismatchError, match="differs too") as caught:
            session.run()
        assert caught.value.node == "b"
        assert caught.value.provider == "twin"
        session.right(X * f32(3))
        plan = session.pipeline.runner.latest().plan
        assert [s.nodes for s in plan.segments] == [("a",), ("b",), ("c", "d")]


def test_without_verification_such_a_replay_would_be_wrong():
    with Session() as session:
        bend(session, baked=["b"])
        session.right()
        assert not np.array_equal(session.run(), (np.abs(X) + X) ** 2)


def test_a_random_node_is_left_out_of_verification_and_that_is_said():
    text = "g (float[n] x) => (y) { [r] r = Neg(x) [b] y = Dropout(r) }"
    with Session(text, verify_capture=1) as session:
        for _ in range(3):
            np.testing.assert_array_equal(session.run(), -X)
        (capture,) = session.captures().values()
        assert "'b' (Dropout) is random" in capture["events"][1]
