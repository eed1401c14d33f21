"""
What a model came to over its providers, before and between runs.

Everything here was decided when the model was opened, or by its last run, and is only read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from seamline.claims import Claims
from seamline.engine import Engine
from seamline.folding import Folding
from seamline.graph import Graph
from seamline.opened import Opened
from seamline.optimization import Optimized
from seamline.placement import Placement
from seamline.planned import Plan
from seamline.provider import Provider
from seamline.rerouting import Rerouting
from seamline.runner import Runner
from seamline.samples import weightless_feeds
from seamline.state_store import States
from seamline.tensors import ValueType
from seamline.variants import Variants

__all__ = ["OpenedModel"]


@attrs.define(eq=False)
class OpenedModel:
    """
    A model's graph, and who runs what of it.

    Attributes
    ----------
    optimized
        What was rewritten before providers were asked; ``graph`` is its graph.
    """

    graph: Graph
    opened: Opened
    variants: Variants
    optimized: Optimized
    _routes: Rerouting

    @property
    def states(self) -> States:
        """Give what is kept between runs: to read, write, cut and reset."""
        return self.variants.states

    @property
    def notes(self) -> Sequence[str]:
        """Give what was dropped, moved or left, and why; shown by ``explain``."""
        return tuple(self._routes.notes.texts)

    @property
    def claims(self) -> Claims:
        """Give what each provider said of each node."""
        return self._routes.claims

    @property
    def placement(self) -> Placement:
        """Give the provider of each node; nodes that could not be built have moved."""
        return self._routes.placement

    @property
    def types(self) -> Mapping[str, ValueType | None]:
        """Give what is known of each value's type before any feed."""
        return self.claims.types

    @property
    def runner(self) -> Runner:
        """Give the runner of the model as it is, with no default fed."""
        return self.variants.of(frozenset()).runner

    @property
    def engine(self) -> Engine:
        """Give the engine of the model as it is."""
        return self.variants.of(frozenset()).engine

    @property
    def folding(self) -> Folding:
        """Say what was folded in the model as it is."""
        return self.variants.of(frozenset()).folding

    @property
    def providers(self) -> Mapping[str, Provider]:
        """Give the opened providers, most preferred first."""
        return self.opened.providers

    @property
    def provider_options(self) -> Mapping[str, Mapping[str, Any]]:
        """Give the options that each provider was opened with."""
        return self.opened.options

    def assignments(self) -> Mapping[str, str]:
        """Give the provider of every node, bodies included."""
        return {
            name: choice.provider for name, choice in self.placement.choices.items()
        }

    def plan(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Plan:
        """
        Give the plan of the last run, or one for the shapes given.

        Symbolic and unknown sizes that are not given count as 1.
        """
        latest = self.runner.latest()
        if shapes is None and latest is not None:
            return latest.plan
        types = {name: self.types.get(name) for name in self.runner.region.inputs}
        rooms = {name: array.shape for name, array in self.states.feeds.items()}
        return self.runner.plan(weightless_feeds(types, {**(shapes or {}), **rooms}))
