"""
Counts what comes of ONNX's node suite over ``cpu`` alone, and over ``cpu, reference``.

    python -m tests.bench.bench_node_suite [--no-record]

``right`` are cases whose outputs the kit's judge accepts, whoever ran them.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import attrs
from tests.bench.measuring import machine, table, write_record

from seamline_testing.numerics import case_check
from seamline_testing.results import Outcome
from seamline_testing.subject import Subject
from seamline_testing.suites import node_cases


@attrs.frozen
class Beside(Subject):
    """A provider with others beside it, for what it declines."""

    others: tuple[str, ...] = ()

    def open(self, source, *others, pins=None):
        return super().open(source, *self.others, *others, pins=pins)


def count(subject):
    """Give outcomes by number, and each case that is not right."""
    counts, odd = Counter(), []
    for case in node_cases():
        finding = case_check(case).run(subject)
        counts[finding.outcome] += 1
        if finding.outcome not in (Outcome.PASS, Outcome.PASS_NOT_CLAIMED):
            odd.append((case.id, str(finding.outcome), finding.said[:160]))
    return counts, odd


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    facts, sections, rows = machine(), [], []
    for subject in (Subject("cpu"), Beside("cpu", others=("reference",))):
        name = ", ".join([subject.provider, *getattr(subject, "others", ())])
        start = time.perf_counter()
        counts, odd = count(subject)
        right = counts[Outcome.PASS] + counts[Outcome.PASS_NOT_CLAIMED]
        each = [counts[outcome] for outcome in Outcome]
        rows.append(
            (name, *each, right, sum(each), f"{time.perf_counter() - start:.0f}")
        )
        print(*rows[-1], flush=True)
        lines = [f"- `{case}`: {outcome}: {said}" for case, outcome, said in odd]
        sections += [f"## Not right over {name}", "\n".join(lines) or "None."]
    head = (
        "providers",
        *[str(outcome) for outcome in Outcome],
        "right",
        "of",
        "seconds",
    )
    if not chosen.no_record:
        sections.insert(0, table(head, rows))
        print(write_record("node-suite", "ONNX's node suite", sections, facts))


if __name__ == "__main__":
    main()
