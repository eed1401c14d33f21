"""
Writes the record of fuzzing from what runs noted with ``--tally``.

    python -m tests.fuzz.recording TALLY [--notes FILE]

Notes are Markdown: what was found and what became of it, which no tally can know.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from tests.bench.measuring import machine, table, write_record

__all__ = ["sections"]


def sections(lines) -> list[str]:
    """Give the tables of a record: inputs by seed and outcome, then findings by place."""
    outcomes: dict[int, Counter[str]] = {}
    findings: Counter[tuple[str, int]] = Counter()
    for facts in map(json.loads, lines):
        seed = facts["seed"]
        outcomes.setdefault(seed, Counter()).update(facts["outcomes"])
        for key, indices in facts["findings"].items():
            findings[key, seed] += len(indices)
    kinds = sorted({kind for counts in outcomes.values() for kind in counts})
    whole = sum(outcomes.values(), Counter())
    rows = [
        (who, counts.total(), *(counts[kind] for kind in kinds))
        for who, counts in [*sorted(outcomes.items()), ("all", whole)]
    ]
    found = [(f"`{key}`", seed, count) for (key, seed), count in findings.items()]
    return [
        "## Inputs by seed and outcome",
        table(("seed", "inputs", *kinds), rows),
        "## Findings",
        table(("last frames", "seed", "inputs"), found) if found else "None.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tally", type=Path)
    parser.add_argument("--notes", type=Path)
    options = parser.parse_args()
    parts = sections(options.tally.read_text("utf-8").splitlines())
    if options.notes is not None:
        parts.append(options.notes.read_text("utf-8").strip())
    title = "Fuzzing of loading and planning"
    print(write_record("fuzz", title, parts, machine()))


if __name__ == "__main__":
    main()
