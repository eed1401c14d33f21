"""
Every call on a provider hangs in turn, and is given up at the session's deadline.

The twin is made to hang in the n-th call of each kind. The caller gets an error that names
provider and step in time; another provider of the session goes on where fallback allows;
and when the call returns at last, everything is given back.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from tests.core.toy_kernels import definitions_table
from tests.core.toys import Toy, model, open_over
from tests.faults.test_twin_faults import FEEDS, PINS, TEXT, wanted

from seamline.errors import DeadlineError, ProviderError, RunError, SeamlineError
from seamline.kernels import KernelTable
from seamline.pipeline import Pipeline
from seamline.provider import Gauges
from seamline.session_options import SessionOptions
from seamline.watch import Watch
from seamline_testing.twin import Fault, Faults, How, Step
from seamline_testing.twin.plugin import TwinPlugin

DEADLINE = 1.0  # far above what a call takes, on a busy machine too
PATIENCE = 10.0
ON_THE_HOST = (
    Step.CREATE_PROVIDER,
    Step.CLAIM,
    Step.MEMORY,
    Step.ALLOCATE,
    Step.VIEW,
    Step.BUILD,
    Step.BIND,
    Step.RECORD,
)


def opened(faults, plugin=None, **chosen):
    chosen.setdefault("pins", PINS)
    chosen.setdefault("deadline", DEADLINE)
    return Pipeline.open(
        model(TEXT),
        providers=["twin", "cpu"],
        plugins=[plugin or TwinPlugin(faults)],
        **chosen,
    )


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def watching():
    return [t for t in threading.enumerate() if t.name.startswith("seamline calls on")]


@pytest.fixture(scope="module", autouse=True)
def what_is_imported_and_compiled_once():
    pipeline = opened(Faults(), deadline=None)
    for _ in range(3):
        pipeline.run(FEEDS)
    pipeline.close()


@pytest.fixture(autouse=True)
def no_thread_is_left():
    assert not watching()
    yield
    until(lambda: not watching())


def first_error(faults, plugin):
    """Open and run three times; give the error, the seconds it took, and the session."""
    pipeline, start = None, time.monotonic()
    try:
        pipeline = opened(faults, plugin)
        for _ in range(3):
            start = time.monotonic()
            pipeline.run(FEEDS)
    except SeamlineError as error:
        return error, time.monotonic() - start, pipeline
    return None, 0.0, pipeline


@pytest.mark.parametrize("step", ON_THE_HOST, ids=str)
def test_a_call_that_hangs_is_given_up_named_and_cleaned_up_when_it_returns(step):
    faults = Faults(Fault(step, 1, How.HANG))
    plugin = TwinPlugin(faults)
    error, took, pipeline = first_error(faults, plugin)
    assert faults.fired == [Fault(step, 1, How.HANG)]
    assert isinstance(error, ProviderError | RunError), repr(error)
    assert error.provider == "twin"
    assert f"did not return within {DEADLINE:g} s" in str(error)
    assert took < PATIENCE / 2
    if pipeline is not None:
        with pytest.raises(SeamlineError, match=r"was not called|did not return"):
            pipeline.run(FEEDS)
        pipeline.close()
    faults.release()
    until(lambda: not watching())
    for twin in plugin.made:
        assert (twin.left, twin.open_segments) == (0, 0)
        assert twin.machine.pages.gauges() == Gauges()


def test_a_build_that_hangs_gives_its_nodes_to_others_where_fallback_allows():
    faults = Faults(Fault(Step.BUILD, 1, How.HANG))
    pipeline = opened(faults, fallback="allow")
    for _ in range(3):
        for got, right in zip(pipeline.run(FEEDS), wanted(), strict=True):
            np.testing.assert_array_equal(got, right, strict=True)
    assert any("did not return within" in note for note in pipeline.notes)
    pipeline.close()
    faults.release()


def test_sessions_with_a_deadline_give_what_those_without_give():
    pipeline = opened(Faults())
    for _ in range(4):  # run, recorded, replayed
        for got, right in zip(pipeline.run(FEEDS), wanted(), strict=True):
            np.testing.assert_array_equal(got, right, strict=True)
    assert "recorded" in str(pipeline.explain())
    pipeline.close()


def test_a_kernel_that_hangs_names_provider_and_segment_and_others_go_on():
    stuck, table = threading.Event(), KernelTable("stuck")

    @table.simple("Neg")
    def neg(x):
        stuck.wait(0 if x[0] else None)
        return -x

    text = "g (float[2] x) => (y) { [a] a = Abs(x) [n] y = Neg(a) }"
    pipeline = open_over(
        model(text), Toy(table), Toy(definitions_table("good")), deadline=DEADLINE
    )
    (found,) = pipeline.run({"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(found, [-1, -1])
    with pytest.raises(DeadlineError, match=r"run\(\) did not return") as caught:
        pipeline.run({"x": np.zeros(2, np.float32)})
    assert caught.value.provider == "stuck"
    assert caught.value.segment
    with pytest.raises(DeadlineError, match="was not called"):
        pipeline.run({"x": np.ones(2, np.float32)})
    pipeline.close()
    stuck.set()


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_deadline_that_is_no_time_is_refused(seconds):
    with pytest.raises(ValueError, match="above 0"):
        Watch("mine", seconds)
    with pytest.raises(ValueError, match="above 0"):
        SessionOptions(provider_deadline=seconds)


def test_an_error_of_a_watched_call_is_the_providers_own():
    watch = Watch("mine", PATIENCE)
    with pytest.raises(ZeroDivisionError):
        watch.call("dividing", lambda: 1 // 0)
    assert watch.call("after it", lambda: 5) == 5
    watch.end()


def test_a_provider_that_calls_back_does_not_wait_for_itself():
    watch = Watch("mine", PATIENCE)
    assert watch.call("outer", lambda: watch.call("inner", lambda: 7)) == 7
    watch.end()
