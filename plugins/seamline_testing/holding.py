"""Hold outputs to what is right, at the operator's tolerance or a declared looser one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from seamline_testing.comparing import differences
from seamline_testing.known_gaps import looser_class
from seamline_testing.results import Finding
from seamline_testing.subject import Subject
from seamline_testing.tolerances import CLASSES, tolerance_for
from seamline_testing.verdicts import Settled

__all__ = ["hold", "settle_with"]


def hold(
    subject: Subject, check: str, got: Sequence[Any], wanted: Sequence[Any], kind: str
) -> tuple[str, str]:
    """
    Say how outputs differ, or nothing, and by which tolerance that was found.

    Where the operator's own class fails, the class that the provider declares for the
    check is tried; the tolerance's name then has the provider's reason in it.
    """
    wrong = differences(got, wanted, kind)
    looser = looser_class(subject, check) if wrong else None
    if looser is None or CLASSES.index(looser.kind) <= CLASSES.index(kind):
        return wrong, _named(wanted, kind)
    still = differences(got, wanted, looser.kind)
    name = f"{_named(wanted, looser.kind)} (declared: {looser.reason})"
    return still, name


def _named(wanted: Sequence[Any], kind: str) -> str:
    first = next((value for value in wanted if hasattr(value, "dtype")), None)
    return kind if first is None else tolerance_for(first.dtype, kind).name


def settle_with(finding: Finding) -> NoReturn:
    """End a check with a finding that has a tolerance in it."""
    ended = Settled(finding.outcome, finding.said, finding.judge)
    ended.finding = finding
    raise ended
