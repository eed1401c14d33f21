"""Run a model over the provider under test, and say whether it took part."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import attrs
import onnx

from seamline.errors import (
    BuildError,
    ContractError,
    FeedError,
    KernelError,
    ModelError,
    UnavailableProviderError,
    UnclaimedNodeError,
)
from seamline.feeds import FeedCheck
from seamline.pipeline import Pipeline
from seamline.program import Program
from seamline_testing.results import Finding, Outcome
from seamline_testing.subject import Subject

__all__ = ["Ran", "opened_over", "run_model", "run_opened", "settled_by"]

logging.getLogger("onnx_ir").setLevel(logging.ERROR)  # it logs every unknown attribute


@attrs.frozen(eq=False)
class Ran:
    """
    What a run gave.

    Attributes
    ----------
    took_part
        The provider ran at least one node, folded ones included; bodies of control flow
        count.
    """

    outputs: list[Any]
    took_part: bool


Answer: TypeAlias = Ran | Finding


def run_model(
    subject: Subject, model: onnx.ModelProto, feeds: Mapping[str, Any]
) -> Answer:
    """Open a model over the provider alone and run it once; a finding where it ends."""
    try:
        with opened_over(subject, model) as pipeline:
            return run_opened(subject, pipeline, feeds)
    except Exception as error:
        return settled_by(error)


@contextlib.contextmanager
def opened_over(subject: Subject, model: onnx.ModelProto) -> Iterator[Pipeline]:
    """Open a model over the provider alone, and close it."""
    pipeline = subject.open(model)
    try:
        yield pipeline
    finally:
        pipeline.close()


def run_opened(subject: Subject, pipeline: Pipeline, feeds: Mapping[str, Any]) -> Ran:
    """Run once, from feeds of any layout, as a session does."""
    graph = pipeline.graph
    check = FeedCheck(
        {name: pipeline.graph.types.get(name) for name in graph.inputs},
        overridable=graph.overridable,
    )
    outputs = pipeline.run(check(feeds))
    return Ran(outputs, took_part(pipeline))


def took_part(pipeline: Pipeline) -> bool:
    """Tell whether the first provider ran a segment of the last run, or folded a node."""
    name = next(iter(pipeline.providers))
    assigned = pipeline.assignments()
    if any(assigned.get(node) == name for node in pipeline.folding.nodes):
        return True
    latest = pipeline.runner.latest()
    return latest is not None and _ran_in(latest, name)


def _ran_in(program: Program, name: str) -> bool:
    if any(segment.provider == name for segment in program.plan.segments):
        return True
    inner = [runner for bodies in program.bodies.values() for runner in bodies.values()]
    if program.rest is not None:
        inner.append(program.rest)
    latest = [runner.latest() for runner in inner]
    return any(_ran_in(one, name) for one in latest if one is not None)


def settled_by(error: Exception) -> Finding:
    """
    Say what an exception out of opening or running means for the provider.

    Every case of the kit is one that the operator's definition gives a value for. So who
    claims it and raises has broken its claim, whatever the type of the error.
    """
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, UnclaimedNodeError):
        return Finding(Outcome.DECLINED, _reasons(error))
    if isinstance(error, UnavailableProviderError):
        return Finding(Outcome.NOT_RUN, said)
    if isinstance(error, (ModelError, FeedError)):
        return Finding(Outcome.NOT_RUN, f"the core does not take the case: {said}")
    if isinstance(error, BuildError):
        return Finding(
            Outcome.CONTRACT_VIOLATION, f"it claims what it cannot build: {said}"
        )
    if isinstance(error, KernelError):
        return Finding(
            Outcome.CONTRACT_VIOLATION, f"it claims what it cannot run: {said}"
        )
    if isinstance(error, ContractError):
        return Finding(Outcome.CONTRACT_VIOLATION, said)
    return Finding(Outcome.CONTRACT_VIOLATION, f"an undeclared error: {said}")


def _reasons(error: UnclaimedNodeError) -> str:
    """Give each node's refusals on one line, each reason once."""
    said = [
        f"{who}: {why}" for each in error.refusals.values() for who, why in each.items()
    ]
    return "; ".join(dict.fromkeys(said)) or str(error).splitlines()[0]
