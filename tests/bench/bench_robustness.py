"""
Asks hard things of whole processes, and writes down what came of each.

    python -m tests.bench.bench_robustness [--seconds 3] [--no-record]

Threads over one session and over two, children forked while another thread runs, compiled
code that cannot be written, that was cut short or that is another processor's, a process at
rest, and the end of the interpreter with sessions open and threads running. A result is
right to the bit, or the row says what went wrong. The programs are those of
``tests.cpu.robustness``, which ``tests/cpu/test_threads.py`` holds one by one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time

from tests.bench.measuring import machine, table, write_record
from tests.cpu.robustness import (
    CACHE,
    ENDS,
    FORKED,
    FOUR_THREADS,
    IDLE,
    ONE_SESSION,
    REFUSED,
    TWO_SESSIONS,
    WATCHED,
    cut,
    ends_well,
)

ANOTHER = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}


def asked(seconds):
    """Give what is asked, with the function that asks it of a cache's folder."""
    processes = {
        "two threads, a session each": TWO_SESSIONS,
        "two threads, one session": ONE_SESSION,
        "four threads, two sessions": FOUR_THREADS,
        "children forked while another thread runs": FORKED,
        f"at rest for {seconds} s with a session open": IDLE.format(seconds=seconds),
        "the interpreter ends while threads run": ENDS,
    }
    questions = {"an empty cache": _cache()}
    for what, code in processes.items():
        questions[what] = _process(code)
    questions["a cache that cannot be written"] = _cache(REFUSED)
    questions["a cache of which every file was cut to a half"] = _after_cut
    questions["the same cache, mended"] = _cache()
    questions["a cache filled by another processor"] = _cache(**ANOTHER)
    return questions


def _process(code):
    return lambda folder: ends_well(code, 300, NUMBA_CACHE_DIR=folder)


def _cache(before="", **environment):
    def ask(folder):
        return ends_well(
            CACHE, 300, before + WATCHED, NUMBA_CACHE_DIR=folder, **environment
        )

    return ask


def _after_cut(folder):
    cut(folder)
    return _cache()(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    facts, rows = machine(), []
    with tempfile.TemporaryDirectory() as folder:
        for what, ask in asked(chosen.seconds).items():
            start = time.perf_counter()
            try:
                said = ask(folder)
                found = ", ".join(f"{k} {v}" for k, v in said.items() if v != "")
                came = "right"
            except Exception as error:  # whatever it is, it is what is to be shown
                came, found = "**wrong**", f"{type(error).__name__}: {error}"[-300:]
            took = time.perf_counter() - start
            rows.append((what, came, found.replace("|", "\\|"), f"{took:.1f}"))
            print(*rows[-1], sep="  ", flush=True)
    sections = [
        "Each row is a process of its own, over chains of twelve nodes of 600,000 floats on two "
        "threads. *Right* is to the bit, and the process ended with status 0. Warnings of "
        "the cache are counted once for each folder of sources.",
        table(("asked", "came", "found", "s, whole process"), rows),
    ]
    if not chosen.no_record:
        title = "Threads, forks, caches, rest and end"
        print(write_record("robustness", title, sections, facts))
    sys.exit(any(came != "right" for _, came, _, _ in rows))


if __name__ == "__main__":
    main()
