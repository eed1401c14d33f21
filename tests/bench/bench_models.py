"""
Times real models beside onnxruntime: same feeds, same threads, in turns.

    python -m tests.bench.bench_models [--rounds 30] [--threads 2] [--no-record] [--name models] [MODEL ...]
"""

from __future__ import annotations

import argparse

import numpy as np
import onnxruntime as ort
from tests.bench.measuring import alternating, machine, table, write_record
from tests.models.fetched import NotThereError
from tests.models.inputs import BY_NAME

import seamline

REST = 0.05  #: seconds before each turn, so that the other's workers have come to rest


def contestants(path, feeds, threads):
    """Open a model in both; give functions that run it once."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    theirs = ort.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    ours = seamline.InferenceSession(
        path, providers=[("cpu", {"num_threads": threads})]
    )
    return {
        "onnxruntime": lambda: theirs.run(None, feeds),
        "seamline": lambda: ours.run(None, feeds),
    }


def difference(one, other):
    """Give the largest difference as a share of the largest value; NaN of other sizes."""
    largest = 0.0
    for a, b in zip(one(), other(), strict=True):
        if a.shape != b.shape:
            return float("nan")
        a, b = a.astype(np.float64), b.astype(np.float64)
        largest = max(largest, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return largest


def measure(model, threads, rounds):
    """Give a row of the table for a model, and print it."""
    path = model.path()
    runs = contestants(path, model.feeds(path), threads)
    apart = difference(runs["seamline"], runs["onnxruntime"])
    times = alternating(runs, rounds=rounds, rest=REST)
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
    print(*row, sep="  ", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(BY_NAME))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--name", default="models", help="the record's")
    chosen = parser.parse_args()
    facts, rows, missing = machine(), [], []
    for name in chosen.models or BY_NAME:
        try:
            rows.append(measure(BY_NAME[name], chosen.threads, chosen.rounds))
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
    sections = [
        f"Medians over turns that alternate between the two, {chosen.threads} threads each. "
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
        print(
            write_record(chosen.name, "Real models beside onnxruntime", sections, facts)
        )


if __name__ == "__main__":
    main()
