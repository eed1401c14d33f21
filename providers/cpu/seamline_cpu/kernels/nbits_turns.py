"""
Turns at packed weights: each thread has a part of its own, then helps with the others'.

A thread that reads the same weights at every run finds them in its core's cache where they
fit, and reads one long stretch of memory where not; one that was held up leaves the rest of
its part to whoever is done. Parts are counted, each on a cache line of its own.
"""

from __future__ import annotations

import numpy as np

from seamline.provider import Array
from seamline_cpu.atomics import fetch_add, longs
from seamline_cpu.jit import inlined, jit

__all__ = [
    "AT_ONCE",
    "SHARED_FROM",
    "TURNS",
    "clear_turns",
    "counters",
    "next_turn",
]

SHARED_FROM = 1 << 17  #: multiply-adds from which more threads pay: some 2 us of int8
TURNS = 16  #: turns of each thread at the weights
AT_ONCE = 256 << 10  #: bytes of activations that are multiplied before the next rows

_LINE = 8  # words


def counters(shares: int) -> tuple[Array, int]:
    """Make room for the counters of ``shares`` parts; give it and their address."""
    room = np.zeros((shares + 1) * _LINE, np.int64)
    start = int(room.ctypes.data)
    return room, start + -start % (8 * _LINE)


@inlined
def clear_turns(address: int, shares: int) -> None:
    """Start all counters anew; a command before the one that takes turns does it."""
    values = longs(address)
    for share in range(shares):
        values[share * _LINE] = 0


@jit
def next_turn(address: int, share: int, shares: int, every: int) -> int:
    """Give the next of ``every`` turns that nobody has taken; -1 when none is left."""
    for i in range(shares):
        part = (share + i) % shares
        low, high = every * part // shares, every * (part + 1) // shares
        turn: int = low + fetch_add(address + 8 * _LINE * part, 1)
        if turn < high:
            return turn
    return -1
