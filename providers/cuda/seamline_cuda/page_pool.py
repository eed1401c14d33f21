"""
Physical pages between two uses: kept up to a stated size, by size, the oldest given back.

Creating pages is the dear half of a commit. A program that is closed and built again for
the same sizes finds the ones that it had.
"""

from __future__ import annotations

from collections import OrderedDict

import attrs

from seamline.devices import VirtualMemory, VirtualMemoryError

__all__ = ["PagePool"]


@attrs.define(eq=False)
class PagePool:
    """
    Pages that are mapped nowhere.

    Attributes
    ----------
    limit
        Most bytes kept.
    held
        Bytes kept now.
    counts
        Pages ``created``, and ``reused`` from the pool.
    """

    pages: VirtualMemory
    limit: int
    held: int = attrs.field(default=0, init=False)
    counts: dict[str, int] = attrs.field(
        factory=lambda: {"created": 0, "reused": 0}, init=False
    )
    #: Handle -> bytes, the oldest first.
    _kept: OrderedDict[int, int] = attrs.field(factory=OrderedDict, init=False)

    def take(self, nbytes: int) -> int:
        """
        Give a handle of exactly so many bytes, kept or created.

        Raises
        ------
        VirtualMemoryError
            There are no more; the pool was emptied and the device asked again first.
        """
        for handle, size in reversed(self._kept.items()):
            if size == nbytes:
                del self._kept[handle]
                self.held -= size
                self.counts["reused"] += 1
                return handle
        try:
            handle = self.pages.create(nbytes)
        except VirtualMemoryError:
            if not self._kept:
                raise
            self.trim(0)
            handle = self.pages.create(nbytes)
        self.counts["created"] += 1
        return handle

    def give(self, handle: int, nbytes: int) -> None:
        """Keep a handle that is no longer mapped, and no more than the limit."""
        self._kept[handle] = nbytes
        self.held += nbytes
        self.trim(self.limit)

    def trim(self, limit: int) -> None:
        """Give the oldest back until no more than ``limit`` bytes are kept."""
        while self.held > limit:
            handle, nbytes = next(iter(self._kept.items()))
            self.pages.release(handle)
            del self._kept[handle]
            self.held -= nbytes
