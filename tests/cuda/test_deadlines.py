"""A device that does not end in time: an error that says so, nothing given back, no hang."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tests.core.toys import ALONE, model
from tests.cuda.emulation import drawn, emulated
from tests.gpu.rig import FILL, Rig

import seamline_cuda.plugin
from seamline.errors import DeadlineError, SeamlineError
from seamline.pipeline import Pipeline
from seamline_cuda.driver import call
from seamline_cuda.errors import CudaError
from seamline_cuda.growing import GrowingRange

TEXT = "g (float[4,8] x) => (float[4,8] y) { a = Relu(x)  y = Tanh(a) }"


@pytest.fixture
def held():
    """A device that begins nothing until it is let go, at the end."""
    with emulated() as driver:
        driver.may_leave = True
        yield driver
        driver.state.timeline.let_go()


def ends_soon(act):
    start = time.monotonic()
    with pytest.raises(DeadlineError, match="did not end within") as caught:
        act()
    assert time.monotonic() - start < 2
    return caught.value


@pytest.mark.parametrize("what", ["synchronize", "small", "large", "drain", "unmap"])
def test_every_wait_for_the_device_has_the_deadline(held, what):
    rig = Rig()
    rig.gpu.deadline = 0.05
    buffer = rig.memory.allocate(8 << 20)
    cache = GrowingRange(rig.arena, rig.granule)
    cache.grow(rig.granule)
    rig.memory.synchronize()
    held.state.timeline.hold()
    with rig.gpu.here():
        rig.launch(FILL, buffer.address, 16, 1)()
    ends_soon(
        {
            "synchronize": rig.memory.synchronize,
            "small": lambda: rig.words(buffer.address, 4),
            "large": lambda: rig.words(buffer.address, 2 << 20),
            "drain": rig.gpu.drain,
            "unmap": lambda: cache.shrink(0),
        }[what]
    )
    with pytest.raises(CudaError, match=r"cuda:0 is lost.*did not end within"):
        rig.memory.allocate(4)
    mapped = rig.memory.gauges().mapped
    start = time.monotonic()
    with pytest.raises(SeamlineError, match="lost"):
        cache.shrink(0)
    buffer.close()
    rig.memory.close()
    rig.gpu.close()
    assert time.monotonic() - start < 1
    assert rig.memory.gauges().mapped == mapped
    assert not held.calls["cuMemUnmap"]


def _pipeline(options=None, *, deadline=None):
    return Pipeline.open(
        model(TEXT, 21), providers=[("cuda", options or {})], settings=ALONE,
        plugins=[seamline_cuda.plugin], deadline=deadline,
    )  # fmt: skip


def test_a_session_whose_device_hangs_gets_an_error_and_closes(held):
    pipeline, feeds = _pipeline({"deadline": 0.1}), drawn(TEXT)
    pipeline.run(feeds)
    pipeline.run(feeds)
    held.state.timeline.hold()
    ends_soon(lambda: pipeline.run(feeds))
    with pytest.raises(SeamlineError, match="lost"):
        pipeline.run(feeds)
    start = time.monotonic()
    pipeline.close()
    assert time.monotonic() - start < 1


@pytest.mark.parametrize(("runs", "name"), [(1, "read"), (2, "given")])
def test_a_sessions_own_deadline_holds_for_the_device_as_for_any_provider(
    held, runs, name
):
    pipeline, feeds = _pipeline(deadline=0.5), drawn(TEXT)
    for _ in range(runs):
        (y,) = pipeline.run(feeds)
        np.testing.assert_allclose(y, np.tanh(np.maximum(feeds["x"], 0)), rtol=1e-6)
    held.state.timeline.hold()
    with pytest.raises(DeadlineError, match=rf"provider 'cuda'.*{name}\(\)"):
        pipeline.run(feeds)
    pipeline.close()
    assert held.left()
    held.state.timeline.let_go()  # the provider's own thread comes back, and gives back
    until = time.monotonic() + 20
    while held.left():
        assert time.monotonic() < until, held.left()
        time.sleep(0.01)


def test_waits_that_end_in_time_are_right_with_a_deadline(device_is_there):
    rig = Rig()
    rig.gpu.deadline = 20
    buffer = rig.memory.allocate(8 << 20)
    with rig.gpu.here():
        call("cuMemsetD32Async", buffer.address, 7, 2 << 20, rig.gpu.compute.handle)
    assert set(rig.words(buffer.address, 2 << 20)) == {7}
    assert set(rig.words(buffer.address, 4)) == {7}
    rig.memory.synchronize()
    buffer.close()
    rig.close()
