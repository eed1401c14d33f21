"""Recorded segments of the CPU provider: lists of commands, and what stays in Python."""

from __future__ import annotations

import gc
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from tests.bench.chains import chain
from tests.core.toys import model

from seamline.errors import KernelError, RecordingError
from seamline.pipeline import Pipeline
from seamline_cpu import commands
from seamline_cpu.atomics import longs
from seamline_cpu.commands import Native, bind, command, in_list
from seamline_cpu.kernels.broadcast_commands import (
    BINARY,
    UNARY,
    bind_binary,
    bind_unary,
)
from seamline_cpu.strides import folded

f32 = np.float32
ROOT = pathlib.Path(__file__).parents[2]
#: Commands, a product that BLAS does, a node that NumPy does, and one that does nothing.
MIXED = """g (float[2,n] x, float[n,n] w) => (y, z) {
    [a] a = Add(x, x) [b] b = Softmax(a) [m] m = MatMul(b, w) [c] c = Mul(m, a)
    [s] s = Tan(c) [i] i = Identity(s) [d] y = Neg(i) [r] z = Relu(y) }"""


def opened(source=MIXED, threads=1, **options):
    source = model(source) if isinstance(source, str) else source
    return Pipeline.open(
        source, providers=[("cpu", {"num_threads": threads})], **options
    )


def fed(seed, n=5):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((2, n)).astype(f32),
        "w": rng.standard_normal((n, n)).astype(f32),
    }


def captures(pipeline):
    return [s["capture"] for s in pipeline.explain().data["plan"]["segments"]]


def test_a_replay_equals_a_run_bit_for_bit_whatever_is_fed():
    eager, recorded = opened(record=False), opened()
    for seed in range(6):
        pairs = zip(eager.run(fed(seed)), recorded.run(fed(seed)), strict=True)
        for want, got in pairs:
            assert want.tobytes() == got.tobytes()
    assert captures(eager) == [None]
    assert captures(recorded)[0]["state"] == "recorded"


def test_replays_hold_to_runs_under_verification():
    pipeline = opened(verify_capture=3)
    for seed in range(5):
        pipeline.run(fed(seed))
    assert captures(pipeline)[0]["events"] == ["recorded", *["verified"] * 3]


def test_what_stays_in_python_is_named_with_its_reason_and_cuts_nothing():
    pipeline = opened()
    for _ in range(2):
        pipeline.run(fed(0, 7))
    (capture,) = captures(pipeline)
    assert "s" in capture["left"]
    assert "NumPy" in capture["left"]["s"]
    assert not {"a", "b", "c", "i", "d", "r"} & set(capture["left"])
    assert pipeline.runner.latest().plan.seams == ()
    assert "nodes not in the recording: it calls NumPy" in str(pipeline.explain())


def test_another_shape_signature_is_recorded_anew_and_the_first_one_kept():
    pipeline = opened()
    for n in (5, 6, 5, 6, 5, 6):
        y, _ = pipeline.run(fed(n, n))
        assert y.shape == (2, n)
        assert captures(pipeline)[0]["events"].count("recorded") <= 1
    programs = pipeline.runner._programs.values()
    assert [c.state for p in programs for c in p.captured.values()] == ["recorded"] * 2


def test_a_segment_without_commands_runs_on_and_says_why():
    pipeline = opened("g (float[n] x) => (y) { [a] a = Tan(x) [b] y = Atan(a) }")
    for _ in range(3):
        (y,) = pipeline.run({"x": np.ones(3, f32)})
    np.testing.assert_allclose(y, np.arctan(np.tan(np.ones(3))), rtol=1e-6)
    (segment,) = pipeline.runner.latest().plan.segments
    assert "Python" in segment.not_capturable
    assert captures(pipeline) == [None]


def test_a_failing_kernel_between_two_lists_is_named():
    text = """g (float[3] x, int64[1] i) => (y) {
        [a] a = Neg(x) [b] b = Gather(a, i) [c] y = Abs(b) }"""
    pipeline = opened(text)
    for at in (0, 1, 2, 0):
        (y,) = pipeline.run({"x": np.arange(3, dtype=f32), "i": np.array([at])})
        assert y == [at]
    with pytest.raises(KernelError, match="Gather") as caught:
        pipeline.run({"x": np.arange(3, dtype=f32), "i": np.array([7])})
    assert caught.value.node == "b"
    (y,) = pipeline.run({"x": np.arange(3, dtype=f32), "i": np.array([2])})
    assert y == [2]


def calls_of(pipeline, feeds):
    """Count the calls that Python sees in a run, compiled ones included."""
    seen = []
    gc.collect()
    gc.disable()  # what earlier tests left would be finalized in between, and counted
    sys.setprofile(lambda frame, event, arg: seen.append(event))
    try:
        pipeline.run(feeds)
    finally:
        sys.setprofile(None)
        gc.enable()
    return len(seen)


def test_python_is_not_in_the_path_of_a_node():
    counts = []
    for length in (8, 200):
        pipeline = opened(chain(length))
        feeds = {"x": np.array([0.5, -1, 2, 3.5], f32)}
        for _ in range(3):
            pipeline.run(feeds)
        counts.append(calls_of(pipeline, feeds))
        assert captures(pipeline)[0]["left"] == {}
    assert counts[0] == counts[1]


def test_a_recording_is_refused_once_its_segment_is_closed():
    pipeline = opened()
    for _ in range(2):
        pipeline.run(fed(0))
    (captured,) = pipeline.runner.latest().captured.values()
    recording = captured.recording
    captured.executable.close()
    with pytest.raises(RecordingError, match="bound to other places or closed"):
        recording.replay()
    recording.close()
    recording.close()
    with pytest.raises(RecordingError):
        recording.replay()


# --- lists and threads ----------------------------------------------------------------


@command
def running_sum(a, share, shares):
    """Write to each element of this share the sum of all elements of the source."""
    source, to = longs(a[0]), longs(a[1])
    total = 0
    for i in range(a[2]):
        total += source[i]
    for i in range(a[2] * share // shares, a[2] * (share + 1) // shares):
        to[i] = total


def summing(size, steps, shares):
    """Give values and a list in which each command reads all that the one before wrote."""
    values = np.ones((2, size), np.int64)
    runs = [
        bind(
            running_sum,
            [values[i % 2].ctypes.data, values[(i + 1) % 2].ctypes.data, size],
            shares,
        )
        for i in range(steps)
    ]
    return values, in_list([row for run in runs for row in run.rows], (values, runs))


@pytest.mark.parametrize("shares", [1, 2, 5])
def test_each_command_of_a_list_sees_everything_that_the_one_before_wrote(shares):
    values, run = summing(10, 12, shares)
    for _ in range(300):
        values[0] = 1
        run()
        assert set(values[0]) == {10**12}


def test_lists_of_several_threads_at_once_are_right():
    failed = []

    def one():
        values, run = summing(8, 9, 2)
        for _ in range(300):
            values[0] = 1
            run()
            if set(values[1]) != {8**9}:
                failed.append(values.copy())

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed


def test_two_threads_may_run_one_session_or_two():
    feeds = [fed(seed) for seed in range(4)]
    one, other = opened(threads=2), opened(threads=2)
    want = [[y.tobytes() for y in one.run(f)] for f in feeds]
    wrong = []

    def work(pipeline, first):
        for turn in range(60):
            at = (first + turn) % 4
            got = [y.tobytes() for y in pipeline.run(feeds[at])]
            if got != want[at]:
                wrong.append(at)

    jobs = [(one, 0), (one, 1), (other, 2), (other, 3)]
    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert captures(one)[0]["state"] == captures(other)[0]["state"] == "recorded"


def test_an_idle_session_uses_no_processor():
    values, run = summing(64, 50, 2)
    for _ in range(20):
        run()
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.03
    assert values[0, 0] == values[0, 1]


def test_a_list_runs_after_the_workers_were_ended():
    values, run = summing(10, 12, 2)
    run()
    commands.close()
    values[0] = 1
    run()
    assert set(values[0]) == {10**12}


def test_runs_of_commands_in_order_are_one_list_again():
    values = np.zeros((3, 4), np.int64)
    addresses = [row.ctypes.data for row in values]
    first = bind(running_sum, [addresses[0], addresses[1], 4], 1)
    second = bind(running_sum, [addresses[1], addresses[2], 4], 1)
    whole = commands.joined([first, second])
    assert isinstance(whole, Native)
    assert whole.rows == first.rows + second.rows
    values[0] = 1
    whole()
    assert set(values[2]) == {16}
    assert commands.joined([first, print]) is None


def in_a_process(code):
    head = """
        import os, sys, threading, warnings
        import numpy as np
        from seamline.pipeline import Pipeline
        from tests.bench.chains import chain
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads
        pipeline = Pipeline.open(chain(12, size=70_000), providers=[("cpu", {"num_threads": 2})])
        x = np.linspace(-1, 1, 70_000, dtype=np.float32)
        right = [pipeline.run({"x": x})[0] for _ in range(3)][0]
        def check():
            assert pipeline.run({"x": x})[0].tobytes() == right.tobytes()
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=60, cwd=ROOT,
    )  # fmt: skip


def test_a_forked_child_replays_what_its_parent_recorded():
    done = in_a_process("""
        children = []
        for _ in range(3):
            child = os.fork()
            if child == 0:
                check()
                os._exit(0)
            children.append(child)
            check()
        codes = [os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children]
        assert codes == [0] * 3, codes
    """)
    assert done.returncode == 0, done.stderr


def test_a_process_ends_cleanly_after_replays_also_while_another_thread_runs():
    done = in_a_process("""
        threading.Thread(target=lambda: [check() for _ in range(10_000)], daemon=True).start()
        for _ in range(5):
            check()
        print("last")
    """)
    assert (done.returncode, done.stdout) == (0, "last\n"), done.stderr


# --- arithmetic as commands -----------------------------------------------------------


class Call:
    options = {"num_threads": 2}  # noqa: RUF012


SHAPES = [
    ((), ()), ((1,), (1,)), ((7,), ()), ((), (7,)), ((3, 5), (5,)), ((3, 1), (3, 5)),
    ((2, 3, 4), (3, 1)), ((2, 1, 4), (3, 4)), ((4, 1), (1, 6)), ((2, 5, 3, 3), (5, 1, 1)),
    ((2, 3, 4, 5), (3, 1, 5)), ((3, 1, 5, 1), (2, 1, 4)), ((800, 700), (700,)),
    ((800, 700), (800, 1)), ((1, 600_000), (600_000,)),
]  # fmt: skip


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize(("one", "other"), SHAPES, ids=str)
def test_arithmetic_by_commands_has_the_bits_of_numpy(op, one, other):
    ufunc = {
        "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide,
        "Max": np.maximum, "Min": np.minimum,
        "PRelu": lambda x, slope: np.where(x < 0, slope * x, x + 0 * slope),
    }[op]  # fmt: skip
    rng = np.random.default_rng(7)
    for a, b in ((one, other), (other, one)):
        a, b = (np.asarray(rng.standard_normal(s), f32) for s in (a, b))
        want = np.asarray(ufunc(a, b))
        out = np.full_like(want, np.nan)
        run = bind_binary(op, Call, a, b, out)
        if run is None:
            steps = [np.broadcast_to(x, want.shape).strides for x in (a, b, want)]
            assert len(folded(want.shape, steps)[0]) > 3
            continue
        run()
        assert out.tobytes() == want.tobytes()


def test_an_output_larger_than_both_operands_is_left_to_numpy():
    a, b = np.ones((1, 1), f32), np.ones(1, f32)
    assert bind_binary("Add", Call, a, b, np.empty((1, 4), f32)) is None


def test_an_operand_may_be_the_output():
    a, b = np.arange(12, dtype=f32).reshape(3, 4), np.arange(4, dtype=f32)
    want = a - b
    bind_binary("Sub", Call, a, b, a)()
    np.testing.assert_array_equal(a, want)


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("size", [1, 5, 64, 600_000])
def test_functions_by_commands_have_the_bits_of_numpy(op, size):
    functions = {
        "Neg": np.negative, "Abs": np.absolute, "Sqrt": np.sqrt, "Floor": np.floor,
        "Reciprocal": np.reciprocal, "Ceil": np.ceil, "Relu": lambda x: np.where(x < 0, f32(0), x),
        "Round": np.rint, "Sign": np.sign, "Square": np.square, "Cube": lambda x: x * x * x,
        "Root": lambda x: np.power(x, np.full_like(x, 0.5)), "InverseRoot": lambda x: np.power(x, np.full_like(x, -0.5)),
    }  # fmt: skip
    x = np.random.default_rng(3).standard_normal(size).astype(f32) * 9
    x[:: max(1, size // 7)] = np.resize(
        [0, -0.0, np.inf, -np.inf, 2.5], x[:: max(1, size // 7)].shape
    )
    out = np.empty_like(x)
    bind_unary(op, Call, x, out)()
    with np.errstate(all="ignore"):
        want = functions[op](x)
        if op in ("Root", "InverseRoot"):  # NumPy's pow is not the rounded root
            np.testing.assert_allclose(out, want, rtol=3e-7)
        else:
            np.testing.assert_array_equal(out, want)
