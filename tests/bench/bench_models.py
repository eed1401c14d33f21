"""
Times real models beside onnxruntime: same feeds, same threads, in turns.

    python -m tests.bench.bench_models [--rounds 30] [--threads 2] [--no-record]
        [--unoptimized] [--processor-time] [--name NAME] [MODEL ...]

``--unoptimized`` takes turns with a third, the graph without optimization, and writes a
record of its own. ``--processor-time`` counts what one thread ran, where other work would
make waiting times of all others.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import onnxruntime as ort
from tests.bench.measuring import alternating, machine, table, write_record
from tests.models.fetched import NotThereError
from tests.models.inputs import BY_NAME

import seamline

REST = 0.05  #: seconds before each turn, so that the other's workers have come to rest


def opened(path, threads, level):
    """Open a model in seamline at a level of optimization."""
    options = seamline.SessionOptions()
    options.graph_optimization_level = level
    providers = [("cpu", {"num_threads": threads})]
    return seamline.InferenceSession(path, options, providers=providers)


def contestants(path, feeds, threads, unoptimized):
    """Open a model in each; give functions that run it once."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    theirs = ort.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    levels = seamline.GraphOptimizationLevel
    ours = opened(path, threads, levels.ORT_ENABLE_ALL)
    runs = {
        "onnxruntime": lambda: theirs.run(None, feeds),
        "seamline": lambda: ours.run(None, feeds),
    }
    if unoptimized:
        plain = opened(path, threads, levels.ORT_DISABLE_ALL)
        runs["unoptimized"] = lambda: plain.run(None, feeds)
    return runs


def difference(one, other):
    """Give the largest difference as a share of the largest value; NaN of other sizes."""
    largest = 0.0
    for a, b in zip(one(), other(), strict=True):
        if a.shape != b.shape:
            return float("nan")
        a, b = a.astype(np.float64), b.astype(np.float64)
        largest = max(largest, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return largest


def measure(model, threads, rounds, unoptimized=False, clock=time.perf_counter):
    """Give a row of the table for a model, and print it."""
    path = model.path()
    runs = contestants(path, model.feeds(path), threads, unoptimized)
    apart = difference(runs["seamline"], runs["onnxruntime"])
    times = alternating(runs, rounds=rounds, rest=REST, clock=clock)
    ours, theirs = times["seamline"], times["onnxruntime"]
    row = (
        model.name,
        f"{ours.median * 1e3:.3f}",
        f"{theirs.median * 1e3:.3f}",
        f"{ours.median / theirs.median:.2f}",
        f"{ours.best / theirs.best:.2f}",
        f"{ours.spread:.0%} / {theirs.spread:.0%}",
        f"{apart:.1e}",
        len(ours.samples),
    )
    if unoptimized:
        plain = times["unoptimized"]
        row += (
            f"{plain.median * 1e3:.3f}",
            f"{ours.median / plain.median:.2f}",
            f"{ours.best / plain.best:.2f}",
            f"{difference(runs['seamline'], runs['unoptimized']):.1e}",
        )
    print(*row, sep="  ", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(BY_NAME))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--unoptimized", action="store_true")
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--name", default="", help="the record's")
    chosen = parser.parse_args()
    clock, counted = time.perf_counter, f"{chosen.threads} threads each"
    if chosen.processor_time:
        chosen.threads, clock = 1, time.thread_time
        counted = "1 thread each, whose processor time is counted"
    facts, rows, missing = machine(), [], []
    for name in chosen.models or BY_NAME:
        try:
            model = BY_NAME[name]
            rows.append(
                measure(model, chosen.threads, chosen.rounds, chosen.unoptimized, clock)
            )
        except NotThereError as error:
            missing.append(f"- {name}: {error}")
        except seamline.SeamlineError as error:
            # A model that does not run is a result, and belongs in the record.
            missing.append(
                f"- {name}: {type(error).__name__}: {str(error).splitlines()[0]}"
            )
            print(missing[-1], flush=True)
    head = (
        "model", "seamline ms", "onnxruntime ms", "ratio of medians", "ratio of best",
        "spread", "largest difference", "turns",
    )  # fmt: skip
    if chosen.unoptimized:
        head += (
            "unoptimized ms", "optimized over unoptimized", "best over best",
            "difference of both",
        )  # fmt: skip
    sections = [
        f"Medians over turns that alternate, {counted}. "
        "A ratio below 1 means that seamline took less time. *Spread* is the middle half's "
        "width over the median; above 20 % a row says little. *Difference* is the largest "
        "between the outputs, as a share of the largest value. Models that quantise their "
        "activations grow a last digit's difference to several codes, or to another length "
        "(nan); tests/models compares them decision by decision.",
        table(head, rows),
    ]
    if missing:
        sections.append("Not measured:\n\n" + "\n".join(missing))
    if not chosen.no_record:
        name, title = "models", "Real models beside onnxruntime"
        if chosen.unoptimized:
            name, title = (
                "graph-optimization",
                f"{title}, with and without optimization",
            )
        print(write_record(chosen.name or name, title, sections, facts))


if __name__ == "__main__":
    main()
