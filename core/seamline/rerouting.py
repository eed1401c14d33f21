"""
The variants of one model, whose failed segments go to other providers.

A provider may fail to build what it claimed. Unless that is an error, its nodes are given
to whoever else claims them, programs that hold them are dropped, and the run is tried
again; the notes say what moved and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from seamline.claims import Claims
from seamline.errors import BuildError, RunError
from seamline.notes import Notes
from seamline.opened import Opened
from seamline.placement import Placement
from seamline.preparation import Fallback, devices_of
from seamline.replacing import replace
from seamline.timings import Profile
from seamline.variants import Variant, Variants

__all__ = ["Rerouting"]

_REPLACEMENTS = 16  # builds that may fail before a session gives up


@attrs.define(eq=False)
class Rerouting:
    """
    Runs a model, and moves nodes whose provider cannot build them.

    Attributes
    ----------
    claims, placement
        As they are now: nodes that moved count as refused where they were.
    """

    opened: Opened
    fallback: Fallback
    pins: Mapping[str, str]
    claims: Claims
    placement: Placement
    variants: Variants
    notes: Notes

    def run(self, feeds: Mapping[str, Any], profile: Profile | None) -> dict[str, Any]:
        """
        Run the variant for the inputs that are fed.

        Raises
        ------
        BuildError
            A provider could not build what it claimed, and nobody else may take it.
        RunError
            A kernel failed, or build after build did.
        """
        for _ in range(_REPLACEMENTS):
            runner = self._variant_for(feeds).runner
            kept = self.variants.states.feeds
            given = {**feeds, **kept} if kept else feeds
            inputs = {name: given[name] for name in runner.region.inputs}
            try:
                return runner.run(inputs, {}, self.opened.watching(profile))
            except BuildError as error:
                if self.fallback == "error" or not self._replaced(error):
                    raise
        raise RunError(f"{_REPLACEMENTS} builds failed; see the notes of explain()")

    def _variant_for(self, feeds: Mapping[str, Any]) -> Variant:
        fed = self.variants.fed(feeds)
        made = self.variants.of(fed)
        left = made.folding.left
        if fed and left and left != self.variants.of(frozenset()).folding.left:
            note = f"with {', '.join(sorted(fed))} fed: {left}"
            if note not in self.notes.texts:
                self.notes.add(note)
        return made

    def _replaced(self, error: BuildError) -> bool:
        """Give a failed segment's nodes to others; tell whether that was possible."""
        found = replace(
            error,
            self.claims,
            self.placement,
            devices_of(self.opened),
            named=self.opened.named,
            pins=self.pins,
        )
        if found is None:
            return False
        self.claims, self.placement = found.claims, found.placement
        self.notes.add(*found.notes)
        self.variants.place(self.placement)
        return True
