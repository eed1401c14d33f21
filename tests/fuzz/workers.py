"""
Processes that judge inputs, and what is made of one that dies.

A worker is a fork, so it starts with everything imported. The kernel ends it when an input
takes more than its share of processor time, whatever it is doing; the clock, when it
sleeps. Which input that was stands in shared memory.
"""

from __future__ import annotations

import faulthandler
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
from tests.fuzz.inputs import Input
from tests.fuzz.judging import Finding, Place, Watch, judge

__all__ = ["DEADLINE", "Verdict", "judged", "judged_alone"]

DEADLINE = 5.0  #: seconds of processor time for one input
_ASLEEP = 60.0  # seconds by the clock: the machine may be busy with others
_SPACE = 4 << 30  # bytes of address space beyond what a worker starts with
# Files in memory where there are such: a disk is what takes longest of an input.
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
_fork = multiprocessing.get_context("fork")


@attrs.frozen
class Verdict:
    """An index, and what came of its input."""

    index: int
    outcome: str | Finding


def judged(
    make: Callable[[int], Input], start: int, stop: int, deadline: float = DEADLINE
) -> Iterator[Verdict]:
    """
    Judge the inputs of a range, and give each verdict as it comes.

    A worker that dies is a finding for the input that it was at; another one goes on
    behind it.
    """
    while start < stop:
        root = tempfile.mkdtemp(prefix="fuzz-", dir=_MEMORY)
        at = _fork.Value("q", start, lock=False)
        receive, send = _fork.Pipe(duplex=False)
        worker = _fork.Process(
            target=_work, args=(make, start, stop, at, send, root, deadline)
        )
        worker.start()
        send.close()
        try:
            yield from _heard(receive, at, worker)
            worker.join()
            done = worker.exitcode == 0
            if not done:
                yield Verdict(at.value, _death(worker.exitcode or 0, Path(root)))
        finally:
            if worker.is_alive():
                worker.kill()
            worker.join()
            shutil.rmtree(root, ignore_errors=True)
        start = stop if done else at.value + 1


def judged_alone(given: Input, deadline: float = DEADLINE) -> str | Finding:
    """Judge one input in a process of its own."""
    (verdict,) = judged(lambda _: given, 0, 1, deadline)
    return verdict.outcome


def _heard(receive, at, worker) -> Iterator[Verdict]:
    """Give what a worker sends; end it if it stays at one input by the clock."""
    last, since = at.value, time.monotonic()
    while True:
        try:
            if receive.poll(0.5):
                yield receive.recv()
        except EOFError:
            return
        if at.value != last:
            last, since = at.value, time.monotonic()
        elif time.monotonic() - since > _ASLEEP:
            worker.kill()
            return


def _work(make, start, stop, at, send, root: str, deadline: float) -> None:
    logging.disable(logging.CRITICAL)
    space = _address_space() + _SPACE
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    traces = open(os.path.join(root, "trace.txt"), "w")  # noqa: SIM115
    os.dup2(traces.fileno(), 2)  # what native code says before it dies
    faulthandler.enable(traces, all_threads=False)
    faulthandler.register(signal.SIGPROF, traces, all_threads=False, chain=True)
    place, watch = Place(Path(root)), Watch()
    for index in range(start, stop):
        at.value = index
        given = make(index)
        signal.setitimer(signal.ITIMER_PROF, deadline)
        outcome = judge(given, place, watch)
        signal.setitimer(signal.ITIMER_PROF, 0)
        send.send(Verdict(index, outcome))
    send.close()
    os._exit(0)  # a fork leaves what its parent registered for the end alone


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _death(code: int, root: Path) -> Finding:
    said = (root / "trace.txt").read_text("utf-8", "replace")
    name = signal.Signals(-code).name if code < 0 else f"exit {code}"
    what = {"SIGPROF": "hang", "SIGKILL": "asleep"}.get(name, f"crash {name}")
    frames = [
        line.split('"')[1].rsplit("/", 1)[-1] + ":" + line.rsplit(" in ", 1)[-1]
        for line in said.splitlines()
        if line.startswith('  File "') and " in " in line
    ]
    # A hang is cut wherever it is; the outer frames say more of it than the inner ones.
    own = [frame for frame in frames if not frame.startswith(("workers", "judging"))]
    chosen = own[-4:][::-1] if what == "hang" else own[:3][::-1]
    return Finding(f"{what} {' > '.join(chosen)}", _around_the_frames(said))


def _around_the_frames(said: str) -> str:
    """What was said before the innermost frame, and the frames: they come first to last."""
    at = max(said.find("  File "), 0)
    return said[max(at - 2000, 0) : at + 6000]
