"""
Times the start of real models, each in a process of its own: from nothing to a replay.

    python -m tests.bench.bench_start [--rounds 3] [--threads 2] [--no-record] [MODEL ...]

*Cold* has an empty cache of compiled code, *warm* the one that the cold start filled. The
time is of opening the model and its first run; imports are given apart, since they are paid
once a process. onnxruntime starts in processes of its own, in turn with the warm ones.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.measuring import Times, machine, table, write_record
from tests.models.fetched import NotThereError
from tests.models.inputs import BY_NAME

ROOT = Path(__file__).resolve().parents[2]
OURS = """
import json, sys, time
begun = time.perf_counter()
import seamline, seamline_cpu.provider
from seamline_cpu.jit_cache import counts
from tests.models.inputs import BY_NAME
imported = time.perf_counter()
model = BY_NAME[sys.argv[1]]
path = model.path()
feeds = model.feeds(path)
start = time.perf_counter()
session = seamline.InferenceSession(
    path, providers=[("cpu", {"num_threads": int(sys.argv[2])})]
)
opened = time.perf_counter()
session.run(None, feeds)
first = time.perf_counter()
session.run(None, feeds)
second = time.perf_counter()
print(json.dumps({
    "imports": imported - begun, "open": opened - start, "first": first - opened,
    "second": second - first, **counts,
}))
"""
THEIRS = """
import json, sys, time
begun = time.perf_counter()
import onnxruntime as ort
from tests.models.inputs import BY_NAME
imported = time.perf_counter()
model = BY_NAME[sys.argv[1]]
path = model.path()
feeds = model.feeds(path)
options = ort.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
options.log_severity_level = 3
start = time.perf_counter()
session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
opened = time.perf_counter()
session.run(None, feeds)
first = time.perf_counter()
print(json.dumps({
    "imports": imported - begun, "open": opened - start, "first": first - opened,
}))
"""


def started(code, name, threads, cache):
    """Give what a new process measured."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, name, str(threads)],
        capture_output=True, text=True, check=True, cwd=ROOT, timeout=900,
        env={**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def measure(name, threads, rounds):
    """Give a row of the table for a model, and print it."""
    BY_NAME[name].path()
    with tempfile.TemporaryDirectory() as cache:
        cold = started(OURS, name, threads, cache)
        warm, theirs = [], []
        for _ in range(rounds):
            warm.append(started(OURS, name, threads, cache))
            theirs.append(started(THEIRS, name, threads, cache))

    def middle(taken, *keys):
        return Times(tuple(sum(one[key] for key in keys) for one in taken)).median

    ours, other = (middle(taken, "open", "first") for taken in (warm, theirs))
    row = (
        name, f"{cold['open'] + cold['first']:.2f}", cold["compiled"], f"{ours:.2f}",
        f"{middle(warm, 'open'):.2f}", f"{middle(warm, 'first'):.2f}", warm[0]["compiled"],
        warm[0]["loaded"], f"{other:.2f}", f"{ours / other:.1f}",
        f"{middle(warm, 'imports'):.2f} / {middle(theirs, 'imports'):.2f}",
    )  # fmt: skip
    print(*row, sep="  ", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(BY_NAME))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    facts, rows, missing = machine(), [], []
    for name in chosen.models or BY_NAME:
        try:
            rows.append(measure(name, chosen.threads, chosen.rounds))
        except NotThereError as error:
            missing.append(f"- {name}: {error}")
    head = (
        "model", "cold s", "compiled", "warm s", "of it open s", "first run s",
        "compiled when warm", "loaded", "onnxruntime s", "ratio", "imports s, ours / its",
    )  # fmt: skip
    sections = [
        "Opening a model and running it once, in a new process. *Cold*: one start with an "
        "empty cache of compiled code; it compiles so many functions. *Warm*: the median of "
        f"{chosen.rounds} starts after it, in turn with onnxruntime's, which is *its* open "
        "and first run; the ratio is of the two medians.",
        table(head, rows),
    ]
    if missing:
        sections.append("Not measured:\n\n" + "\n".join(missing))
    if not chosen.no_record:
        print(
            write_record("start", "Cold and warm start of real models", sections, facts)
        )


if __name__ == "__main__":
    main()
