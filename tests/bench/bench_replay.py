"""
What a replay costs beside its kernels, and what it still does in Python.

    python -m tests.bench.bench_replay [--threads 2] [--rounds 300] [--no-record] [MODEL ...]

First a command of a recorded list, alone and with a second thread in step; then what a run
of a recorded chain takes outside of its list; then whether a profile leaves anything behind;
then the calls.

Of each recorded segment, those of control flow's bodies too: its nodes, the commands in its
lists, the lists, the nodes left in Python, and the calls that ``sys.setprofile`` sees while
the segment is replayed once, of Python functions and of compiled ones.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from tests.bench.bench_run_loop import commands, outside, recorded_chain
from tests.bench.chains import chain
from tests.bench.measuring import alternating, machine, table, write_record
from tests.models.fetched import NotThereError
from tests.models.inputs import BY_NAME

import seamline
from seamline.profiling import Profile
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


def profiled(nodes, rounds):
    """Give rows: a replay before its session is profiled, its profiled run, and after."""
    session, feeds, replay = recorded_chain(nodes)
    rows = []

    def row(what, run, rounds):
        times = alternating({"": run}, rounds=rounds, warmups=5)[""]
        rows.append((what, f"{times.median * 1e6:.1f}", f"{times.best * 1e6:.1f}"))
        print(*rows[-1], sep="  ", flush=True)

    row("replay, never profiled", replay, rounds)
    row("a run with a profile", traced(session, feeds), rounds // 10)
    row("replay afterwards", replay, rounds)
    return rows


def traced(session, feeds):
    """Give a run under a profile, as ``seamline run --profile`` makes it."""
    pipeline = session._pipeline
    return lambda: pipeline.run(feeds, profile=Profile("bench"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(BY_NAME))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    facts, rows, missing = machine(), [], []
    costs = commands(rounds=chosen.rounds)
    beside = outside(CHAINS[-1], 10 * chosen.rounds)
    traces = profiled(CHAINS[-1], 10 * chosen.rounds)
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
        "A command of a list of 1,000, on one thread and on two. With two shares of equal "
        "work, what a command takes beyond the work of one share is the price of the step.",
        table(("command", "µs, median", "µs, best"), costs),
        f"A recorded chain of {CHAINS[-1]} nodes: a run, what its list of commands takes, and "
        "what is left: feeds, the copy of the result, and the session's own calls.",
        table(("what", "µs, median", "µs, best"), beside),
        "The same chain under a profile, which has a list of its own in which every share "
        "reads the clock, and its replay before and after.",
        table(("what", "µs, median", "µs, best"), traces),
        "What the replays in one run call, as `sys.setprofile` counts it. Nodes "
        "that were folded, resolved while planning, or that only rename bytes have no command.",
        table(head, rows),
    ]
    if missing:
        sections.append("Not measured:\n\n" + "\n".join(missing))
    if not chosen.no_record:
        print(
            write_record(
                "replay", "What a replay costs beside its kernels", sections, facts
            )
        )


if __name__ == "__main__":
    main()
