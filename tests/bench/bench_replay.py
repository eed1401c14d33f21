"""
Counts what a replay of real models still does in Python.

    python -m tests.bench.bench_replay [--threads 2] [--no-record] [MODEL ...]

Of each recorded segment, those of control flow's bodies too: its nodes, the commands in its
lists, the lists, the nodes left in Python, and the calls that ``sys.setprofile`` sees while
the segment is replayed once, of Python functions and of compiled ones.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from tests.bench.chains import chain
from tests.bench.measuring import machine, table, write_record
from tests.models.fetched import NotThereError
from tests.models.inputs import BY_NAME

import seamline
from seamline_cpu.commands import Native

CHAINS = (8, 200)


def programs(runner):
    """Give a runner's programs, with those of bodies and of what follows them."""
    for program in runner._programs.values():
        yield program
        for bodies in program.bodies.values():
            for body in bodies.values():
                yield from programs(body)
        if program.rest is not None:
            yield from programs(program.rest)


def captured_of(session):
    """Give the recorded segments of a session that has run."""
    return [
        captured
        for program in programs(session._pipeline.runner)
        for captured in program.captured.values()
        if captured.recording is not None
    ]


def calls_of(function):
    """Count the calls that Python sees, by kind."""
    seen = {"call": 0, "c_call": 0}

    def note(frame, event, arg):
        if event in seen:
            seen[event] += 1

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return seen["call"], seen["c_call"] - 1  # less the one that ends the counting


def counted_run(session, feeds, captured):
    """Run once, and give what each replay in it called."""
    counted = []

    def counting(replay):
        return lambda: counted.append(calls_of(replay))

    for one in captured:
        one._now = counting(one.recording.replay)
    try:
        session.run(None, feeds)
    finally:
        for one in captured:
            one._now = one.recording.replay
    return counted


def row_of(name, session, feeds):
    """Give a row of the table for a session, and print it."""
    for _ in range(3):
        session.run(None, feeds)
    captured = captured_of(session)
    calls = [call for one in captured for call, _ in one.recording.calls]
    native = [call for call in calls if isinstance(call, Native)]
    counted = counted_run(session, feeds, captured)
    row = (
        name, sum(len(one.step.nodes) for one in captured),
        sum(len(call.rows) for call in native), len(native),
        sum(len(one.left) for one in captured), len(counted),
        sum(python for python, _ in counted), sum(compiled for _, compiled in counted),
    )  # fmt: skip
    print(*row, sep="  ", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(BY_NAME))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    facts, rows, missing = machine(), [], []
    providers = [("cpu", {"num_threads": chosen.threads})]
    for length in CHAINS:
        session = seamline.InferenceSession(chain(length), providers=providers)
        feeds = {"x": np.array([0.5, -1.0, 2.0, 3.5], np.float32)}
        rows.append(row_of(f"a chain of {length}", session, feeds))
    for name in chosen.models or BY_NAME:
        try:
            path = BY_NAME[name].path()
        except NotThereError as error:
            missing.append(f"- {name}: {error}")
            continue
        session = seamline.InferenceSession(path, providers=providers)
        rows.append(row_of(name, session, BY_NAME[name].feeds(path)))
        session._pipeline.close()
    head = (
        "model", "nodes recorded", "commands", "lists", "nodes left in Python",
        "replays in a run", "their Python calls", "their compiled calls",
    )  # fmt: skip
    sections = [
        "What the replays in one run call, as `sys.setprofile` counts it. Nodes "
        "that were folded, resolved while planning, or that only rename bytes have no command.",
        table(head, rows),
    ]
    if missing:
        sections.append("Not measured:\n\n" + "\n".join(missing))
    if not chosen.no_record:
        print(write_record("replay", "Python in a replay", sections, facts))


if __name__ == "__main__":
    main()
