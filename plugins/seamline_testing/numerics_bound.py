"""
The node suite again, bound straight to the provider's own memory.

Through a pipeline a stray write may hit what nobody reads, and an output that was never
written may hold the right bytes of the run before. Here every value lies between
canaries, every output and workspace is poisoned first, inputs are compared bit for bit
afterwards, and one array is fed as two inputs.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from seamline.claims import is_core
from seamline.errors import ModelError
from seamline.provider import Array, Provider
from seamline.tensors import TensorType
from seamline_testing.case_samples import case_sample, is_of_tensors
from seamline_testing.claiming import claims_of
from seamline_testing.comparing import differences
from seamline_testing.draws import property_of
from seamline_testing.driving import Driven, driven
from seamline_testing.guarded import POISONS
from seamline_testing.holding import hold, settle_with
from seamline_testing.oracles import Judgement, judge
from seamline_testing.results import Check, Finding, Outcome
from seamline_testing.samples import Sample
from seamline_testing.subject import Subject
from seamline_testing.suites import Case, node_cases
from seamline_testing.tolerances import class_of
from seamline_testing.verdicts import Settled, opened, violation

__all__ = ["bound_checks"]

#: Operators whose two inputs may be one array.
_TWO = (
    "Add And BitwiseAnd BitwiseOr BitwiseXor Equal Greater GreaterOrEqual Less "
    "LessOrEqual MatMul Max Min Mul Or PRelu Sub Sum Xor"
)
_TWICE = frozenset(_TWO.split())
_QUICK_TYPES = ("float32", "int64", "bool", "string")
_EACH, _QUICK_EACH = 6, 1  #: cases of an operator and element type


def bound_checks(subject: Subject, quick: bool) -> tuple[Check, ...]:
    """Give one check for each operator and element type of the suite's one-node cases."""
    found: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in node_cases():
        if case.only_node is None or not is_of_tensors(case):
            continue
        if property_of(case.operator, list(case.feeds().values())) is None:
            found[case.operator, case.dtype].append(case)
    most = _QUICK_EACH if quick else _EACH
    return tuple(
        Check(
            f"numerics/bound/{operator}/{dtype}", "numerics",
            functools.partial(_run, tuple(cases[:most])), operator, cases[0].opset, dtype,
        )
        for (operator, dtype), cases in sorted(found.items())
        if not quick or dtype in _QUICK_TYPES
    )  # fmt: skip


def _run(cases: tuple[Case, ...], subject: Subject) -> Finding:
    refused, judged = "", None
    try:
        with opened(subject) as provider:
            for case in cases:
                answer = _one(case, provider, subject)
                if isinstance(answer, str):
                    refused = refused or answer
                else:
                    judged = answer
    except Settled as settled:
        return settled.finding
    if judged is not None:
        return judged
    return Finding(Outcome.DECLINED, refused)


def _one(case: Case, provider: Provider, subject: Subject) -> Finding | str:
    """Drive one case; a finding where it was judged, and else why it was not."""
    try:
        sample = case_sample(case)
        views = sample.views()
    except ModelError as error:
        return f"the core does not take the case: {error}"
    if any(is_core(view.node) for view in views):
        return "the core runs it"
    if not views or not all(
        isinstance(sample.kind(n), TensorType) for n in sample.outputs
    ):
        return "nothing is left to run, or its sizes are not known"
    said = claims_of(provider, views)
    if isinstance(said, str):
        return said
    feeds = _fed(sample, case.feeds())
    right = judge(case.model, case.feeds(), case.stored())
    if right.why_not:
        return right.why_not
    with driven(provider, sample, bound=False) as drive:
        _bind(drive, feeds)
        for poison in POISONS:
            _held(case, _outputs(drive, feeds, poison), right, subject)
        _bind(drive, feeds)  # other places: what was kept of the first ones is stale
        finding = _held(case, _outputs(drive, feeds, POISONS[0]), right, subject)
        _aliased(case, drive, feeds, subject)
    return finding


def _fed(sample: Sample, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Keep what the driven node reads, in the plain layout that a buffer has."""
    read = {name for view in sample.views() for name in view.node.reads}
    return {
        name: np.ascontiguousarray(x).reshape(x.shape)
        for name, x in feeds.items()
        if name in read and name not in sample.constants
    }


def _bind(drive: Driven, feeds: Mapping[str, Array]) -> None:
    """Bind to new places; what is read on the host holds its value already, as in a plan."""
    drive.places()
    drive.feed(feeds)
    drive.rebind()


def _outputs(drive: Driven, feeds: Mapping[str, Array], poison: int) -> list[Array]:
    first = drive.run(feeds, poison)
    names = drive.sample.outputs
    rest = [drive.held[name].read() for name in names[1:] if name in drive.held]
    return [first, *rest]


def _held(case: Case, got: list[Array], right: Judgement, subject: Subject) -> Finding:
    """Hold outputs to what is right; sizes found by a run give the first one alone."""
    kind = class_of(case.operators)
    name = f"numerics/bound/{case.operator}/{case.dtype}"
    wrong, tolerance = hold(subject, name, got, list(right.wanted)[: len(got)], kind)
    if wrong:
        said = f"{case.id}: {wrong}"
        settle_with(Finding(Outcome.MISMATCH, said, right.judge, tolerance))
    return Finding(Outcome.PASS, "", right.judge, tolerance)


def _aliased(
    case: Case, drive: Driven, feeds: dict[str, Array], subject: Subject
) -> None:
    """Give one place as two inputs of one type, and hold the result to the definition."""
    names = [name for name in feeds if name in drive.held and name not in drive.host]
    if len(names) < 2 or len(feeds) != 2 or case.operator not in _TWICE:
        return
    one, other = names[:2]
    if drive.sample.kind(one) != drive.sample.kind(other):
        return
    same = {one: feeds[one], other: feeds[one]}
    right = judge(case.model, same)
    if right.why_not:
        return
    drive.places()
    drive.held[other] = drive.held[one]
    drive.feed(same)
    drive.rebind()
    wrong = differences(
        _outputs(drive, same, POISONS[0]), list(right.wanted), class_of(case.operators)
    )
    if wrong:
        violation(f"{case.id}: with one array as both inputs: {wrong}")
