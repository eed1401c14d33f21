"""
Whether a replay of a chain does what its steps do one by one; see :mod:`.capture_check`.

The host's segments are part of it, so what is rotated and poisoned lies on both sides. An
output whose bytes something later in the chain may have taken over is not compared: what
was computed of it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from seamline.capture_check import Both, Place, random_node
from seamline.errors import CaptureMismatchError
from seamline.excursions import Chain
from seamline.planned import Plan, Segment, Transfer
from seamline.provider import Array

if TYPE_CHECKING:
    from seamline.program import Program

__all__ = ["chain_verified"]


def chain_verified(
    program: Program,
    chain: Chain,
    run: Callable[[], object],
    replay: Callable[[], object],
) -> str:
    """
    Do a run's work step by step and by a replay, and hold them to be equal.

    Returns
    -------
    str
        What was not compared, and why; empty where all was.

    Raises
    ------
    CaptureMismatchError
        They differ; names the node that writes the first value that does.
    """
    nodes = [n for s in chain.steps if isinstance(s, Segment) for n in s.nodes]
    said = random_node(program, nodes)
    if said:
        run()
        return f"left out, for {said}"
    return _OfChain(program, chain, run, replay).verified()


class _OfChain(Both):
    def __init__(
        self,
        program: Program,
        chain: Chain,
        run: Callable[[], object],
        replay: Callable[[], object],
    ) -> None:
        self.chain = chain
        nodes = {node.name: node for node in program.plan.region.nodes}
        self.writer = {n: node.name for node in nodes.values() for n in node.writes}
        reads: dict[Place, None] = {}
        written: dict[Place, None] = {}
        outputs: list[Place] = []
        for step in chain.steps:
            if isinstance(step, Transfer):
                sources = [(step.value, step.source)]
                made = given = [(step.value, step.target)]
            else:
                assert isinstance(step, Segment)
                spec = program.spec(step, nodes)
                views, _ = program.lent(spec, program.plan.choices)
                names = [n for node in spec.nodes for n in node.node.writes]
                sources = [(n, step.device) for n in step.inputs if n in views]
                made = [(n, step.device) for n in names if n in views]
                given = [(n, step.device) for n in step.outputs if n in views]
            reads.update(dict.fromkeys(p for p in sources if p not in written))
            outputs = [p for p in outputs if not _overlaps(program.plan, p, made)]
            written.update(dict.fromkeys(made))
            outputs += given
        super().__init__(program, list(reads), list(written), outputs, run, replay)

    def mismatch(
        self, wrong: Sequence[Place], fed: Mapping[Place, Array]
    ) -> CaptureMismatchError:
        names = list(dict.fromkeys(name for name, _ in wrong))
        return CaptureMismatchError(
            f"a replay of the chain gives other values of {', '.join(names)} than its "
            "steps one by one (this node writes the first of them)",
            provider=self.chain.provider,
            segment=self.chain.id,
            node=self.writer[names[0]],
        )


def _overlaps(plan: Plan, place: Place, later: Sequence[Place]) -> bool:
    """Tell whether something written later lies on a value's bytes."""
    mine = plan.slots.get(place)
    if mine is None:
        return False
    for other in later:
        slot = plan.slots.get(other)
        if slot is None or other[1] != place[1]:
            continue
        if (
            slot.offset < mine.offset + mine.nbytes
            and mine.offset < slot.offset + slot.nbytes
        ):
            return True
    return False
