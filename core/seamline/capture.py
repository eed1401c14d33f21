"""
Who records: a segment runs once, is recorded, and from then on is replayed.

The first run of a segment in a program is its warm-up: whatever compiles lazily or sizes
itself late does so there. At the second run it is recorded, which is no run, and then
replayed; a program that runs once never pays for a recording. Three things may go on from
there. A recording that no longer holds (the segment was bound elsewhere, or a host value
that it keeps has changed) is closed and made anew. A node that makes recording fail is
quarantined: the segment runs as before, and the program is planned again, at the next
run, with that node cut out, so that the rest is recorded. And a segment that cannot be
recorded at all goes on running. Each is an event that ``explain`` shows with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs

from seamline.capture_check import verified
from seamline.errors import CaptureMismatchError, RecordingError, SeamlineError
from seamline.planned import Segment
from seamline.provider import Executable, Provider, Recording, cuts_capture

if TYPE_CHECKING:
    from seamline.program import Program

__all__ = ["Captured", "CapturedSegment", "is_captured"]

_LOST = 64  # recordings of one segment that may cease to hold before it stays eager


def is_captured(step: Segment, provider: Provider) -> bool:
    """Tell whether a segment of a provider is to be recorded."""
    return provider.captures and not step.sizes_at_run and step.not_capturable is None


@attrs.define(eq=False)
class Captured:
    """
    Something of a program that is recorded: what its next run does, and what happened.

    Attributes
    ----------
    state
        ``waiting`` for a warm-up, ``recorded``, or ``eager`` for good.
    why
        Why it is eager.
    events
        What happened, in order.
    """

    program: Program
    state: str = attrs.field(default="waiting", init=False)
    why: str = attrs.field(default="", init=False)
    events: list[str] = attrs.field(factory=list, init=False)
    recording: Recording | None = attrs.field(default=None, init=False)
    _made: int = attrs.field(default=0, init=False)
    _unverified: int = attrs.field(default=0, init=False)
    _now: Callable[[], object] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._now = self._warm_up
        self._unverified = self.program.engine.capture.verify

    def eagerly(self) -> object:
        """Run without a recording; give what a run wrongly gave."""
        raise NotImplementedError

    def make(self) -> Recording:
        """Record."""
        raise NotImplementedError

    def verify(self, recording: Recording) -> str:
        """Do a run's work both ways; say what was not compared."""
        raise NotImplementedError

    def blamed(self, error: RecordingError) -> str:
        """Quarantine the node that an error names, if any; say what happened."""
        raise NotImplementedError

    def run(self) -> object:
        """Run, record and replay, or replay; gives what a run or replay wrongly gave."""
        try:
            return self._now()
        except CaptureMismatchError as error:
            self._stay_eager(self.blamed(error))
            raise
        except RecordingError as error:
            self._lost(error)
            return None

    @property
    def left(self) -> Mapping[str, str]:
        """Give the nodes inside the recording that run as before, and why."""
        return getattr(self.recording, "left", None) or {}

    def close(self) -> None:
        """Give the recording back."""
        recording, self.recording = self.recording, None
        if recording is not None:
            recording.close()

    def _warm_up(self) -> object:
        given = self.eagerly()
        self._now = self._record
        return given

    def _record(self) -> None:
        """Record, and do this run's work by it."""
        try:
            made = self.make()
            _check(made)
        except RecordingError as error:
            self._stay_eager(self.blamed(error))
        except SeamlineError:
            raise
        except Exception as error:
            self._stay_eager(f"record() raised {type(error).__name__}: {error}")
        else:
            self.recording, self.state = made, "recorded"
            self._made += 1
            self.events.append("recorded" if self._made == 1 else "recorded again")
            self._now = self._verified if self._unverified else made.replay
        try:
            self._now()
        except CaptureMismatchError:
            raise
        except RecordingError as error:
            self._stay_eager(f"a fresh recording was refused: {error.why}")
            self._now()

    def _verified(self) -> None:
        """Run and replay side by side, for as many runs as were asked for."""
        assert self.recording is not None
        left = self.verify(self.recording)
        self.events.append(f"verified: {left}" if left else "verified")
        self._unverified -= 1
        if not self._unverified:
            self._now = self.recording.replay

    # -- what can go wrong ---------------------------------------------------------------

    def _lost(self, error: RecordingError) -> None:
        """Record again: nothing was run, and the recording does not hold any more."""
        self.close()
        self.events.append(f"no longer held: {error.why}")
        if self._made < _LOST:
            try:
                self._record()
            except CaptureMismatchError as wrong:
                self._stay_eager(self.blamed(wrong))
                raise
            return
        self._stay_eager(f"{_LOST} recordings ceased to hold, the last: {error.why}")
        self._now()

    def _stay_eager(self, why: str) -> None:
        self.close()
        self.state, self.why = "eager", why
        self.events.append(f"not recorded: {why}")
        self._now = self.eagerly


@attrs.define(eq=False)
class CapturedSegment(Captured):
    """One segment of a program."""

    step: Segment
    executable: Executable

    def eagerly(self) -> object:
        """Run the segment."""
        return self.executable.run()

    def make(self) -> Recording:
        """Record the segment."""
        return self.executable.record()

    def verify(self, recording: Recording) -> str:
        """Compare a replay of the segment with a run."""
        return verified(self.program, self.step, self.executable, recording)

    def blamed(self, error: RecordingError) -> str:
        """Have the next plan cut the node out."""
        said, engine = error.why, self.program.engine
        # A provider that records around nodes leaves them in place by itself.
        cuts = cuts_capture(engine.providers[self.step.provider])
        cuts = cuts or isinstance(error, CaptureMismatchError)
        if cuts and error.node in self.step.nodes:
            engine.quarantined[error.node] = said
            self.program.stale = len(self.step.nodes) > 1
            said = f"node {error.node!r}: {said}"
        return said


def _check(made: object) -> None:
    for name in ("replay", "close"):
        if not callable(getattr(made, name, None)):
            raise TypeError(f"it gave a {type(made).__name__} without {name}")
