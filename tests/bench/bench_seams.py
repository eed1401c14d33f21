"""
Measures what an excursion to the host costs, by form, bytes and count.

    python -m tests.bench.bench_seams [--device twin|cuda] [--rounds 200] [--record]

A model of neighbours on the device is run whole there, and with one or ten of its nodes on
the host, by each form: what a run takes more, divided by the excursions, less what the
host's node takes by itself. Each excursion moves the same bytes out and in. Runs take
turns, so that a machine that slows down slows all of them. Without ``--device`` it is the
GPU where there is one, and the simulated device elsewhere, whose numbers say nothing of one.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
from tests.bench.measuring import alternating, machine, table, write_record
from tests.core.toys import model

import seamline_cpu.plugin
import seamline_cuda.plugin
import seamline_testing.twin.plugin
from seamline.forms import SeamForm
from seamline.pipeline import Pipeline
from seamline.settings import Settings
from seamline_cuda.probe import probe

BYTES = (4 << 10, 1 << 20)
COUNTS = (1, 10)
WITHOUT = "without"
PLUGINS = (seamline_cuda.plugin, seamline_cpu.plugin, seamline_testing.twin.plugin)


def text_of(nbytes, count):
    """Give a model in which nodes ``h0``, ``h1`` ... are to be on the host."""
    size = nbytes // 4
    lines, last = ["[d0] x0 = Neg(x)"], "x0"
    for index in range(count):
        lines.append(f"[h{index}] g{index} = Relu({last})")
        last = "y" if index == count - 1 else f"x{index + 1}"
        lines.append(f"[d{index + 1}] {last} = Neg(g{index})")
    return f"g (float[{size}] x) => (float[{size}] y) {{ {' '.join(lines)} }}"


def opened(device, text, form):
    """Open the model: all of it on the device, or its nodes ``h*`` on the host by a form."""
    pinned = {} if form == WITHOUT else {"h*": "cpu"}
    return Pipeline.open(
        model(text, 23),
        providers=[device, ("cpu", {"num_threads": 1})],
        pins=pinned,
        plugins=PLUGINS,
        settings=Settings(block=("seamline",)),
        seam_form="eager" if form == WITHOUT else form,
    )


def measured(device, nbytes, count, rounds, seconds):
    """Give rows, one for each form: microseconds of a run, of an excursion, of the work."""
    text = text_of(nbytes, count)
    feeds = {"x": np.linspace(-1, 1, nbytes // 4, dtype=np.float32)}
    sessions = {
        name: opened(device, text, name) for name in (WITHOUT, *map(str, SeamForm))
    }
    try:
        runs = {n: lambda s=s: s.run(feeds) for n, s in sessions.items()}
        for run in runs.values():
            for _ in range(3):
                run()
        times = alternating(runs, rounds=rounds, seconds=seconds)
        work = work_us(sessions["mailbox"])
    finally:
        for session in sessions.values():
            session.close()
    bare = times[WITHOUT].median * 1e6
    rows = [
        (nbytes, count, WITHOUT, f"{bare:.1f}", f"{p90(times[WITHOUT]):.1f}", "", "")
    ]
    for name in map(str, SeamForm):
        median, late = times[name].median * 1e6, p90(times[name])
        each = (median - bare) / count - work
        rows.append(
            (
                nbytes,
                count,
                name,
                f"{median:.1f}",
                f"{late:.1f}",
                f"{each:.1f}",
                f"{work:.1f}",
            )
        )
    return rows


def work_us(session):
    """Give the median of what the host's nodes take, as the recording measured it."""
    (chain,) = session.runner.latest().chains.values()
    spent = chain.spent().values()
    assert spent, f"the chain was not recorded: {chain.why}"
    return statistics.median(work for _, work in spent)


def p90(times):
    return float(np.percentile(times.samples, 90)) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--device", choices=("twin", "cuda"))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each model")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    device = asked.device or ("cuda" if probe().usable else "twin")
    facts = machine()
    facts["device"] = device
    rows = []
    for nbytes in BYTES:
        for count in COUNTS:
            rows += measured(device, nbytes, count, asked.rounds, asked.seconds)
            print(*rows[-4:], sep="\n", flush=True)
    head = (
        "bytes each way", "excursions", "form", "run, median µs", "run, p90 µs",
        "µs an excursion", "host's work, µs",
    )  # fmt: skip
    sections = [
        "What a run takes beyond one without excursions, divided by their number, less the "
        "host's own work.",
        table(head, rows),
    ]
    print("\n\n".join(sections))
    if asked.record:
        title = f"Excursions to the host, by form, on {device}"
        print(write_record("seams", title, sections, facts))


if __name__ == "__main__":
    main()
