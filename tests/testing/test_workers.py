"""Checks run in processes of their own: one that ends is one result."""

import os
import signal
import subprocess
import sys
import time

import pytest

from seamline_testing.conforming import require_device
from seamline_testing.results import Outcome
from seamline_testing.subject import Subject
from seamline_testing.workers import KitError, Workers

ENDING = Subject("ending", plugins=("tests.testing.ending_plugin",))
LIARS = "tests.testing.liars"


@pytest.fixture
def opened():
    kept = []

    def open_(subject, only, **given):
        kept.append(Workers.open(subject, only=only, **given))
        return kept[-1]

    yield open_
    for workers in kept:
        workers.close()


def test_a_process_that_leaves_quietly_is_one_crash_and_the_next_check_runs(opened):
    workers = opened(ENDING, "contract/")
    names = [check.id for check in workers.checks]
    results = {result.id: result.finding for result in workers.run()}
    assert list(results) == names  # every check has a result
    crashed = [r for r in results.values() if r.outcome is Outcome.CRASH]
    assert crashed
    assert "exit status 0" in crashed[0].said
    assert any(r.outcome is Outcome.PASS for r in results.values())


def test_a_hang_ends_at_the_deadline(opened):
    subject = Subject("hangs", plugins=(f"{LIARS}.hangs",))
    workers = opened(subject, "contract/fully-written", deadline=1.5)
    start = time.monotonic()
    finding = workers.run_one(workers.checks[0]).finding
    assert finding.outcome is Outcome.CRASH
    assert "no answer within 1.5 s" in finding.said
    assert time.monotonic() - start < 10


def test_a_segmentation_fault_is_named_by_its_signal(opened):
    subject = Subject("segfaults", plugins=(f"{LIARS}.segfaults",))
    workers = opened(subject, "contract/fully-written")
    finding = workers.run_one(workers.checks[0]).finding
    assert finding.outcome is Outcome.CRASH
    assert "SIGSEGV" in finding.said


def test_two_jobs_give_each_result_once(opened):
    workers = opened(Subject("reference"), "transfers/", jobs=2)
    names = [result.id for result in workers.run()]
    assert sorted(names) == sorted(check.id for check in workers.checks)
    assert len(names) >= 10


def test_only_the_named_checks_are_run(opened):
    workers = opened(Subject("reference"), "transfers/")
    chosen = workers.checks[1].id
    assert [result.id for result in workers.run([chosen])] == [chosen]


def test_the_device_is_asked_of_the_provider_in_its_own_process(opened):
    workers = opened(Subject("reference"), "transfers/gauges")
    assert workers.device() == ("cpu:0", "cpu:0")
    assert require_device(workers, "") == ""
    assert require_device(workers, "cpu") == "cpu:0"
    assert require_device(workers, "cpu:0") == "cpu:0"
    with pytest.raises(KitError, match=r"'cuda' is required; it works on 'cpu:0'"):
        require_device(workers, "cuda")


def test_an_emulated_device_is_none(opened):
    emulating = Subject("cuda", plugins=("tests.cuda.emulation.everywhere",))
    workers = opened(emulating, "transfers/gauges")
    assert workers.device() == ("cuda:0", "Emulated H200 (cuda:0)")
    with pytest.raises(KitError, match=r"it works on Emulated H200 .*, which is none"):
        require_device(workers, "cuda")


def test_a_device_that_a_check_lost_is_opened_again_by_a_new_process(opened):
    """Of three checks the second loses it; what it lost is none of the third's."""
    workers = opened(Subject("loses", plugins=(f"{LIARS}.loses",)), "transfers/")
    names = ["transfers/gauges", "transfers/int8", "transfers/int16"]
    found = {r.id: r.finding for r in workers.run(names)}
    lost = [name for name, finding in found.items() if finding.outcome.is_failure]
    assert lost == ["transfers/int8"]
    assert "the device is lost" in found["transfers/int8"].said


def test_a_provider_that_is_not_there_has_no_device(opened):
    workers = opened(Subject("nobodys"), "transfers/gauges")
    with pytest.raises(KitError, match="'cuda' is required: UnknownProviderError"):
        require_device(workers, "cuda")


def test_a_group_that_does_not_exist_is_said_at_once():
    with pytest.raises(KitError, match="no group colours"):
        Workers.open(Subject("reference"), groups=["colours"])


def test_no_process_is_left_when_the_one_that_asks_is_killed():
    program = (
        "from seamline_testing.subject import Subject\n"
        "from seamline_testing.workers import Workers\n"
        f"w = Workers.open(Subject('hangs', plugins=('{LIARS}.hangs',)), only='contract/fully-written')\n"
        "print('begun', flush=True)\n"
        "w.run_one(w.checks[0])\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=env
    )
    assert process.stdout.readline() == b"begun\n"
    time.sleep(0.3)  # the check has begun to hang
    before = _descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert before
    deadline = time.monotonic() + 10
    while any(map(_alive, before)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_alive, before))


def _descendants(pid):
    found, waiting = [], [pid]
    while waiting:
        path = f"/proc/{waiting[0]}/task/{waiting.pop(0)}/children"
        with open(path) as file:
            children = [int(item) for item in file.read().split()]
        found += children
        waiting += children
    return found


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
