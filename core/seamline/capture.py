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
from typing import TYPE_CHECKING, Any

import attrs

from seamline.capture_check import verified
from seamline.errors import CaptureMismatchError, RecordingError, SeamlineError
from seamline.forms import ChainSpec
from seamline.planned import Segment
from seamline.provider import Executable, Provider, Recording, cuts_capture
from seamline.staging import Edges, Staged

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
    edges
        Copies that the recording takes in.
    """

    program: Program
    edges: Edges = attrs.field(init=False)
    state: str = attrs.field(default="waiting", init=False)
    why: str = attrs.field(default="", init=False)
    events: list[str] = attrs.field(factory=list, init=False)
    recording: Recording | None = attrs.field(default=None, init=False)
    _made: int = attrs.field(default=0, init=False)
    _unverified: int = attrs.field(default=0, init=False)
    _now: Callable[[], object] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._now = self._warm_up
        self.edges = self.program.edges.get(self.unit) or Edges(self.program)
        self._unverified = self.program.engine.capture.verify

    @property
    def unit(self) -> str:
        """Give the id of what is recorded."""
        raise NotImplementedError

    def eagerly(self) -> object:
        """Run without a recording; give what a run wrongly gave."""
        raise NotImplementedError

    def make(self) -> Recording:
        """Record."""
        raise NotImplementedError

    def verify(self, replay: Callable[[], object]) -> str:
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
        self.edges.forget()
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
            self.edges.check(made)
        except RecordingError as error:
            self._stay_eager(self.blamed(error))
        except SeamlineError:
            raise
        except Exception as error:
            self._stay_eager(f"record() raised {type(error).__name__}: {error}")
        else:
            self._hold(made)
        try:
            self._now()
        except CaptureMismatchError:
            raise
        except RecordingError as error:
            self._stay_eager(f"a fresh recording was refused: {error.why}")
            self._now()

    def _hold(self, made: Recording) -> None:
        """Replay what was recorded from now on."""
        self.recording, self.state = made, "recorded"
        self._now = self._verified if self._unverified else self._replaying(made)
        try:
            self.edges.attach(made)
        except BaseException:
            self.close()
            self._now = self._record
            raise
        self._made += 1
        self.events.append("recorded" if self._made == 1 else "recorded again")

    def _replaying(self, made: Recording) -> Callable[[], object]:
        return self._replay if self.edges else made.replay

    def _replay(self) -> None:
        assert self.recording is not None
        self.edges.direct = False
        self.recording.replay()

    def _verified(self) -> None:
        """Run and replay side by side, for as many runs as were asked for."""
        made = self.recording
        assert made is not None
        self.edges.apart()
        left = self.verify(self.edges.compared(made.replay))
        self.events.append(f"verified: {left}" if left else "verified")
        self._unverified -= 1
        if not self._unverified:
            self._now = self._replaying(made)

    def bar(self, staged: Staged, why: str) -> None:
        """Record without a copy from now on, which goes by the device's memory again."""
        if staged in self.edges.inward:
            self._part()
            self.edges.inward.remove(staged)
            said = f"the copy of {staged.edge.value!r} is in no recording: {why}"
            self.events.append(said)
            if self.state == "recorded":
                self._now = self._record

    # -- what can go wrong ---------------------------------------------------------------

    def _lost(self, error: RecordingError) -> None:
        """Record again: nothing was run, and the recording does not hold any more."""
        self._part()
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

    def _part(self) -> None:
        """Give the recording back, and have on the device what it would have taken."""
        try:
            self.edges.detach()
        finally:
            self.close()

    def _stay_eager(self, why: str) -> None:
        self._part()
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

    @property
    def unit(self) -> str:
        """Give the segment's id."""
        return self.step.id

    def make(self) -> Recording:
        """Record the segment, and the copies around it where that can be."""
        if self.edges:
            try:
                return self._with_edges()
            except RecordingError as error:
                if error.node:
                    raise
                self.edges.clear()
                said = f"copies are in no recording: {error.why}"
                self.events.append(said)
        return self.executable.record()

    def _with_edges(self) -> Recording:
        provider: Any = self.program.engine.providers[self.step.provider]
        inward, outward = self.edges.views()
        parts = (self.executable,)
        made: Recording = provider.record_chain(
            ChainSpec(self.step.id, parts, inward, outward)
        )
        return made

    def verify(self, replay: Callable[[], object]) -> str:
        """Compare a replay of the segment with a run."""
        return verified(self.program, self.step, self.executable, replay)

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
