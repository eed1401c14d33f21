"""
Numerics: ONNX's node suite and stored models through the real pipeline, then made cases.

Each case is one check. The provider is alone: what it declines is DECLINED, and what was
right without it (a constant, control flow of the core) is PASS_NOT_CLAIMED.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from seamline_testing.draws import property_of
from seamline_testing.holding import hold
from seamline_testing.numerics_bound import bound_checks
from seamline_testing.numerics_generated import generated_checks
from seamline_testing.oracles import judge
from seamline_testing.results import Check, Finding, Outcome
from seamline_testing.running import Ran, run_model
from seamline_testing.subject import Subject
from seamline_testing.suites import STORED_KINDS, Case, node_cases, stored_cases
from seamline_testing.tolerances import class_of

__all__ = ["case_check", "checks", "compared"]

_QUICK_EACH = 2  #: cases of the node suite for each operator in the quick form


def checks(subject: Subject, quick: bool = False) -> tuple[Check, ...]:
    """Give every check of numerics; the quick form has fewer of each kind."""
    cases = list(_few_each(node_cases()) if quick else node_cases())
    for kind in STORED_KINDS[:1] if quick else STORED_KINDS:
        cases += stored_cases(kind)
    return (
        *map(case_check, cases),
        *generated_checks(subject, quick),
        *bound_checks(subject, quick),
    )


def _few_each(cases: Iterable[Case]) -> list[Case]:
    taken: dict[str, int] = {}
    kept = []
    for case in cases:
        taken[case.operator] = taken.get(case.operator, 0) + 1
        if taken[case.operator] <= _QUICK_EACH:
            kept.append(case)
    return kept


def case_check(case: Case) -> Check:
    """Make a check of a case."""
    run = functools.partial(_run_case, case)
    return Check(case.id, "numerics", run, case.operator, case.opset, case.dtype)


def _run_case(case: Case, subject: Subject) -> Finding:
    if case.not_right:
        return Finding(Outcome.NOT_RUN, f"the case is not right: {case.not_right}")
    finding = Finding(Outcome.NOT_RUN, "the case has no data")
    for index in range(len(case.data)):
        finding = _run_data(case, index, subject)
        if finding.outcome is not Outcome.PASS:
            return finding
    return finding


def _run_data(case: Case, index: int, subject: Subject) -> Finding:
    feeds = case.feeds(index)
    answer = run_model(subject, case.model, feeds)
    if isinstance(answer, Finding):
        return answer
    stored = case.stored(index)
    drawn = property_of(case.operator, list(feeds.values()))
    if drawn is not None:
        wrong = drawn(list(feeds.values()), answer.outputs, stored)
        return passed(answer, wrong, Finding(Outcome.PASS, "", "definition"))
    right = judge(case.model, case.feeds(index), stored)
    if right.why_not:
        return Finding(Outcome.NOT_RUN, right.why_not)
    kind = class_of(case.operators)
    return compared(subject, case.id, answer, right.wanted, kind, right.judge)


def compared(
    subject: Subject,
    check: str,
    answer: Ran,
    wanted: Sequence[Any],
    kind: str,
    judge: str,
) -> Finding:
    """Hold what a run gave to what is right; ``kind`` is the tolerance's class."""
    wrong, tolerance = hold(subject, check, answer.outputs, wanted, kind)
    return passed(answer, wrong, Finding(Outcome.PASS, "", judge, tolerance))


def passed(answer: Ran, wrong: str, shown: Finding) -> Finding:
    """Give the finding of a value that was judged."""
    if wrong:
        return attrs.evolve(shown, outcome=Outcome.MISMATCH, said=wrong)
    if not answer.took_part:
        return attrs.evolve(
            shown,
            outcome=Outcome.PASS_NOT_CLAIMED,
            said="nothing of the provider's ran: the core gave the result itself",
        )
    return shown
