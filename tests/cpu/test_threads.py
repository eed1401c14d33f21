"""Threads of the CPU provider: how many, where, that they rest, and that nothing hangs."""

from __future__ import annotations

import os

import numpy as np
import pytest
from tests.bench.chains import chain
from tests.cpu.robustness import (
    CACHE,
    ENDS,
    FORKED,
    FOUR_THREADS,
    IDLE,
    ONE_SESSION,
    REFUSED,
    TWO_SESSIONS,
    WATCHED,
    cut,
    ends_well,
    in_a_process,
)

from seamline.errors import ProviderOptionError
from seamline.pipeline import Pipeline
from seamline_cpu import commands, cores
from seamline_cpu.cores import Pinning, read_pinning
from seamline_cpu.crew import crew, pin, unpin

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
linux = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system keeps no thread to a core"
)
SIZE = 600_000  # elements, enough for every node to be shared out


def opened(**options):
    return Pipeline.open(chain(4, size=SIZE), providers=[("cpu", options)])


def run(pipeline, times=3):
    x = np.linspace(-1, 1, SIZE, dtype=np.float32)
    for _ in range(times):
        (y,) = pipeline.run({"x": x})
    return y


def facts(pipeline):
    return pipeline.explain().data["providers"][0]["facts"]


@pytest.fixture(autouse=True)
def fresh():
    commands.close()
    yield
    commands.close()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_width_that_is_asked_for_is_the_width_there_is(threads):
    pipeline = opened(num_threads=threads)
    assert facts(pipeline) == {}
    run(pipeline)
    said = facts(pipeline)
    assert (said["num_threads"], said["width"]) == (threads, threads)
    assert len(crew().workers) == threads - 1
    assert f"width {threads}" in str(pipeline.explain())
    pipeline.close()


def test_zero_threads_are_as_many_as_the_process_may_use():
    pipeline = opened()
    run(pipeline, 1)
    assert facts(pipeline)["num_threads"] == cores.usable()
    pipeline.close()


def test_a_narrow_session_does_not_claim_the_workers_of_a_wide_one():
    wide, narrow = opened(num_threads=3), opened(num_threads=1)
    want = run(wide)
    assert run(narrow).tobytes() == want.tobytes()
    assert (facts(wide)["width"], facts(narrow)["width"]) == (3, 1)
    assert len(crew().workers) == 2
    wide.close()
    narrow.close()


@linux
@pytest.mark.parametrize("pinning", ["auto", "none", str(CORES[:1] and CORES[-1])])
def test_workers_run_where_they_are_told_and_give_the_same_bits(pinning):
    want = run(opened(num_threads=1))
    pipeline = opened(num_threads=3, pinning=pinning)
    assert run(pipeline).tobytes() == want.tobytes()
    places = [os.sched_getaffinity(w.thread.native_id) for w in crew().workers]
    assert len(places) == 2
    if pinning == "none":
        assert places == [set(CORES)] * 2
    elif pinning == "auto":
        assert all(len(place) == 1 for place in places)
    else:
        assert places == [{int(pinning)}] * 2
    assert facts(pipeline)["pinning"] == pinning
    pipeline.close()
    assert crew().pinning == Pinning()


@linux
def test_workers_that_are_there_are_moved_and_set_free_again():
    run(opened(num_threads=2))
    thread = crew().workers[0].thread.native_id
    first = opened(num_threads=2, pinning=str(CORES[0]))
    assert os.sched_getaffinity(thread) == {CORES[0]}
    second = opened(num_threads=2, pinning=str(CORES[0]))
    first.close()
    assert os.sched_getaffinity(thread) == {CORES[0]}
    second.close()
    free = opened(num_threads=2, pinning="none")
    assert os.sched_getaffinity(thread) == set(CORES)
    free.close()


@linux
def test_two_open_sessions_cannot_have_the_workers_in_two_places():
    first = opened(num_threads=2, pinning="none")
    with pytest.raises(
        ProviderOptionError, match=r"shared by the process.*ask for the same"
    ):
        opened(num_threads=2, pinning=str(CORES[0]))
    first.close()
    opened(num_threads=2, pinning=str(CORES[0])).close()
    assert crew().pinning == Pinning()


def test_taking_back_a_place_that_nobody_holds_changes_nothing():
    unpin(Pinning("none"))
    pin(Pinning())
    assert crew().pinning == Pinning()


@pytest.mark.parametrize("text", ["somewhere", "0,1", "-1", "1.5", "", "+"])
def test_a_place_that_cannot_be_read_says_what_can(text):
    with pytest.raises(ValueError, match="must be auto, none, or cores such as 0"):
        read_pinning(text)


@linux
def test_a_core_that_the_process_may_not_use_is_refused_with_those_it_may():
    with pytest.raises(ValueError, match=f"names core 99999; .* use {CORES[0]}"):
        read_pinning("99999")


# --- whole processes, each with a deadline --------------------------------------------


def test_an_idle_process_uses_no_processor_time():
    assert ends_well(IDLE.format(seconds=1))["workers_asleep"] == 1


def test_a_child_forked_in_the_middle_of_another_threads_run_has_workers_of_its_own():
    assert ends_well(FORKED) == {"children": 4, "right": 4}


def test_the_interpreter_ends_while_sessions_are_open_and_threads_run():
    assert ends_well(ENDS) == {"sessions_open": 3, "threads_running": 2}


def test_an_exception_that_ends_the_program_does_not_hang():
    done = in_a_process("raise SystemExit(7)")
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("code", "runs"), [(TWO_SESSIONS, 30), (ONE_SESSION, 30), (FOUR_THREADS, 60)]
)
def test_threads_over_sessions_are_right_and_share_one_worker(code, runs):
    assert ends_well(code) == {"runs": runs, "wrong": 0, "workers": 1}


def test_a_cache_that_was_cut_short_costs_a_warning_and_is_mended(tmp_path):
    kept = {"NUMBA_CACHE_DIR": str(tmp_path)}
    filled = ends_well(CACHE, before=WATCHED, **kept)
    assert (filled["compiled"] > 0, filled["warned"]) == (True, 0)
    assert cut(tmp_path) == filled["compiled"]
    found = ends_well(CACHE, before=WATCHED, **kept)
    assert found["compiled"] == filled["compiled"]
    assert 1 <= found["warned"] <= 2  # once for each folder of sources
    assert "not cached" in found["said"]
    again = ends_well(CACHE, before=REFUSED + WATCHED, **kept)
    assert (again["compiled"], again["loaded"]) == (0, filled["compiled"])
    assert again["warned"] == 0
