"""
Which parts of a range are free: sorted, apart, and merged where they touch.

>>> free = Extents.of(0, 100)
>>> free.first_fit(30), free.take(0, 30)
(0, None)
>>> free.take(50, 10); free.parts
[(30, 50), (60, 100)]
>>> free.give(50, 10); free.parts
[(30, 100)]
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

import attrs

__all__ = ["Extents"]


@attrs.define(eq=False)
class Extents:
    """
    Free parts of a range.

    Attributes
    ----------
    parts
        Pairs of a first position and the one past the last.
    """

    parts: list[tuple[int, int]] = attrs.field(factory=list)

    @classmethod
    def of(cls, start: int, nbytes: int) -> Extents:
        """Give a range that is all free."""
        return cls([(start, start + nbytes)])

    def first_fit(self, nbytes: int, step: int = 1) -> int | None:
        """Give the first multiple of ``step`` with so much free behind it, if any."""
        for start, end in self.parts:
            at = -(-start // step) * step
            if end - at >= nbytes:
                return at
        return None

    def first_within(
        self, runs: Iterable[tuple[int, int]], nbytes: int, step: int
    ) -> int | None:
        """Give the first place that is free and lies in one of ``runs``, which are sorted."""
        for low, high in runs:
            at = max(bisect.bisect_right(self.parts, (low, low)) - 1, 0)
            for start, end in self.parts[at:]:
                if start >= high:
                    break
                place = -(-max(start, low) // step) * step
                if min(end, high) - place >= nbytes:
                    return place
        return None

    def take(self, start: int, nbytes: int) -> None:
        """
        Make a part no longer free.

        Raises
        ------
        ValueError
            Some of it is not free.
        """
        index = bisect.bisect_right(self.parts, (start, float("inf"))) - 1
        low, high = self.parts[index] if index >= 0 else (0, 0)
        end = start + nbytes
        if not low <= start <= end <= high:
            raise ValueError(f"{start} to {end} is not free")
        left = [part for part in ((low, start), (end, high)) if part[0] < part[1]]
        self.parts[index : index + 1] = left

    def give(self, start: int, nbytes: int) -> None:
        """Make a part free again."""
        end = start + nbytes
        index = bisect.bisect_left(self.parts, (start, end))
        low, high = index, index
        if index and self.parts[index - 1][1] == start:
            low, start = index - 1, self.parts[index - 1][0]
        if index < len(self.parts) and self.parts[index][0] == end:
            high, end = index + 1, self.parts[index][1]
        self.parts[low:high] = [(start, end)]

    def inside(self, start: int, nbytes: int) -> list[tuple[int, int]]:
        """Give the free parts of a window."""
        end = start + nbytes
        cut = [(max(low, start), min(high, end)) for low, high in self.parts]
        return [part for part in cut if part[0] < part[1]]
