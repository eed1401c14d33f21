"""
The conformance kit over ``cuda``, on the emulated device.

What needs no device of the kit's questions is asked in full; of ONNX's node cases those
that are one node, by operator. ``python -m tests.bench.bench_cuda_emulated`` asks
everything.
"""

from __future__ import annotations

import functools
from collections import defaultdict

import pytest
from tests.cuda.emulation import emulated

from seamline_cuda.table import TABLE
from seamline_testing.numerics import case_check
from seamline_testing.registry import all_checks
from seamline_testing.results import Outcome
from seamline_testing.subject import Subject
from seamline_testing.suites import node_cases

CUDA = Subject("cuda", plugins=("seamline_cuda.plugin",))
GROUPS = ("contract", "claims", "transfers", "capture")
#: What cannot be asked of it, and why.
UNASKED = {
    "contract/arrays-let-go": "its memory is its own",
    "capture/refusal": "everything that it claims can be recorded",
}
RIGHT = (Outcome.PASS, Outcome.PASS_NOT_CLAIMED, Outcome.DECLINED)


#: Elements of a result that the emulation makes in seconds; a device is asked for more.
LARGEST = 1 << 15


def _elements(case):
    return sum(getattr(y, "size", 0) for _, outputs in case.data for y in outputs)


@functools.cache
def cases():
    found = defaultdict(list)
    for case in node_cases():
        if len(case.model.graph.node) == 1 and _elements(case) < LARGEST:
            found[case.operator].append(case)
    return dict(sorted(found.items()))


@functools.cache
def questions():
    return {check.id: check for check in all_checks(CUDA, True, GROUPS)}


@pytest.mark.parametrize("name", questions())
def test_the_kits_questions_are_answered_right(name):
    with emulated():
        finding = questions()[name].run(CUDA)
    if name in UNASKED:
        assert finding.outcome is Outcome.NOT_RUN
        assert UNASKED[name] in finding.said
    else:
        assert finding.outcome in RIGHT, finding


@functools.cache
def outcomes(operator):
    found = {}
    for case in cases()[operator]:
        with emulated():
            found[case.id] = case_check(case).run(CUDA)
    return found


@pytest.mark.parametrize("operator", sorted(cases().keys() & TABLE.operators()))
def test_no_case_of_an_operator_of_the_table_is_wrong_and_some_pass_where_axes_are_constant(
    operator,
):
    found = outcomes(operator)
    wrong = {n: f"{f.outcome}: {f.said}" for n, f in found.items() if f.outcome not in RIGHT}  # fmt: skip
    assert not wrong
    declined = {f.said for f in found.values() if f.outcome is Outcome.DECLINED}
    assert any(f.outcome is Outcome.PASS for f in found.values()) or all(
        "constants would be accepted" in said for said in declined
    ), declined
