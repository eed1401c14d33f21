"""
Counterfactual advice: what the plan would be if a provider claimed one operator more.

For each provider and each operator that it refuses, the nodes that run are cut again as
if they were its own. What is counted is structure, segments and crossings, which needs no
rates; bytes are those of the values that would no longer cross.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from seamline.claims import CORE
from seamline.graph import Node
from seamline.planned import HostStep, Plan, Segment
from seamline.segmentation import cut
from seamline.tensors import TensorType, nbytes_of

__all__ = ["Advice", "advise"]

_ASKED = 64  # operators looked at; each costs one cut


@attrs.frozen
class Advice:
    """
    One operator that a provider might claim, and what that would change.

    Attributes
    ----------
    nodes
        How many nodes would move.
    segments, crossings, nbytes
        (now, then): segments, values that cross between providers, and their bytes.
    """

    provider: str
    op_type: str
    nodes: int
    segments: tuple[int, int]
    crossings: tuple[int, int]
    nbytes: tuple[int, int]

    def __str__(self) -> str:
        fewer = self.crossings[0] - self.crossings[1]
        return (
            f"if {self.provider} claimed {self.op_type} ({self.nodes} nodes): "
            f"{self.segments[0]} segments become {self.segments[1]}, "
            f"{fewer} crossings fewer, {self.nbytes[0] - self.nbytes[1]} bytes less"
        )


@attrs.frozen
class _Shape:
    segments: int
    crossings: int
    nbytes: int


def advise(plan: Plan, refusals: Mapping[str, Sequence[str]]) -> tuple[Advice, ...]:
    """
    Rank what each provider might claim, the most segments saved first.

    Parameters
    ----------
    refusals
        Node name -> providers that refuse it.
    """
    nodes = _running(plan)
    colours = {node.name: _colour(plan, node) for node in nodes}
    now = _shape(plan, nodes, colours)
    candidates: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if colours[node.name] is not None:
            for provider in refusals.get(node.name, ()):
                candidates.setdefault((provider, node.qualified_op), []).append(
                    node.name
                )
    advice: list[Advice] = []
    for (provider, op_type), names in sorted(candidates.items(), key=_rank)[:_ASKED]:
        then = _shape(plan, nodes, {**colours, **dict.fromkeys(names, provider)})
        if (then.segments, then.crossings) < (now.segments, now.crossings):
            advice.append(
                Advice(
                    provider,
                    op_type,
                    len(names),
                    (now.segments, then.segments),
                    (now.crossings, then.crossings),
                    (now.nbytes, then.nbytes),
                )
            )
    return tuple(sorted(advice, key=lambda a: (a.segments[1], a.crossings[1], str(a))))


def _rank(item: tuple[tuple[str, str], list[str]]) -> tuple[int, tuple[str, str]]:
    return -len(item[1]), item[0]


def _running(plan: Plan) -> list[Node]:
    names = {
        name
        for step in plan.steps
        if isinstance(step, Segment | HostStep)
        for name in (step.nodes if isinstance(step, Segment) else (step.node,))
    }
    return [node for node in plan.region.nodes if node.name in names]


def _colour(plan: Plan, node: Node) -> str | None:
    choice = plan.choices[node.name]
    late = any(
        isinstance(step, Segment) and step.sizes_at_run and node.name in step.nodes
        for step in plan.steps
    )
    return None if late or choice.provider == CORE else choice.provider


def _shape(plan: Plan, nodes: list[Node], colours: Mapping[str, str | None]) -> _Shape:
    writer = {name: i for i, node in enumerate(nodes) for name in node.writes}
    before = [[writer[n] for n in node.reads if n in writer] for node in nodes]
    result = cut([colours[node.name] for node in nodes], before)
    crossing: set[tuple[str, str]] = set()
    for node in nodes:
        mine = colours[node.name]
        for name in node.reads:
            source = writer.get(name)
            if source is not None and colours[nodes[source].name] != mine:
                crossing.add((name, mine or node.name))
    nbytes = sum(_nbytes(plan, name) for name, _ in crossing)
    return _Shape(len(result.segments), len(crossing), nbytes)


def _nbytes(plan: Plan, name: str) -> int:
    kind = plan.types.get(name)
    return nbytes_of(kind) if isinstance(kind, TensorType) and kind.is_sized else 0
