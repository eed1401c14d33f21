"""
Say what was decided and why: for people, for scripts, and for a diff in a review.

An explanation is one JSON value. Ids in it are made of names that a model keeps (a
segment's provider and first node, a seam's cause and ends), so two explanations of two
versions of a model or of a provider can be compared line by line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from seamline.advice import Advice, advise
from seamline.capture import Captured
from seamline.explain_diff import diff
from seamline.explain_seams import (
    described_chains,
    described_edges,
    described_excursions,
    described_seams,
)
from seamline.explain_text import as_text
from seamline.graph import Node
from seamline.planned import HostStep, Plan, Segment
from seamline.program import Program
from seamline.provider import Device, Provider
from seamline.timings import Timings

if TYPE_CHECKING:
    from seamline.pipeline import Pipeline

__all__ = ["FORMAT", "Explanation", "diff", "explain"]

FORMAT = 1  #: version of the JSON


@attrs.frozen(eq=False)
class Explanation:
    """
    What was decided for a model and a shape signature.

    Attributes
    ----------
    data
        Everything, as values that JSON knows.
    """

    data: Mapping[str, Any]

    def __str__(self) -> str:
        return as_text(self.data)

    def to_json(self) -> str:
        """Give the JSON, keys in a fixed order."""
        return json.dumps(self.data, indent=2, ensure_ascii=False) + "\n"

    def to_html(self) -> str:
        """
        Give one self-contained HTML page.

        Raises
        ------
        ModuleNotFoundError
            jinja2 is missing: ``pip install 'seamline[reports]'``.
        """
        from seamline.explain_html import as_html

        return as_html(self.data)


def explain(
    pipeline: Pipeline, plan: Plan, timings: Timings | None = None
) -> Explanation:
    """Explain a plan of a pipeline, with what its steps took if that was measured."""
    latest = pipeline.runner.latest()
    program = latest if latest is not None and latest.plan is plan else None
    signature = {f.value: str(plan.types.get(f.value) or "?") for f in plan.feeds}
    said = pipeline.claims.answers
    refusals = {name: list(pipeline.claims.refusals(name)) for name in said}
    data: dict[str, Any] = {
        "format": FORMAT,
        "model": pipeline.graph.file,
        "opsets": {
            domain or "ai.onnx": v for domain, v in pipeline.graph.opsets.items()
        },
        "providers": [
            {
                "name": name,
                "device": str(p.device),
                "options": _plain(pipeline, name),
                "kept_nbytes": pipeline.engine.kept_nbytes(name),
                "facts": _facts(p) if program is not None else {},
            }
            for name, p in pipeline.providers.items()
        ],
        "notes": list(pipeline.notes),
        "signature": signature,
        "states": pipeline.states.facts(),
        "optimized": pipeline.optimized.described(),
        "folded": _folded(pipeline),
        "constants_nbytes": _constants_nbytes(pipeline),
        "plan": _plan(plan, pipeline, program, timings),
        "advice": [_advice(a) for a in advise(plan, refusals)],
    }
    return Explanation(data)


def _advice(advice: Advice) -> dict[str, Any]:
    """Give lists for tuples: JSON reads them back as such."""
    facts = attrs.asdict(advice).items()
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in facts}
    return {**plain, "text": str(advice)}


def _plain(pipeline: Pipeline, name: str) -> dict[str, Any]:
    return dict(pipeline.provider_options.get(name, {}))


def _facts(provider: Provider) -> dict[str, Any]:
    """Give what a provider says of itself once something has run, if it says anything."""
    say: Any = getattr(provider, "facts", None)
    return dict(say()) if say is not None else {}


def _folded(pipeline: Pipeline) -> dict[str, Any]:
    folding = pipeline.folding
    return {
        "nodes": list(folding.nodes),
        "nbytes": folding.nbytes,
        "left": folding.left,
    }


def _constants_nbytes(pipeline: Pipeline) -> int:
    return sum(
        int(tensor.nbytes)
        for graph in pipeline.graph.graphs()
        for tensor in graph.constants.values()
    )


def _plan(
    plan: Plan, pipeline: Pipeline, program: Program | None, timings: Timings | None
) -> dict[str, Any]:
    steps = timings.steps() if timings else {}
    gaps = timings.gaps() if timings else {}
    return {
        "region": plan.region.name,
        "resolved": list(plan.resolved),
        "unused": list(plan.unused),
        "nodes": {
            node.name: _node(plan, pipeline, node)
            for node in plan.region.nodes
            if node.name in plan.choices
        },
        "segments": [_segment(s, steps, program) for s in plan.segments],
        "host_steps": [
            {"id": step.id, "node": step.node, "us": steps.get(step.id)}
            for step in plan.steps
            if isinstance(step, HostStep)
        ],
        "transfers": [
            {
                "id": t.id,
                "value": t.value,
                "source": str(t.source),
                "target": str(t.target),
                "nbytes": t.nbytes,
                "us": steps.get(t.id),
            }
            for t in plan.transfers
        ],
        "seams": described_seams(plan, steps, gaps),
        "excursions": described_excursions(plan, program, steps, gaps),
        "chains": described_chains(plan, program),
        "edges": described_edges(plan),
        "memory": _memory(plan),
        "all_joined": plan.joined,
        "bodies": _bodies(pipeline, program, timings),
        "rest": _rest(plan, pipeline, program, timings),
    }


def _memory(plan: Plan) -> dict[str, dict[str, int]]:
    """Give bytes by device: of the arena, alive at once, and kept by kernels' claims."""
    kept = Counter[Device]()
    for choice in plan.choices.values():
        kept[choice.device] += choice.claim.resident_nbytes
    return {
        str(device): {
            "arena_nbytes": plan.arenas.get(device, 0),
            "peak_nbytes": plan.peak.get(device, 0),
            "resident_nbytes": kept[device],
        }
        for device in dict.fromkeys([*plan.arenas, *(d for d in kept if kept[d])])
    }


def _node(plan: Plan, pipeline: Pipeline, node: Node) -> dict[str, Any]:
    choice, name = plan.choices[node.name], node.name
    return {
        "op": node.qualified_op,
        "since_version": node.since_version,
        "provider": choice.provider,
        "device": str(choice.device),
        "reason": choice.reason,
        "variant": choice.claim.variant,
        "because": choice.claim.because,
        "not_capturable": choice.claim.not_capturable,
        "workspace_nbytes": choice.claim.workspace_nbytes,
        "resident_nbytes": choice.claim.resident_nbytes,
        "outputs": {n: str(plan.types.get(n) or "?") for n in node.writes},
        "claimed_by": list(pipeline.claims.offers(name)),
        "refusals": dict(pipeline.claims.refusals(name)),
    }


def _segment(
    segment: Segment, steps: Mapping[str, float], program: Program | None
) -> dict[str, Any]:
    return {
        "id": segment.id,
        "provider": segment.provider,
        "device": str(segment.device),
        "nodes": list(segment.nodes),
        "inputs": list(segment.inputs),
        "outputs": list(segment.outputs),
        "not_capturable": segment.not_capturable,
        "sizes_at_run": segment.sizes_at_run,
        "capture": _capture(segment, program),
        "us": steps.get(segment.id),
    }


def _capture(segment: Segment, program: Program | None) -> dict[str, Any] | None:
    """Say whether it is recorded, in a chain or alone; None where that is not asked of it."""
    if program is None:
        return None
    chains = [c for c in program.chains.values() if segment in c.chain.segments]
    captured: Captured | None = program.captured.get(segment.id)
    captured = next((c for c in chains if c.state == "recorded"), captured)
    if captured is None:
        return None
    return {
        "state": captured.state,
        "why": captured.why,
        "events": list(captured.events),
        "left": dict(captured.left),
    }


def _bodies(
    pipeline: Pipeline, program: Program | None, timings: Timings | None
) -> dict[str, Any]:
    """Give the plans of bodies that have run; the others are planned when they do."""
    found: dict[str, Any] = {}
    for node, runners in (program.bodies if program else {}).items():
        for name, runner in runners.items():
            latest = runner.latest()
            if latest is not None:
                found[f"{node}.{name}"] = _plan(latest.plan, pipeline, latest, timings)
    return found


def _rest(
    plan: Plan, pipeline: Pipeline, program: Program | None, timings: Timings | None
) -> dict[str, Any] | None:
    if plan.rest is None:
        return None
    latest = program.rest.latest() if program and program.rest else None
    if latest is None:
        waiting = [node.name for node in plan.rest.nodes]
        return {"planned": False, "nodes": waiting, "waits_for": list(plan.rest.inputs)}
    return {"planned": True, **_plan(latest.plan, pipeline, latest, timings)}
