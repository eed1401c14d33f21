"""
Times ``import seamline`` in fresh interpreters, beyond what onnx and numpy take.

    python -m tests.bench.bench_import [--no-record]
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.bench.measuring import Times, machine, table, write_record

CASES = {
    "nothing": "pass",
    "numpy, onnx": "import numpy, onnx",
    "seamline": "import seamline",
    "numpy, onnx, seamline": "import numpy, onnx; import seamline",
    "numpy, onnx, seamline.InferenceSession": "import numpy, onnx; import seamline; seamline.InferenceSession",
}
_TIMED = """
import time
start = time.perf_counter()
{statement}
print(time.perf_counter() - start)
"""


def seconds(statement):
    done = subprocess.run(
        [sys.executable, "-c", _TIMED.format(statement=statement)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    facts = machine()
    samples = {name: [] for name in CASES}
    for turn in range(chosen.rounds + 1):
        for name, statement in CASES.items():
            taken = seconds(statement)
            if turn:  # the first reads the disk
                samples[name].append(taken)
    times = {name: Times(tuple(taken)) for name, taken in samples.items()}
    base = times["numpy, onnx"].median
    rows = []
    for name, found in times.items():
        beyond = (
            f"{(found.median - base) * 1e3:.0f}"
            if name.startswith("numpy, onnx,")
            else ""
        )
        rows.append((name, f"{found.median * 1e3:.0f}", beyond, f"{found.spread:.0%}"))
        print(*rows[-1], sep="  ")
    sections = [
        f"Medians of {chosen.rounds} fresh interpreters for each, in turns; start-up of the "
        "interpreter itself is not counted.",
        table(("imported", "ms", "ms beyond numpy and onnx", "spread"), rows),
    ]
    if not chosen.no_record:
        print(write_record("import", "Import time", sections, facts))


if __name__ == "__main__":
    main()
