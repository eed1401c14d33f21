"""
Random graphs over this provider's claims: whoever runs which node, the values are the same.

One graph with each operator is fixed, the others are drawn. Each is opened twice. First the provider comes first and takes what it claims; then
nodes drawn at random are pinned to another provider, so that segments are cut where the
provider would not have cut them. Both are held to the definition, exactly, and their
plans to the rules of :mod:`seamline.verify`.
"""

from __future__ import annotations

import logging
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs
import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure
from onnx import parser

from seamline.errors import PlanError, RunError, UnclaimedNodeError
from seamline.pipeline import Pipeline
from seamline.program import Program
from seamline.provider import Array
from seamline.tensors import numpy_dtype
from seamline.verify import verify
from seamline_testing.random_graphs import DTYPES, Case, cases, evaluate
from seamline_testing.results import Check
from seamline_testing.subject import Subject
from seamline_testing.verdicts import (
    asked,
    declined,
    mismatch,
    opened,
    question,
    violation,
)

__all__ = ["checks"]

#: What Hypothesis may not refuse: many graphs are drawn too large and thrown away.
_UNHEALTHY = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
)
_OTHERS = ("reference", "cpu")  #: who runs what the provider declines


def checks(subject: Subject, quick: bool) -> tuple[Check, ...]:
    """Give one question for each element type; ``quick`` draws fewer graphs."""
    graphs = 30 if quick else 150
    return tuple(
        question(f"partition/{dtype}", partial(_partitioned, dtype, graphs), dtype)
        for dtype in DTYPES
    )


@attrs.define
class _Seen:
    """Who took part over all graphs of a question."""

    ran: int = 0
    refused: Counter[str] = attrs.field(factory=Counter)


def _partitioned(dtype: str, graphs: int, subject: Subject) -> None:
    with opened(subject):
        pass  # where it cannot be opened at all, that is the answer
    other = next(name for name in _OTHERS if name != subject.provider)
    seen = _Seen()
    case = _each_once(dtype)
    offers = _run(subject, other, case, {}, seen)
    both = sorted(n for n, who in offers.items() if {subject.provider, other} <= who)
    _run(subject, other, case, dict.fromkeys(both[::2], other), seen)

    # Drawn from the question alone, so that every run of it sees the same graphs.
    @seed(zlib.crc32(dtype.encode()))
    @settings(
        max_examples=graphs,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # small graphs come first; shrinking takes minutes
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=_UNHEALTHY,
    )
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        case = data.draw(cases(dtype=dtype))
        offers = _run(subject, other, case, {}, seen)
        both = sorted(
            n for n, who in offers.items() if {subject.provider, other} <= who
        )
        if both:
            away = data.draw(st.sets(st.sampled_from(both), min_size=1))
            _run(subject, other, case, dict.fromkeys(sorted(away), other), seen)

    try:
        with _quiet():
            ask()
    except FlakyFailure as error:
        violation(f"the same graph is right once and wrong once: {error.exceptions[0]}")
    if not seen.ran:
        said = "; ".join(why for why, _ in seen.refused.most_common(2))
        declined(f"it claims no node of {graphs} graphs: {said}")


_EACH_ONCE = """<ir_version: 10, opset_import: ["" : 18]>
g (KIND[2,3] x, KIND[rows,3] z, int64[1] flat)
    => (KIND[2,3] sum, KIND[2,3] kept, KIND[6] flatly, KIND[2,3] joined) {
    [n1] sum = Add(x, z)
    [n2] difference = Sub(sum, x)
    [n3] product = Mul(difference, z)
    [n4] negative = Neg(product)
    [n5] size = Abs(negative)
    [n6] kept = Relu(product)
    [n7] turned = Transpose(size)
    [n8] back = Transpose(turned)
    [n9] flatly = Reshape<allowzero=1>(back, flat)
    [n10] left, right = Split<axis=0,num_outputs=2>(product)
    [n11] joined = Concat<axis=0>(right, left)
}"""


def _each_once(dtype: str) -> Case:
    """Give a graph in which no operator is left to chance."""
    word = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    model = parser.parse_model(_EACH_ONCE.replace("KIND", word))
    x = np.arange(6).reshape(2, 3).astype(numpy_dtype(dtype))
    z = np.arange(-2, 4).reshape(2, 3).astype(numpy_dtype(dtype))
    feeds = {"x": x, "z": z, "flat": np.array([6])}
    names = [node.name for node in model.graph.node]
    return Case(model, feeds, names, dtype)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep onnx_ir from logging that an output is an input: here some are, on purpose."""
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _run(
    subject: Subject, other: str, case: Case, pins: Mapping[str, str], seen: _Seen
) -> dict[str, set[str]]:
    """Open, run twice and check; give who claims which node."""
    try:
        pipeline = subject.open(case.model, other, pins=pins)
    except UnclaimedNodeError as error:
        for said in error.refusals.values():
            seen.refused[said.get(subject.provider, "not asked")] += 1
        return {}
    except PlanError as error:
        violation(f"{_shown(case)}: no plan: {error}")
    try:
        _note(pipeline, subject.provider, seen)
        want = evaluate(case.model.graph, case.feeds, case.dtype)
        for turn in ("in its first run", "in its second run"):
            with asked(f"a run of {_shown(case)}", RunError, node=False):
                got = pipeline.run(case.feeds)
            _hold(pipeline, case, got, want, turn)
        _lawful(pipeline, case)
        return {name: set(pipeline.claims.offers(name)) for name in case.names}
    finally:
        pipeline.close()


def _note(pipeline: Pipeline, provider: str, seen: _Seen) -> None:
    homes = pipeline.assignments()
    seen.ran += provider in homes.values()
    for name in homes:
        said = pipeline.claims.refusals(name).get(provider)
        if said is not None:
            seen.refused[said] += 1


def _hold(
    pipeline: Pipeline, case: Case, got: list[Any], want: list[Array], turn: str
) -> None:
    for output, one, other in zip(case.model.graph.output, got, want, strict=True):
        wrong = _differs(np.asarray(one), other)
        if wrong:
            mismatch(f"{output.name!r} of {_shown(case, pipeline)}, {turn}, {wrong}")


def _differs(got: Array, want: Array) -> str:
    if got.dtype != want.dtype or got.shape != want.shape:
        return (
            f"is {got.dtype.name}{list(got.shape)}, "
            f"by definition {want.dtype.name}{list(want.shape)}"
        )
    if np.array_equal(got, want):
        return ""
    at = tuple(int(i) for i in np.argwhere(got != want)[0])
    return f"is {got[at]} at {list(at)}, by definition {want[at]}"


def _lawful(pipeline: Pipeline, case: Case) -> None:
    latest = pipeline.runner.latest()
    for program in _programs(latest) if latest is not None else ():
        broken = verify(program.plan, pipeline.claims)
        if broken:
            violation(f"its claims lead to a plan of {_shown(case)} where {broken[0]}")


def _programs(program: Program) -> Iterator[Program]:
    """Give a program, its rest, and the bodies in it, as far as they were built."""
    yield program
    inner = [body for bodies in program.bodies.values() for body in bodies.values()]
    for runner in (*inner, *([program.rest] if program.rest else [])):
        made = runner.latest()
        if made is not None:
            yield from _programs(made)


def _shown(case: Case, pipeline: Pipeline | None = None) -> str:
    """Show a graph's nodes in one line, with the provider of each where it is known."""
    homes = pipeline.assignments() if pipeline is not None else {}
    nodes = [
        f"{','.join(node.output)}={node.op_type}({','.join(node.input)})"
        + (f"@{homes[node.name]}" if node.name in homes else "")
        for node in case.model.graph.node
        if node.op_type != "Constant"
    ]
    return f"{case.dtype} graph [{' '.join(nodes)}]"
