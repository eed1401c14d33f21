"""Closing in which a step fails: said with a typed error, and nothing left all the same."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import model

from seamline.devices import VirtualMemoryError
from seamline.errors import ContractError, RunError
from seamline.pipeline import Pipeline
from seamline.provider import Gauges
from seamline_testing.twin import Fault, Faults, Step
from seamline_testing.twin.plugin import TwinPlugin

f32 = np.float32
SIZES = (4, 7, 9)
TEXT = """g (float[n] x) => (y) <float[1] w = {2}> {
    a = Add(x, w) [host] b = Neg(a) y = Mul(b, w)
}"""


def opened(faults):
    plugin = TwinPlugin(faults)
    pipeline = Pipeline.open(
        model(TEXT), providers=["twin", "cpu"], pins={"host": "cpu"}, plugins=[plugin]
    )
    for size in SIZES:  # a program for each
        pipeline.run({"x": np.zeros(size, f32)})
    return pipeline, plugin.made[0]


@pytest.mark.parametrize("step", [Step.UNMAP, Step.RELEASE, Step.FREE])
def test_a_step_of_giving_back_that_fails_is_said_and_the_device_takes_the_rest(step):
    for nth in range(1, 60):
        faults = Faults()
        pipeline, twin = opened(faults)
        faults.plan(Fault(step, nth))
        if nth > _steps(pipeline, twin, faults, step):
            break
        assert twin.machine.pages.gauges() == Gauges()
        assert twin.open_segments == 0
    assert nth > 2


def _steps(pipeline, twin, faults, step):
    """Close; give how many steps there were, and hold the failure to be typed and named."""
    error = _closing_error(pipeline)
    assert (error is not None) == bool(faults.fired)
    if error is not None:
        assert (error.provider, error.call) == ("twin", str(step))
    with pytest.raises(RunError, match="is closed"):
        pipeline.run({"x": np.zeros(4, f32)})
    return faults.counts[step]


def _closing_error(pipeline):
    try:
        pipeline.close()
    except VirtualMemoryError as error:
        return error
    return None


def test_a_provider_whose_close_fails_is_named_and_holds_nothing():
    faults = Faults()
    pipeline, twin = opened(faults)
    faults.plan(Fault(Step.CLOSE, 1))
    with pytest.raises(ContractError, match=r"'twin': close\(\) raised InjectedError"):
        pipeline.close()
    pipeline.close()
    assert twin.left == 0
    assert twin.machine.pages.gauges() == Gauges()


def test_a_segment_closed_in_flight_waits_for_its_work():
    pipeline, twin = opened(Faults())
    pipeline.run({"x": np.zeros(4, f32)})
    done = twin.machine.counts["kernel"]
    pipeline.close()
    pipeline.close()
    assert twin.machine.counts["kernel"] == done
    assert twin.machine.pages.gauges() == Gauges()
