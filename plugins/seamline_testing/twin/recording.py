"""
A recorded segment: its launches, and everything that must still hold when it is replayed.

Beside what any recording rests on, see :mod:`seamline.device_segments`, an address that is no
longer mapped is refused, with the reason; a replay reads and writes pages that are new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from seamline.device_segments import Held
from seamline.devices import VirtualMemoryError
from seamline_testing.twin.faults import How, InjectedError, Step
from seamline_testing.twin.memory import TwinView
from seamline_testing.twin.streams import Operation

if TYPE_CHECKING:
    from seamline_testing.twin.segment import TwinSegment

__all__ = ["TwinRecording"]


@attrs.define(eq=False)
class TwinRecording:
    """
    Implements :class:`~seamline.provider.Recording`.

    Attributes
    ----------
    replays
        Replays that ended well.
    """

    segment: TwinSegment
    operations: tuple[Operation, ...]
    views: dict[str, TwinView]
    held: Held[TwinView]
    serials: dict[str, tuple[int, ...]]
    replays: int = 0
    _open: bool = True

    @classmethod
    def of(
        cls, segment: TwinSegment, operations: tuple[Operation, ...]
    ) -> TwinRecording:
        """Keep what was recorded, and what it rests on."""
        views = dict(segment.bound)
        baked = {name: copy.tobytes() for name, _, copy in segment.host}

        def changed() -> str:
            now = ((name, source.tobytes()) for name, source, _ in segment.host)
            return next((name for name, value in now if value != baked[name]), "")

        made = cls(segment, operations, views, Held.of(segment, changed), {})
        made.serials = {name: made._serials(name, view) for name, view in views.items()}
        return made

    def replay(self) -> None:
        """
        Run what was recorded, again, over what lies at its addresses now.

        Raises
        ------
        RecordingError
            Something that it rests on no longer holds; nothing was run.
        KernelError
            A kernel failed; names the node.
        """
        segment, machine = self.segment, self.segment.machine
        with segment.taken():
            machine.legal("replays a recording")
            self.check()
            how = machine.faults.meet(Step.REPLAY)
            machine.submit(machine.compute, self.operation(how))
            machine.synchronize()
            self.replays += 1

    def operation(self, how: How | None) -> Operation:
        """Give all of it as one operation of the stream, with a fault or without."""
        whole = Operation(
            f"replay of {self.segment.spec.name!r}",
            lambda: self._perform(how, whole.number),
            hangs=how is How.HANG,
            named=self._named,
        )
        return whole

    def remapped(self) -> tuple[str, ...]:
        """Name the values whose pages are others than when they were recorded."""
        return tuple(
            name
            for name, view in self.views.items()
            if self._serials(name, view)[: len(self.serials[name])]
            != self.serials[name]
        )

    def close(self) -> None:
        """Forget it; a second call does nothing."""
        self._open = False
        self.operations = ()

    # -- on the stream -------------------------------------------------------------------

    def _perform(self, how: How | None, number: int) -> None:
        if how is How.FAIL:
            number = self.segment.machine.faults.counts[Step.REPLAY]
            raise InjectedError(f"replay number {number} was made to fail")
        for operation in self.operations:
            try:
                self.segment.machine.perform(operation, number)
            except Exception as error:
                raise operation.named(error) from error

    def _named(self, error: BaseException) -> BaseException:
        return self.segment.named(self.segment.spec.nodes[0], error)

    # -- what must hold ------------------------------------------------------------------

    def check(self) -> None:
        """
        Hold it to what it rests on.

        Raises
        ------
        RecordingError
            Something no longer holds.
        """
        if not self._open:
            self.held.refuse("it is closed")
        self.held.check()
        for name, view in self.views.items():
            self._serials(name, view)

    def _serials(self, name: str, view: TwinView) -> tuple[int, ...]:
        try:
            return self.segment.machine.names(view.place)
        except VirtualMemoryError as error:
            why = f"{name!r} lies where nothing is mapped now: {error}"
            self.held.refuse(why, error)
