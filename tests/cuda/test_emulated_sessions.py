"""Sessions over the emulated device: what ``check`` finds, and what it does not let pass."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cuda.emulation import check, drawn, opened, peer
from tests.cuda.emulation.sessions import changed, defined

from seamline.errors import CaptureMismatchError, KernelError

CHAIN = """g (float[4,8] x, float[8] b, bool[4,8] c) => (float[4,8] y, bool[4,8] m)
    { t = Add(x, b)  u = Relu(t)  v = Where(c, u, x)  y = Tanh(v)  m = Greater(v, x) }"""


@pytest.mark.parametrize("oracle", [defined, peer])
def test_a_chain_is_right_eager_recorded_and_replayed(oracle):
    check(CHAIN, drawn(CHAIN), oracle=oracle, opset=21)


def test_a_model_over_the_device_and_the_host_is_right():
    text = """g (float[4,8] x) => (float[4,8] y)
        { a = Relu(x)  b = CumSum(a, k)  y = Mul(b, a) }""".replace(
        "(float[4,8] y)", "(float[4,8] y) <int64 k = {1}>"
    )
    check(text, drawn(text), providers=("cuda", "cpu"))


def test_an_answer_that_is_wrong_does_not_pass():
    def wrong(source, feeds):
        y, m = defined(source, feeds)
        return [y + np.float32(1e-3), m]

    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(CHAIN, drawn(CHAIN), oracle=wrong)


def test_a_later_run_is_held_to_its_own_inputs():
    feeds = drawn(CHAIN)
    fixed = defined
    calls = []

    def stale(source, given):
        calls.append(given)
        return fixed(source, feeds)

    with pytest.raises(AssertionError):
        check(CHAIN, feeds, oracle=stale)
    assert len(calls) == 2


def test_changed_feeds_keep_types_and_the_set_of_whole_numbers():
    feeds = {"x": np.ones((2, 3), np.float16), "i": np.arange(5), "s": np.array(3)}
    found = changed(feeds, 1)
    assert (found["x"].dtype, found["x"].shape) == (np.float16, (2, 3))
    assert found["i"].tolist() == [4, 0, 1, 2, 3]
    assert found["s"] == 3


def test_a_kernel_that_is_handed_wrong_data_names_its_node():
    text = """g (float[2,8,4] p, float[2,2,4] u, int64[2] s) => (float[2,8,4] y)
        { y = TensorScatter(p, u, s) }"""
    feeds = drawn(text) | {"s": np.array([0, 7])}
    with opened(text, opset=24) as pipeline:
        with pytest.raises(KernelError, match="leave axis 1 with size 8"):
            pipeline.run(feeds)
        pipeline.run(feeds | {"s": np.array([0, 6])})


def test_a_recording_that_bakes_a_value_is_found(monkeypatch):
    """The kernel is handed its length when it is recorded, not from the device."""
    import tests.cuda.emulation.launches as launches

    real = launches.launched
    seen = []

    def baked(kernel, given, memory, grid, block):
        seen.append(kernel.name)
        if len(seen) > 1:
            given = [*given[:-1], 1]
        real(kernel, given, memory, grid, block)

    monkeypatch.setattr(launches, "launched", baked)
    text = "g (float[8] x) => (float[8] y) { y = Relu(x) }"
    with pytest.raises((AssertionError, CaptureMismatchError)):
        check(text, drawn(text))
