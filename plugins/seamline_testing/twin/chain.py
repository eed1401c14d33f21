"""
A recorded chain on the twin: segments, and excursions in which the stream waits for the host.

All of a replay is queued at once. Where the host has to work, the stream's thread asks for
it and waits: by words that both sides look at (``mailbox``), or by a call that returns when
the host is done (``host_node``). The device's pages are hidden while it waits. It gives up
at a deadline, or when told to; what is queued behind it then does not run.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import attrs

from seamline.errors import DeadlineError, KernelError, RecordingError, SeamlineError
from seamline.forms import HostWork, SeamForm
from seamline.provider import Array
from seamline.serving import Spent, following, serve, waited
from seamline_testing.twin.edges import Edges, copied, like
from seamline_testing.twin.faults import How, InjectedError, Step
from seamline_testing.twin.machine import Machine
from seamline_testing.twin.memory import TwinMemory, TwinView
from seamline_testing.twin.recording import TwinRecording
from seamline_testing.twin.streams import Operation

__all__ = ["Excursion", "TwinChain", "TwinMail"]

_NAP = 20e-6  #: seconds between two looks of the stream's thread at the answer


class _AbortedError(Exception):
    """The host gave the replay up; whoever did so says why."""


@attrs.define(eq=False)
class TwinMail:
    """
    Implements :class:`~seamline.serving.Mail`: words of both sides, and bells to wake them.

    Attributes
    ----------
    asked, answered
        The latest turn that the device asked for, and that the host answered.
    aborted
        The replay under way is given up.
    """

    machine: Machine
    asked: int = 0
    answered: int = 0
    aborted: bool = False
    is_open: bool = True
    bell: threading.Event = attrs.field(factory=threading.Event)

    def wait(self, turn: int) -> None:
        """Wait until the stream asks for a turn, as long as a host waits for the device."""
        self._check_open()
        end = time.monotonic() + self.machine.deadline
        waited(lambda: self._is_asked(turn), lambda: self._check(end))

    def answer(self, turn: int) -> None:
        """Let the stream go on, unless a fault keeps the answer, or sends an old one."""
        how = self.machine.faults.meet(Step.ANSWER)
        if how is How.FAIL:
            raise InjectedError(f"the answer to turn {turn} was made to fail")
        if how is not How.HANG:
            self.answered = turn if how is None else turn - 1
            self.bell.set()

    def abort(self) -> None:
        """Have the stream give up, and wait until it has."""
        self.aborted = True
        self.bell.set()
        self.machine.drain()
        error = self.machine.compute.taken_error()
        self.aborted = False
        # What failed on the device says more than that the host gave up after it.
        if isinstance(error, SeamlineError):
            raise error

    def _is_asked(self, turn: int) -> bool:
        time.sleep(0)  # the stream is a thread of this interpreter
        return self.asked == turn

    def _check_open(self) -> None:
        if not self.is_open:
            raise KernelError("its recording was closed while it was replayed", provider="twin")  # fmt: skip

    def _check(self, end: float) -> None:
        self._check_open()
        if self.machine.compute.settle(0.0) or time.monotonic() > end:
            self.machine.synchronize()
            raise KernelError("the stream ended without asking the host", provider="twin")  # fmt: skip


@attrs.define(eq=False)
class Excursion:
    """One excursion on the stream: copies to the host, waiting, copies back."""

    work: HostWork
    mail: TwinMail
    spent: Spent
    outs: tuple[Array, ...] = attrs.field(init=False)
    ins: tuple[Array, ...] = attrs.field(init=False)
    host: Callable[[], object] = attrs.field(init=False)
    outward: tuple[TwinView, ...] = attrs.field(init=False)
    inward: tuple[TwinView, ...] = attrs.field(init=False)
    _begun: float = attrs.field(default=0.0, init=False)

    @classmethod
    def of(
        cls, work: HostWork, mail: TwinMail, spent: Spent, memory: TwinMemory
    ) -> Excursion:
        """Stage an excursion's values; every place is checked to be this twin's."""
        made = cls(work, mail, spent)
        made.outward = tuple(map(memory.checked, work.outward))
        made.inward = tuple(map(memory.checked, work.inward))
        made.outs = tuple([like(view) for view in made.outward])
        made.ins = tuple([like(view) for view in made.inward])
        made.host = work.prepare(made.outs, made.ins)
        return made

    def operations(self, turn: int) -> tuple[Operation, ...]:
        """Give what the stream does for a turn."""
        name = self.work.name
        reads = tuple(view.place for view in self.outward)
        writes = tuple(view.place for view in self.inward)
        return (
            Operation(f"excursion out {name!r}", self._out, reads, named=self._named),
            Operation(
                f"host of {name!r}",
                partial(self._waited, turn),
                named=self._named,
                bare=True,
            ),
            Operation(
                f"excursion in {name!r}", self._in, writes=writes, named=self._named
            ),
        )

    def _out(self) -> None:
        self._begun = time.perf_counter()
        copied(self.mail.machine, self.outward, self.outs, to_device=False)

    def _in(self) -> None:
        copied(self.mail.machine, self.inward, self.ins, to_device=True)
        took = time.perf_counter() - self._begun
        self.spent.note_whole(self.work.name, took * 1e6)

    def _waited(self, turn: int) -> None:
        mail, deadline = self.mail, self.mail.machine.answers
        end = time.monotonic() + deadline
        mail.bell.clear()
        mail.asked = turn
        while mail.answered != turn:
            if mail.aborted or mail.machine.compute.give_up.is_set():
                raise _AbortedError
            if time.monotonic() > end:
                raise self._late(deadline)
            if self.work.form is SeamForm.HOST_NODE:
                mail.bell.wait(min(deadline, 0.01))
            else:
                time.sleep(_NAP)

    def _late(self, deadline: float) -> DeadlineError:
        return DeadlineError(
            f"the host did not answer an excursion within {deadline:g} s; what follows in "
            "the recording was not run",
            provider=self.work.provider,
            segment=self.work.name,
            node=self.work.node,
        )

    def _named(self, error: BaseException) -> BaseException:
        if isinstance(error, SeamlineError | _AbortedError):
            return error
        said = f"excursion {self.work.name!r}: {error}"
        return KernelError(said, provider="twin", node=self.work.node)


@attrs.define(eq=False)
class TwinChain:
    """
    Implements :class:`~seamline.provider.Recording` for a chain.

    Attributes
    ----------
    parts
        Recordings of the segments, and excursions.
    edges
        Copies at its beginning and end.
    replays
        Replays that ended well.
    """

    name: str
    machine: Machine
    parts: tuple[TwinRecording | Excursion, ...]
    mail: TwinMail
    times: Spent
    edges: Edges
    replays: int = 0
    _turn: int = 1

    def replay(self) -> None:
        """
        Queue everything, and do the host's work as it is asked for.

        Raises
        ------
        RecordingError
            Something that it rests on no longer holds; nothing was run.
        RunError
            A kernel, a copy or the host's work failed; names the node.
        """
        machine = self.machine
        with contextlib.ExitStack() as stack:
            for part in self._segments():
                stack.enter_context(part.segment.taken())
            machine.legal("replays a recording")
            self._check()
            excursions = [part for part in self.parts if isinstance(part, Excursion)]
            first, self._turn = self._turn, following(self._turn, len(excursions))
            self._submit(first, machine.faults.meet(Step.REPLAY))
            works = [(one.work.name, one.host) for one in excursions]
            if works:
                serve(self.mail, first, works, self.times)
                machine.synchronize()
            self.replays += 1

    @property
    def inward(self) -> Sequence[Array]:
        """Give what stands on the host for the places that a replay fills first."""
        return self.edges.rooms_in

    @property
    def outward(self) -> Sequence[Array]:
        """Give what stands on the host for the places that it reads last."""
        return self.edges.rooms_out

    def taken(self) -> None:
        """Wait until no replay reads ``inward``; raises what failed."""
        self.machine.synchronize()

    def given(self) -> None:
        """Wait until ``outward`` is filled; raises what failed."""
        self.machine.synchronize()

    def spent(self) -> dict[str, tuple[float, float]]:
        """Give medians of each excursion; see :class:`~seamline.serving.Spent`."""
        return dict(self.times.medians())

    def close(self) -> None:
        """Forget it; a replay under way is given up, and raises."""
        self.mail.is_open = False
        for part in self._segments():
            part.close()

    def _segments(self) -> Sequence[TwinRecording]:
        return [part for part in self.parts if isinstance(part, TwinRecording)]

    def _submit(self, turn: int, how: How | None) -> None:
        machine = self.machine
        for operation in self.edges.first():
            machine.submit(machine.compute, operation)
        for part in self.parts:
            if isinstance(part, TwinRecording):
                machine.submit(machine.compute, part.operation(how))
                how = None
            else:
                for operation in part.operations(turn):
                    machine.submit(machine.compute, operation)
                turn += 1
        for operation in self.edges.last():
            machine.submit(machine.compute, operation)

    def _check(self) -> None:
        if not self.mail.is_open:
            self._refuse("it is closed")
        for part in self.parts:
            if isinstance(part, TwinRecording):
                part.check()
            else:
                for view in (*part.outward, *part.inward):
                    if not view.buffer.is_open:
                        self._refuse(f"a buffer of excursion {part.work.name!r} was closed")  # fmt: skip
        for view in (*self.edges.views_in, *self.edges.views_out):
            if not view.buffer.is_open:
                self._refuse("a buffer of a copy at its beginning or end was closed")

    def _refuse(self, why: str) -> NoReturn:
        raise RecordingError(why, provider=self.machine.device.kind, segment=self.name)
