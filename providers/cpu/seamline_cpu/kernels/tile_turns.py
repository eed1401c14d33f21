"""
How the register tiles of a product are divided into turns that threads take.

A turn is some panels of columns for a block of rows. Threads take turns from a counter, so
that one which was held up leaves more to the others; and a turn's rows are read, and its
panels brought, for it alone, so there should be few.
"""

from __future__ import annotations

from typing import Any

import attrs

from seamline_cpu.commands import command
from seamline_cpu.kernels.nbits_turns import clear_turns

__all__ = ["Turns", "begun", "divided"]

_EACH = 0.5  # of a panel's time: what a turn costs beside its panels
_BROUGHT = 4  # rows whose products take as long as to bring a panel


@attrs.frozen
class Turns:
    """
    Sizes of turns.

    Attributes
    ----------
    per
        Panels in a turn.
    high
        Rows in a turn: whole tiles.
    """

    per: int
    high: int


@command
def begun(a: Any, share: int, shares: int) -> None:
    """Start turns anew; arguments begin with the counters' address and their number."""
    clear_turns(a[0], a[1])


def divided(
    m: int, rows: int, panels: int, threads: int, *, most_rows: int, most_panels: int
) -> Turns:
    """
    Divide ``m`` rows, in tiles of ``rows``, and ``panels`` of columns among threads.

    What the thread that is last takes is made least; no turn has more than ``most_rows``,
    or one tile, by ``most_panels``.
    """
    heights, least = -(-m // rows), -(-m // max(most_rows, rows))

    def time(turns: Turns) -> float:
        """Give what the last thread takes, by panels of rows."""
        count = -(-m // turns.high) * -(-panels // turns.per)
        return -(-count // threads) * (turns.per + _EACH) * (turns.high + _BROUGHT)

    # Where there are few panels for many threads, these divide the rows too.
    parts = range(least, min(heights, least + 2 * threads) + 1)
    ways = [
        Turns(per, -(-heights // count) * rows)
        for count in parts
        for per in range(1, most_panels + 1)
    ]
    return min(ways, key=time)
