"""What changed between two reports, check by check."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from seamline_testing.report import Report
from seamline_testing.results import Outcome, Result

__all__ = ["Difference", "compare_reports"]

#: Better first. A failure is worse than a refusal, which says what it does not do.
_ORDER = (
    Outcome.PASS,
    Outcome.PASS_NOT_CLAIMED,
    Outcome.DECLINED,
    Outcome.NOT_RUN,
    Outcome.MISMATCH,
    Outcome.CONTRACT_VIOLATION,
    Outcome.CRASH,
)


@attrs.frozen
class Difference:
    """
    What changed.

    Attributes
    ----------
    lines
        One for each check whose outcome, judge or tolerance changed, or that only one
        report has; then versions.
    worse, better
        How many checks moved down or up; a pass that is gone moved down.
    """

    lines: tuple[str, ...]
    worse: int = 0
    better: int = 0


def compare_reports(before: Report, after: Report) -> Difference:
    """Compare two reports by check id."""
    old = {result.id: result for result in before.results}
    new = {result.id: result for result in after.results}
    worse = better = 0
    lines: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            lines.append(f"new      {name}: {new[name].finding.outcome}")
        elif name not in new:
            lines.append(f"gone     {name}: was {old[name].finding.outcome}")
            worse += old[name].finding.outcome is Outcome.PASS
        else:
            step = _step(old[name], new[name])
            worse, better = worse + (step > 0), better + (step < 0)
            lines += _changed(old[name], new[name], step)
    return Difference((*lines, *_told(before, after)), worse, better)


def _step(old: Result, new: Result) -> int:
    return _ORDER.index(new.finding.outcome) - _ORDER.index(old.finding.outcome)


def _changed(old: Result, new: Result, step: int) -> Iterator[str]:
    one, other = old.finding, new.finding
    if step:
        word = "worse   " if step > 0 else "better  "
        said = f": {other.said.splitlines()[0]}" if other.said else ""
        yield f"{word} {new.id}: {one.outcome} -> {other.outcome}{said}"
        return
    for name in ("judge", "tolerance"):
        if getattr(one, name) != getattr(other, name):
            yield f"{name:9}{new.id}: {getattr(one, name)} -> {getattr(other, name)}"


def _told(before: Report, after: Report) -> Iterator[str]:
    old = {**before.versions, **before.machine}
    new = {**after.versions, **after.machine}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield f"on       {name}: {old.get(name, '-')} -> {new.get(name, '-')}"
