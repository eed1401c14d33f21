"""
A range that grows where it is: addresses for all that may come, pages for what has.

What was captured over its addresses stays good while it grows, and while it is emptied
and filled again: the same addresses have other pages then, and a replay reads and writes
those. Pages come a granule at a time, so that as much can be given back.
"""

from __future__ import annotations

import attrs

from seamline_cuda.arena import Arena

__all__ = ["GrowingRange"]


@attrs.define(eq=False)
class GrowingRange:
    """
    Room in an arena of which a first part has pages; made without any.

    Raises
    ------
    VirtualMemoryError
        The arena has no more addresses.

    Attributes
    ----------
    address
        The first byte; it does not move.
    room
        Bytes that it can grow to.
    live
        Bytes that its user said are live.

    Examples
    --------
    >>> from seamline_testing.twin.host_virtual_memory import HostVirtualMemory
    >>> pages = HostVirtualMemory(); granule = pages.granularity
    >>> arena = Arena.over(pages, 64 * granule, pool_nbytes=0)
    >>> cache = GrowingRange(arena, 8 * granule)
    >>> cache.grow(granule + 1); arena.gauges().mapped // granule
    2
    >>> cache.close(); arena.close(); pages.gauges().owned
    0
    """

    arena: Arena
    room: int
    address: int = attrs.field(init=False)
    live: int = attrs.field(default=0, init=False)
    _handles: list[int] = attrs.field(factory=list, init=False)
    _open: bool = attrs.field(default=True, init=False)

    def __attrs_post_init__(self) -> None:
        self.address = self.arena.lend(self.room, self.close)

    @property
    def committed(self) -> int:
        """Give the bytes that have pages; reads and writes keep within them."""
        return len(self._handles) * self.arena.pages.granularity

    def grow(self, nbytes: int) -> None:
        """
        Have pages for a first part of so many bytes, all of it or what there was.

        Legal while the calling thread captures: addresses do not change.

        Raises
        ------
        ValueError
            It is more than its room.
        VirtualMemoryError
            There are no more pages; those taken for it are given back.
        """
        if not 0 <= nbytes <= self.room:
            raise ValueError(f"{nbytes} bytes of a range with room for {self.room}")
        before = len(self._handles)
        granule = self.arena.pages.granularity
        try:
            while self.committed < nbytes:
                self._add(granule)
        except BaseException:
            self._drop_to(before)
            raise
        if nbytes > self.live:
            self.arena.counted(nbytes - self.live)
            self.live = nbytes

    def shrink(self, nbytes: int) -> None:
        """
        Give back the pages past a first part of so many bytes, once nothing reads them.

        Raises
        ------
        VirtualMemoryError
            An unmap failed; what is past it is given back, and it is tried again next.
        """
        granule = self.arena.pages.granularity
        if nbytes < self.live:
            self.arena.counted(nbytes - self.live)
            self.live = nbytes
        self._drop_to(-(-nbytes // granule))

    def close(self) -> None:
        """Give pages and addresses back; a second call does nothing."""
        if self._open:
            self.shrink(0)
            self.arena.take_back(self.address)
            self._open = False

    def _add(self, granule: int) -> None:
        handle = self.arena.pool.take(granule)
        try:
            self.arena.pages.map(self.address + self.committed, handle)
        except BaseException:
            self.arena.pool.give(handle, granule)
            raise
        self._handles.append(handle)

    def _drop_to(self, granules: int) -> None:
        granule = self.arena.pages.granularity
        while len(self._handles) > granules:
            at = self.address + (len(self._handles) - 1) * granule
            self.arena.pages.unmap(at, granule)
            self.arena.pool.give(self._handles.pop(), granule)
