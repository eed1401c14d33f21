"""
The contract on two threads: sessions share a provider's code, and nothing else.

Threads that never meet prove nothing, and how often they do depends on the machine. So
each pair runs until it has taken turns a number of times, and Python is made to switch
between them as often as it can.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import attrs
import numpy as np

from seamline.errors import RunError, SeamlineError
from seamline.provider import Array, Provider
from seamline_testing.claiming import claimed_samples
from seamline_testing.driving import Driven, driven, hold_right
from seamline_testing.results import Check
from seamline_testing.samples import OPERATORS, SAMPLES, Sample, far_from
from seamline_testing.subject import Subject
from seamline_testing.verdicts import Settled, asked, opened, question, violation

__all__ = ["checks"]

_SWITCH = 1e-6  #: seconds between threads; Python's own 5 ms would hide most races
_PATIENCE = 0.004  #: seconds for each turn of a pair, on a machine that is busy


def checks(quick: bool) -> tuple[Check, ...]:
    """Give the questions; ``quick`` asks them of one type each, and for fewer turns."""
    count, turns = (OPERATORS, 60) if quick else (len(SAMPLES), 400)
    return tuple(
        question(f"contract/threads-{name}", partial(ask, count, turns))
        for name, ask in (
            ("one-provider", _one_provider),
            ("two-providers", _two_providers),
            ("two-sessions", _two_sessions),
        )
    )


@attrs.define(eq=False)
class _Race:
    """Two threads over one sample; counts how often one ran after the other."""

    turns: int
    last: int = -1
    met: int = 0
    start: float = attrs.field(factory=time.perf_counter)

    def goes_on(self, who: int) -> bool:
        if self.last != who:
            self.last, self.met = who, self.met + 1
        patience = self.turns * _PATIENCE
        return self.met < self.turns and time.perf_counter() - self.start < patience


def _one_provider(count: int, turns: int, subject: Subject) -> None:
    with opened(subject) as provider:
        for sample in claimed_samples(provider, count):
            _on_two_threads(sample, (provider, provider), turns)


def _two_providers(count: int, turns: int, subject: Subject) -> None:
    with opened(subject) as one, opened(subject) as other:
        for sample in claimed_samples(one, count):
            _on_two_threads(sample, (one, other), turns)


def _on_two_threads(
    sample: Sample, providers: tuple[Provider, Provider], turns: int
) -> None:
    with ExitStack() as stack:
        made = [stack.enter_context(driven(one, sample)) for one in providers]
        for seed, one in enumerate(made):
            hold_right(sample, seed, one.run(sample.feeds(seed)), "on one thread")
        race = _Race(turns)
        _together([partial(_many, one, seed, race) for seed, one in enumerate(made)])


def _many(made: Driven, seed: int, race: _Race) -> None:
    sample = made.sample
    feeds = sample.feeds(seed)
    want = sample.expected(feeds)
    made.feed(feeds)
    with np.errstate(all="ignore"):
        runs = 0
        while race.goes_on(seed) or not runs:
            runs += 1
            got = made.output(made.executable.run())
            if wrong := far_from(got, want):
                violation(
                    f"{sample.name}: right alone, and wrong while another thread runs it, "
                    f"in run {runs}: {wrong}"
                )
    made.look(feeds)


def _two_sessions(count: int, turns: int, subject: Subject) -> None:
    """Open and run whole sessions on two threads, each over models of its own."""
    with opened(subject) as provider:
        samples = claimed_samples(provider, count)
    for sample in samples:
        for _, got in _in_session(subject, sample, (0,)):
            hold_right(sample, 0, got, "in a session alone")
    half = max(1, len(samples) // 2)
    parts = (samples[:half], samples[half:] or samples[:half])
    repeats = max(2, turns // 10)
    _together(
        [partial(_sessions, subject, part, n, repeats) for n, part in enumerate(parts)]
    )


def _sessions(
    subject: Subject, samples: Sequence[Sample], first: int, repeats: int
) -> None:
    for sample in samples:
        seeds = range(first, first + 2 * repeats, 2)
        for seed, got in _in_session(subject, sample, seeds):
            if wrong := far_from(got, sample.expected(sample.feeds(seed))):
                violation(
                    f"{sample.name}: right alone, and wrong in a session beside another "
                    f"thread's: {wrong}"
                )


def _in_session(
    subject: Subject, sample: Sample, seeds: Iterable[int]
) -> Iterator[tuple[int, Array]]:
    pipeline = subject.open(sample.model())
    try:
        for seed in seeds:
            with asked(f"a run of {sample.name} in a session", RunError, node=False):
                (got,) = pipeline.run(sample.feeds(seed))
            yield seed, got
    finally:
        pipeline.close()


def _together(works: Sequence[Callable[[], None]]) -> None:
    """Run each on a thread of its own, all at once; raise what the first raised."""
    raised: list[Exception] = []
    start = threading.Barrier(len(works))

    def guarded(work: Callable[[], None]) -> None:
        start.wait()
        try:
            work()
        except Exception as error:
            raised.append(error)

    with _switching_often():
        threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for error in raised:
        if isinstance(error, Settled):
            raise error
        kind = "" if isinstance(error, SeamlineError) else f"{type(error).__name__}: "
        violation(f"on two threads it raised {kind}{error}")


@contextmanager
def _switching_often() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
