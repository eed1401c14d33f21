"""
The threads of one block, each a greenlet, that meet at barriers and exchange by warps.

A thread runs until it comes to something that others take part in. What a warp does
together happens once every lane that its mask names stands at the same line with the same
operation; a barrier, once every thread of the block does that is not done yet. Where
nothing can go on, threads diverged: on a device that is a hang or worse, here it is a
:class:`DivergedError` that says who waits where.
"""

from __future__ import annotations

import contextvars
from collections import Counter

import attrs
from greenlet import getcurrent, greenlet
from tests.cuda.emulation import matrices
from tests.cuda.emulation.names import WARP


class DivergedError(Exception):
    """Threads of a block wait for each other at different places."""


@attrs.define(eq=False)
class Waiting:
    """What a thread wants to do together with others."""

    what: str
    line: int
    mask: int | None
    value: object
    more: int


class Block:
    """Runs the threads of one block, warp by warp in the order given; ``names`` is its ``cuda``."""

    def __init__(self, names, function, arguments, places, warps):
        self.names, self.places = names, places
        self.waiting: dict[int, Waiting] = {}
        self.hub = getcurrent()
        names.together = self._together
        self.threads = {}
        names.block_epoch, names.warp_epochs = 0, [0] * WARP
        self.warps = warps
        for rank in range(len(places)):
            made = greenlet(lambda: function(*arguments), self.hub)
            # NumPy keeps its error state in the context; a fresh one would warn again.
            made.gr_context = contextvars.copy_context()
            self.threads[rank] = made

    def run(self):
        """Run all threads to their end."""
        try:
            while self.threads:
                moved = [self._warp(lanes) for lanes in self.warps]
                if not any(moved) and not self._barrier():
                    raise DivergedError(self._said())
        finally:
            self.names.together = None
            for made in self.threads.values():
                if not made.dead:
                    made.throw()

    def _together(self, what, line, mask, value, more):
        if mask is not None:
            mask = int(mask) & 0xFFFFFFFF
        return self.hub.switch(Waiting(what, line, mask, value, more))

    def _go(self, rank, *given):
        names = self.names
        names.rank, names.threadIdx = rank, self.places[rank]
        made = self.threads[rank]
        request = made.switch(*given)
        if made.dead:
            del self.threads[rank]
        else:
            self.waiting[rank] = request

    def _warp(self, lanes):
        """Let a warp go on for as long as it does not wait for others."""
        moved = False
        for rank in lanes:
            if rank in self.threads and rank not in self.waiting:
                self._go(rank)
                moved = True
        while self._exchanged(lanes):
            moved = True
        return moved

    def _exchanged(self, lanes):
        for rank in lanes:
            wanted = self.waiting.get(rank)
            if wanted is None or wanted.mask is None:
                continue
            named = [r for r in lanes if wanted.mask >> (r % WARP) & 1]
            if rank not in named:
                raise DivergedError(
                    f"lane {rank % WARP} is not in the mask of its {wanted.what}"
                )
            gone = [r for r in named if r not in self.threads]
            if gone:
                raise DivergedError(
                    f"{wanted.what} of line {wanted.line} names lane {min(gone) % WARP}, which ended"
                )
            if all(_alike(self.waiting.get(r), wanted) for r in named):
                if wanted.what == "syncwarp":
                    self.names.warp_epochs[rank // WARP] += 1
                self._released(named, _warp_results(wanted.what, self.waiting, named))
                return True
        return False

    def _barrier(self):
        """Let a barrier go that every thread has reached."""
        asked = {(w.what, w.line) for w in self.waiting.values() if w.mask is None}
        if len(asked) != 1 or any(
            r not in self.waiting or self.waiting[r].mask is not None
            for r in self.threads
        ):
            return False
        ((what, _),) = asked
        self.names.block_epoch += 1
        told = [self.waiting[r].value for r in self.waiting]
        result = {
            "syncthreads_count": sum(map(bool, told)),
            "syncthreads_and": int(all(told)),
            "syncthreads_or": int(any(told)),
        }.get(what)
        self._released(list(self.waiting), dict.fromkeys(self.waiting, result))
        return True

    def _released(self, ranks, results):
        for rank in ranks:
            del self.waiting[rank]
        for rank in ranks:
            self._go(rank, results[rank])

    def _said(self):
        counts = Counter((w.what, w.line) for w in self.waiting.values())
        found = sorted(counts.items(), key=lambda one: one[0][1])
        parts = [f"{n} at {what} of line {line}" for (what, line), n in found]
        ended = len(self.places) - len(self.threads)
        return f"threads wait for each other: {', '.join(parts)}; {ended} ended"


def _alike(other, wanted):
    return other is not None and (other.what, other.line, other.mask) == (
        wanted.what, wanted.line, wanted.mask,
    )  # fmt: skip


def _warp_results(what, waiting, named):
    values = {r % WARP: waiting[r].value for r in named}
    if what == "syncwarp":
        return dict.fromkeys(named)
    if what == "ballot_sync":
        bits = sum(1 << lane for lane, value in values.items() if value)
        return dict.fromkeys(named, bits)
    if what in ("any_sync", "all_sync"):
        found = {"any_sync": any, "all_sync": all}[what](values.values())
        return dict.fromkeys(named, found)
    if what in matrices.NAMES:
        found = matrices.together(what, values)
        return {rank: found[rank % WARP] for rank in named}
    results = {}
    for rank in named:
        lane = rank % WARP
        source = _source(what, lane, waiting[rank].more)
        if source not in values:
            raise DivergedError(
                f"{what}: lane {lane} reads lane {source}, which takes no part"
            )
        results[rank] = values[source]
    return results


def _source(what, lane, more):
    if what == "shfl_sync":
        return more % WARP
    source = {
        "shfl_xor_sync": lane ^ more,
        "shfl_down_sync": lane + more,
        "shfl_up_sync": lane - more,
    }[what]
    return source if 0 <= source < WARP else lane
