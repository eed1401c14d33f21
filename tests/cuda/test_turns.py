"""Threads that share a provider: what one submits lies wholly before or after another's."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.cuda.emulation import emulated

from seamline_cuda.provider import CudaProvider
from seamline_testing.driving import driven
from seamline_testing.samples import SAMPLES

_PATIENCE = 10  # seconds that nothing here takes


@pytest.fixture
def provider():
    with emulated():
        made = CudaProvider()
        yield made
        made.close()


@pytest.fixture
def pair(provider):
    """Two built and fed programs of one product, and what each should give."""
    sample = next(s for s in SAMPLES if s.name.startswith("MatMul"))
    made = []
    with driven(provider, sample) as one, driven(provider, sample) as other:
        for seed, program in enumerate((one, other)):
            feeds = sample.feeds(seed)
            program.run(feeds)
            program.feed(feeds)
            made.append((program, sample.expected(feeds)))
        yield made


def in_thread(act, raised):
    def guarded():
        try:
            act()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    return thread


def held_between(program, is_inside, goes_on):
    """Let a program stop behind its launches, while it submits, until it is told to go on."""

    def stop():
        is_inside.set()
        assert goes_on.wait(_PATIENCE)

    steps = program.executable._steps
    steps.append((steps[-1][0], stop))


@pytest.mark.parametrize("other", ["run", "replay"])
def test_what_another_thread_runs_is_not_taken_into_a_recording(pair, other):
    (one, wanted), (two, want) = pair
    recorded = two.executable.record() if other == "replay" else None
    is_inside, goes_on, raised, made = threading.Event(), threading.Event(), [], []
    held_between(one, is_inside, goes_on)
    capturing = in_thread(lambda: made.append(one.executable.record()), raised)
    assert is_inside.wait(_PATIENCE)
    runs = recorded.replay if recorded else two.executable.run
    running = in_thread(runs, raised)
    running.join(0.05)
    assert running.is_alive()  # it waits for the recording to be over
    goes_on.set()
    capturing.join(_PATIENCE)
    running.join(_PATIENCE)
    assert not raised
    np.testing.assert_allclose(two.output(), want, rtol=1e-6)
    made[0].replay()
    np.testing.assert_allclose(one.output(), wanted, rtol=1e-6)
    for recording in (recorded, *made):
        if recording:
            recording.close()


def test_a_replay_does_not_come_between_two_launches_of_another_threads_run(pair):
    (one, wanted), (two, want) = pair
    recorded = two.executable.record()
    is_inside, goes_on, raised = threading.Event(), threading.Event(), []
    held_between(one, is_inside, goes_on)
    running = in_thread(one.executable.run, raised)
    assert is_inside.wait(_PATIENCE)
    replaying = in_thread(recorded.replay, raised)
    replaying.join(0.05)
    assert replaying.is_alive()
    goes_on.set()
    running.join(_PATIENCE)
    replaying.join(_PATIENCE)
    assert not raised
    np.testing.assert_allclose(one.output(), wanted, rtol=1e-6)
    np.testing.assert_allclose(two.output(), want, rtol=1e-6)
    recorded.close()
