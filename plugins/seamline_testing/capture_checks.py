"""
Capture: a replay is a run, over the same places, with whatever lies there now.

The faults of recordings are of three kinds: a value baked in, a run too many (a warm-up
that counts, a recording that also executes), and an address that is no longer what it
was. Each is asked for where it shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import numpy as np

from seamline.errors import KernelError, RecordingError
from seamline.provider import Array, Provider, Recording
from seamline_testing.claiming import claimed_samples, claims_of
from seamline_testing.driving import Driven, driven, hold_right
from seamline_testing.guarded import POISONS
from seamline_testing.results import Check
from seamline_testing.samples import SAMPLES, Sample, far_from
from seamline_testing.subject import Subject
from seamline_testing.verdicts import (
    asked,
    declined,
    not_run,
    opened,
    question,
    violation,
)

__all__ = ["checks"]


def checks(subject: Subject, quick: bool) -> tuple[Check, ...]:
    """Give the questions; ``quick`` asks them of fewer samples."""
    count = 6 if quick else len(SAMPLES)
    return tuple(
        question(f"capture/{name}", partial(ask, count))
        for name, ask in (
            ("replay-equals-eager", _replay_equals_eager),
            ("recordings-apart", _recordings_apart),
            ("state-advances-once", _state_advances_once),
            ("record-without-a-run", _record_without_a_run),
            ("moved", _moved),
            ("given-back", _given_back),
            ("refusal", _refusal),
        )
    )


def _capturable(provider: Provider, count: int) -> tuple[Sample, ...]:
    if not provider.captures:
        not_run("it says that its segments cannot be recorded (captures is False)")
    why = ""
    kept: list[Sample] = []
    for sample in claimed_samples(provider, len(SAMPLES)):
        claims = claims_of(provider, sample.views())
        reasons = [c.not_capturable for c in claims if not isinstance(c, str)]
        if any(reasons):
            why = why or f"{sample.name}: {next(filter(None, reasons))}"
        else:
            kept.append(sample)
    if not kept:
        declined(f"it claims nothing that can be recorded: {why}")
    return tuple(kept[:count])


def _each(subject: Subject, count: int) -> Iterator[Driven]:
    with opened(subject) as provider:
        for sample in _capturable(provider, count):
            with driven(provider, sample) as made:
                yield made


def _recorded(made: Driven) -> Recording:
    with asked("record()", RecordingError), np.errstate(all="ignore"):
        return made.executable.record()


def _replayed(made: Driven, recording: Recording, feeds: dict[str, Array]) -> Array:
    made.feed(feeds)
    with asked("replay()", KernelError, RecordingError, node=False):
        recording.replay()
    made.look(feeds)
    return made.output()


def _still(made: Driven, seed: int, got: Array, when: str) -> None:
    sample = made.sample
    if wrong := far_from(got, sample.expected(sample.feeds(seed))):
        violation(f"{sample.name}: right when it runs, and wrong {when}: {wrong}")


def _replay_equals_eager(count: int, subject: Subject) -> None:
    for made in _each(subject, count):
        sample = made.sample
        hold_right(sample, 0, made.run(sample.feeds(0)), "in a run")
        with closing(_recorded(made)) as recording:
            for seed in (1, 0, 2):
                got = _replayed(made, recording, sample.feeds(seed))
                _still(made, seed, got, "when it is replayed with other inputs")
            _still(made, 3, made.run(sample.feeds(3)), "in a run between replays")
            got = _replayed(made, recording, sample.feeds(4))
            _still(made, 4, got, "when it is replayed after a run")


def _recordings_apart(count: int, subject: Subject) -> None:
    """Let recordings of two segments take turns; close one, and replay the other."""
    with opened(subject) as provider:
        one, other = (_capturable(provider, 2) * 2)[:2]
        with driven(provider, one) as first, driven(provider, other) as second:
            first.run(one.feeds(0))
            second.run(other.feeds(0))
            with closing(_recorded(first)) as kept:
                with closing(_recorded(second)) as lent:
                    for seed in (1, 2):
                        got = _replayed(first, kept, one.feeds(seed))
                        _still(first, seed, got, f"in turns with {other.name}")
                        got = _replayed(second, lent, other.feeds(seed))
                        _still(second, seed, got, f"in turns with {one.name}")
                got = _replayed(first, kept, one.feeds(3))
                _still(first, 3, got, "after another recording was closed")


# --- state ----------------------------------------------------------------------------


def _stateful(made: Driven) -> tuple[str, str] | None:
    """Give an output that may lie on an input, and that input."""
    sample = made.sample
    if len(made.claims) != 1:
        return None
    node = made.views[0].node
    for out, given in made.claims[0].aliases:
        if out < len(node.outputs) and given < len(node.inputs):
            target, source = node.outputs[out], node.inputs[given]
            if source in sample.inputs and sample.kind(target) == sample.kind(source):
                return target, source
    return None


def _steps(sample: Sample, source: str, feeds: dict[str, Array]) -> Iterator[Array]:
    """Give the state after each step by definition: what comes out goes in again."""
    state = dict(feeds)
    while True:
        found = sample.expected(state)
        yield found
        state[source] = found.astype(feeds[source].dtype)


def _advances(count: int, subject: Subject, runs: int) -> None:
    tried = 0
    for made in _each(subject, count):
        pair = _stateful(made)
        if pair is None:
            continue
        tried += 1
        target, source = pair
        made.bind({target: source})
        feeds = made.sample.feeds(0)
        made.feed(feeds)
        right = _steps(made.sample, source, feeds)
        want: Array = feeds[source]
        for _ in range(runs):
            made.go(feeds)
            want = next(right)
        recording = _recorded(made)
        with closing(recording):
            _state(made, target, want, "after record(), which is no run")
            for turn in (1, 2):
                with asked("replay()", KernelError, RecordingError, node=False):
                    recording.replay()
                times = "once" if turn == 1 else "twice"
                _state(made, target, next(right), f"after it was replayed {times}")
    if not tried:
        not_run(
            "none of its claims lets an output lie on an input, which makes a state"
        )


def _state(made: Driven, target: str, want: Array, when: str) -> None:
    if wrong := far_from(made.held[target].read(), want):
        violation(f"{made.sample.name}: its state is wrong {when}: {wrong}")


def _state_advances_once(count: int, subject: Subject) -> None:
    _advances(count, subject, runs=1)


def _record_without_a_run(count: int, subject: Subject) -> None:
    """Whatever warm-up the recording needs, it leaves every value as it was."""
    _advances(count, subject, runs=0)


# --- places ---------------------------------------------------------------------------


def _moved(count: int, subject: Subject) -> None:
    """Bound elsewhere, a replay is refused, or runs there; never at the old places."""
    for made in _each(subject, count):
        sample = made.sample
        hold_right(sample, 0, made.run(sample.feeds(0)), "in a run")
        with closing(_recorded(made)) as recording:
            old = {n: h for n, h in made.held.items() if n not in sample.constants}
            made.bind()
            feeds = sample.feeds(1)
            made.feed(feeds)
            for held in old.values():
                held.fill(POISONS[1])
            try:
                recording.replay()
            except RecordingError:
                continue
            for name, held in old.items():
                if not held.is_filled(POISONS[1]) or held.trampled():
                    violation(
                        f"{sample.name}: bound elsewhere, its replay wrote to the old "
                        f"{name!r}"
                    )
            _still(made, 1, made.output(), "when it is replayed after it was moved")


def _given_back(count: int, subject: Subject) -> None:
    with opened(subject) as provider:
        memory = provider.memory()
        samples, held = _capturable(provider, count), []
        # What is made once, such as a library's workspace, is there after the first round.
        for _ in range(2):
            for sample in samples:
                _closed_twice(provider, sample)
            held.append(memory.gauges().content if memory else 0)
    if held[1] != held[0]:
        violation(f"closed recordings leave {held[1] - held[0]} bytes of content")


def _closed_twice(provider: Provider, sample: Sample) -> None:
    with driven(provider, sample) as made:
        made.run(sample.feeds(0))
        recording = _recorded(made)
        recording.close()
        recording.close()  # a second call does nothing
        _still(made, 1, made.run(sample.feeds(1)), "after a recording was closed")


# --- refusing -------------------------------------------------------------------------


def _refusal(count: int, subject: Subject) -> None:
    """Ask for what cannot be recorded: the declared error, which names the node."""
    with opened(subject) as provider:
        for sample in claimed_samples(provider, len(SAMPLES)):
            claims = claims_of(provider, sample.views())
            fixed = any(c.not_capturable for c in claims if not isinstance(c, str))
            if provider.captures and not fixed:
                continue
            with driven(provider, sample) as made:
                made.run(sample.feeds(0))
                _refused(made)
            return
    not_run("everything that it claims can be recorded")


def _refused(made: Driven) -> None:
    said = f"{made.sample.name}: it says that this cannot be recorded, and record()"
    try:
        made.executable.record().close()
    except RecordingError as error:
        if not error.node:
            violation(f"{said} names no node: {error}")
    except Exception as error:
        violation(f"{said} raised an undeclared {type(error).__name__}: {error}")
    else:
        violation(f"{said} gave a recording")
