"""
How many threads share a row, and how what each of them made becomes one.

Four teams, by how long rows are and how they lie:

- ``alone``: a thread takes a row. For rows of a few elements, and for rows side by side in
  memory, where threads beside each other then read beside each other.
- ``warp``: 2 to 32 threads beside each other share a row and exchange registers.
- ``block``: a block takes a row. Warps exchange registers, then meet in shared memory; all
  warps read what the others left, so that every thread has the result.
- ``tall``: rows side by side with many elements. A block takes 32 rows, its warps take
  every so manieth element of them, and meet in shared memory.

Where rows are few and long, several blocks share a row, each a part of it. What they made
lies in the node's workspace, and the kernel that comes next takes it in first.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from seamline_cuda.row_programs import Fold, State

__all__ = ["HELD", "Team", "merged", "team_for"]

HELD = 8  #: elements that a thread keeps in registers between passes, at most
_BUSY = 528  # blocks that keep a large device busy: four on each multiprocessor
_PART = 4096  # elements of a part of a row, at least: less is not worth a launch
_THREADS = 512  # of a block: each may then have 128 registers
_SIDE = 32  # rows side by side that a tall block takes: a warp's


@attrs.frozen
class Team:
    """
    Threads for rows.

    Attributes
    ----------
    kind
        ``alone``, ``warp``, ``block`` or ``tall``.
    lanes
        Threads that share a row, or a part of it.
    threads
        Of a block.
    held
        Elements that each thread keeps in registers between passes; 0 where there are too
        many, and each pass reads them again.
    parts
        Blocks that share a row.
    part
        Elements of a part.
    """

    kind: str
    lanes: int
    threads: int
    held: int
    parts: int = 1
    part: int = 0

    def blocks(self, rows: int) -> int:
        """Give the blocks that take so many rows."""
        each = _SIDE if self.kind == "tall" else self.threads // self.lanes
        return -(-rows // each) * self.parts


def team_for(rows: int, length: int, side_by_side: bool) -> Team:
    """
    Choose a team by sizes alone, so that it can be planned without a device.

    Parameters
    ----------
    rows, length
        How many there are, and the elements of each.
    side_by_side
        Whether neighbouring rows are neighbours in memory.
    """
    if side_by_side:
        return _across(rows, length)
    if length <= 256:
        lanes = _power(min(-(-length // 2), 32))
        threads = _power(min(max(rows * lanes, 32), 128))
        kind = "warp" if lanes > 1 else "alone"
        return _shared(rows, length, Team(kind, lanes, threads, 0))
    threads = min(max(_power(-(-length // HELD)), 64), _THREADS)
    return _shared(rows, length, Team("block", threads, threads, 0))


def _across(rows: int, length: int) -> Team:
    threads = _power(min(max(rows, 32), 256))
    if length <= 16 or rows >= 256 * _BUSY:
        return _shared(rows, length, Team("alone", 1, threads, 0))
    lanes = min(_power(-(-length // HELD)), _THREADS // _SIDE)
    return _shared(rows, length, Team("tall", lanes, lanes * _SIDE, 0))


def _shared(rows: int, length: int, team: Team) -> Team:
    """Give long rows to several blocks where there are few, else say what is held."""
    blocks = max(team.blocks(rows), 1)
    least = _PART if team.kind == "block" else _PART // 8
    parts = min(-(-_BUSY // blocks), length // least) if team.lanes > 1 else 1
    if parts > 1 and length > HELD * team.lanes:
        part = -(-length // parts)
        part = -(-part // 32) * 32  # whole lines of memory
        return attrs.evolve(team, parts=-(-length // part), part=part)
    each = _power(-(-length // team.lanes))
    return attrs.evolve(team, held=each if each <= HELD else 0)


def _power(number: int) -> int:
    """Give the next power of two."""
    return 1 << max(number - 1, 0).bit_length()


# --- meeting ------------------------------------------------------------------------


def merged(fold: Fold, team: Team) -> list[str]:
    """Write the lines after which every thread of a team has what all of them made."""
    if team.kind == "alone":
        return []
    if team.kind == "warp":
        return _exchanged(fold, team.lanes)
    if team.kind == "block":
        return _in_block(fold)
    return _down(fold)


def _exchanged(fold: Fold, lanes: int) -> list[str]:
    """Exchange registers, at half the distance each time; the compiler unrolls it."""
    read = [f"o_{s.name} = {_from_other(s)}" for s in fold.states]
    inner = [*read, *fold.merge, "distance = distance >> 1"]
    return [
        f"distance = np.int32({lanes // 2})",
        "while distance > 0:",
        *(f"    {line}" for line in inner),
    ]


def _from_other(state: State) -> str:
    """Read a register of the thread whose number differs in one bit."""
    if state.kind == "uint64":  # registers are exchanged as signed ones
        value = f"np.int64({state.name})"
        return f"np.uint64(cuda.shfl_xor_sync(0xffffffff, {value}, distance))"
    return f"cuda.shfl_xor_sync(0xffffffff, {state.name}, distance)"


def _in_block(fold: Fold) -> list[str]:
    inner = [f"    shared_{s.name}[wave] = {s.name}" for s in fold.states]
    read = [f"    {s.name} = shared_{s.name}[slot]" for s in fold.states]
    start = [f"{s.name} = {s.start}" for s in fold.states]
    return [
        *_exchanged(fold, 32), "if slot == 0:", *inner, "cuda.syncthreads()", *start,
        "if slot < waves:", *read, *_exchanged(fold, 32), "cuda.syncthreads()",
    ]  # fmt: skip


def _down(fold: Fold) -> list[str]:
    place = "lane * 32 + slot"
    put = [f"shared_{s.name}[{place}] = {s.name}" for s in fold.states]
    other = [
        f"        o_{s.name} = shared_{s.name}[(lane + half) * 32 + slot]"
        for s in fold.states
    ]
    return [
        *put, "cuda.syncthreads()", "half = lanes >> 1", "while half > 0:",
        "    if lane < half:", *other, *(f"        {line}" for line in fold.merge),
        *(f"        {line}" for line in put),
        "    cuda.syncthreads()", "    half = half >> 1",
        *(f"{s.name} = shared_{s.name}[slot]" for s in fold.states),
        "cuda.syncthreads()",
    ]  # fmt: skip


def arrays(states: Sequence[State], team: Team) -> list[str]:
    """Write the lines that make a team's shared memory."""
    size = {"block": 32, "tall": team.lanes * _SIDE}.get(team.kind, 0)
    return [
        f"shared_{s.name} = cuda.shared.array({size}, np.{s.kind})"
        for s in states
        if size
    ]


def places(team: Team, parted: bool) -> list[str]:
    """
    Write the lines that say which row a thread is of, and which of its threads it is.

    Parameters
    ----------
    parted
        Whether a block takes a part of its rows.
    """
    thread, block = "np.int64(cuda.threadIdx.x)", "np.int64(cuda.blockIdx.x)"
    lines = [f"group = {block}"]
    if parted:
        lines = [
            "group = np.int64(quotient32(np.uint32(cuda.blockIdx.x), np.uint32(parts)))",
            f"mine = {block} - group * parts",
        ]
    if team.kind == "alone":
        at = f"group * np.int64(cuda.blockDim.x) + {thread}"
        return [*lines, "lane = 0", "lanes = 1", f"row = {at}"]
    if team.kind == "warp":
        shift = team.lanes.bit_length() - 1
        at = f"((group * np.int64(cuda.blockDim.x) + {thread}) >> {shift})"
        return [*lines, f"lane = {thread} & {team.lanes - 1}", f"lanes = {team.lanes}", f"row = {at}"]  # fmt: skip
    lines += [f"slot = {thread} & 31", f"wave = {thread} >> 5"]
    waves = "np.int64(cuda.blockDim.x) >> 5"
    if team.kind == "block":
        return [*lines, f"waves = {waves}", f"lane = {thread}", "lanes = np.int64(cuda.blockDim.x)", "row = group"]  # fmt: skip
    return [*lines, "lane = wave", f"lanes = {waves}", "row = group * 32 + slot"]
