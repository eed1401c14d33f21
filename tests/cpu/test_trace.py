"""A profile of a recorded segment: kernel time, barriers and uneven shares, node by node."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from tests.core.toys import model

import seamline
from seamline.errors import KernelError
from seamline.pipeline import Pipeline
from seamline_cpu.atomics import longs
from seamline_cpu.commands import bind, command
from seamline_cpu.trace import Share, TracedList, facts_of, is_traced_here

pytestmark = pytest.mark.skipif(
    not is_traced_here(), reason="compiled code reads Python's clock on Linux only"
)
TEXT = """g (float[3,600] x, int64[1] i) => (y) {
    [a] a = Neg(x) [s] s = Asinh(a) [b] b = Abs(s) [n] n = Identity(b) [c] c = Gather(n, i)
    [d] y = Exp(c) }"""


class Events:
    """Keeps a profile's events by name."""

    def __init__(self):
        self.nodes = {}

    def event(self, name, category, start, end, args):
        if category == "Node":
            self.nodes[name.removesuffix("_kernel_time")] = (start, end, args)


def traced(threads=1, i=1):
    pipeline = Pipeline.open(model(TEXT), providers=[("cpu", {"num_threads": threads})])
    x = np.random.default_rng(0).standard_normal((3, 600)).astype(np.float32)
    want = pipeline.run({"x": x, "i": np.array([1])})
    events = Events()
    inputs = {"x": x, "i": np.array([i])}
    before = time.perf_counter_ns()
    got = pipeline.runner.run(inputs, {}, events)["y"]
    return events.nodes, before, time.perf_counter_ns(), got, want[0]


def test_each_node_is_in_the_profile_in_order_and_the_result_is_the_same():
    nodes, before, after, got, want = traced()
    assert got.tobytes() == want.tobytes()
    assert set(nodes) == set("asbncd")
    times = [nodes[name][:2] for name in "asbcd"]
    flat = [t for pair in times for t in pair]
    assert flat == sorted(flat)
    assert before <= flat[0] <= flat[-1] <= after


def test_commands_say_how_their_time_was_spent_and_python_does_not():
    nodes, *_ = traced()
    for name in "abcd":
        facts = nodes[name][2]
        assert facts["shares"] == facts["commands"] == 1
        assert facts["kernel_us"] > 0
        assert facts["barrier_us"] >= 0
        assert facts["imbalance"] == 0
    assert "kernel_us" not in nodes["s"][2]
    assert nodes["n"][0] == nodes["n"][1]


def test_an_index_outside_is_an_error_of_its_node_under_a_profile_too():
    with pytest.raises(KernelError, match="index 3 is out of bounds") as caught:
        traced(i=3)
    assert caught.value.node == "c"


@command
def count_down(a, share, shares):
    """Work a given number of steps, another for each share."""
    steps, to = longs(a[0]), longs(a[1])
    for i in range(steps[share]):
        to[share] = to[share] * 3 + i


def test_shares_of_unequal_work_are_seen_as_such():
    steps, to = np.array([300_000, 900_000]), np.zeros(2, np.int64)
    run = bind(count_down, [steps.ctypes.data, to.ctypes.data], 2, keep=(steps, to))
    one = TracedList([run])
    seen = []
    for _ in range(9):
        one()
        ((shares,),) = one.shares()
        took = [s.end - s.start for s in shares]
        seen.append((took[1] / took[0], facts_of([shares], max(s.end for s in shares))))
    # A share may be held up by other work: the middle of several.
    assert 1.5 < sorted(ratio for ratio, _ in seen)[4] < 6
    assert 0.2 < sorted(facts["imbalance"] for _, facts in seen)[4] < 1
    assert seen[0][1]["shares"] == 2


def test_facts_are_sums_over_commands():
    commands = [[Share(0, 1000), Share(0, 3000)], [Share(3500, 4500)]]
    assert facts_of(commands, 5000) == {
        "kernel_us": 4.0, "barrier_us": 1.0, "imbalance": 0.5, "shares": 2, "commands": 2,
    }  # fmt: skip


def test_a_chrome_trace_of_a_session_has_them(tmp_path):
    options = seamline.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = seamline.InferenceSession(
        model(TEXT), options, providers=[("cpu", {"num_threads": 2})]
    )
    feeds = {"x": np.ones((3, 600), np.float32), "i": np.array([1])}
    for _ in range(3):
        session.run(None, feeds)
    entries = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    gathered = [e for e in entries if e["name"] == "c_kernel_time"]
    assert len(gathered) == 3
    assert {"kernel_us", "barrier_us", "imbalance", "shares"} <= set(
        gathered[-1]["args"]
    )


def test_a_session_that_is_not_profiled_reads_no_clock():
    pipeline = Pipeline.open(model(TEXT), providers=[("cpu", {"num_threads": 1})])
    feeds = {"x": np.ones((3, 600), np.float32), "i": np.array([1])}
    for _ in range(3):
        pipeline.run(feeds)
    program = pipeline.runner.latest()
    assert all(segment._parts is None for segment in program.executables.values())
    pipeline.runner.run(feeds, {}, Events())
    assert any(segment._parts is not None for segment in program.executables.values())
    pipeline.run(feeds)
