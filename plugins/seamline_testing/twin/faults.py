"""
Faults on request: the n-th call of a kind fails, hangs, or gives something senseless.

A fault is met by counting, so a test can sweep ``n = 1, 2, ...`` until none fires and
has then failed every call that there is.

>>> faults = Faults.parse("copy:2:hang")
>>> faults.meet(Step.COPY), faults.meet(Step.COPY), faults.meet(Step.COPY)
(None, <How.HANG: 'hang'>, None)
>>> faults.fired
[Fault(step=<Step.COPY: 'copy'>, nth=2, how=<How.HANG: 'hang'>)]
"""

from __future__ import annotations

import enum
import threading
from collections import Counter

import attrs

from seamline.errors import ProviderOptionError, near

__all__ = ["Fault", "Faults", "How", "InjectedError", "Step"]


class InjectedError(Exception):
    """What a fault raises: no error of seamline's, as a provider's own would be."""


class How(enum.StrEnum):
    """What goes wrong."""

    FAIL = "fail"
    HANG = "hang"
    GARBAGE = "garbage"


class Step(enum.StrEnum):
    """Where something can go wrong: hooks of a provider, verbs of memory, device work."""

    CREATE_PROVIDER = "provider"
    CLAIM = "claim"
    INFER = "infer"
    MEMORY = "memory"
    BUILD = "build"
    BIND = "bind"
    CLOSE = "close"
    ALLOCATE = "allocate"
    VIEW = "view"
    RESERVE = "reserve"
    CREATE = "create"
    MAP = "map"
    UNMAP = "unmap"
    RELEASE = "release"
    FREE = "free"
    COPY = "copy"
    RUN = "run"
    RECORD = "record"
    REPLAY = "replay"
    ANSWER = "answer"


#: Only what gives something back can give something senseless.
_GIVES = frozenset(
    {
        Step.CLAIM, Step.INFER, Step.MEMORY, Step.BUILD, Step.ALLOCATE, Step.RUN, Step.RECORD,
        Step.ANSWER,
    }
)  # fmt: skip


def _possible(fault: Fault, _: object, how: How) -> None:
    if how is How.GARBAGE and fault.step not in _GIVES:
        raise ValueError(f"{fault.step} gives nothing: {', '.join(sorted(_GIVES))} do")


@attrs.frozen
class Fault:
    """
    One thing that goes wrong.

    Attributes
    ----------
    nth
        Which call of the step, counted from 1.
    """

    step: Step
    nth: int
    how: How = attrs.field(default=How.FAIL, validator=_possible)

    def __str__(self) -> str:
        return f"{self.step}:{self.nth}:{self.how}"


class Faults:
    """
    Counts calls and says which of them go wrong.

    Attributes
    ----------
    counts
        Calls met so far, by step.
    fired
        Faults that were met, in order.
    """

    def __init__(self, *planned: Fault) -> None:
        self._lock = threading.Lock()
        self._planned = {(fault.step, fault.nth): fault for fault in planned}
        self.counts: Counter[Step] = Counter()
        self.fired: list[Fault] = []
        self._released = threading.Event()

    @classmethod
    def parse(cls, text: str) -> Faults:
        """
        Read ``step:nth:how`` texts, joined by commas.

        Raises
        ------
        ProviderOptionError
            There is no such step or way to fail.
        """
        return cls(*(_parsed(part) for part in filter(None, text.split(","))))

    def plan(self, *faults: Fault) -> None:
        """Plan other faults; counting starts again."""
        with self._lock:
            self._planned = {(fault.step, fault.nth): fault for fault in faults}
            self.counts.clear()
            self.fired.clear()

    def meet(self, step: Step) -> How | None:
        """Count a call; say how it goes wrong, if it does."""
        with self._lock:
            self.counts[step] += 1
            fault = self._planned.get((step, self.counts[step]))
            if fault is None:
                return None
            self.fired.append(fault)
            return fault.how

    def release(self) -> None:
        """Let calls on the host that hang return, and hang no more."""
        self._released.set()

    def check(self, step: Step) -> bool:
        """
        Count a call on the host; tell whether to give something senseless.

        One that hangs returns when :meth:`release` lets it.

        Raises
        ------
        InjectedError
            This one fails.
        """
        how = self.meet(step)
        if how is How.FAIL:
            raise InjectedError(f"{step} number {self.counts[step]} was made to fail")
        if how is How.HANG:
            self._released.wait()
        return how is How.GARBAGE


def _parsed(text: str) -> Fault:
    parts = text.strip().split(":")
    names = [str(step) for step in Step]
    try:
        step, nth, how = Step(parts[0]), int(parts[1]), How((*parts, "fail")[2])
        return Fault(step, nth, how)
    except (ValueError, IndexError) as error:
        why = (
            f"{text!r} is no fault ({error}){near(parts[0], names)}; write step:nth:how"
        )
        raise ProviderOptionError("twin", why) from error
