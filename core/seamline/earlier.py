"""
What plans for other sizes found of a node, which holds where the node sees the same.

Inputs that grow, such as a decoder's past, make a plan for every length; most nodes of it
see what they saw in the last one. A node's output types follow from its input types and
the constants it reads, and a claim may depend on nothing more, so both are kept by these
types. They are not kept for a node that reads a value which follows from sizes: that has
one type for each length, and another value.
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

import attrs

from seamline.tensors import ValueType

__all__ = ["Earlier", "Seen", "Typed"]

T = TypeVar("T")
#: Types of what a node reads, or of that and what it gives.
Seen: TypeAlias = tuple[ValueType | None, ...]
_KEPT = 4  # of a node: decoders take turns between a prompt and a token


@attrs.frozen
class Typed:
    """Types of a node's inputs and outputs, all sized; no output is followed as a value."""

    inputs: Seen
    outputs: Seen


@attrs.define(eq=False)
class Earlier(Generic[T]):
    """By a node's name and the types that it saw, the latest few of each node."""

    _found: dict[str, dict[Seen, T]] = attrs.field(factory=dict, init=False)
    _owner: object = attrs.field(default=None, init=False)

    def of(self, owner: object) -> Earlier[T]:
        """Forget everything if it was found for another owner; give itself."""
        if owner is not self._owner:
            self._found.clear()
            self._owner = owner
        return self

    def get(self, node: str, seen: Seen) -> T | None:
        """Give what was found for a node that saw these types, or None."""
        found = self._found.get(node)
        return found.get(seen) if found is not None else None

    def keep(self, node: str, seen: Seen, what: T) -> None:
        """Keep what was found; the oldest of a node's goes."""
        found = self._found.setdefault(node, {})
        while len(found) >= _KEPT:
            del found[next(iter(found))]
        found[seen] = what
