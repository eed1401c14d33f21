"""What follows when a provider cannot build what it claimed: its nodes are placed anew."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from seamline.claims import Claims
from seamline.errors import BuildError
from seamline.placement import Placement, place
from seamline.provider import Device, Refusal

__all__ = ["Replaced", "replace"]


@attrs.frozen
class Replaced:
    """
    Claims and placement without what failed, and what was done, in words.

    Attributes
    ----------
    notes
        One for the nodes that moved, and one for each pin that no longer holds.
    """

    claims: Claims
    placement: Placement
    notes: tuple[str, ...]


def replace(
    error: BuildError,
    claims: Claims,
    placement: Placement,
    devices: Mapping[str, Device],
    *,
    named: tuple[str, ...],
    pins: Mapping[str, str],
) -> Replaced | None:
    """
    Take a failed segment's nodes from its provider, and place them again.

    Parameters
    ----------
    devices
        Device of each provider, in order of preference.

    Returns
    -------
    Replaced or None
        None where the error names no provider or no node: nobody can take them.

    Raises
    ------
    UnclaimedNodeError
        No other provider claims one of the nodes.
    """
    failed = {error.node} if error.node else set(error.nodes)
    if not error.provider or not failed:
        return None
    said = Refusal(f"its build failed: {error}")
    answers = {name: dict(given) for name, given in claims.answers.items()}
    for name in failed:
        answers[name][error.provider] = said
    claims = attrs.evolve(claims, answers=answers)
    kept = {pin: who for pin, who in pins.items() if who != error.provider}
    notes = [f"{', '.join(sorted(failed))} moved from {error.provider}: {error}"]
    notes += [
        f"node {name!r}, {placement.choices[name].reason} to {error.provider}, is no longer"
        for name in sorted(failed)
        if placement.choices[name].pinned
    ]
    moved = place(claims, devices, named=named, pins=kept)
    return Replaced(claims, moved, tuple(notes))
