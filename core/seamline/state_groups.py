"""
States that grow together: what a run reaches in them, checked before it begins.

The caches of a decoder's layers have one source of lengths. So it is asked once for all of
them, and most runs stay within the granules that the run before had: one comparison tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np

from seamline.state_place import Place
from seamline.states import Settled, StateError

__all__ = ["Group", "Lengths", "Reach", "grouped"]

Lengths = np.ndarray[Any, np.dtype[np.int64]]


@attrs.frozen(eq=False)
class Reach:
    """
    How far one run reaches in a group.

    Attributes
    ----------
    lengths
        One for each sequence, or one for all.
    """

    group: Group
    lengths: Lengths

    @property
    def is_new(self) -> bool:
        """Tell whether it may need pages that are not there, or is wrong."""
        least, most = self.lengths.min(initial=0), self.lengths.max(initial=0)
        return bool(most > self.group.covered or least < 0)

    def check(self) -> None:
        """
        Hold it to the room.

        Raises
        ------
        StateError
            It would leave the room.
        """
        group, name = self.group, self.group.settled[0].state.input
        most, least = int(self.lengths.max(initial=0)), int(self.lengths.min(initial=0))
        if least < 0:
            raise StateError(name, f"{group.source[0]!r} gives it a length of {least}")
        if most > group.room:
            why = (
                f"the run reaches {most} entries, and its room is {group.room}; reset() or "
                "truncate() it, or open the session with more room"
            )
            raise StateError(name, why)

    def covers(self) -> None:
        """Note that pages are there for it."""
        least = int(self.lengths.min(initial=0))
        upto = [_covered(place, least) for place in self.group.places]
        self.group.covered = min(upto, default=-1)

    def ended(self) -> None:
        """Note that the run ended well: so far its states are live."""
        for place in self.group.places:
            count = len(place.lengths)
            if len(self.lengths) == count:
                place.lengths = self.lengths
            else:
                place.lengths = np.full(count, self.lengths.max(initial=0))


@attrs.define(eq=False)
class Group:
    """
    States that share what says how far they are live.

    Attributes
    ----------
    source
        Their ``lengths`` and ``plus``.
    covered
        Length up to which all have pages in every sequence; -1 where not known.
    """

    source: tuple[str | None, int | tuple[str, int]]
    settled: list[Settled] = attrs.field(factory=list)
    places: list[Place] = attrs.field(factory=list)
    covered: int = -1

    @property
    def room(self) -> int:
        """Give the smallest room among them."""
        return min(one.geometry.room for one in self.settled)

    def reach(self, inputs: Mapping[str, Any]) -> Reach:
        """
        Say how far a run with these inputs reaches.

        Raises
        ------
        StateError
            The lengths lie on a device: they are looked at before anything is submitted.
        """
        name, plus = self.source
        if name is None:
            return Reach(self, np.array([self.room], np.int64))
        fed = inputs[name]
        if not isinstance(fed, np.ndarray):
            first = self.settled[0].state.input
            why = f"its lengths {name!r} lie on {fed.device}; feed them from the host"
            raise StateError(first, why)
        given = fed.reshape(-1)
        if isinstance(plus, tuple):
            plus = inputs[plus[0]].shape[plus[1]]
        return Reach(self, given.astype(np.int64) + plus)


def grouped(states: Iterable[Settled]) -> dict[str, Group]:
    """Give the group of each state, by its input."""
    groups: dict[object, Group] = {}
    found: dict[str, Group] = {}
    for one in states:
        # States without a source are always full: only those of one room go together.
        key = one.source if one.state.lengths is not None else one.geometry.room
        group = groups.setdefault(key, Group(one.source))
        group.settled.append(one)
        found[one.state.input] = group
    return found


def _covered(place: Place, length: int) -> int:
    geometry, growing = place.settled.geometry, place.growing
    if place.whole or growing is None:
        return geometry.room
    return geometry.covered(length, growing.granule)
