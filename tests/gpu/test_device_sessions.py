"""Models of a few nodes through the provider's contract: run, captured, replayed, given back."""

from __future__ import annotations

import threading
from importlib.metadata import entry_points

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from tests.core.toys import ALONE, model
from tests.cuda.plain import nodes_of
from tests.cuda.test_compiling import KERNELS
from tests.node_cases import Kept

import seamline_cpu.plugin
import seamline_cuda.plugin
from seamline.capture import CapturedSegment
from seamline.devices import Gauges
from seamline.errors import KernelError
from seamline.pipeline import Pipeline
from seamline.provider import SegmentSpec
from seamline.tensors import TensorType, nbytes_of
from seamline_cuda.growing import GrowingRange
from seamline_cuda.provider import CudaProvider
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

    def __init__(self, text, *, providers=("cuda",), verify=0, opset=23, pins=()):
        self.pipeline = Pipeline.open(
            model(text, opset) if isinstance(text, str) else text,
            providers=providers,
            plugins=[seamline_cuda.plugin, seamline_cpu.plugin],
            settings=ALONE,
            verify_capture=verify,
            pins=dict(pins),
        )

    @property
    def cuda(self):
        return self.pipeline.providers["cuda"]

    @property
    def captured(self) -> list[CapturedSegment]:
        return list(self.pipeline.runner.latest().captured.values())

    def times(self, count):
        """Give how often to repeat: less where every thread of a kernel is emulated."""
        return count if "Emulated" not in self.cuda.gpu.name else count // 50 + 2

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
        # One for the chain, and one at each edge: feeds come in, results go out.
        assert segment.recording.graph.nodes == 3
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
    pins = {"Softmax": "cpu"}
    with Opened(text, providers=("cuda", "cpu"), pins=pins) as session:
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
            for step in range(session.times(20)):
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


@pytest.mark.alone
def test_a_thousand_replays_leave_nothing_behind():
    with Opened(CHAIN) as session:
        feeds = feeds_of(CHAIN)
        first = session.run(feeds)
        session.run(feeds)
        free, held = session.cuda.gpu.free_bytes(), session.cuda.memory().gauges()
        for _ in range(session.times(1000)):
            last = session.run(feeds)
        assert session.cuda.memory().gauges() == held
        # More, where another process of the tests has ended meanwhile.
        assert session.cuda.gpu.free_bytes() >= free
    assert last["y"].tobytes() == first["y"].tobytes()


SCATTER = """g (float[2,8,4] p, float[2,2,4] u, int64[2] s) => (float[2,8,4] y)
    { n = Neg(u)  y = TensorScatter(p, n, s) }"""


def scatter_feeds(*starts):
    spread = np.random.default_rng(sum(starts) + 5)
    past, update = (
        spread.standard_normal((2, n, 4)).astype(np.float32) for n in (8, 2)
    )
    return {"p": past, "u": update, "s": np.array(starts)}


def test_positions_are_read_on_the_device_so_one_recording_serves_them_all():
    with Opened(SCATTER, opset=24) as session:
        for starts in ((0, 6), (1, 5), (6, 0), (3, 3)):
            feeds = scatter_feeds(*starts)
            got, want = session.run(feeds)["y"], feeds["p"].copy()
            for batch, start in enumerate(starts):
                want[batch, start : start + 2] = -feeds["u"][batch]
            np.testing.assert_array_equal(got, want)
        (segment,) = session.captured
        assert segment.events == ["recorded"]


def test_a_position_outside_is_an_error_that_names_the_node_and_the_next_run_is_right():
    with Opened(SCATTER, opset=24) as session:
        node = session.pipeline.graph.nodes[-1].name
        for starts in ((0, 7), (0, 6), (-1, 0), (9, 0), (1, 1)):
            feeds = scatter_feeds(*starts)
            if min(starts) < 0 or max(starts) > 6:
                with pytest.raises(
                    KernelError, match="leave axis 1 with size 8"
                ) as error:
                    session.run(feeds)
                assert error.value.node == node
            else:
                got = session.run(feeds)["y"]
                np.testing.assert_array_equal(got[0, starts[0]], -feeds["u"][0, 0])


def test_a_cache_that_grows_is_written_under_one_recording_by_the_contract():
    """Past and present lie together in growing memory, of which little has pages."""
    provider = CudaProvider({"pool_bytes": 1 << 26})
    memory = provider.memory()
    granule = memory.virtual.granularity
    rows, width = 64, granule // 16  # four rows of floats fill a granule
    text = f"""g (float[1,{rows},{width}] p, float[1,1,{width}] u, int64[1] s)
        => (float[1,{rows},{width}] y) {{ n = Neg(u)  y = TensorScatter(p, n, s) }}"""
    nodes, graph = nodes_of(text, 24)
    spec = SegmentSpec("s0", tuple(nodes), graph.inputs, graph.outputs, graph.opsets)
    cache, held = GrowingRange(memory.arena, 4 * rows * width), {}

    def place(name, dtype, *sizes):
        kind = TensorType(dtype, sizes)
        held[name] = memory.allocate(nbytes_of(kind))
        return memory.view(held[name], 0, kind)

    whole = memory.at(cache.address, TensorType("float32", (1, rows, width)))
    views = {"p": whole, "y": whole, "u": place("u", "float32", 1, 1, width)}
    views |= {"n": place("n", "float32", 1, 1, width), "s": place("s", "int64", 1)}
    executable = provider.build(spec, Kept())
    executable.bind(views, {}, {})
    cache.grow(4 * width)
    recording = executable.record()
    for step in range(40):
        row = np.full((1, 1, width), step + 1, np.float32)
        memory.write(views["u"], row)
        memory.write(views["s"], np.array([step]))
        cache.grow(4 * (step + 1) * width)
        recording.replay()
    got = np.empty((40, width), np.float32)
    memory.read(memory.at(cache.address, TensorType("float32", (40, width))), got)
    np.testing.assert_array_equal(got[:, 0], -np.arange(1, 41))
    assert (got.min(axis=1) == got.max(axis=1)).all()
    assert cache.committed == 10 * granule
    recording.close()
    executable.close()
    for buffer in held.values():
        buffer.close()
    cache.close()
    provider.close()
    assert memory.gauges() == Gauges()


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_device_passes_what_the_kit_asks_of_memory_and_recordings(name):
    found = QUESTIONS[name].run(CUDA)
    assert found.outcome in (Outcome.PASS, Outcome.NOT_RUN), found.said
    if found.outcome is Outcome.NOT_RUN:
        assert name == "capture/refusal", found.said
