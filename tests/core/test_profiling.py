"""Profiles: a Chrome trace that Perfetto opens, whole or not there at all."""

import gc
import json
import threading
import time

import numpy as np
import pytest
from tests.core.arithmetic import open_session
from tests.core.toys import model, open_over, toys

from seamline.errors import RunError
from seamline.profiling import Profile
from seamline.session_options import SessionOptions

MODEL = "g (float[N] x) => (float[N] y) { t = Mul(x, x)  y = Add(t, x) }"


def profiled(tmp_path, **chosen):
    options = SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    return open_session(MODEL, options, **chosen)


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def complete(events, category):
    return [e for e in events if e["ph"] == "X" and e["cat"] == category]


def test_a_session_writes_an_event_for_every_node_of_every_run(tmp_path):
    session = profiled(tmp_path)
    for _ in range(3):
        session.run(None, {"x": np.ones(4, np.float32)})
    events = read(session.end_profiling())

    nodes = complete(events, "Node")
    assert [e["args"]["op_name"] for e in nodes] == ["Mul", "Add"] * 3
    assert all(e["name"].endswith("_kernel_time") for e in nodes)
    assert all(e["args"]["provider"] == "arithmetic" for e in nodes)
    said = [e["name"] for e in complete(events, "Session")]
    assert said.count("model_run") == 3
    assert said.count("session_initialization") == 1


def test_nodes_lie_within_their_run_on_the_time_axis(tmp_path):
    session = profiled(tmp_path)
    session.run(None, {"x": np.ones(4, np.float32)})
    events = read(session.end_profiling())
    (run,) = [e for e in events if e["name"] == "model_run"]
    for node in complete(events, "Node"):
        assert run["ts"] <= node["ts"]
        assert node["ts"] + node["dur"] <= run["ts"] + run["dur"]
        assert node["dur"] >= 0


def test_profiling_ends_once(tmp_path):
    session = profiled(tmp_path)
    session.end_profiling()
    with pytest.raises(RunError, match="profiling is not on"):
        session.end_profiling()
    session.run(None, {"x": np.ones(1, np.float32)})
    assert len(list(tmp_path.iterdir())) == 1


def test_profiling_that_was_not_asked_for_has_no_file():
    with open_session(MODEL) as session:
        assert session.get_profiling_start_time_ns() == 0
        with pytest.raises(RunError, match="enable_profiling"):
            session.end_profiling()


def test_the_start_is_on_the_clock_of_the_events(tmp_path):
    before = time.perf_counter_ns()
    session = profiled(tmp_path)
    assert before <= session.get_profiling_start_time_ns() <= time.perf_counter_ns()
    session.close()


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_a_session_that_goes_away_leaves_its_profile(tmp_path, how):
    session = profiled(tmp_path)
    session.run(None, {"x": np.ones(1, np.float32)})
    if how == "closed":
        session.close()
    del session
    gc.collect()
    (path,) = tmp_path.iterdir()
    assert complete(read(path), "Node")


def test_a_model_that_does_not_open_leaves_no_profile(tmp_path):
    with pytest.raises(Exception, match="no kernel for Add"):
        profiled(tmp_path, providers=("lesser",))
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_every_thread_has_a_name(tmp_path):
    profile = Profile("unused")
    for name in ("first", "second"):
        thread = threading.Thread(
            target=profile.event, args=("e", "Node", 0, 1, {}), name=name
        )
        thread.start()
        thread.join()
    profile.event("e", "Node", 0, 1, {})
    events = read(profile.write(tmp_path / "t.json"))
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    used = {e["tid"] for e in complete(events, "Node")}
    assert used == set(named)
    assert threading.current_thread().name in named.values()


def test_any_argument_can_be_written(tmp_path):
    profile = Profile("unused")
    odd = {
        "nan": float("nan"),
        "array": np.float32(1.5),
        "set": {2, 1},
        "path": tmp_path,
        3: 4,
    }
    profile.event("e", "Node", 0, 1, odd)
    profile.event("e", "Node", 0, 1, {"size": np.int64(7), "set": {2, 1}})
    first, second = complete(read(profile.write(tmp_path / "t.json")), "Node")
    assert first["args"]["nan"] == "nan"
    assert second["args"] == {"size": 7, "set": [1, 2]}


def test_events_past_the_limit_are_counted_in_the_file(tmp_path):
    profile = Profile("unused", max_events=2)
    for _ in range(5):
        profile.event("e", "Node", 0, 1, {})
    events = read(profile.write(tmp_path / "t.json"))
    assert len(complete(events, "Node")) == 2
    (told,) = [e for e in events if e["name"] == "dropped_events"]
    assert told["args"]["name"] == "3"


def test_two_profiles_of_one_second_do_not_meet(tmp_path):
    profile = Profile(str(tmp_path / "p"))
    assert len({profile.write() for _ in range(3)}) == 3


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    profile = Profile("unused")
    profile.event("e", "Node", 0, 1, {})

    def fail(self, file):
        file.write("half of")
        raise OSError("the disk is full")

    monkeypatch.setattr(Profile, "_dump", fail)
    with pytest.raises(OSError, match="the disk is full"):
        profile.write(tmp_path / "t.json")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Profile("unused").write(tmp_path / "nowhere" / "t.json")


def test_a_block_that_raises_is_timed_all_the_same():
    profile = Profile("unused")
    with pytest.raises(ZeroDivisionError), profile.span("work"):
        _ = 1 / 0
    assert len(profile) == 1


def test_a_segment_is_timed_until_its_device_is_done(tmp_path):
    made = toys()
    far = open_over(model("g (float[2] x) => (float[2] y) { y = Neg(x) }"), made["far"])
    far.run({"x": np.ones(2, np.float32)}, profile=Profile(str(tmp_path / "trace")))
    names = made["far"].own.calls.names
    assert names.count("synchronize") == 1
    assert names.index("write") < names.index("synchronize") < names.index("read")
    far.close()
