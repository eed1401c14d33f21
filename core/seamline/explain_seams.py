"""Seams, excursions and chains of a plan as JSON: causes, forms, bytes, prices and times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seamline.excursions import Excursion
from seamline.planned import Plan, Seam, Transfer
from seamline.program import Program

__all__ = [
    "described_chains",
    "described_edges",
    "described_excursions",
    "described_seams",
]

Times = Mapping[str, float]


def described_seams(plan: Plan, steps: Times, gaps: Times) -> list[dict[str, Any]]:
    """Give every seam, with the form of the excursion that it is an end of."""
    copied = {(t.value, str(t.target)): steps.get(t.id) for t in plan.transfers}
    targets = {s.id: str(s.device) for s in plan.segments}
    found = []
    for seam in plan.seams:
        us = gaps.get(seam.before)
        for value in seam.values:
            took = copied.get((value, targets.get(seam.before, "")))
            us = us + took if us is not None and took is not None else us
        excursion = _excursion_of(plan, seam)
        found.append(
            {
                "id": seam.id,
                "cause": seam.cause.name,
                "after": seam.after,
                "before": seam.before,
                "values": list(seam.values),
                "nbytes": seam.nbytes,
                "copied_nbytes": seam.copied_nbytes,
                "us": us,
                "form": None if excursion is None else str(excursion.form),
                "excursion": None if excursion is None else excursion.id,
                "why": seam.why,
            }
        )
    return found


def described_excursions(
    plan: Plan, program: Program | None, steps: Times, gaps: Times
) -> list[dict[str, Any]]:
    """
    Give every excursion between two segments of a device that records chains.

    ``us`` is what it took beside the host's work, ``host_us`` that work: medians of what the
    recording measured, or of the steps where they were taken one by one.
    """
    spent: dict[str, tuple[float, float]] = {}
    for chain in program.chains.values() if program is not None else ():
        spent.update(chain.spent())
    found = []
    for one in plan.excursions:
        us, host_us = _took(one, spent, steps, gaps)
        found.append(
            {
                "id": one.id,
                "after": one.after,
                "before": one.before,
                "segments": [segment.id for segment in one.segments],
                "out_nbytes": one.out_nbytes,
                "in_nbytes": one.in_nbytes,
                "form": str(one.form),
                "reason": one.reason,
                "predicted_us": one.prices.get(one.form),
                "prices": {str(form): price for form, price in one.prices.items()},
                "source": one.source,
                "refused": {str(form): why for form, why in one.refused.items()},
                "us": us,
                "host_us": host_us,
            }
        )
    return found


def described_chains(plan: Plan, program: Program | None) -> list[dict[str, Any]]:
    """Give every chain, and what became of its recording."""
    found = []
    for chain in plan.chains:
        captured = program.chains.get(chain.id) if program is not None else None
        capture = None
        if captured is not None:
            capture = {
                "state": captured.state,
                "why": captured.why,
                "events": list(captured.events),
                "left": dict(captured.left),
            }
        found.append(
            {
                "id": chain.id,
                "provider": chain.provider,
                "segments": [segment.id for segment in chain.segments],
                "excursions": [one.id for one in chain.excursions],
                "capture": capture,
            }
        )
    return found


def described_edges(plan: Plan) -> list[dict[str, Any]]:
    """Give every copy that is part of a recording; what became of it is the unit's."""
    return [
        {
            "id": edge.id,
            "value": edge.value,
            "device": str(edge.device),
            "inward": edge.inward,
            "nbytes": edge.nbytes,
            "unit": edge.unit,
            "step": edge.step or None,
        }
        for edge in plan.edges
    ]


def _excursion_of(plan: Plan, seam: Seam) -> Excursion | None:
    ends = {seam.after, seam.before}
    for one in plan.excursions:
        if ends & {segment.id for segment in one.segments}:
            return one
        if (one.after, one.before) == (seam.after, seam.before):
            return one
    return None


def _took(
    one: Excursion, spent: Mapping[str, tuple[float, float]], steps: Times, gaps: Times
) -> tuple[float | None, float | None]:
    if one.id in spent:
        whole, work = spent[one.id]
        return max(whole - work, 0.0), work
    ids = [segment.id for segment in one.segments]
    if one.before not in gaps or any(name not in steps for name in ids):
        return None, None
    copies = [s.id for s in one.steps if isinstance(s, Transfer)]
    waits = sum(gaps.get(name, 0.0) for name in (*ids, *copies, one.before))
    return waits + sum(steps.get(name, 0.0) for name in copies), sum(
        steps[name] for name in ids
    )
