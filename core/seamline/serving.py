"""
The host's side of a recorded chain: asked by the device, in turn, it works and answers.

Whoever replays a chain stays until its last excursion is answered, and does the host's work
itself. Each excursion of each replay has a number of its own, a *turn*, that does not come
again for two thousand million: an answer is the turn's number, so one that is
late, or was meant for an earlier replay, is taken for nothing else. A failure of the work is
told to the device, which then skips what is left, and raised here.

Waiting looks at a word of memory. It spins at first, since an answer within microseconds is
what the form is for, and sleeps in growing steps later.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import attrs

__all__ = ["KEPT", "SPINS", "Mail", "Spent", "following", "serve", "waited"]

SPINS = 2000  #: looks at a word before the first sleep: about 200 microseconds
_NAP, _LONGEST = 20e-6, 500e-6  # seconds
_CHECK = 2e-3  # seconds of sleep between two questions whether the device still works
KEPT = 64  #: excursions that medians are of
_LAST = 1 << 31  # a word has 32 bits, and no chain as many excursions

_clock = time.perf_counter_ns


class Mail(Protocol):
    """How a device asks and is answered; one for each recorded chain."""

    def wait(self, turn: int) -> None:
        """
        Wait until the device asks.

        Raises
        ------
        RunError
            It will not: its work failed or ended, or somebody closed the recording.
        """
        ...

    def answer(self, turn: int) -> None:
        """Let the device go on."""
        ...

    def abort(self) -> None:
        """Let the device skip what is left of this replay; returns once it is idle."""
        ...


@attrs.define(eq=False)
class Spent:
    """
    What excursions took lately, by name, in microseconds.

    Examples
    --------
    >>> spent = Spent(("a",))
    >>> spent.note_work("a", 3.0)
    >>> spent.note_whole("a", 10.0)
    >>> spent.medians()
    {'a': (10.0, 3.0)}
    """

    names: Sequence[str]
    _whole: dict[str, deque[float]] = attrs.field(factory=dict, init=False)
    _work: dict[str, deque[float]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for name in self.names:
            self._whole[name] = deque(maxlen=KEPT)
            self._work[name] = deque(maxlen=KEPT)

    def note_whole(self, name: str, us: float) -> None:
        """Note the time from asking to going on."""
        self._whole[name].append(us)

    def take_whole(self, name: str, us: Iterable[float]) -> None:
        """Take the latest times from asking to going on, which a device kept by itself."""
        self._whole[name] = deque(us, maxlen=KEPT)

    def note_work(self, name: str, us: float) -> None:
        """Note the time of the host's work."""
        self._work[name].append(us)

    def medians(self) -> Mapping[str, tuple[float, float]]:
        """Give both medians of each excursion that was made."""
        return {
            name: (statistics.median(whole), statistics.median(self._work[name]))
            for name, whole in self._whole.items()
            if whole and self._work[name]
        }


def following(turn: int, count: int) -> int:
    """
    Give the first turn of the next replay; they begin anew long before a word is full.

    >>> following(1, 3), following(2**31, 3)
    (4, 1)
    """
    return turn + count if turn < _LAST else 1


def serve(
    mail: Mail,
    first: int,
    works: Sequence[tuple[str, Callable[[], object]]],
    spent: Spent,
) -> None:
    """
    Do the host's work of one replay.

    Parameters
    ----------
    first
        The turn of the first excursion.
    works
        Name and work of each excursion, in order.

    Raises
    ------
    Exception
        Whatever the work raised, once the device is idle; or why the device does not ask.
    """
    turn, wait, answer = first, mail.wait, mail.answer
    try:
        for name, work in works:
            wait(turn)
            start = _clock()
            work()
            end = _clock()
            answer(turn)  # before anything that can wait: the device does
            spent.note_work(name, (end - start) / 1000)
            turn += 1
    except BaseException:
        mail.abort()
        raise


def waited(is_asked: Callable[[], bool], check: Callable[[], object]) -> None:
    """
    Wait until something is so.

    Parameters
    ----------
    is_asked
        Looks at a word; called often.
    check
        Raises if it will never be so; called now and then.
    """
    for _ in range(SPINS):
        if is_asked():
            return
    check()
    nap, slept = _NAP, 0.0
    while not is_asked():
        time.sleep(nap)
        slept += nap
        if slept > _CHECK:
            check()
            slept = 0.0
        nap = min(nap * 1.1, _LONGEST)
