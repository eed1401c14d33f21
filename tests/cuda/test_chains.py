"""
The mailbox kernel's text, and what a chain asks of the driver; see ``tests/gpu/test_seams.py``.

The emulated device is a thread that runs kernels' own text, so that kernel and host really
wait for each other; what a GPU adds, the order of memory between two chips, only a GPU shows.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="the extra 'cuda' is not installed")

from tests.cuda.emulation import run_kernel
from tests.gpu.test_edges import Session
from tests.gpu.test_seams import Opened, values

from seamline_cuda.mailbox import ABORTED, ANSWERED, ASKED, LATE, MAILBOX, MOST, NEXT

# --- the kernel's text ------------------------------------------------------------------


class Words:
    """The kernel's words and values, and a host that answers from another thread."""

    def __init__(self, *, wide=False):
        self.wide = wide
        self.shared, self.own = np.zeros(96, np.uint32), np.array([7, 0], np.uint32)
        self.times, self.wrong = np.zeros((6, 2), np.int64), np.zeros(1, np.uint32)

    def run(self, outs, ins, *, index=0, bump=2, patience=5_000_000_000):
        given = []
        for copies in (outs, ins):
            for place in range(MOST):
                source, target = copies[place] if place < len(copies) else (None, None)
                count = 0 if source is None else len(source)
                fours = count // 4 if self.wide else 0
                given += [source, target, fours, count]
        run_kernel(
            MAILBOX, *given, self.shared, self.own, self.times, self.wrong,
            index, bump, 6, patience, threads=32,
        )  # fmt: skip

    def answering(self, act):
        def host():
            end = time.monotonic() + 5
            while not self.shared[ASKED] and time.monotonic() < end:
                time.sleep(0.001)
            act()

        thread = threading.Thread(target=host)
        thread.start()
        return thread


@pytest.mark.parametrize("wide", [False, True])
def test_the_kernel_brings_values_asks_waits_and_brings_values_back(wide):
    words = Words(wide=wide)
    source, near = np.arange(70, dtype=np.uint32), np.zeros(70, np.uint32)
    back, target = np.zeros(5, np.uint32), np.zeros(5, np.uint32)

    def answer():
        assert near.tolist() == source.tolist()
        back[...] = near[:5] + 1
        words.shared[ANSWERED] = words.shared[ASKED]

    host = words.answering(answer)
    words.run([(source, near)], [(back, target)], index=1)
    host.join(5)
    assert words.shared[ASKED] == 8
    assert target.tolist() == [1, 2, 3, 4, 5]
    assert words.own.tolist() == [9, 0]
    begun, ended = words.times[7 % 6]  # the eighth turn of a ring of six
    assert ended > begun > 0
    assert np.count_nonzero(words.times) == 2
    assert not words.wrong[0]


def test_an_answer_to_another_turn_lets_the_kernel_wait_until_its_clock_ends_it():
    words = Words()
    words.shared[ANSWERED] = 6
    target = np.zeros(2, np.uint32)
    words.run([], [(np.ones(2, np.uint32), target)], patience=20_000_000)
    assert words.own.tolist() == [7, 1]
    assert words.wrong[0] == words.shared[LATE] == 1
    assert not target.any()


def test_an_aborted_kernel_copies_nothing_back_and_those_after_it_ask_nothing():
    words = Words()
    words.shared[ANSWERED] = ABORTED
    source, near = np.ones(2, np.uint32), np.zeros(2, np.uint32)
    target = np.zeros(2, np.uint32)
    words.run([], [(source, target)])
    words.shared[[ASKED, ANSWERED]] = 0
    words.run([(source, near)], [(source, target)], index=1)
    assert near.all()  # in the order of the device, where nobody looks any more
    assert not target.any()
    assert words.shared[ASKED] == words.wrong[0] == 0
    assert words.own[NEXT] == 7


# --- whole sessions ---------------------------------------------------------------------


def test_a_replay_launches_one_graph_and_copies_nothing_by_calls(driver):
    with Opened(seam_form="mailbox") as opened:
        for _ in range(3):
            opened.right(values(8))
        before = driver.calls.copy()
        opened.right(values(8, -1))
        made = driver.calls - before
        assert made["cuGraphLaunch"] == 1
        assert made["cuLaunchKernel"] == 0
        assert made["cuMemcpyHtoDAsync"] + made["cuMemcpyDtoHAsync"] == 0
        assert made["cuEventRecord"] == 0
        excursions = opened.pipeline.explain().data["plan"]["excursions"]
        assert all(one["us"] > 0 for one in excursions)


#: Calls that recording makes, each with the number of it that is to fail.
STEPS = [
    ("cuMemHostAlloc", 1), ("cuMemHostAlloc", 2), ("cuStreamBeginCapture", 1),
    ("cuGraphInstantiate", 1), ("cuModuleLoadData", 1), ("cuGraphUpload", 1),
]  # fmt: skip


@pytest.mark.parametrize(("call", "nth"), STEPS)
def test_what_a_chain_takes_is_given_back_where_taking_it_fails(driver, call, nth):
    with Opened(seam_form="mailbox") as opened:
        opened.right(values(8))
        held, left = opened.memory.gauges().content, driver.left()
        driver.fail(call, nth)
        opened.right(values(8))
        assert opened.chain.state == "eager"
        assert "made to fail" in opened.chain.why
        assert opened.memory.gauges().content == held
        # The words that kernels complain by came, and stay.
        assert driver.left()["pinned"] <= left["pinned"] + 1
        opened.right(values(8, 2))


@pytest.mark.parametrize(("call", "nth"), [step for step in STEPS if step[1] == 1])
def test_a_segment_is_recorded_without_its_copies_where_they_cannot_be_had(
    driver, call, nth
):
    with Session() as opened:
        opened.right(values(8))
        held, left = opened.memory.gauges().content, driver.left()
        driver.fail(call, nth)
        opened.right(values(8))
        assert opened.captured.state == "recorded"
        assert "made to fail" in opened.captured.events[0]
        assert not hasattr(opened.captured.recording, "inward")
        assert opened.memory.gauges().content == held
        assert driver.left()["pinned"] == left["pinned"]
        opened.right(values(8, 2))
