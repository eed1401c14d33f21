"""
Offsets for values that are not alive at the same time.

A value holds its bytes from the step that writes it to the last that reads it. Taking
values in order of birth and giving each the smallest hole that holds it is near linear
and, on the graphs of real models, within a few percent of the bytes alive at the worst
moment, which no packing can go below.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence

import attrs

__all__ = ["Interval", "Packing", "pack"]


@attrs.frozen
class Interval:
    """Bytes needed from one step to another, both included."""

    first: int
    last: int
    nbytes: int


@attrs.frozen
class Packing:
    """
    An offset for each interval.

    Attributes
    ----------
    nbytes
        Bytes of the whole.
    peak
        Bytes alive at the worst moment: no packing is smaller.
    """

    offsets: tuple[int, ...]
    nbytes: int
    peak: int


def pack(intervals: Sequence[Interval], alignment: int = 64) -> Packing:
    """
    Place intervals so that no two alive at one moment overlap.

    Examples
    --------
    >>> pack([Interval(0, 1, 64), Interval(1, 2, 64), Interval(2, 3, 64)]).offsets
    (0, 64, 0)
    """
    holes = _Holes()
    alive: list[tuple[int, int, int]] = []  # last, offset, size
    offsets = [0] * len(intervals)
    now = peak = 0
    for index in sorted(range(len(intervals)), key=lambda i: (intervals[i].first, i)):
        interval = intervals[index]
        while alive and alive[0][0] < interval.first:
            _, offset, size = heapq.heappop(alive)
            holes.give(offset, size)
            now -= size
        size = -(-interval.nbytes // alignment) * alignment
        if not size:
            continue
        offsets[index] = holes.take(size)
        heapq.heappush(alive, (interval.last, offsets[index], size))
        now += size
        peak = max(peak, now)
    return Packing(tuple(offsets), holes.end, peak)


class _Holes:
    """Free ranges below ``end``, sorted and never touching each other."""

    def __init__(self) -> None:
        self.end = 0
        self._starts: list[int] = []
        self._sizes: list[int] = []

    def take(self, size: int) -> int:
        best = -1
        for index, free in enumerate(self._sizes):
            if free >= size and (best < 0 or free < self._sizes[best]):
                best = index
        if best >= 0:
            start = self._starts[best]
            if self._sizes[best] == size:
                del self._starts[best], self._sizes[best]
            else:
                self._starts[best] += size
                self._sizes[best] -= size
            return start
        start = self.end
        if self._starts and self._starts[-1] + self._sizes[-1] == self.end:
            start = self._starts.pop()  # grow the last hole rather than leave it
            self._sizes.pop()
        self.end = start + size
        return start

    def give(self, start: int, size: int) -> None:
        index = bisect.bisect_left(self._starts, start)
        if index < len(self._starts) and start + size == self._starts[index]:
            size += self._sizes.pop(index)
            del self._starts[index]
        if index and self._starts[index - 1] + self._sizes[index - 1] == start:
            self._sizes[index - 1] += size
        else:
            self._starts.insert(index, start)
            self._sizes.insert(index, size)
