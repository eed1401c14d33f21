"""
Neighbouring elementwise commands over arrays of one size, as one command.

One after the other they would each go through all of memory. Joined, all of them do a block
that stays in the nearest caches before the next block begins. What they compute, and where
they write it, is the same: blocks of one command never depend on each other, so only the
order of the work changes, and a chain is refused where that could be seen. The arena gives
the place of a value that is dead to a later one; where the two lie shifted, a block of a
later command would overwrite what an earlier one has not read yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from seamline_cpu.atomics import call_at, longs
from seamline_cpu.commands import Native, bind, command

__all__ = ["BLOCK", "Flat", "chained"]

BLOCK = 4096  #: elements: 16 KiB of float32 for each array that a block touches
_LEAST = 4 * BLOCK  #: elements from which blocks are worth their calls
_MOVES = 3  # arrays of a command, at most
_STEP = 5 + 2 * _MOVES
_HEAD = 5
_N, _STEPS, _SCRATCH, _STRIDE, _BLOCK = range(_HEAD)


@attrs.frozen
class Flat:
    """
    What a command over flat arrays reads and writes, in terms of its arguments.

    Attributes
    ----------
    size
        Its elements.
    count
        Which argument is their number.
    reads, writes
        Which arguments are addresses of arrays that it steps through, with the bytes of
        an element.
    fixed
        Which are addresses of a single element that it reads every time, and its bytes.
    """

    size: int
    count: int
    reads: tuple[tuple[int, int], ...]
    writes: tuple[tuple[int, int], ...]
    fixed: tuple[tuple[int, int], ...] = ()


@command
def _chain(a: Any, share: int, shares: int) -> None:
    """Do every step for a block, with arguments moved to it, then the next block."""
    n, block, held = a[_N], a[_BLOCK], a[_SCRATCH] + share * a[_STRIDE]
    blocks, to = (n + block - 1) // block, longs(held)
    for b in range(blocks * share // shares, blocks * (share + 1) // shares):
        low = b * block
        for step in range(a[_STEPS]):
            at = _HEAD + step * _STEP
            source = longs(a[at + 1])
            for word in range(a[at + 2]):
                to[word] = source[word]
            to[a[at + 3]] = min(block, n - low)
            for move in range(a[at + 4]):
                to[a[at + 5 + 2 * move]] += low * a[at + 6 + 2 * move]
            call_at(a[at], held, 0, 1)


@attrs.frozen(eq=False)
class _Step:
    """A command of a chain: its row, its arguments, and what it touches."""

    run: Native
    flat: Flat
    arguments: np.ndarray[Any, Any]

    def spans(self, pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Give addresses and lengths of arrays that it steps through."""
        for position, width in pairs:
            yield int(self.arguments[position]), width * self.flat.size

    def numbers(self) -> Iterator[tuple[int, int]]:
        for position, width in self.flat.fixed:
            yield int(self.arguments[position]), width


def _step(run: Native) -> _Step | None:
    flat = run.flat
    if not isinstance(flat, Flat) or len(run.rows) != 1 or flat.size < _LEAST:
        return None
    return _Step(run, flat, run.arguments())


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[0] + other[1] and other[0] < one[0] + one[1]


def _fits(steps: Sequence[_Step], new: _Step) -> bool:
    """Tell whether a command may join those before it: what overlaps is the same array."""
    if steps and new.flat.size != steps[0].flat.size:
        return False
    for old in steps:
        for one, other in ((old, new), (new, old)):
            written = list(one.spans(one.flat.writes))
            seen = [*other.spans(other.flat.reads), *other.spans(other.flat.writes)]
            if any(_overlap(w, s) and w != s for w in written for s in seen):
                return False
            if any(_overlap(w, s) for w in written for s in other.numbers()):
                return False
    return True


def chained(runs: Sequence[Native]) -> tuple[list[tuple[int, int, int]], list[Native]]:
    """
    Give the rows of a list that does runs in order, each chain as one row.

    Returns
    -------
    tuple
        The rows, and the chains: keep these, and the runs, as long as the list.
    """
    rows: list[tuple[int, int, int]] = []
    chains: list[Native] = []
    held: list[_Step] = []

    def close() -> None:
        if len(held) > 1:
            chains.append(_bind(held))
            rows.extend(chains[-1].rows)
        else:
            rows.extend(row for step in held for row in step.run.rows)
        held.clear()

    for run in runs:
        step = _step(run)
        if step is None or not _fits(held, step):
            close()
        if step is None:
            rows.extend(run.rows)
        else:
            held.append(step)
    close()
    return rows, chains


def _bind(steps: Sequence[_Step]) -> Native:
    shares = max(step.run.rows[0][2] for step in steps)
    words = max(len(step.arguments) for step in steps)
    stride = -(-8 * words // 64) * 64
    scratch = np.zeros(shares * stride // 8 + 8, np.int64)
    start = scratch.ctypes.data
    arguments = [steps[0].flat.size, len(steps), start + -start % 64, stride, BLOCK]
    for step in steps:
        function, where, _ = step.run.rows[0]
        moves = [*step.flat.reads, *step.flat.writes]
        flat = [value for pair in moves for value in pair]
        arguments += [function, where, len(step.arguments), step.flat.count, len(moves),
                      *flat, *[0] * (2 * _MOVES - len(flat))]  # fmt: skip
    return bind(_chain, arguments, shares, keep=(scratch, [step.run for step in steps]))
