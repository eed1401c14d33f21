"""
A chain of a program: its steps one by one, or one recording that calls the host between.

Like a segment it runs once, is recorded at its second run, and is replayed from then on.
Where it cannot be recorded its steps run one by one, and each of its segments is recorded
by itself, so that nothing is lost but the form. Verification compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import setitem
from typing import TYPE_CHECKING, Any, cast

import attrs

from seamline.capture import Captured
from seamline.chain_check import chain_verified
from seamline.errors import CaptureMismatchError, RecordingError
from seamline.excursions import Chain, Excursion
from seamline.forms import ChainSpec, HostWork, RecordsChains
from seamline.planned import Segment, Step, Transfer
from seamline.provider import HOST, Array, Executable, Recording, View
from seamline.step_errors import taken

if TYPE_CHECKING:
    from seamline.program import Action, Program

__all__ = ["CapturedChain", "grouped"]


@attrs.define(eq=False)
class CapturedChain(Captured):
    """
    Several steps of a program that are recorded as one.

    Attributes
    ----------
    actions
        What each step does by itself, in order.
    """

    chain: Chain
    actions: tuple[tuple[Step, Action], ...]

    @property
    def unit(self) -> str:
        """Give the chain's id."""
        return self.chain.id

    def eagerly(self) -> object:
        """Take the steps one by one."""
        taken(self.actions)
        return None

    def make(self) -> Recording:
        """Have the provider record the segments and the host's work between them."""
        program, chain = self.program, self.chain
        excursions = {e.steps[0].id: e for e in chain.excursions}
        inside = {s.id for e in chain.excursions for s in e.steps}
        parts: list[Executable | HostWork] = []
        for step in chain.steps:
            if step.id in excursions:
                parts.append(self._work(excursions[step.id]))
            elif step.id not in inside:
                parts.append(program.executables[step.id])
        provider = cast("RecordsChains", program.engine.providers[chain.provider])
        inward, outward = self.edges.views()
        return provider.record_chain(ChainSpec(chain.id, tuple(parts), inward, outward))

    def verify(self, replay: Callable[[], object]) -> str:
        """Compare a replay of the chain with its steps."""
        return chain_verified(self.program, self.chain, self._plainly, replay)

    def _plainly(self) -> None:
        """Take the steps with nothing recorded, so that they are what was built."""
        for step, action in self.actions:
            found = self.program.executables.get(step.id)
            (action if found is None else found.run)()

    def blamed(self, error: RecordingError) -> str:
        """Have the next plan cut out a node of the device that cannot be recorded."""
        said, program = error.why, self.program
        if error.node:
            said = f"node {error.node!r}: {said}"
        # What a replay of the whole gives says little of one node: its segment's own
        # recording is verified next.
        if isinstance(error, CaptureMismatchError):
            return said
        for step in self.chain.segments:
            if error.node in step.nodes:
                program.engine.quarantined[error.node] = error.why
                program.stale = len(step.nodes) > 1
        return said

    def spent(self) -> Mapping[str, tuple[float, float]]:
        """Give medians of each excursion, in microseconds: all of it, and the host's work."""
        ask: Any = getattr(self.recording, "spent", None)
        return dict(ask()) if ask is not None else {}

    def _work(self, excursion: Excursion) -> HostWork:
        program, device = self.program, self.chain.device
        moved = [s for s in excursion.steps if isinstance(s, Transfer)]
        actions = {step.id: action for step, action in self.actions}
        outward = [t for t in moved if t.source == device]
        inward = [t for t in moved if t.target == device]

        def prepare(
            outs: Sequence[Array], ins: Sequence[Array]
        ) -> Callable[[], object]:
            # In the plan's order: places on the host are used again once they are dead.
            copies: dict[str, Action] = {}
            for transfer, array in zip(outward, outs, strict=True):
                copies[transfer.id] = _copy(program.view(transfer.value, HOST), array)
            for transfer, array in zip(inward, ins, strict=True):
                copies[transfer.id] = _copy(array, program.view(transfer.value, HOST))
            return _Work(
                tuple([(s, copies.get(s.id) or actions[s.id]) for s in excursion.steps])
            )

        first = next(iter(excursion.segments), None)
        return HostWork(
            excursion.id,
            excursion.form,
            first.provider if first else self.chain.provider,
            first.nodes[0] if first else "",
            self._places(outward),
            self._places(inward),
            prepare,
        )

    def _places(self, transfers: Sequence[Transfer]) -> tuple[View, ...]:
        device = self.chain.device
        return tuple([self.program.view(t.value, device) for t in transfers])


@attrs.frozen(eq=False)
class _Work:
    """The host's part of an excursion, step by step."""

    actions: tuple[tuple[Step, Action], ...]

    def __call__(self) -> None:
        taken(self.actions)


def _copy(target: Any, source: Any) -> Action:
    return partial(setitem, target, ..., source)


def grouped(program: Program) -> None:
    """Put one action in the place of those of each chain of a program being built."""
    for chain in program.plan.chains:
        ids = {step.id for step in chain.steps}
        mine = tuple(
            [
                (step, action)
                for step, action in program.actions
                if step.id in ids and not isinstance(step, Chain)
            ]
        )
        at = next(i for i, (step, _) in enumerate(program.actions) if step.id in ids)
        if any(
            isinstance(s, Segment) and s.id not in program.executables for s, _ in mine
        ):
            continue  # a segment of it is built when it runs
        captured = CapturedChain(program, chain, mine)
        program.chains[chain.id] = captured
        program.defer(captured.close)
        program.actions[at : at + len(mine)] = [(chain, captured.run)]
