"""What a segment of the device refuses: values that lie elsewhere, and a second thread."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.cuda.plain import nodes_of
from tests.node_cases import Kept

from seamline.errors import KernelError, ResidencyError
from seamline.provider import SegmentSpec
from seamline.tensors import TensorType, nbytes_of
from seamline_cuda.provider import CudaProvider

TEXT = """g (float[2,8,4] p, float[2,2,4] u, int64[2] s) => (float[2,8,4] y)
    { n = Neg(u)  y = TensorScatter(p, n, s) }"""
KINDS = {
    "p": TensorType("float32", (2, 8, 4)),
    "u": TensorType("float32", (2, 2, 4)),
    "n": TensorType("float32", (2, 2, 4)),
    "s": TensorType("int64", (2,)),
    "y": TensorType("float32", (2, 8, 4)),
}


class Built:
    """A segment over places of its own; closes with everything given back."""

    def __init__(self):
        self.provider = CudaProvider({})
        self.memory = self.provider.memory()
        nodes, graph = nodes_of(TEXT, 24)
        spec = SegmentSpec(
            "s0", tuple(nodes), graph.inputs, graph.outputs, graph.opsets
        )
        self.segment = self.provider.build(spec, Kept())
        self.buffers = {n: self.memory.allocate(nbytes_of(k)) for n, k in KINDS.items()}
        self.views = {
            n: self.memory.view(b, 0, KINDS[n]) for n, b in self.buffers.items()
        }

    def close(self):
        self.segment.close()
        for buffer in self.buffers.values():
            buffer.close()
        self.provider.close()


@pytest.fixture
def built(driver):
    made = Built()
    yield made
    made.close()


@pytest.mark.parametrize("name", KINDS)
def test_a_value_that_lies_on_the_host_is_refused_whichever_it_is(built, name):
    array = np.zeros(KINDS[name].sizes, KINDS[name].dtype)
    with pytest.raises(ResidencyError, match="handed a ndarray that does not lie in"):
        built.segment.bind({**built.views, name: array}, {}, {})


@pytest.mark.parametrize("name", KINDS)
def test_a_value_of_another_sessions_memory_is_refused_whichever_it_is(built, name):
    other = Built()
    with pytest.raises(ResidencyError, match="does not lie in the memory of cuda:0"):
        built.segment.bind({**built.views, name: other.views[name]}, {}, {})
    other.close()


def test_a_second_thread_gets_an_error_at_once_and_the_first_goes_on(built):
    built.segment.bind(built.views, {}, {})
    memory, starts = built.memory, np.array([0, 6])
    memory.write(built.views["p"], np.zeros((2, 8, 4), np.float32))
    memory.write(built.views["u"], np.ones((2, 2, 4), np.float32))
    memory.write(built.views["s"], starts)
    told = []

    def second():
        for act in (built.segment.run, built.segment.record, recording.replay):
            try:
                act()
            except KernelError as error:
                told.append(str(error))

    recording = built.segment.record()
    with built.segment.taken():
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    assert len(told) == 3
    assert all("another thread runs it now" in said for said in told)
    recording.replay()
    got = np.empty((2, 8, 4), np.float32)
    memory.read(built.views["y"], got)
    assert (got == -1).sum() == 16
    recording.close()


def test_the_provider_says_what_it_holds_and_copied(built):
    memory = built.memory
    memory.write(built.views["p"], np.zeros((2, 8, 4), np.float32))
    memory.synchronize()
    facts = built.provider.facts()
    assert facts["device"] == "Emulated H200 (cuda:0)"
    assert facts["content"] == sum(nbytes_of(kind) for kind in KINDS.values())
    assert facts["granule"] == memory.virtual.granularity
    assert facts["mapped"] % facts["granule"] == 0
    assert (facts["copies_in"], facts["bytes_in"]) == (1, 256)
