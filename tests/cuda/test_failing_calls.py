"""Each call on the driver fails in turn: everything is given back, and the next run is right."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import ALONE, model
from tests.cuda.emulation import drawn, emulated

import seamline_cuda.plugin
from seamline.devices import Gauges, VirtualMemoryError
from seamline.pipeline import Pipeline
from seamline_cuda.errors import CudaError
from seamline_cuda.provider import CudaProvider

KNOWN = (CudaError, VirtualMemoryError)
TEXT = "g (float[4,8] x) => (float[4,8] y) { a = Relu(x)  y = Tanh(a) }"
OPENING = (
    "cuInit", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain", "cuDeviceTotalMem", "cuStreamCreate", "cuCtxPushCurrent",
    "cuCtxPopCurrent", "cuMemGetAllocationGranularity",
)  # fmt: skip
RUNNING = (
    "cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuModuleLoadData",
    "cuModuleGetFunction", "cuFuncLoad", "cuMemHostAlloc", "cuEventCreate",
    "cuEventRecord", "cuMemcpyHtoDAsync", "cuLaunchKernel", "cuMemcpyDtoHAsync",
    "cuEventSynchronize", "cuStreamBeginCapture", "cuStreamEndCapture",
    "cuGraphInstantiate", "cuGraphGetNodes", "cuGraphUpload", "cuGraphLaunch",
)  # fmt: skip


@pytest.mark.parametrize("name", OPENING)
def test_whichever_call_of_opening_fails_what_was_opened_is_given_back(driver, name):
    for nth in range(1, 9):
        driver.fail(name, nth, "CUDA_ERROR_OUT_OF_MEMORY")
        before = driver.calls[name]
        made = _made(name)
        reached = driver.calls[name] - before >= nth
        assert reached is (made is None), "a result was not looked at"
        driver.clear()
        if made is not None:
            made.close()
            break
        assert not driver.left()
    assert nth > 1


def _made(name):
    try:
        return CudaProvider()
    except CudaError as error:
        told = error
    assert told.call == name
    return None


@pytest.mark.parametrize("name", RUNNING)
def test_whichever_call_of_three_runs_fails_the_session_closes_with_nothing_left(name):
    feeds = drawn(TEXT)
    nth, fired = 0, True
    while fired and nth < 40:
        nth += 1
        with emulated() as driver:
            pipeline, fired = _failing(driver, name, nth, feeds)
            memory = pipeline.providers["cuda"].memory()
            pipeline.close()
            assert memory.gauges() == Gauges()
    assert nth > 1


def _failing(driver, name, nth, feeds):
    """Run three times, one call failing; a run after it is right again."""
    pipeline = Pipeline.open(
        model(TEXT, 23),
        providers=["cuda"],
        plugins=[seamline_cuda.plugin],
        settings=ALONE,
    )
    driver.fail(name, nth, "CUDA_ERROR_OUT_OF_MEMORY")
    before, told = driver.calls[name], []
    want = np.tanh(np.maximum(feeds["x"], 0))
    for _ in range(4):
        try:
            (found,) = pipeline.run(feeds)
        except Exception as error:
            told.append(error)
            continue
        np.testing.assert_allclose(found, want, rtol=1e-6)
    assert len(told) <= 1
    for error in told:
        assert any(isinstance(e, KNOWN) for e in (error, error.__cause__)), repr(error)
    fired = driver.calls[name] - before >= nth
    driver.clear()
    return pipeline, fired
