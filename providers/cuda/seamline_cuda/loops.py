"""
The loop of a kernel over positions: a few at a time, loads first, then stores.

A thread that waits for one element's bytes before it asks for the next has too few under
way to keep memory busy. What is left at the end goes one by one.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["looped"]

Lines = Callable[[str], list[str]]


def looped(load: Lines, store: Lines, at_once: int = 4) -> list[str]:
    """
    Write the loop over ``n`` positions.

    Parameters
    ----------
    load, store
        Give the lines for one position, which is ``iMARK``; names in them end in MARK.
    at_once
        Positions that a thread has under way.
    """
    lines = ["    i = cuda.grid(1)", "    step = cuda.gridsize(1)"]
    for count in sorted({at_once, 1}, reverse=True):
        ahead = f"i + {count - 1} * step" if count > 1 else "i"
        body = [f"i{u} = i + {u} * step" if u else "i0 = i" for u in range(count)]
        body += [line for u in range(count) for line in load(str(u))]
        body += [line for u in range(count) for line in store(str(u))]
        body.append(f"i += {count} * step")
        lines += [f"    while {ahead} < n:", *(f"        {line}" for line in body)]
    return lines
