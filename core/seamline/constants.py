"""Values known before any run: the model's own, and what was computed from them once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import attrs

from seamline.graph import Graph
from seamline.provider import Array

__all__ = ["Constants", "Known", "Values"]


class Values(Protocol):
    """Arrays by name, read when asked for; a mapping is one."""

    def get(self, name: str, /) -> Array | None:
        """Give a value, or None."""

    def __contains__(self, name: object, /) -> bool: ...


@attrs.define(eq=False)
class Constants:
    """
    The constants of a model, bodies included, by name.

    Data of the file is read when first asked for. ``folded`` holds results of nodes that
    depend on constants alone; they were run once. An initializer that is also an input is
    a constant unless it is ``overridden`` by a feed.
    """

    graph: Graph
    overridden: frozenset[str] = frozenset()
    folded: dict[str, Array] = attrs.field(factory=dict)
    _owners: dict[str, Graph] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for graph in self.graph.graphs():
            for name in graph.constants:
                self._owners[name] = graph
        for name in self.overridden:
            self._owners.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self.folded or name in self._owners

    def __iter__(self) -> Iterator[str]:
        yield from self._owners
        yield from self.folded

    def get(self, name: str) -> Array | None:
        """Give a constant, read-only, or None."""
        found = self.folded.get(name)
        if found is not None:
            return found
        owner = self._owners.get(name)
        return owner.constant(name) if owner is not None else None

    def rest(self, name: str) -> None:
        """
        Take a constant out of memory that is mapped; it comes back where it is read.

        For a constant that was packed into something else. What was computed, and what the
        caller gave in memory, stays.
        """
        owner = self._owners.get(name)
        if owner is not None:
            owner.rest(name)

    def with_known(self, known: Mapping[str, Array]) -> Known:
        """Look here after looking among values known for one signature."""
        return Known(self, known)


@attrs.frozen(eq=False)
class Known:
    """Constants, and values known for one shape signature."""

    constants: Constants
    values: Mapping[str, Array]

    def __contains__(self, name: object) -> bool:
        return name in self.values or name in self.constants

    def get(self, name: str) -> Array | None:
        """Give a value, read-only, or None."""
        found = self.values.get(name)
        return found if found is not None else self.constants.get(name)
