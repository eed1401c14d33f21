"""
Turns at the weights of many experts: some panels of one expert that has rows.

Work is handed out by a counter that the routing starts anew. Experts without rows are not
looked at; which have some is known only when it runs.
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.atomics import fetch_add, longs
from seamline_cpu.commands import Command, command
from seamline_cpu.kernels.nbits_operands import FIRST, OPERANDS

__all__ = ["SLOTS", "in_turns"]

#: Names of the arguments, in their order. ``most`` and ``least`` are the rows of an expert
#: beyond which a command leaves it to another.
SLOTS = (
    "next_at", "starts", *OPERANDS, "active", "order", "rows", "k", "a", "a_pitch",
    "x_rows", "factor", "expert", "b_pitch", "least", "most",
)  # fmt: skip
_NEXT_AT, _STARTS = range(FIRST)
_GROUPS, _PER, _ACTIVE, _LEAST, _MOST = (
    SLOTS.index(name) for name in ("groups", "per", "active", "least", "most")
)


def in_turns(groups: int, part: Any) -> Command:
    """
    Give the command that does panels of ``groups``, one expert in a turn.

    Parameters
    ----------
    part
        Compiled: arguments, share, expert, its rows from and to, groups from and to.
    """

    def run(a: Any, share: int, shares: int) -> None:
        starts, active = longs(a[_STARTS]), longs(a[_ACTIVE])
        count, per = a[_GROUPS], a[_PER] * groups
        turns = (count + per - 1) // per
        turn = fetch_add(a[_NEXT_AT], 1)
        while turn < turns * active[0]:
            e, first = active[1 + turn // turns], turn % turns * per
            low, high = starts[e], starts[e + 1]
            if a[_LEAST] <= high - low <= a[_MOST]:
                part(a, share, e, low, high, first, min(first + per, count))
            turn = fetch_add(a[_NEXT_AT], 1)

    return command(run)
