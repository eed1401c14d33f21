"""
The whole conformance kit over ``cuda`` on the emulated device: outcomes by group, and what is not right.

    python -m tests.bench.bench_cuda_emulated [GROUP ...] [--checks TEXT] [--record]

Every check has a driver of its own, so that one that loses the device does not end the
others. Says nothing of speed. Ends with status 1 where a check failed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.bench.measuring import machine, table, write_record
from tests.cuda.emulation import emulated

from seamline_testing.registry import GROUPS, all_checks
from seamline_testing.results import Outcome
from seamline_testing.subject import Subject

CUDA = Subject("cuda", plugins=("seamline_cuda.plugin",))
QUIET = (Outcome.PASS, Outcome.PASS_NOT_CLAIMED, Outcome.DECLINED)


def outcome_of(check):
    """Run one check; give its outcome and what was said."""
    finding = None
    try:
        with emulated():
            finding = check.run(CUDA)
    except AssertionError as error:  # something was left open
        return Outcome.CONTRACT_VIOLATION, f"{error}; {finding}"
    return finding.outcome, finding.said


def counted(group, only):
    """Give outcomes by number, and each check that is neither right nor declined."""
    counts, odd = Counter(), []
    for check in all_checks(CUDA, False, (group,)):
        if only not in check.id:
            continue
        outcome, said = outcome_of(check)
        counts[outcome] += 1
        if outcome not in QUIET:
            odd.append((check.id, outcome, " ".join(said.split())[:300]))
            print(*odd[-1], flush=True)
    return counts, odd


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], default=[])
    parser.add_argument("--checks", default="")
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    facts, rows, lines, failed = machine(), [], [], 0
    for group in chosen.groups or GROUPS:
        counts, odd = counted(group, chosen.checks)
        rows.append(
            (group, *[counts[outcome] for outcome in Outcome], sum(counts.values()))
        )
        print(*rows[-1], flush=True)
        lines += [f"- `{name}`: {outcome}: {said}" for name, outcome, said in odd]
        failed += sum(outcome.is_failure for _, outcome, _ in odd)
    head = ("group", *[str(outcome) for outcome in Outcome], "of")
    if chosen.record:
        sections = [
            table(head, rows),
            "## Neither right nor declined",
            "\n".join(lines) or "None.",
        ]
        print(
            write_record(
                "cuda-emulated",
                "The conformance kit over cuda, emulated",
                sections,
                facts,
            )
        )
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
