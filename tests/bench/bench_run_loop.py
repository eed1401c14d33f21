"""
Times the run loop: a chain of kernels so small that only the way to them counts.

Also what a command of a recorded list costs, alone and with a second thread in step, and
what a run of the recorded chain costs beside its commands.

    python -m tests.bench.bench_run_loop [--nodes 200] [--no-record]

The chain is Add, Neg, Mul, Abs over four floats, each node with its own constant, so that
nothing folds and nothing fuses away.
"""

from __future__ import annotations

import argparse

import numpy as np
import onnxruntime as ort
from tests.bench.chains import chain
from tests.bench.measuring import alternating, machine, table, write_record

import seamline
from seamline_cpu.atomics import longs
from seamline_cpu.commands import command, in_list


def contestants(nodes):
    model = chain(nodes)
    feeds = {"x": np.array([0.5, -1.0, 2.0, 3.5], np.float32)}
    runs = {}
    for name, level in (
        ("onnxruntime, no rewriting", ort.GraphOptimizationLevel.ORT_DISABLE_ALL),
        ("onnxruntime, as it comes", ort.GraphOptimizationLevel.ORT_ENABLE_ALL),
    ):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = level
        theirs = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        runs[name] = _running(theirs, feeds)
    for name, provider, record in (
        ("seamline, cpu, recorded", "cpu", True),
        ("seamline, cpu, not recorded", "cpu", False),
        ("seamline, onnxruntime as one segment", "onnxruntime", True),
    ):
        runs[name] = _running(_opened(model, provider, record), feeds)
    return runs


def _opened(model, provider, record=True):
    options = seamline.SessionOptions()
    options.record_segments = record
    chosen = [(provider, {"num_threads": 1})]
    return seamline.InferenceSession(model, options, providers=chosen)


@command
def nothing(a, share, shares):
    """Do nothing: the way to it is all that is timed."""


@command
def some_work(a, share, shares):
    """Take the same time in each share."""
    x = longs(a[0] + 64 * share)
    for i in range(a[1]):
        x[0] = x[0] * 3 + i


def commands(count=1000, rounds=300):
    """Give rows of a table: microseconds a command, of its way alone."""
    values = np.zeros(64, np.int64)
    arguments = np.array([values.ctypes.data, 700], np.int64)
    rows = []
    for what, one, shares in (
        ("empty, one share", nothing, 1),
        ("empty, two shares", nothing, 2),
        ("work, one share", some_work, 1),
        ("the same work in each of two shares", some_work, 2),
    ):
        run = in_list([(one.address, arguments.ctypes.data, shares)] * count, arguments)
        times = alternating({"": run}, rounds=rounds, warmups=5)[""]
        row = (
            what,
            f"{times.median * 1e6 / count:.3f}",
            f"{times.best * 1e6 / count:.3f}",
        )
        rows.append(row)
        print(*row, sep="  ")
    return rows


def recorded_chain(nodes):
    """Give a session of a chain that is recorded, its feeds, and its replay."""
    session = _opened(chain(nodes), "cpu")
    feeds = {"x": np.array([0.5, -1.0, 2.0, 3.5], np.float32)}
    for _ in range(20):
        session.run(None, feeds)
    (captured,) = session._pipeline.runner.latest().captured.values()
    return session, feeds, captured.recording.replay


def outside(nodes, rounds):
    """Give rows: a run of the recorded chain, its replay alone, and the rest."""
    session, feeds, replay = recorded_chain(nodes)
    both = {"run": _running(session, feeds), "replay": replay}
    times = alternating(both, rounds=rounds, warmups=20)
    run, alone = (
        (times[name].median * 1e6, times[name].best * 1e6) for name in ("run", "replay")
    )
    rest = tuple(a - b for a, b in zip(run, alone, strict=True))
    rows = [
        (what, *(f"{one:.1f}" for one in pair))
        for what, pair in (
            ("a run", run), ("its replay alone", alone), ("outside the replay", rest),
        )
    ]  # fmt: skip
    for row in rows:
        print(*row, sep="  ")
    return rows


def _running(session, feeds):
    return lambda: session.run(None, feeds)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    facts = machine()
    empty = alternating(contestants(1), rounds=chosen.rounds, warmups=20)
    full = alternating(contestants(chosen.nodes), rounds=chosen.rounds, warmups=20)
    rows = []
    for name, times in full.items():
        each = (times.median - empty[name].median) / (chosen.nodes - 1)
        rows.append(
            (name, f"{times.median * 1e6:.1f}", f"{empty[name].median * 1e6:.1f}",
             f"{each * 1e9:.0f}", f"{times.spread:.0%}")
        )  # fmt: skip
        print(*rows[-1], sep="  ")
    sections = [
        f"A chain of {chosen.nodes} kernels over four floats, one thread, medians of "
        f"{len(times.samples)} turns. *A run* is the whole call; *a node* is what each "
        "further node adds to a chain of one.",
        table(
            ("runtime", "a run, µs", "of one node, µs", "a node, ns", "spread"), rows
        ),
        f"The recorded chain of {chosen.nodes}: a run, what its list of commands takes, and "
        "what is left: feeds, the copy of the result, and the session's own calls.",
        table(("what", "µs, median", "µs, best"), outside(chosen.nodes, chosen.rounds)),
        "A command of a list of 1,000, on one thread and on two. With two shares of equal "
        "work, what a command takes beyond the work of one share is the price of the step.",
        table(("command", "µs, median", "µs, best"), commands()),
    ]
    if not chosen.no_record:
        print(
            write_record("run-loop", "The run loop's cost for a node", sections, facts)
        )


if __name__ == "__main__":
    main()
