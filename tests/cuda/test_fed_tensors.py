"""Tensors of another library, fed where they lie: copied on the device, in both sides' order."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import ALONE, model

import seamline_cpu.plugin
import seamline_cuda.plugin
from seamline import InferenceSession
from seamline.device_tensor import DeviceTensor
from seamline.dlpack import lent
from seamline.errors import FeedError
from seamline.tensors import TensorType
from seamline_cuda.driver import call

TEXT = (
    """g (float[N,8] x, float[8] b) => (float[N,8] y) { a = Relu(x)  y = Add(a, b) }"""
)
B = np.arange(8, dtype=np.float32)


class Theirs:
    """A tensor of another library: its own memory, filled on the default stream."""

    def __init__(self, gpu, *shape, dtype="float32"):
        self.gpu, self.kind = gpu, TensorType(dtype, shape)
        with gpu.here():
            self.address = int(call("cuMemAlloc", 4096))

    def filled(self, pattern):
        """Fill it, without waiting for that."""
        word = int(np.float32(pattern).view(np.uint32))
        with self.gpu.here():
            call("cuMemsetD32Async", self.address, word, 1024, 1)
        return self

    def close(self):
        with self.gpu.here():
            call("cuMemFree", self.address)


class ByInterface(Theirs):
    version, strides, stream = 3, None, 1

    @property
    def __cuda_array_interface__(self):
        found = {
            "shape": self.kind.sizes, "typestr": "<f4", "data": (self.address, False),
            "strides": self.strides, "version": self.version, "stream": self.stream,
        }  # fmt: skip
        if self.version < 3:
            del found["stream"]
        return found


class ByDlpack(Theirs):
    asked = None
    device = (2, 0)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, **request):
        self.asked = stream
        return lent(self.address, self.kind, (2, 0), self, **request)


@pytest.fixture
def session(device_is_there):
    made = _session("cuda")
    yield made
    made.close()


def _session(*providers, text=TEXT):
    return InferenceSession(
        model(text, 21), providers=list(providers), settings=ALONE,
        plugins=[seamline_cuda.plugin, seamline_cpu.plugin],
    )  # fmt: skip


def gpu_of(session):
    return session._pipeline.providers["cuda"].gpu


def counts(session):
    return session._pipeline.providers["cuda"].memory().transfers.counts()


@pytest.mark.parametrize("kind", [ByInterface, ByDlpack])
def test_a_tensor_that_lies_on_the_device_is_never_copied_through_the_host(
    session, kind
):
    theirs = kind(gpu_of(session), 4, 8)
    for run, value in enumerate((3.0, -1.0, 0.5, 2.0)):
        before = counts(session).get("bytes_in", 0)
        (y,) = session.run(None, {"x": theirs.filled(value), "b": B})
        np.testing.assert_array_equal(y, np.tile(max(value, 0) + B, (4, 1)))
        # The recording, at the second run, takes a few bytes more: its count of replays.
        more = B.nbytes + 4 if run == 1 else 0
        assert counts(session)["bytes_in"] - before == B.nbytes + more
    (segment,) = session._pipeline.runner.latest().captured.values()
    assert segment.events == [
        "the copy of 'x' is in no recording: it was fed where it lies on the device",
        "recorded",
    ]
    if kind is ByDlpack:
        assert theirs.asked == 1
    theirs.close()


def test_what_the_owner_writes_after_the_copy_was_submitted_waits_for_it(session):
    theirs = ByInterface(gpu_of(session), 4, 8).filled(1.0)
    memory = session._pipeline.providers["cuda"].memory()
    buffer = memory.allocate(128)
    view = memory.view(buffer, 0, TensorType("float32", (4, 8)))
    found = DeviceTensor(memory.device, theirs.address, theirs.kind, 1, theirs)
    memory.take(view, found)
    theirs.filled(9.0)
    got = np.zeros((4, 8), np.float32)
    memory.read(view, got)
    assert set(got.ravel()) == {1}
    buffer.close()
    theirs.close()


@pytest.mark.parametrize(("version", "stream"), [(2, None), (3, 2), (3, 1)])
def test_the_interface_says_which_stream_is_waited_for(session, version, stream):
    theirs = ByInterface(gpu_of(session), 4, 8).filled(2.0)
    theirs.version, theirs.stream = version, stream
    (y,) = session.run(None, {"x": theirs, "b": B})
    np.testing.assert_array_equal(y, np.tile(2 + B, (4, 1)))
    theirs.close()


def test_host_arrays_and_tensors_take_turns_in_one_program(session):
    theirs = ByDlpack(gpu_of(session), 2, 8).filled(7.0)
    x = np.full((2, 8), 5, np.float32)
    for fed, value in ((x, 5), (theirs, 7), (x, 5), (theirs, 7)):
        (y,) = session.run(None, {"x": fed, "b": B})
        np.testing.assert_array_equal(y[1], value + B)
    assert session._pipeline.runner.built == 1
    theirs.close()


def test_a_tensor_that_the_host_reads_as_well_is_fetched_once(device_is_there):
    text = """g (float[N,8] x) => (float[N,8] y, float[N,8] z)
        { y = Relu(x)  z = CumSum(x, k) }""".replace("z)\n", "z) <int64 k = {1}>\n")
    with InferenceSession(
        model(text, 21), providers=["cuda", "cpu"], settings=ALONE, pins={"CumSum": "cpu"},
        plugins=[seamline_cuda.plugin, seamline_cpu.plugin],
    ) as session:  # fmt: skip
        theirs = ByDlpack(gpu_of(session), 2, 8).filled(3.0)
        y, z = session.run(None, {"x": theirs})
        np.testing.assert_array_equal(y, np.full((2, 8), 3))
        np.testing.assert_array_equal(z, np.cumsum(np.full((2, 8), 3), 1))
        theirs.close()


def test_an_input_that_is_an_output_as_well_comes_back_as_an_array(device_is_there):
    text = "g (float[2,8] x) => (float[2,8] x, float[2,8] y) { y = Relu(x) }"
    with _session("cuda", text=text) as session:
        theirs = ByDlpack(gpu_of(session), 2, 8).filled(4.0)
        x, y = session.run(None, {"x": theirs})
        assert isinstance(x, np.ndarray)
        np.testing.assert_array_equal(x, np.full((2, 8), 4))
        np.testing.assert_array_equal(y, x)
        theirs.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"strides": (4, 32)}, "not C-contiguous.*contiguous()"),
        ({"kind": TensorType("float32", (4, 9))}, "dimension 1 is 9, 8 expected"),
        ({"kind": TensorType("float32", (4,))}, "rank is 1, 2 expected"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused_and_says_what_would(
    session, change, said
):
    theirs = ByInterface(gpu_of(session), 4, 8)
    for name, value in change.items():
        setattr(theirs, name, value)
    with pytest.raises(FeedError, match=said):
        session.run(None, {"x": theirs, "b": B})
    theirs.close()


def test_another_element_type_is_refused(session):
    theirs = ByDlpack(gpu_of(session), 4, 8, dtype="bfloat16")
    with pytest.raises(FeedError, match="element type bfloat16 was fed, float32"):
        session.run(None, {"x": theirs, "b": B})
    theirs.close()


def test_a_session_without_that_device_refuses_it_as_before(session):
    theirs = ByDlpack(gpu_of(session), 4, 8)
    elsewhere = ByDlpack(gpu_of(session), 4, 8)
    elsewhere.device = (2, 1)
    with pytest.raises(FeedError, match="cuda:1; bring it to the host first"):
        session.run(None, {"x": elsewhere, "b": B})
    with (
        _session("cpu") as host,
        pytest.raises(FeedError, match="bring it to the host"),
    ):
        host.run(None, {"x": theirs, "b": B})
    theirs.close()
    elsewhere.close()
