"""Timing that two contestants share, and the record that is written of it."""

from __future__ import annotations

import datetime as dt
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import attrs

RECORDS = Path(__file__).resolve().parents[2] / "docs" / "performance"


@attrs.frozen
class Times:
    """Seconds that a thing took, each time it was run."""

    samples: tuple[float, ...]

    @property
    def median(self):
        return statistics.median(self.samples)

    @property
    def best(self):
        return min(self.samples)

    @property
    def spread(self):
        """Give the middle half's width as a share of the median."""
        if len(self.samples) < 4:
            return float("nan")
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / self.median


def alternating(
    contestants, *, rounds, warmups=2, seconds=20.0, rest=0.0, clock=time.perf_counter
):
    """
    Time functions in turns, so that a machine that slows down slows all of them.

    Each turn begins with another contestant. Before each nothing is done for ``rest``
    seconds.

    ``clock`` gives seconds: ``time.thread_time`` counts those that this thread ran, which
    other work on the machine changes little.

    Stops after ``rounds`` turns, or after ``seconds`` once there are five.
    """
    names = list(contestants)
    samples = {name: [] for name in names}
    for function in contestants.values():
        for _ in range(warmups):
            function()
    end = time.perf_counter() + seconds
    for turn in range(rounds):
        if turn >= 5 and time.perf_counter() > end:
            break
        # onnxruntime's workers spin for a while after a run, on cores that the next
        # contestant would have; and who is next would always be the same one.
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            function = contestants[name]
            if rest:  # even a sleep of 0 s gives the core away, and cold caches with it
                time.sleep(rest)
            start = clock()
            function()
            samples[name].append(clock() - start)
    return {name: Times(tuple(taken)) for name, taken in samples.items()}


def machine():
    """Describe the machine and its versions, as rows of a table."""
    rows = {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "system": f"{platform.system()} {platform.release()}",
        "load when it began": " ".join(f"{x:.2f}" for x in os.getloadavg()),
        "ten million additions in Python": f"{_yardstick():.2f} s",
        "Python": platform.python_version(),
    }
    for name in ("seamline", "numpy", "numba", "onnx", "onnxruntime"):
        try:
            rows[name] = version(name)
        except PackageNotFoundError:
            rows[name] = "not installed"
    rows["commit"] = _commit()
    rows["command"] = " ".join([f"python -m {_module()}", *sys.argv[1:]])
    return rows


def write_record(name, title, sections, facts):
    """
    Write ``docs/performance/<date>-<name>.md``, and give its path.

    A second of one day gets a number; the one before it stays, and names its successor.

    Parameters
    ----------
    sections
        Pieces of Markdown: tables from :func:`table`, and what was measured.
    facts
        What :func:`machine` said before measuring began.
    """
    RECORDS.mkdir(parents=True, exist_ok=True)
    day = facts["date"][:10]
    path, before, number = RECORDS / f"{day}-{name}.md", None, 1
    while path.exists():
        before, number = path, number + 1
        path = RECORDS / f"{day}-{name}-{number}.md"
    text = "\n\n".join([f"# {title}", table(("", ""), facts.items()), *sections])
    path.write_text(text + "\n", "utf-8")
    if before is not None:
        title, rest = before.read_text("utf-8").split("\n", 1)
        said = f"Superseded by [{path.stem}]({path.name})."
        before.write_text(f"{title}\n\n{said}\n{rest}", "utf-8")
    return path


def table(head, rows):
    """Give a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _yardstick():
    """Time a loop that says how fast this machine is just now; shared ones vary by two."""
    start, total = time.perf_counter(), 0
    for number in range(10_000_000):
        total += number
    return time.perf_counter() - start


def _processor():
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return platform.processor() or "unknown"
    names = [
        s.split(":")[1].strip() for s in text.splitlines() if s.startswith("model name")
    ]
    return names[0] if names else platform.machine()


def _commit():
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parent,
        )  # fmt: skip
    except FileNotFoundError:
        return "unknown: git is not installed"
    # A copy without its repository, on another machine, is told.
    told = os.environ.get("SEAMLINE_COMMIT", "not in a repository")
    return done.stdout.strip() or told


def _module():
    main = sys.modules["__main__"]
    return main.__spec__.name if main.__spec__ else Path(sys.argv[0]).stem
