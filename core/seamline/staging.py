"""
Copies whose device half is in a recording: where the host writes and reads meanwhile.

While its recording holds, a value that goes to the device is written to the recording's
room for it, and one that comes from there is read from such a room once the replay has
filled it. Else both go by the device's memory. A recording comes and goes between two
steps of one run: what was written to the device before is brought to its room when one is
made, and what lies in a room is brought to the device when one is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np

from seamline.edges import Edge
from seamline.forms import EdgedRecording
from seamline.provider import Array, Memory, Recording, View
from seamline.tensors import numpy_dtype

if TYPE_CHECKING:
    from seamline.program import Program

__all__ = ["Edges", "Staged", "stage"]


def _nothing() -> None:
    return None


@attrs.define(eq=False)
class Staged:
    """
    One such copy.

    Attributes
    ----------
    view
        The value's place on the device.
    room
        Where the recording takes it from, or leaves it; None where there is none.
    """

    edge: Edge
    edges: Edges
    view: View
    memory: Memory
    room: Array | None = None

    def write(self, source: Array) -> None:
        """Bring a value to the device, or to where the next replay takes it from."""
        room = self.room
        if room is None or source.shape != room.shape or source.dtype != room.dtype:
            self.memory.write(self.view, source)  # which refuses what does not fit
            return
        self.edges.taken()
        room[...] = source

    def read(self, target: Array) -> None:
        """Bring a value from the device, or from where the last replay left it."""
        room = self._filled()
        if room is None:
            self.memory.read(self.view, target)
        else:
            target[...] = room

    def fetched(self) -> Array:
        """Give a value as an array of the caller's own."""
        room = self._filled()
        if room is not None:
            return room.copy()
        kind: Any = self.edges.program.plan.tensor(self.edge.value)
        target = np.empty(kind.sizes, numpy_dtype(kind.dtype))
        self.memory.read(self.view, target)
        return target

    def _filled(self) -> Array | None:
        edges = self.edges
        if self.room is None or edges.direct:
            return None
        edges.given()
        return self.room


@attrs.define(eq=False)
class Edges:
    """
    The copies of one recording.

    Attributes
    ----------
    direct
        The last run was no replay, so results lie on the device.
    taken, given
        The recording's; see :class:`~seamline.forms.EdgedRecording`.
    """

    program: Program
    inward: list[Staged] = attrs.field(factory=list)
    outward: list[Staged] = attrs.field(factory=list)
    direct: bool = True
    attached: bool = False
    taken: Callable[[], object] = _nothing
    given: Callable[[], object] = _nothing

    def __bool__(self) -> bool:
        return bool(self.inward or self.outward)

    def views(self) -> tuple[tuple[View, ...], tuple[View, ...]]:
        """Give the places that a recording is to fill first, and to read last."""
        inward, outward = ([s.view for s in ss] for ss in (self.inward, self.outward))
        return tuple(inward), tuple(outward)

    def check(self, made: Recording) -> None:
        """
        Look for a room of each copy in a recording.

        Raises
        ------
        TypeError
            It has others.
        """
        for name, mine in (("inward", self.inward), ("outward", self.outward)):
            rooms = [room.shape for room in getattr(made, name, ())]
            wanted = [self.program.plan.tensor(s.edge.value).sizes for s in mine]
            if mine and rooms != wanted:
                said = f"it gave a recording with rooms {rooms} {name}"
                raise TypeError(f"{said}; it was asked for {wanted}")

    def attach(self, made: Recording) -> None:
        """
        Take a recording's rooms, and bring what the device was handed to them.

        Raises
        ------
        RunError
            The device could not be read; nothing is attached then.
        """
        if not self:
            return
        edged = cast("EdgedRecording", made)
        for staged, room in zip(self.inward, edged.inward, strict=True):
            staged.memory.read(staged.view, room)
        self.attached, self.taken, self.given = True, edged.taken, edged.given
        rooms = (*edged.inward, *edged.outward)
        for staged, room in zip((*self.inward, *self.outward), rooms, strict=True):
            staged.room = room

    def clear(self) -> None:
        """Have no copy in the recording."""
        self.forget()
        self.inward.clear()
        self.outward.clear()

    def apart(self) -> None:
        """Bring to the device what lies in rooms, for a run that is no replay."""
        self.direct = True
        if self.attached:
            for staged in self.inward:
                assert staged.room is not None
                staged.memory.write(staged.view, staged.room)

    def forget(self) -> None:
        """Use rooms no more; what lies in them is lost."""
        self.direct, self.attached = True, False
        self.taken = self.given = _nothing
        for staged in (*self.inward, *self.outward):
            staged.room = None

    def detach(self) -> None:
        """Give the rooms up, and bring what lies in them to the device."""
        try:
            self.apart()
        finally:
            self.forget()

    def compared(self, replay: Callable[[], object]) -> Callable[[], None]:
        """
        Give a replay over what lies on the device, whose results are brought there.

        So that what it does is compared by the places of the device, edges included.
        """

        def replayed() -> None:
            for staged in self.inward:
                assert staged.room is not None
                staged.memory.read(staged.view, staged.room)
            replay()
            self.direct = False
            for staged in self.outward:
                room = staged._filled()
                assert room is not None
                staged.memory.write(staged.view, room)

        return replayed


def stage(program: Program) -> None:
    """Make the copies of a program being built that recordings are to take in."""
    for edge in program.plan.edges:
        edges = program.edges.setdefault(edge.unit, Edges(program))
        view = program.view(edge.value, edge.device)
        memory = program.engine.memories[edge.device]
        staged = Staged(edge, edges, view, memory)
        (edges.inward if edge.inward else edges.outward).append(staged)
        program.staged[edge.value, edge.device, edge.inward] = staged
