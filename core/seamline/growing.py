"""
A buffer that grows where it is: addresses for all that may come, pages for what has.

What was recorded over its addresses stays good while it grows, and while it is emptied
and filled again: the same addresses have other pages then, and a replay reads and writes
those. Pages come and go a granule at a time and anywhere in the room, since a tensor that
grows along an inner axis grows in as many places as it has outer indices.

Growth is whole or did not happen. Pages are taken away only when no work in flight can
read them: ``unmap`` waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs
import numpy as np

from seamline.devices import Device
from seamline.geometry import Mask, runs_of

__all__ = ["GrowingBuffer", "Pages", "never"]


class Pages(Protocol):
    """Where a growing buffer gets its pages; a virtual memory, perhaps behind a pool."""

    @property
    def granularity(self) -> int:
        """Give the bytes of one granule."""
        ...

    def take(self, nbytes: int) -> int:
        """Give a handle of pages."""
        ...

    def give(self, handle: int, nbytes: int) -> None:
        """Take a handle back."""
        ...

    def map(self, address: int, handle: int) -> None:
        """Put pages at an address."""
        ...

    def unmap(self, address: int, nbytes: int) -> None:
        """Take pages away once nothing in flight reads them."""
        ...

    def counted(self, nbytes: int) -> None:
        """Count bytes that became live, or no longer are."""
        ...


def never() -> bool:
    """Say that the device cannot be lost."""
    return False


@attrs.define(eq=False)
class GrowingBuffer:
    """
    Reserved addresses of which some granules have pages; made without any.

    Implements :class:`~seamline.devices.Buffer`.

    Attributes
    ----------
    address
        The first byte; it does not move.
    nbytes
        Bytes that it has room for.
    pages
        Gives granules.
    gone
        Gives the addresses back; called once, with nothing mapped.
    is_lost
        Tells that the device is gone with everything on it, so that nothing can be
        given back.
    live
        Bytes that its user said are live.

    Examples
    --------
    >>> from seamline.memory import HostMemory
    >>> memory = HostMemory()
    >>> cache = memory.reserve(1 << 20)
    >>> cache.grow(cache.granule + 1)
    >>> cache.committed // cache.granule, memory.gauges().content == cache.granule + 1
    (2, True)
    >>> cache.close(); memory.gauges()
    Gauges(content=0, mapped=0, owned=0)
    """

    device: Device
    address: int
    nbytes: int
    pages: Pages
    gone: Callable[[], object]
    is_lost: Callable[[], bool] = never
    live: int = attrs.field(default=0, init=False)
    #: Granule -> handle of its pages.
    _handles: dict[int, int] = attrs.field(factory=dict, init=False)
    _open: bool = attrs.field(default=True, init=False)

    @property
    def granule(self) -> int:
        """Give the bytes of one granule."""
        return self.pages.granularity

    @property
    def is_open(self) -> bool:
        """Tell whether it still has its addresses."""
        return self._open

    @property
    def granules(self) -> int:
        """Give the granules that its room takes."""
        return -(-self.nbytes // self.granule)

    @property
    def committed(self) -> int:
        """Give the bytes that have pages; reads and writes keep within them."""
        return len(self._handles) * self.granule

    def held(self) -> Mask:
        """Say for each granule whether it has pages."""
        mask = np.zeros(self.granules, np.bool_)
        mask[list(self._handles)] = True
        return mask

    def commit(self, mask: Mask) -> tuple[tuple[int, int], ...]:
        """
        Have pages for these granules beside those that have them: all, or as before.

        Legal while the calling thread records: addresses do not change.

        Returns
        -------
        tuple
            First byte of each part that got pages, counted from the start, and the one
            after it. Their contents are undefined.

        Raises
        ------
        VirtualMemoryError
            There are no more pages; those taken for it are given back.
        """
        new = mask & ~self.held()
        added: list[int] = []
        try:
            for at in np.flatnonzero(new).tolist():
                self._add(at)
                added.append(at)
        except BaseException:
            for at in reversed(added):
                self._drop(at)
            raise
        return self._parts(new)

    def keep(self, mask: Mask) -> None:
        """
        Give back the pages of all other granules, once nothing reads them.

        Raises
        ------
        VirtualMemoryError
            An unmap failed; what is left is tried again next.
        """
        for at in sorted(self._handles, reverse=True):
            if not mask[at]:
                self._drop(at)

    def count(self, nbytes: int) -> None:
        """Say how many of its bytes are live."""
        if nbytes != self.live:
            self.pages.counted(nbytes - self.live)
            self.live = nbytes

    def committed_parts(self) -> tuple[tuple[int, int], ...]:
        """Give the first byte of each part that has pages and the one after it."""
        return self._parts(self.held())

    # -- a first part ---------------------------------------------------------------------

    def grow(self, nbytes: int) -> None:
        """
        Have pages for a first part of so many bytes, and say that it is live.

        Raises
        ------
        ValueError
            It is more than its room.
        VirtualMemoryError
            There are no more pages; it is as before.
        """
        if not 0 <= nbytes <= self.nbytes:
            raise ValueError(f"{nbytes} bytes of a range with room for {self.nbytes}")
        self.commit(self._first(nbytes))
        self.count(max(nbytes, self.live))

    def shrink(self, nbytes: int) -> None:
        """
        Give back the pages past a first part of so many bytes, once nothing reads them.

        Raises
        ------
        VirtualMemoryError
            An unmap failed; what is past it is given back, and it is tried again next.
        """
        self.count(min(nbytes, self.live))
        self.keep(self._first(nbytes))

    def close(self) -> None:
        """Give pages and addresses back; a second call does nothing."""
        if not self._open:
            return
        if self.is_lost():
            self._handles.clear()
            self.count(0)
        else:
            self.shrink(0)
            self.gone()
        self._open = False

    # -- one granule ----------------------------------------------------------------------

    def _first(self, nbytes: int) -> Mask:
        return np.arange(self.granules) < -(-nbytes // self.granule)

    def _parts(self, mask: Mask) -> tuple[tuple[int, int], ...]:
        size = self.granule
        return tuple(
            (first * size, min(end * size, self.nbytes)) for first, end in runs_of(mask)
        )

    def _add(self, at: int) -> None:
        handle = self.pages.take(self.granule)
        try:
            self.pages.map(self.address + at * self.granule, handle)
        except BaseException:
            self.pages.give(handle, self.granule)
            raise
        self._handles[at] = handle

    def _drop(self, at: int) -> None:
        self.pages.unmap(self.address + at * self.granule, self.granule)
        self.pages.give(self._handles.pop(at), self.granule)
