"""
The arena: addresses reserved once, pages put there by need, small values packed together.

There is one way to get device memory. A range of addresses is reserved, which costs
nothing; an allocation takes the first free place in it, best one whose granules have
pages already; what has none gets pages, in one piece for each gap, since the driver takes
as long for a granule as for five hundred megabytes. A piece whose last value was given
back is unmapped, after a wait for whatever may still read it, and its pages are pooled.

No address moves while it is held, and pages come and go under a whole piece only, so what
was captured over an address stays good for as long as the address is held.

The books are locked, the wait before an unmap is not: the addresses of a piece that is
being unmapped belong to nobody until it is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import attrs

from seamline.closing import close_all
from seamline.devices import Gauges, VirtualMemory, VirtualMemoryError
from seamline_cuda.extents import Extents
from seamline_cuda.page_pool import PagePool
from seamline_cuda.pieces import Piece, Pieces

__all__ = ["ALIGNMENT", "Arena"]

ALIGNMENT = 256  #: bytes; what the driver's own allocator promises


@attrs.define(eq=False)
class Arena:
    """
    Suballocates one reserved range of a virtual memory.

    Attributes
    ----------
    pages
        The virtual memory; it outlives this.
    room
        Bytes of addresses to reserve, rounded up to granules.
    pool
        Pages between two uses.
    """

    pages: VirtualMemory
    room: int
    pool: PagePool
    _base: int | None = attrs.field(default=None, init=False)
    _content: int = attrs.field(default=0, init=False)
    _free: Extents = attrs.field(factory=Extents, init=False)
    _pieces: Pieces = attrs.field(factory=Pieces, init=False)
    #: Address -> bytes asked for, and bytes taken.
    _held: dict[int, tuple[int, int]] = attrs.field(factory=dict, init=False)
    _lent: dict[int, tuple[int, Callable[[], object]]] = attrs.field(
        factory=dict, init=False
    )
    _lock: threading.RLock = attrs.field(factory=threading.RLock, init=False)

    @classmethod
    def over(cls, pages: VirtualMemory, room: int, pool_nbytes: int) -> Arena:
        """Make an arena, which reserves its range at the first allocation."""
        granule = pages.granularity
        return cls(
            pages, -(-room // granule) * granule, PagePool(pages, max(pool_nbytes, 0))
        )

    def gauges(self) -> Gauges:
        """Give live bytes, and what the virtual memory says."""
        return attrs.evolve(self.pages.gauges(), content=self._content)

    # -- values that are packed ----------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """
        Give an address with so many bytes behind it; their contents are undefined.

        Raises
        ------
        VirtualMemoryError
            There are no more addresses or pages; what was taken for it is given back.
        """
        size = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        with self._lock:
            self._reserve()
            place = self._free.first_within(self._pieces.runs(), size, ALIGNMENT)
            if place is None:
                place = self._place(size, ALIGNMENT, nbytes)
                self._commit(place, size)
            self._free.take(place, size)
            for piece in self._pieces.on(place, size):
                piece.users += 1
            self._held[place] = (nbytes, size)
            self._content += nbytes
            return place

    def free(self, address: int) -> None:
        """
        Give an allocation back; pages that nothing lies on any more are unmapped.

        Raises
        ------
        VirtualMemoryError
            An unmap failed. The allocation is given back all the same, and its pages are
            tried again when the next one on them is.
        """
        with self._lock:
            nbytes, size = self._held.pop(address)
            self._content -= nbytes
            self._free.give(address, size)
            left = self._pieces.on(address, size)
            for piece in left:
                piece.users -= 1
            unused = [piece for piece in left if not piece.users]
            for piece in unused:
                self._close_off(piece)
        close_all([_Unmapping(self, piece) for piece in unused])

    # -- room of its own, for what grows -------------------------------------------------

    def lend(self, nbytes: int, close: Callable[[], object]) -> int:
        """
        Give whole granules of addresses without pages, for a user that maps them itself.

        Parameters
        ----------
        close
            Unmaps what the user mapped and calls :meth:`take_back`; called where the arena
            is closed first.

        Raises
        ------
        VirtualMemoryError
            There are no more addresses.
        """
        granule = self.pages.granularity
        size = -(-nbytes // granule) * granule
        with self._lock:
            self._reserve()
            windows = Extents(list(self._free.parts))
            for piece in self._pieces.kept:
                for start, end in windows.inside(piece.start, piece.nbytes):
                    windows.take(start, end - start)
            place = windows.first_fit(size, granule)
            if place is None:
                raise self._no_room(nbytes)
            self._free.take(place, size)
            self._lent[place] = (size, close)
            return place

    def take_back(self, address: int) -> None:
        """Take lent addresses back, nothing mapped there."""
        with self._lock:
            size, _ = self._lent.pop(address)
            self._free.give(address, size)

    def counted(self, nbytes: int) -> None:
        """Count bytes on lent addresses that became live, or no longer are."""
        with self._lock:
            self._content += nbytes

    # -- the end -------------------------------------------------------------------------

    def close(self) -> None:
        """
        Unmap everything, give pages and addresses back; a second call does nothing.

        One that fails half-way goes on where it was when it is called again.
        """
        for _, close in list(self._lent.values()):
            close()
        with self._lock:
            self._held.clear()
            self._content = 0
            while self._pieces.kept:
                piece = self._pieces.kept[-1]
                self.pages.unmap(piece.start, piece.nbytes)
                self._pieces.remove(piece)
                self.pool.give(piece.handle, piece.nbytes)
            self.pool.trim(0)
            if self._base is not None:
                self.pages.free(self._base, self.room)
            self._base, self._free = None, Extents()

    # -- behind them ---------------------------------------------------------------------

    def _reserve(self) -> None:
        if self._base is None:
            self._base = self.pages.reserve(self.room)
            self._free = Extents.of(self._base, self.room)

    def _place(self, size: int, step: int, nbytes: int) -> int:
        place = self._free.first_fit(size, step)
        if place is None:
            raise self._no_room(nbytes)
        return place

    def _no_room(self, nbytes: int) -> VirtualMemoryError:
        free = sum(end - start for start, end in self._free.parts)
        why = (
            f"the {self.room} bytes of addresses that were reserved have {free} left, in "
            "no one place"
        )
        return VirtualMemoryError(
            self.pages.device, "allocate", nbytes, why, self.gauges()
        )

    def _commit(self, place: int, size: int) -> None:
        """Give pages to the granules of a part that have none, or to none of them."""
        granule = self.pages.granularity
        at = place - place % granule
        end = -(-(place + size) // granule) * granule
        made: list[Piece] = []
        try:
            for piece in [*self._pieces.on(place, size), None]:
                upto = piece.start if piece is not None else end
                if at < upto:
                    made.append(self._map(at, upto - at))
                at = piece.end if piece is not None else end
        except BaseException:
            for piece in made:
                self.pages.unmap(piece.start, piece.nbytes)
                self.pool.give(piece.handle, piece.nbytes)
            raise
        for piece in made:
            self._pieces.add(piece)

    def _map(self, start: int, nbytes: int) -> Piece:
        handle = self.pool.take(nbytes)
        try:
            self.pages.map(start, handle)
        except BaseException:
            self.pool.give(handle, nbytes)
            raise
        return Piece(start, nbytes, handle)

    def _close_off(self, piece: Piece) -> None:
        """Keep a piece's addresses from everybody until it is unmapped."""
        self._pieces.remove(piece)
        for start, end in self._free.inside(piece.start, piece.nbytes):
            self._free.take(start, end - start)

    def unmapped(self, piece: Piece) -> None:
        """Unmap a piece that was closed off; one that cannot be is open again."""
        try:
            self.pages.unmap(piece.start, piece.nbytes)
        except BaseException:
            with self._lock:
                self._free.give(piece.start, piece.nbytes)
                self._pieces.add(piece)
            raise
        with self._lock:
            self._free.give(piece.start, piece.nbytes)
            self.pool.give(piece.handle, piece.nbytes)


@attrs.frozen(eq=False)
class _Unmapping:
    """Lets several pieces be unmapped, all of them even where one fails."""

    arena: Arena
    piece: Piece

    def close(self) -> None:
        self.arena.unmapped(self.piece)
