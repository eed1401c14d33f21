"""ONNX's node cases, all of them, through the kit's checks over ``cpu``."""

import functools
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
from tests.conformance.outcomes import DECLINED, RIGHT, SUBJECT

from seamline_testing.numerics import case_check
from seamline_testing.results import Outcome
from seamline_testing.suites import node_cases

#: Cases that no two oracles agree on, and why; the kit says NOT_RUN of them.
UNDECIDED = {
    "numerics/node/range_bfloat16_type_positive_delta_expanded": "onnx.reference adds up "
    "in bfloat16, the stored values are rounded once; onnxruntime has no bfloat16 here",
}


@functools.cache
def by_operator():
    found = defaultdict(list)
    for case in node_cases():
        found[case.operator].append(case)
    return dict(sorted(found.items()))


def declined():
    """Give what ``cpu`` declines, operator -> reason."""
    path = Path(__file__).parent / "declined.toml"
    return tomllib.loads(path.read_text())["declined"]


def declined_in(case):
    """Give the operators of a case that ``cpu`` declines for a stored reason."""
    named = {
        f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        for node in case.model.graph.node
    }
    return named & declined().keys()


@pytest.mark.parametrize("operator", by_operator())
def test_every_case_of_an_operator_passes_or_is_declined_for_the_stored_reason(
    operator,
):
    problems, met = [], set()
    for case in by_operator()[operator]:
        finding = case_check(case).run(SUBJECT)
        if finding.outcome is DECLINED and declined_in(case):
            met |= declined_in(case)
        elif case.id in UNDECIDED:
            if finding.outcome is not Outcome.NOT_RUN:
                problems.append(f"{case.id}: {finding}: take it out of UNDECIDED")
        elif finding.outcome not in RIGHT:
            problems.append(f"{case.id}: {finding.outcome}: {finding.said}")
    if operator in declined() and operator not in met:
        problems.append(f"{operator} passes: take it out of declined.toml")
    assert not problems, "\n".join(problems)


def test_the_suite_is_whole():
    assert sum(map(len, by_operator().values())) == len(node_cases()) >= 1800


def test_every_declined_operator_has_cases_and_a_reason():
    for operator, reason in declined().items():
        assert operator in by_operator()
        assert re.search(r"\w+ \w+ \w+", reason), operator
