"""
Fuzzes loading and planning with broken models.

    python -m tests.fuzz.fuzz --inputs 200000 [--seed N] [--minutes M] [--jobs 2]

An input either loads and plans, or is refused with one of seamline's errors. Anything else
is a finding: it is made small, and written to a folder once for each place that it comes
from. Inputs depend on seed and index alone, so a run can be taken up with ``--first``.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import sys
import time
from collections import Counter
from pathlib import Path

import attrs
from tests.fuzz.inputs import Input, input_at
from tests.fuzz.judging import Finding, warm_up
from tests.fuzz.minimising import minimised
from tests.fuzz.seeds import node_suite_seeds, written_seeds
from tests.fuzz.workers import DEADLINE, judged, judged_alone

__all__ = ["Tally", "fuzz"]

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "fuzz"
_STRIDE = 2000  # inputs that one process takes before another may stop it


@attrs.define
class Tally:
    """What a run saw: how many of each outcome, and findings by key with their indices."""

    outcomes: Counter[str] = attrs.field(factory=Counter)
    findings: dict[str, list[int]] = attrs.field(factory=dict)

    @property
    def inputs(self) -> int:
        """Give the number of inputs judged."""
        return self.outcomes.total()


def fuzz(seeds, seed: int, first: int, stop: int, folder: Path | None = None) -> Tally:
    """
    Judge a range of inputs.

    Parameters
    ----------
    folder
        Where new findings go, made small; nowhere where left out.
    """
    tally = Tally()
    make = functools.partial(input_at, seeds, seed)
    for verdict in judged(make, first, stop):
        outcome = verdict.outcome
        if isinstance(outcome, Finding):
            outcome = _confirmed(make(verdict.index), outcome)
        if not isinstance(outcome, Finding):
            tally.outcomes[outcome] += 1
            continue
        tally.outcomes["finding"] += 1
        known = tally.findings.setdefault(outcome.key, [])
        known.append(verdict.index)
        if len(known) == 1 and folder is not None:
            _keep(make(verdict.index), outcome, folder, f"{seed}-{verdict.index}")
    return tally


def _confirmed(given: Input, found: Finding) -> str | Finding:
    """Give a hang another chance, alone and longer: Numba may have been compiling."""
    if not found.key.startswith(("hang", "asleep")):
        return found
    return judged_alone(given, DEADLINE * 3)


def _keep(given: Input, found: Finding, folder: Path, name: str) -> None:
    def shows(tried: Input) -> bool:
        outcome = judged_alone(tried)
        return isinstance(outcome, Finding) and outcome.key == found.key

    known = [one.read_text("utf-8").split("\n", 1)[0] for one in folder.glob("*.txt")]
    if found.key in known:
        return
    print(f"finding {name} ({given.origin}, {given.form}): {found.key}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / f"{name}.txt"
    record.write_text(f"{found.key}\n{given.origin} {given.form}\n\n{found.said}\n")
    (folder / f"{name}.onnx").write_bytes(given.model)
    slow = found.key.startswith(("hang", "asleep"))
    small = minimised(given, shows, 0.0 if slow else 6.0)
    (folder / f"{name}.onnx").write_bytes(small.model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--written", action="store_true", help="without the node suite")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument(
        "--tally", type=Path, help="where to add what was seen, as JSON"
    )
    options = parser.parse_args()
    start = time.monotonic()
    seeds = written_seeds()
    warm_up(seeds)
    seeds += () if options.written else node_suite_seeds()
    print(f"{len(seeds)} seeds after {time.monotonic() - start:.0f} s", flush=True)
    until = time.monotonic() + options.minutes * 60
    share = -(-options.inputs // options.jobs)
    runs = []
    for job in range(options.jobs):
        first = options.first + job * share
        stop = min(first + share, options.first + options.inputs)
        arguments = (seeds, options, first, stop, until, start)
        runs.append(multiprocessing.get_context("fork").Process(target=_run, args=arguments))  # fmt: skip
        runs[-1].start()
    for run in runs:
        run.join()
    sys.exit(max(run.exitcode or 0 for run in runs))


def _run(seeds, options, first: int, stop: int, until: float, start: float) -> None:
    whole = Tally()
    for begin in range(first, stop, _STRIDE):
        if time.monotonic() > until:
            break
        end = min(begin + _STRIDE, stop)
        tally = fuzz(seeds, options.seed, begin, end, options.folder)
        whole.outcomes += tally.outcomes
        for key, indices in tally.findings.items():
            whole.findings.setdefault(key, []).extend(indices)
        seconds = time.monotonic() - start
        print(f"{options.seed}/{end} {seconds:.0f} s: {dict(whole.outcomes)}", flush=True)  # fmt: skip
        if options.tally is not None:
            _note(options.tally, options.seed, begin, tally)
    for key, indices in whole.findings.items():
        print(f"  {len(indices)} x {key}, first at {options.seed}/{indices[0]}")
    sys.exit(1 if whole.findings else 0)


def _note(path: Path, seed: int, first: int, tally: Tally) -> None:
    facts = {
        "seed": seed, "first": first, "inputs": tally.inputs,
        "outcomes": dict(tally.outcomes), "findings": tally.findings,
    }  # fmt: skip
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
