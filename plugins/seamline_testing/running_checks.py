"""
The contract inside runs: who may be written, and what may be remembered.

Most faults here need company to show: another order, another buffer. So
each question first lets the sample be right alone, and what fails afterwards is a broken
rule rather than a wrong operator.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from seamline.errors import KernelError
from seamline.provider import Array, Provider
from seamline_testing.claiming import claimed_samples
from seamline_testing.driving import Driven, driven, hold_right
from seamline_testing.guarded import POISONS
from seamline_testing.results import Check
from seamline_testing.samples import OPERATORS, SAMPLES, Sample, far_from
from seamline_testing.subject import Subject
from seamline_testing.verdicts import (
    asked,
    not_run,
    opened,
    question,
    violation,
)

__all__ = ["checks"]

_FEW = 3  #: samples whose runs are enough to see the process changed


def checks(quick: bool) -> tuple[Check, ...]:
    """Give the questions about runs; ``quick`` asks them of one type each."""
    count = OPERATORS if quick else len(SAMPLES)
    return tuple(
        question(f"contract/{name}", partial(ask, count))
        for name, ask in (
            ("memory-respected", _memory_respected),
            ("fully-written", _fully_written),
            ("changed-inputs", _changed_inputs),
            ("declared-aliases", _declared_aliases),
            ("reused-buffers", _reused_buffers),
            ("built-twice", _built_twice),
            ("call-order", _call_order),
            ("process-left-alone", _process_left_alone),
        )
    )


def _each(subject: Subject, count: int) -> Iterator[Driven]:
    with opened(subject) as provider:
        for sample in claimed_samples(provider, count):
            with driven(provider, sample) as made:
                yield made


def _still(sample: Sample, seed: int, got: Array, when: str) -> None:
    """Hold what was right alone to the definition in other circumstances."""
    if wrong := far_from(got, sample.expected(sample.feeds(seed))):
        violation(f"{sample.name}: right alone, and wrong {when}: {wrong}")


# --- memory ---------------------------------------------------------------------------


def _memory_respected(count: int, subject: Subject) -> None:
    """Every run looks at canaries and inputs; here nothing but that is asked."""
    for made in _each(subject, count):
        for seed in range(2):
            made.run(made.sample.feeds(seed))


def _fully_written(count: int, subject: Subject) -> None:
    for made in _each(subject, count):
        for poison in POISONS:
            got = made.run(made.sample.feeds(0), poison)
            when = f"with every byte of its output 0x{poison:02X} before"
            hold_right(made.sample, 0, got, when)


def _changed_inputs(count: int, subject: Subject) -> None:
    for made in _each(subject, count):
        hold_right(made.sample, 0, made.run(made.sample.feeds(0)), "in its first run")
        for seed in (1, 2, 0):
            got = made.run(made.sample.feeds(seed))
            _still(made.sample, seed, got, "when it runs again with other inputs")


def _declared_aliases(count: int, subject: Subject) -> None:
    """Where a claim says that an output may lie on an input, put it there."""
    tried = 0
    for made in _each(subject, count):
        sample, claims = made.sample, made.claims
        pairs = (*claims[0].aliases, *claims[0].views) if len(claims) == 1 else ()
        for out, given in pairs:
            node = made.views[0].node
            if out >= len(node.outputs) or given >= len(node.inputs):
                continue
            target, source = node.outputs[out], node.inputs[given]
            if source not in sample.inputs or not _fits(sample, target, source):
                continue
            tried += 1
            made.bind()
            hold_right(sample, 0, made.run(sample.feeds(0)), "with places of its own")
            made.bind({target: source})
            when = f"with {target!r} in the bytes of {source!r}, as it claims"
            _still(sample, 0, made.run(sample.feeds(0)), when)
    if not tried:
        not_run("none of its claims declares an alias or a view of an equal type")


def _fits(sample: Sample, one: str, other: str) -> bool:
    return sample.kind(one) == sample.kind(other)


def _reused_buffers(count: int, subject: Subject) -> None:
    """Bind anew; what was bound before belongs to others, who write and read there."""
    for made in _each(subject, count):
        sample = made.sample
        hold_right(sample, 0, made.run(sample.feeds(0)), "in its first buffers")
        old = made.held
        made.bind()
        feeds = sample.feeds(1)
        made.feed(feeds)
        theirs = {n: held for n, held in old.items() if n not in sample.constants}
        for held in theirs.values():
            held.fill(POISONS[1])
        got = made.go(feeds)
        for name, held in theirs.items():
            if not held.is_filled(POISONS[1]) or held.trampled():
                violation(f"{sample.name}: bound anew, it wrote to the old {name!r}")
        _still(sample, 1, got, "after it was bound to other buffers")


# --- what may be remembered -----------------------------------------------------------


def _built_twice(count: int, subject: Subject) -> None:
    for one in _each(subject, count):
        sample = one.sample
        hold_right(sample, 0, one.run(sample.feeds(0)), "built once")
        with driven(one.provider, sample) as other:
            _still(sample, 1, other.run(sample.feeds(1)), "built a second time")
            _still(sample, 2, one.run(sample.feeds(2)), "after it was built again")
        _still(sample, 3, one.run(sample.feeds(3)), "after its other build was closed")


def _call_order(count: int, subject: Subject) -> None:
    """Run A then B, and B then A, each pair in a provider of its own."""
    with opened(subject) as provider:
        samples = claimed_samples(provider, count)
    for sample in samples:
        with opened(subject) as provider, driven(provider, sample) as made:
            hold_right(sample, 0, made.run(sample.feeds(0)), "alone")
    for one, other in zip(samples, (*samples[1:], samples[0]), strict=True):
        for first, second in ((one, other), (other, one)):
            with opened(subject) as provider:
                _after(provider, first, second)


def _after(provider: Provider, first: Sample, second: Sample) -> None:
    with driven(provider, first) as before, driven(provider, second) as made:
        when = f"after {second.name} was built"
        _still(first, 0, before.run(first.feeds(0)), when)
        when = f"after {first.name} ran"
        _still(second, 0, made.run(second.feeds(0)), when)
        when = f"when runs of {first.name} and {second.name} take turns"
        _still(first, 1, before.run(first.feeds(1)), when)
        _still(second, 1, made.run(second.feeds(1)), when)


# --- the process ----------------------------------------------------------------------


def _settings() -> Mapping[str, object]:
    """Look at what others in the process rest on."""
    tiny = np.array(np.finfo(np.float32).smallest_subnormal)
    return {
        "the working folder": str(Path.cwd()),
        "the environment": dict(os.environ),
        "NumPy's error handling": np.geterr(),
        "the interval at which threads switch": sys.getswitchinterval(),
        "what an interrupt does": signal.getsignal(signal.SIGINT),
        "that subnormal numbers are kept": bool((tiny * np.float32(1)).item()),
    }


def _process_left_alone(count: int, subject: Subject) -> None:
    """Hold the process's settings to what they were before a run; a build may import."""
    for made in _each(subject, min(count, _FEW)):
        made.feed(made.sample.feeds(0))
        before = _settings()
        with asked("run()", KernelError):
            made.executable.run()
        for what, now in _settings().items():
            if now != before[what]:
                violation(
                    f"{made.sample.name}: a run changed {what}{_how(before[what], now)}"
                )


def _how(before: object, now: object) -> str:
    """Say what changed; of many settings, those that did."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return f": {before}, then {now}"
    names = sorted(n for n in before.keys() | now.keys() if before.get(n) != now.get(n))
    return f" in {', '.join(names[:5])}"
