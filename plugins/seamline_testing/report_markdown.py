"""A report as Markdown: counts, what fell short, and a table by operator, opset, dtype."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from seamline_testing.int4_table import EXPLAINED, int4_table
from seamline_testing.report import Report
from seamline_testing.results import Outcome, Result

__all__ = ["WORDS", "by_group", "to_markdown"]

WORDS: dict[Outcome, str] = {
    Outcome.PASS: "pass",
    Outcome.PASS_NOT_CLAIMED: "not claimed",
    Outcome.DECLINED: "declined",
    Outcome.MISMATCH: "mismatch",
    Outcome.CRASH: "crash",
    Outcome.CONTRACT_VIOLATION: "violation",
    Outcome.NOT_RUN: "not run",
}


def to_markdown(report: Report) -> str:
    """Give the report as a page."""
    parts = [
        *_head(report),
        *_groups(report),
        *_short(report),
        *_declared(report),
        *_judges(report),
        *_int4(report),
        *_operators(report),
    ]
    return "\n".join(parts) + "\n"


def by_group(results: Iterable[Result]) -> dict[str, Counter[Outcome]]:
    """Count outcomes by group; numerics by the second word of their ids as well."""
    found: dict[str, Counter[Outcome]] = {}
    for result in results:
        parts = result.id.split("/")
        name = "/".join(parts[:2]) if parts[0] == "numerics" else result.group
        found.setdefault(name, Counter())[result.finding.outcome] += 1
    return found


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    yield _row(head)
    yield _row(["---"] * len(head))
    yield from (_row(row) for row in rows)
    yield ""


def _head(report: Report) -> Iterator[str]:
    passed, total = report.counts[Outcome.PASS], len(report.results)
    yield f"# Conformance of `{report.provider}`"
    yield ""
    yield f"{passed} of {total} checks pass ({report.form} form). Only a pass counts."
    yield ""
    told = {**report.versions, **report.machine}
    yield "; ".join(f"{name} {value}" for name, value in told.items())
    yield ""


def _groups(report: Report) -> Iterator[str]:
    groups = by_group(report.results)
    rows = [[name, *(n.get(o, 0) for o in Outcome)] for name, n in groups.items()]
    rows.append(["all", *report.counts.values()])
    yield from _table(["group", *WORDS.values()], rows)


def _short(report: Report) -> Iterator[str]:
    """Show what did not pass, one reason a line, with the checks that share it."""
    yield "## What fell short"
    yield ""
    for complaint in report.complaints:
        yield f"- {complaint}"
    reasons: dict[tuple[Outcome, str], list[Result]] = defaultdict(list)
    for result in report.results:
        finding = result.finding
        if finding.outcome not in (Outcome.PASS, Outcome.PASS_NOT_CLAIMED):
            said = " ".join(finding.said.split())[:300]
            reasons[finding.outcome, said].append(result)
    order = list(Outcome)
    for (outcome, said), results in sorted(
        reasons.items(), key=lambda item: (-order.index(item[0][0]), item[0][1])
    ):
        names = ", ".join(f"`{result.id}`" for result in results[:4])
        more = f" and {len(results) - 4} more" if len(results) > 4 else ""
        known = report.gaps.get(results[0].id)
        gap = f" (known gap: {known})" if known else ""
        yield f"- {outcome}: {said}{gap}: {names}{more}"
    if not reasons and not report.complaints:
        yield "Nothing."
    yield ""


def _declared(report: Report) -> Iterator[str]:
    rows = [
        [f"`{result.id}`", result.finding.tolerance]
        for result in report.results
        if "(declared: " in result.finding.tolerance
    ]
    if rows:
        yield "## Looser tolerances that the provider declares"
        yield ""
        yield from _table(["check", "tolerance"], rows)


def _judges(report: Report) -> Iterator[str]:
    judges = Counter(r.finding.judge for r in report.results if r.finding.judge)
    if judges:
        yield "## Who judged"
        yield ""
        yield from _table(["judge", "values"], judges.most_common())


def _int4(report: Report) -> Iterator[str]:
    head, rows = int4_table(report.results)
    if rows:
        yield "## Products by packed weights"
        yield ""
        yield EXPLAINED
        yield ""
        yield from _table(head, rows)


def _operators(report: Report) -> Iterator[str]:
    found: dict[tuple[str, int, str], Counter[Outcome]] = defaultdict(Counter)
    for result in report.results:
        if result.operator:
            key = (result.operator, result.opset, result.dtype)
            found[key][result.finding.outcome] += 1
    if found:
        yield "## By operator"
        yield ""
        head = ["operator", "opset", "dtype", *WORDS.values()]
        rows = (
            [*key, *(found[key].get(o, 0) for o in Outcome)] for key in sorted(found)
        )
        yield from _table(head, rows)
