"""
Times the run loop: a chain of kernels so small that only the way to them counts.

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
    for name, providers in (
        ("seamline, cpu", [("cpu", {"num_threads": 1})]),
        ("seamline, onnxruntime as one segment", [("onnxruntime", {"num_threads": 1})]),
    ):
        runs[name] = _running(
            seamline.InferenceSession(model, providers=providers), feeds
        )
    return runs


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
    ]
    if not chosen.no_record:
        print(
            write_record("run-loop", "The run loop's cost for a node", sections, facts)
        )


if __name__ == "__main__":
    main()
