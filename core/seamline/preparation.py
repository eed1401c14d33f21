"""
Everything before the first plan: load, open, optimize, collect, place.

What is opened on the way is closed by the caller's stack, so a step that fails leaves
nothing behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from seamline.claims import Claims, collect
from seamline.constants import Constants
from seamline.graph import Graph, load
from seamline.levels import GraphOptimizationLevel, level_of
from seamline.opened import Opened, open_providers
from seamline.optimization import Optimized, optimize
from seamline.placement import Placement, place
from seamline.provider import Device

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from seamline.limits import LoadLimits
    from seamline.settings import Settings

__all__ = ["Fallback", "Prepared", "Source", "devices_of", "prepare"]

Fallback = Literal["error", "warn", "allow"]
Source: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model"


@attrs.frozen(eq=False)
class Prepared:
    """
    A model whose every node has a provider.

    Attributes
    ----------
    pins
        As they were given, providers by their own names.
    notes
        What was dropped, moved or left, and why.
    """

    graph: Graph
    opened: Opened
    pins: Mapping[str, str]
    optimized: Optimized
    constants: Constants
    claims: Claims
    placement: Placement
    notes: tuple[str, ...]


def prepare(
    stack: ExitStack,
    source: Source,
    providers: Sequence[str | tuple[str, Mapping[str, Any]]],
    *,
    pins: Mapping[str, str] | None,
    fallback: Fallback,
    limits: LoadLimits | None,
    level: GraphOptimizationLevel | int | str,
    accuracy_level: int,
    deadline: float | None,
    settings: Settings | None,
    plugins: Sequence[Any],
) -> Prepared:
    """
    Load a model, open providers, ask them about every node and choose.

    Parameters
    ----------
    stack
        Closes the providers.

    Raises
    ------
    ModelError, ProviderError, PlanError
        See :mod:`seamline.errors`.
    ValueError, TypeError
        An argument is none of the values that it takes.
    """
    _check(providers, fallback, accuracy_level)
    amount = level_of(level)
    graph = load(source, limits=limits)
    opened = open_providers(
        providers, fallback, settings, tuple(plugins), deadline=deadline
    )
    stack.callback(opened.close)
    asked = list(opened.providers.values())
    chosen = {pin: opened.aliases.get(who, who) for pin, who in (pins or {}).items()}
    optimized = optimize(
        graph, asked, level=amount, pins=chosen, accuracy_level=accuracy_level
    )
    graph = optimized.graph
    constants = Constants(graph)
    claims = collect(graph, asked, constants, optimized.settled)
    dropped = _dropped(claims, opened, fallback)
    placement = place(claims, devices_of(opened), named=opened.named, pins=chosen)
    notes = (*dropped, *_fallbacks(placement))
    return Prepared(
        graph, opened, chosen, optimized, constants, claims, placement, notes
    )


def devices_of(opened: Opened) -> dict[str, Device]:
    """Give the device of each provider, in order of preference."""
    return {name: provider.device for name, provider in opened.providers.items()}


def _check(providers: object, fallback: object, accuracy_level: object) -> None:
    if accuracy_level not in range(5):
        raise ValueError(f"accuracy_level= is 0 to 4; it was given {accuracy_level!r}")
    if isinstance(providers, str):
        raise TypeError(
            f"providers= is a list of names; it was given the text {providers!r}: write "
            f"[{providers!r}]"
        )
    if fallback not in ("error", "warn", "allow"):
        raise ValueError(
            f"fallback= takes 'error', 'warn' or 'allow'; it was given {fallback!r}"
        )


def _dropped(claims: Claims, opened: Opened, fallback: Fallback) -> list[str]:
    """Say which providers were dropped or set aside; raise if one may not be."""
    notes = list(opened.notes)
    for broken in claims.quarantined.values():
        if fallback == "error" and broken.provider in opened.named:
            raise broken
        notes.append(str(broken))
    return notes


def _fallbacks(placement: Placement) -> Iterator[str]:
    for node, said in placement.fallbacks.items():
        who = placement.choices[node].provider
        why = "; ".join(f"{name}: {reason}" for name, reason in said.items())
        yield f"node {node!r} falls back to {who}: {why}"
