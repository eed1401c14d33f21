"""ONNX's node cases, all of them, through the real pipeline over ``cpu``."""

import functools
import re
import tomllib
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tests.conformance.outcomes import DECLINED, PASS, run_case


@functools.cache
def all_cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx makes some inputs by division by zero
        from onnx.backend.test.case.node import collect_testcases

        return collect_testcases(None)


def operator_of(case):
    """Give the operator that a case is about, whether or not it is written out."""
    graph = case.model.graph
    node = graph.node[-1]
    if len(graph.node) == 1:
        return f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    # A function that is written out prefixes its values with the operator's name.
    inner = next(
        (n for item in graph.node for n in item.output if f"_{case.name}_" in n), ""
    )
    return inner.partition("_test_")[0] or node.op_type


@functools.cache
def by_operator():
    found = defaultdict(list)
    for case in all_cases():
        found[operator_of(case)].append(case)
    return dict(sorted(found.items()))


def declined():
    """Give what ``cpu`` declines, operator -> reason."""
    path = Path(__file__).parent / "declined.toml"
    return tomllib.loads(path.read_text())["declined"]


# -- cases whose stored values are not the only right ones -----------------------------


def drawn_from(case, inputs):
    """Bernoulli draws: 0 and 1, of the type asked for, never 1 where p is 0."""
    (p,) = inputs

    def check(got, want):
        (draw,) = got
        if draw.dtype != want[0].dtype or draw.shape != want[0].shape:
            return f"{draw.dtype}{draw.shape}, want {want[0].dtype}{want[0].shape}"
        if not np.isin(draw, (0, 1)).all():
            return f"draws {np.unique(draw)}, want 0 and 1"
        return "1 where p is 0" if draw[p == 0].any() else None

    return check


#: Operator -> what its cases are held to instead of the stored values, each with a reason.
PROPERTIES = {
    "Bernoulli": drawn_from,  # the stored draw is NumPy's generator's
}


# -- the tests -------------------------------------------------------------------------


@pytest.mark.parametrize("operator", by_operator())
def test_every_case_of_an_operator_passes_or_is_declined_for_the_stored_reason(
    operator,
):
    expected = declined()
    problems, met = [], set()
    for case in by_operator()[operator]:
        for inputs, outputs in case.data_sets:
            special = PROPERTIES.get(operator)
            check = special(case, inputs) if special else None
            outcome = run_case(case.model, inputs, outputs, check=check)
            if outcome.kind == DECLINED:
                met.update(outcome.operators)
                if not set(outcome.operators) <= set(expected):
                    problems.append(f"{case.name}: declined: {outcome.said}")
            elif outcome.kind != PASS:
                problems.append(f"{case.name}: {outcome.kind}: {outcome.said}")
    if operator in expected and operator not in met:
        problems.append(f"{operator} passes: take it out of declined.toml")
    assert not problems, "\n".join(problems)


def test_the_suite_is_whole():
    assert sum(map(len, by_operator().values())) == len(all_cases()) >= 1800


def test_every_declined_operator_has_cases_and_a_reason():
    for operator, reason in declined().items():
        assert operator in by_operator()
        assert re.search(r"\w+ \w+ \w+", reason), operator
