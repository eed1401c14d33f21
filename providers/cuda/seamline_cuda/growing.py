"""Room in an arena for what grows: its addresses from the arena, its pages from the pool."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from seamline.growing import GrowingBuffer, never
from seamline_cuda.arena import Arena

__all__ = ["GrowingRange"]


class GrowingRange(GrowingBuffer):
    """
    A growing buffer in an arena; made without any pages.

    Parameters
    ----------
    room
        Bytes that it can grow to.
    is_lost
        Tells that the device cannot be used any more.

    Raises
    ------
    VirtualMemoryError
        The arena has no more addresses.

    Examples
    --------
    >>> from seamline.host_virtual_memory import HostVirtualMemory
    >>> pages = HostVirtualMemory(); granule = pages.granularity
    >>> arena = Arena.over(pages, 64 * granule, pool_nbytes=0)
    >>> cache = GrowingRange(arena, 8 * granule)
    >>> cache.grow(granule + 1); arena.gauges().mapped // granule
    2
    >>> cache.close(); arena.close(); pages.gauges().owned
    0
    """

    def __init__(
        self, arena: Arena, room: int, is_lost: Callable[[], bool] = never
    ) -> None:
        address = arena.lend(room, self.close)
        device = arena.pages.device

        def gone() -> None:
            arena.take_back(address)

        super().__init__(device, address, room, _ArenaPages(arena), gone, is_lost)


@attrs.frozen(eq=False)
class _ArenaPages:
    """Implements :class:`seamline.growing.Pages` by an arena's pool and its memory."""

    arena: Arena

    @property
    def granularity(self) -> int:
        return self.arena.pages.granularity

    def take(self, nbytes: int) -> int:
        return self.arena.pool.take(nbytes)

    def give(self, handle: int, nbytes: int) -> None:
        self.arena.pool.give(handle, nbytes)

    def map(self, address: int, handle: int) -> None:
        self.arena.pages.map(address, handle)

    def unmap(self, address: int, nbytes: int) -> None:
        self.arena.pages.unmap(address, nbytes)

    def counted(self, nbytes: int) -> None:
        self.arena.counted(nbytes)
