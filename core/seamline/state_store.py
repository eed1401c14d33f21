"""
The states of one session: opened when a program first needs them, grown before a run.

A run is told first how far it will read and write. Whatever of that has no pages gets
them, in all states or in none, before anything runs; so a run that begins has the memory
that it needs, and one that cannot have it fails as if it had not been asked for.

Lengths are those of the last run that ended well. A run that fails may have written past
them, at positions that the next one writes anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np

from seamline.closing import close_all
from seamline.devices import Array, Device, GrowingMemory, Memory, View
from seamline.errors import FeedError
from seamline.samples import weightless_feeds
from seamline.state_groups import Group, Reach, grouped
from seamline.state_growth import grow
from seamline.state_place import Place, fitting
from seamline.states import Settled, StateError
from seamline.tensors import TensorType

if TYPE_CHECKING:
    from seamline.planned import Plan

__all__ = ["States"]


@attrs.define(eq=False)
class States:
    """
    A session's states.

    Attributes
    ----------
    settled
        By input.
    lock
        Held by runs, so that nothing here happens during one.
    locate
        Gives the device on which an output is written, and its memory.
    outputs
        Output -> input.
    feeds
        What stands for a state among a run's inputs: its type, and no memory.
    """

    settled: Mapping[str, Settled] = attrs.field(factory=dict)
    lock: threading.RLock = attrs.field(factory=threading.RLock, repr=False)
    locate: Callable[[str], tuple[Device, Memory]] | None = None
    outputs: Mapping[str, str] = attrs.field(init=False)
    feeds: Mapping[str, Array] = attrs.field(init=False)
    _groups: dict[str, Group] = attrs.field(init=False)
    _places: dict[str, Place] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.outputs = {one.state.output: n for n, one in self.settled.items()}
        self.feeds = weightless_feeds({n: s.kind for n, s in self.settled.items()}, {})
        self._groups = grouped(self.settled.values())

    @classmethod
    def of(cls, settled: Sequence[Settled], lock: threading.RLock) -> States:
        """Keep these states; none of them has a place yet."""
        return cls({one.state.input: one for one in settled}, lock)

    def __bool__(self) -> bool:
        return bool(self.settled)

    def __iter__(self) -> Iterator[str]:
        return iter(self.settled)

    def refuse_fed(self, feeds: Mapping[str, Any]) -> None:
        """
        Refuse a state among feeds.

        Raises
        ------
        FeedError
            Names it, and what puts a value in.
        """
        for name in self.settled:
            if name in feeds:
                how = f"states.write({name!r}, array) puts a value in"
                raise FeedError(f"{name!r} is a state, which no run is fed; {how}")

    # -- places --------------------------------------------------------------------------

    def view(self, name: str, device: Device, memory: Memory, kind: TensorType) -> View:
        """
        Give a state's place under a type of as many bytes, opened at the first time.

        Raises
        ------
        StateError
            It lies on another device by now, and has content.
        """
        place = self._places.get(name)
        if place is not None and place.device != device:
            if place.lengths.any():
                why = f"it lies on {place.device}, and is now read on {device}; reset() it"
                raise StateError(name, why)
            self._give_back(place)
            place = None
        if place is None:
            place = self._open(name, device, memory)
        return place.view(kind)

    def _open(self, name: str, device: Device, memory: Memory) -> Place:
        settled = self.settled[name]
        nbytes = settled.geometry.nbytes
        if _grows(memory):
            growing = cast(GrowingMemory, memory).reserve(nbytes)
            place = Place(settled, device, memory, growing)
        else:
            buffer = memory.allocate(nbytes)
            place = Place(settled, device, memory, buffer)
            try:
                place.zero(((0, nbytes),))
            except BaseException:
                buffer.close()
                raise
        self._places[name] = place
        self._groups[name].places.append(place)
        self._groups[name].covered = -1
        return place

    def _give_back(self, place: Place) -> None:
        place.buffer.close()
        del self._places[place.name]
        self._groups[place.name].places.remove(place)

    def place(self, name: str) -> Place:
        """Give the open place of a state; raises KeyError where no program needed it."""
        return self._places[name]

    # -- a run ---------------------------------------------------------------------------

    def prepare(self, plan: Plan, inputs: Mapping[str, Any]) -> Sequence[Reach]:
        """
        Have pages for whatever a run may read and write, or change nothing.

        Returns
        -------
        sequence of Reach
            To be told when the run has ended well.

        Raises
        ------
        StateError
            It would leave the room, or there is no memory; nothing was run.
        """
        for name, why in plan.whole.items():
            if not self._places[name].whole:
                self._places[name].need_all(why)
                self._groups[name].covered = -1
        groups = dict.fromkeys(self._groups.values())
        reaches = [group.reach(inputs) for group in groups]
        new = [reach for reach in reaches if reach.is_new]
        for reach in new:
            reach.check()
        if new:
            grow([(place, r.lengths) for r in new for place in r.group.places])
            for reach in new:
                reach.covers()
        return reaches

    # -- between runs --------------------------------------------------------------------

    def reset(self) -> None:
        """Empty all states, and give their pages back once nothing reads them."""
        self.truncate(0)

    def truncate(self, length: int) -> None:
        """
        Cut all states that grow to a length, and give back the pages past it.

        States of one size are emptied where it is 0, and kept otherwise.

        Raises
        ------
        ValueError
            The length is below 0.
        """
        if length < 0:
            raise ValueError(f"a length is 0 or more, not {length}")
        with self.lock:
            for place in self._places.values():
                if length == 0 or place.settled.state.axis is not None:
                    self._groups[place.name].covered = -1
                    place.shrink(length)

    def read(self, name: str) -> Array:
        """
        Copy a state's live part out.

        Parameters
        ----------
        name
            Its input or its output.

        Returns
        -------
        Array
            Its growing axis is as long as the longest sequence; the rest of shorter ones
            is zeros. Before any run it is empty.
        """
        with self.lock:
            settled = self._named(name)
            place = self._places.get(settled.state.input)
            return Place.empty(settled) if place is None else place.read()

    def write(self, name: str, array: Array) -> None:
        """
        Put a first part in: every sequence is then as long as the array.

        Raises
        ------
        FeedError
            It does not fit.
        StateError
            There is no memory for it; the state is as before.
        """
        with self.lock:
            settled = self._named(name)
            length = fitting(settled, array)
            place = self._places.get(settled.state.input)
            if place is None:
                assert self.locate is not None
                where = self.locate(settled.state.output)
                place = self._open(settled.state.input, *where)
            lengths = np.full_like(place.lengths, length)
            grow([(place, lengths)])
            place.lengths = lengths
            place.write(array)

    def _named(self, name: str) -> Settled:
        found = self.settled.get(self.outputs.get(name, name))
        if found is None:
            known = ", ".join(self.settled) or "none"
            raise FeedError(f"{name!r} is no state (there are: {known})")
        return found

    def facts(self) -> dict[str, dict[str, Any]]:
        """
        Say where each state lies, and what it holds.

        Returns
        -------
        dict
            By input: its output, type, axis and room; its place and lengths; bytes live,
            committed and of the whole room; the granule, how many it has, and from which
            length on growth takes less than a buffer that doubles (``crossover``); and
            why all of it has pages (``whole``), where it has.
        """
        with self.lock:
            return {name: self._facts_of(name) for name in self.settled}

    def _facts_of(self, name: str) -> dict[str, Any]:
        settled, place = self.settled[name], self._places.get(name)
        state, geometry = settled.state, settled.geometry
        said = {
            "output": state.output,
            "type": str(settled.kind),
            "axis": state.axis,
            "room": geometry.room,
            "room_nbytes": geometry.nbytes,
            "place": None,
        }
        return said if place is None else {**said, **place.facts()}

    def close(self) -> None:
        """Give all places back; a second call does nothing."""
        places = list(self._places.values())
        self._places.clear()
        close_all([place.buffer for place in places])


def _grows(memory: Memory) -> bool:
    said = getattr(memory, "grows", None)
    grows = isinstance(memory, GrowingMemory) if said is None else bool(said)
    return grows and memory.virtual is not None
