"""The twin among threads and processes: right, or an error at once, and never a hang."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
from tests.core.toys import model

from seamline.errors import SeamlineError
from seamline.pipeline import Pipeline
from seamline_testing.twin.plugin import TwinPlugin

f32 = np.float32
TEXT = "g (float[n] x) => (y) { a = Neg(x) [host] b = Abs(a) y = Add(b, a) }"


def opened():
    plugin = TwinPlugin()
    return Pipeline.open(
        model(TEXT),
        providers=[("twin", {"copy_delay": 0.0001}), "cpu"],
        pins={"host": "cpu"},
        plugins=[plugin],
    )


def run_all(pipelines, calls):
    """Run each pipeline on a thread of its own; give what was wrong."""
    wrong = []

    def work(pipeline, seed):
        for call in range(calls):
            x = np.arange(1 + (seed + call) % 5, dtype=f32) - seed
            try:
                (y,) = pipeline.run({"x": x})
            except SeamlineError as error:
                wrong.append(error)
            else:
                if not np.array_equal(y, np.abs(x) - x):
                    wrong.append((x, y))

    threads = [
        threading.Thread(target=work, args=(p, s)) for s, p in enumerate(pipelines)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return wrong


def test_four_threads_on_one_session_take_turns_and_are_all_right():
    pipeline = opened()
    assert run_all([pipeline] * 4, 15) == []
    pipeline.close()


def test_four_sessions_side_by_side_are_all_right():
    pipelines = [opened() for _ in range(4)]
    assert run_all(pipelines, 15) == []
    for pipeline in pipelines:
        pipeline.close()


def test_a_result_stays_when_the_fed_array_and_the_session_change_afterwards():
    pipeline = opened()
    x = np.array([-1, 2], f32)
    (first,) = pipeline.run({"x": x})
    x[...] = 100
    (second,) = pipeline.run({"x": x})
    pipeline.close()
    np.testing.assert_array_equal(first, [2, 0])
    np.testing.assert_array_equal(second, [0, 0])


def run_script(script):
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_the_plugin_alone_starts_no_thread_and_imports_no_compiler():
    said = run_script("""
import sys, threading
from seamline_testing.twin import plugin
(spec,) = plugin.seamline_providers()
print(spec.probe().usable, threading.active_count(), "numba" in sys.modules)
twin = spec.create({"copy_delay": 0.0, "deadline": 1.0, "memory_limit": 0, "faults": ""})
print(threading.active_count(), twin.memory().gauges().owned)
twin.close()
""")
    assert said == ["True 1 False", "1 0"]


def test_a_forked_child_is_told_so_and_leaves_the_parents_device_as_it_was():
    said = run_script("""
import os
import numpy as np, onnx
from seamline.errors import RunError
from seamline.pipeline import Pipeline
from seamline_testing.twin import plugin

source = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (y) { y = Neg(x) }')
x = np.array([1, 2], np.float32)
twin = Pipeline.open(source, providers=["twin"], plugins=[plugin])
twin.run({"x": x})
child = os.fork()
if not child:
    status = 3
    try:
        twin.run({"x": x * 9})
    except RunError as error:
        status = 4 if "forked" in str(error) and "use spawn" in str(error) else 5
    host = Pipeline.open(source, providers=["cpu"])
    status += 10 * bool((host.run({"x": x})[0] == -x).all())
    fresh = Pipeline.open(source, providers=["twin"], plugins=[plugin])
    status += 20 * bool((fresh.run({"x": x})[0] == -x).all())
    fresh.close()
    try:
        twin.close()
    finally:
        os._exit(status)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(all((twin.run({"x": x})[0] == -x).all() for _ in range(20)))
twin.close()
""")
    assert said == ["34", "True"]


@pytest.mark.parametrize("form", ["mailbox", "host_node"])
def test_a_forked_child_replays_no_chain_and_does_not_wait_for_one(form):
    said = run_script(f"""
import os
import numpy as np, onnx
from seamline.errors import RunError
from seamline.pipeline import Pipeline
from seamline_testing.twin import plugin

source = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (y) '
    '{{ [a] a = Neg(x) [b] b = Abs(a) [c] y = Neg(b) }}')
x = np.array([1, 2], np.float32)
twin = Pipeline.open(
    source, providers=["twin", "cpu"], pins={{"b": "cpu"}}, plugins=[plugin],
    seam_form="{form}",
)
for _ in range(3):
    twin.run({{"x": x}})
child = os.fork()
if not child:
    status = 3
    (chain,) = twin.runner.latest().chains.values()
    try:
        chain.recording.replay()
    except RunError as error:
        status = 4 if "forked" in str(error) else 5
    os._exit(status)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(all((twin.run({{"x": x}})[0] == -x).all() for _ in range(5)))
twin.close()
""")
    assert said == ["4", "True"]
