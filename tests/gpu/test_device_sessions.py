"""Models of a few nodes through the provider's contract: run, captured, replayed, given back."""

from __future__ import annotations

import threading
from importlib.metadata import entry_points

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from tests.core.toys import ALONE, model
from tests.cuda.test_compiling import KERNELS

import seamline_cpu.plugin
import seamline_cuda.plugin
from seamline.capture import CapturedSegment
from seamline.devices import Gauges
from seamline.pipeline import Pipeline
from seamline_testing import capture_checks, transfers_checks
from seamline_testing.results import Outcome
from seamline_testing.subject import Subject

#: Installed, or only importable: then its plugin is named.
INSTALLED = {entry.name for entry in entry_points(group="seamline")}
CUDA = Subject("cuda", {}, () if "cuda" in INSTALLED else ("seamline_cuda.plugin",))
QUESTIONS = {
    check.id: check
    for module in (transfers_checks, capture_checks)
    for check in module.checks(CUDA, True)
}
drawn = np.random.default_rng(5)
CHAIN = """g (float[32,128] x, float[128] b) => (float[32,128] y, bool[32,128] m)
    { t = Add(x, b)  u = Relu(t)  v = Mul(u, x)  y = Tanh(v)  m = Greater(v, x) }"""


class Opened:
    """A session over the device, and the host for the rest; closed with nothing left."""

    def __init__(self, text, *, providers=("cuda",), verify=0, opset=23):
        self.pipeline = Pipeline.open(
            model(text, opset),
            providers=providers,
            plugins=[seamline_cuda.plugin, seamline_cpu.plugin],
            settings=ALONE,
            verify_capture=verify,
        )

    @property
    def cuda(self):
        return self.pipeline.providers["cuda"]

    @property
    def captured(self) -> list[CapturedSegment]:
        return list(self.pipeline.runner.latest().captured.values())

    def run(self, feeds):
        return dict(
            zip(self.pipeline.graph.outputs, self.pipeline.run(feeds), strict=True)
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        memory = self.cuda.memory()
        self.pipeline.close()
        assert memory.gauges() == Gauges()


def feeds_of(text, seed=0, opset=23):
    """Draw a model's inputs."""
    found, spread = {}, np.random.default_rng(seed)
    for value in model(text, opset).graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        array = np.asarray(spread.standard_normal(shape) * 3)
        if dtype.kind in "iu":
            array = spread.integers(1, 50, shape)
        found[value.name] = array.astype(dtype) if dtype.kind != "b" else array > 0
    return found


def hold(text, got, feeds, opset=23, rtol=3e-6):
    reference = ReferenceEvaluator(model(text, opset))
    with np.errstate(all="ignore"):
        wanted = reference.run(None, feeds)
    for name, want in zip(reference.output_names, wanted, strict=True):
        assert got[name].dtype == want.dtype
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(got[name], want, err_msg=name)
            continue
        loose = {2: 2e-2}.get(want.dtype.itemsize, rtol)
        np.testing.assert_allclose(
            got[name].astype(np.float64), want.astype(np.float64), rtol=loose, atol=1e-5
        )


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_of_the_table_computes_what_the_standard_says(name):
    text = KERNELS[name]
    feeds = feeds_of(text)
    with Opened(text) as session:
        hold(text, session.run(feeds), feeds)


def test_a_chain_is_one_launch_run_once_recorded_and_replayed():
    with Opened(CHAIN) as session:
        for seed in range(6):
            feeds = feeds_of(CHAIN, seed)
            hold(CHAIN, session.run(feeds), feeds)
        (segment,) = session.captured
        assert (segment.state, segment.events) == ("recorded", ["recorded"])
        assert segment.recording.graph.nodes == 1
        assert len(segment.executable.launches) == 1


def test_replays_are_verified_against_runs():
    with Opened(CHAIN, verify=3) as session:
        for seed in range(5):
            feeds = feeds_of(CHAIN, seed)
            hold(CHAIN, session.run(feeds), feeds)
        (segment,) = session.captured
        assert segment.events == ["recorded", "verified", "verified", "verified"]


def test_a_chain_on_the_device_gives_the_bits_of_its_nodes_one_by_one():
    apart = """g (float[4096] x, float[4096] b) => (float[4096] y, float[4096] t, float[4096] u)
        { t = Mul(x, b)  u = Add(t, x)  y = Sub(u, b) }"""
    joined = apart.replace(", float[4096] t, float[4096] u)", ")")
    feeds = feeds_of(apart)
    with Opened(apart) as one, Opened(joined) as other:
        steps = one.run(feeds)
        assert other.run(feeds)["y"].tobytes() == steps["y"].tobytes()
    assert steps["t"].tobytes() == (feeds["x"] * feeds["b"]).tobytes()
    assert (
        steps["y"].tobytes()
        == (feeds["x"] * feeds["b"] + feeds["x"] - feeds["b"]).tobytes()
    )


def test_values_cross_between_the_device_and_the_host_and_back():
    text = """g (float[16,64] x) => (float[16,64] y)
        { a = Relu(x)  b = Softmax(a)  c = Mul(b, a)  d = Transpose(c)  e = Transpose(d)
          y = Add(e, x) }"""
    with Opened(text, providers=("cuda", "cpu")) as session:
        for seed in range(4):
            feeds = feeds_of(text, seed)
            hold(text, session.run(feeds), feeds)
        placed = {
            c.provider for c in session.pipeline.runner.latest().plan.choices.values()
        }
        assert placed == {"cuda", "cpu"}
        facts = session.cuda.facts()
        assert facts["bytes_in"] > 0
        assert facts["bytes_out"] > 0


def test_another_shape_of_the_same_bytes_runs_nothing():
    text = """g (float[6,4] x) => (float[24] y, float[2,12] z)
        <int64[2] s = {2, 12}, int64[1] f = {24}>
        { a = Relu(x)  b = Reshape(a, f)  y = Neg(b)  z = Reshape(a, s) }"""
    with Opened(text) as session:
        for seed in range(3):
            feeds = feeds_of(text, seed)
            hold(text, session.run(feeds), feeds)
        (segment,) = session.captured
        found = [step.kernel for step in segment.executable.launches]
        assert found == ["elementwise_relu", "elementwise_neg"]


def test_two_sessions_on_two_threads_do_not_disturb_each_other():
    wrong = []

    def work(seed):
        with Opened(CHAIN) as session:
            for step in range(20):
                feeds = feeds_of(CHAIN, 100 * seed + step)
                got = session.run(feeds)
                want = np.tanh(np.maximum(feeds["x"] + feeds["b"], 0) * feeds["x"])
                if not np.allclose(got["y"], want, rtol=1e-5, atol=1e-5):
                    wrong.append((seed, step))

    threads = [threading.Thread(target=work, args=(s,)) for s in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong


def test_a_thousand_replays_leave_nothing_behind():
    with Opened(CHAIN) as session:
        feeds = feeds_of(CHAIN)
        first = session.run(feeds)
        session.run(feeds)
        free, held = session.cuda.gpu.free_bytes(), session.cuda.memory().gauges()
        for _ in range(1000):
            last = session.run(feeds)
        assert session.cuda.memory().gauges() == held
        assert session.cuda.gpu.free_bytes() == free
    assert last["y"].tobytes() == first["y"].tobytes()


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_device_passes_what_the_kit_asks_of_memory_and_recordings(name):
    found = QUESTIONS[name].run(CUDA)
    assert found.outcome in (Outcome.PASS, Outcome.NOT_RUN), found.said
    if found.outcome is Outcome.NOT_RUN:
        assert name == "capture/refusal", found.said
