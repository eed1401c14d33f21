"""
Virtual memory of the host, with the verbs and the rules of a device's driver.

Addresses come from one system call and pages from another, as on a device: a reserved
range is mapped without access, and pages are an anonymous file that can be mapped into
it, taken out, and mapped again elsewhere, its contents kept. So what a recording holds
(an address) stays good while what lies there is exchanged.

The rules are the strict ones of a driver, so that what works here works there: sizes are
whole granules, a range is mapped once, an unmap takes exactly what maps put there, and a
reservation is freed when nothing is mapped in it. Pages that were released stay until
their last mapping goes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import attrs

from seamline import mapping_calls as calls
from seamline.devices import HOST, Device, Gauges, VirtualMemoryError
from seamline.mapping_book import MappingBook, Pages

__all__ = ["HostVirtualMemory"]

GRANULE = 1 << 16  #: bytes; a multiple of every page size in use


def _nothing(_: str = "") -> None:
    """Wait for nothing, observe nothing: the host's own work is done when it returns."""


@attrs.define(eq=False)
class HostVirtualMemory:
    """
    Implements :class:`~seamline.devices.VirtualMemory` by the host's mapping calls.

    Attributes
    ----------
    granule
        Bytes of one granule; a multiple of the system's page.
    limit
        Most bytes that may be owned; None for what the system gives.
    drain
        Returns when no work in flight can touch mapped bytes; called before each unmap.
    before
        Told each verb before it does anything; what it raises ends the call.

    Examples
    --------
    >>> memory = HostVirtualMemory()
    >>> address = memory.reserve(4 * memory.granularity)
    >>> pages = memory.create(memory.granularity)
    >>> memory.map(address, pages)
    >>> memory.gauges().mapped == memory.granularity
    True
    >>> memory.close(); memory.gauges()
    Gauges(content=0, mapped=0, owned=0)
    """

    device: Device = HOST
    granule: int = GRANULE
    limit: int | None = None
    drain: Callable[[], None] = _nothing
    before: Callable[[str], object] = _nothing
    _lock: threading.RLock = attrs.field(factory=threading.RLock, init=False)
    _book: MappingBook = attrs.field(factory=lambda: MappingBook(os.close), init=False)
    _visible: bool = attrs.field(default=True, init=False)

    @property
    def granularity(self) -> int:
        """Give the bytes of one granule."""
        return self.granule

    def gauges(self) -> Gauges:
        """Give bytes mapped and owned; what of it is live is its user's to say."""
        return Gauges(0, self._book.mapped, self._book.owned)

    # -- the driver's verbs --------------------------------------------------------------

    def reserve(self, nbytes: int) -> int:
        """Reserve addresses without pages; give the first one."""
        self.before("reserve")
        with self._lock:
            self._whole("reserve", nbytes)
            # One granule more than asked, since the system aligns to its own page only.
            slack = nbytes + self.granule
            start = self._system("reserve", nbytes, lambda: calls.map_nothing(slack))
            address = -(-start // self.granule) * self.granule
            if address > start:
                calls.unmap(start, address - start)
            tail = start + slack - (address + nbytes)
            if tail:
                calls.unmap(address + nbytes, tail)
            self._book.reserved[address] = nbytes
            return address

    def create(self, nbytes: int) -> int:
        """Create zeroed physical pages; give their handle."""
        self.before("create")
        with self._lock:
            self._whole("create", nbytes)
            owned = self._book.owned
            if self.limit is not None and owned + nbytes > self.limit:
                free = self.limit - owned
                raise self._error("create", nbytes, f"only {free} bytes are free", free)
            name = f"seamline-{self.device}"
            file = self._system("create", nbytes, lambda: os.memfd_create(name))
            try:
                self._system("create", nbytes, lambda: os.ftruncate(file, nbytes))
            except VirtualMemoryError:
                os.close(file)
                raise
            return self._book.add_pages(file, nbytes)

    def map(self, address: int, handle: int) -> None:
        """Put pages at reserved addresses that hold none."""
        self.before("map")
        with self._lock:
            pages = self._pages("map", handle)
            end = address + pages.nbytes
            if address % self.granule or not self._book.inside(address, end):
                raise self._error("map", pages.nbytes, "it is not within a reservation")
            if self._book.overlapping(address, end):
                raise self._error("map", pages.nbytes, "something is mapped there")
            self._system(
                "map",
                pages.nbytes,
                lambda: calls.map_pages(
                    address, pages.nbytes, pages.token, visible=self._visible
                ),
            )
            self._book.add_mapping(address, pages)

    def unmap(self, address: int, nbytes: int) -> None:
        """Take whole mappings away, once nothing in flight can read them."""
        self.before("unmap")
        # Outside the lock: work in flight may ask what is mapped before it ends.
        self.drain()
        with self._lock:
            end = address + nbytes
            found = self._book.overlapping(address, end)
            if not self._book.exactly(found, address, nbytes):
                why = "it is not exactly what was mapped there"
                raise self._error("unmap", nbytes, why)
            self._system("unmap", nbytes, lambda: calls.map_nothing(nbytes, address))
            for start in found:
                self._book.remove_mapping(start)

    def release(self, handle: int) -> None:
        """Give pages back; they go when their last mapping does."""
        self.before("release")
        with self._lock:
            self._pages("release", handle)
            self._book.release(handle)

    def free(self, address: int, nbytes: int) -> None:
        """Give a whole reservation back; nothing may be mapped in it."""
        self.before("free")
        with self._lock:
            if self._book.reserved.get(address) != nbytes:
                raise self._error("free", nbytes, f"{address:#x} was not reserved so")
            if self._book.overlapping(address, address + nbytes):
                raise self._error("free", nbytes, "something is still mapped there")
            self._system("free", nbytes, lambda: calls.unmap(address, nbytes))
            del self._book.reserved[address]

    # -- beyond the verbs ----------------------------------------------------------------

    def serials(self, address: int, nbytes: int) -> tuple[int, ...]:
        """
        Name the mappings that hold a range; the same range remapped has other names.

        Raises
        ------
        VirtualMemoryError
            Some of its bytes are not mapped.
        """
        with self._lock:
            found = self._book.overlapping(address, address + nbytes)
            gap = self._book.gap(found, address, nbytes)
            if gap is not None:
                raise self._error("access", nbytes, f"{gap:#x} is not mapped")
            return tuple([self._book.maps[start].serial for start in found])

    def mapped(self, address: int, nbytes: int) -> tuple[tuple[int, int, int], ...]:
        """Give what is mapped of a range, in order: address, bytes, name of mapping."""
        with self._lock:
            end, parts = address + nbytes, []
            for start in self._book.overlapping(address, end):
                mapping = self._book.maps[start]
                first = max(start, address)
                upto = min(start + mapping.nbytes, end)
                parts.append((first, upto - first, mapping.serial))
            return tuple(parts)

    def show(self, *, visible: bool) -> None:
        """Let the host touch what is mapped, or kill it for trying."""
        with self._lock:
            self._visible = visible
            for address, mapping in self._book.maps.items():
                calls.change_access(address, mapping.nbytes, visible=visible)

    def close(self) -> None:
        """Give everything back; a second call does nothing."""
        book = self._book
        if book.maps:
            self.drain()
        with self._lock:
            for start in list(book.maps):
                book.remove_mapping(start)
            for handle in list(book.pages):
                book.release(handle)
            while book.reserved:
                calls.unmap(*book.reserved.popitem())

    def _pages(self, call: str, handle: int) -> Pages:
        found = self._book.pages.get(handle)
        if found is None:
            raise self._error(call, 0, f"there are no pages {handle}")
        return found

    def _whole(self, call: str, nbytes: int) -> None:
        if nbytes <= 0 or nbytes % self.granule:
            raise self._error(call, nbytes, f"no multiple of {self.granule} bytes")

    def _error(
        self, call: str, nbytes: int, why: str, free: int | None = None
    ) -> VirtualMemoryError:
        return VirtualMemoryError(self.device, call, nbytes, why, self.gauges(), free)

    def _system(self, call: str, nbytes: int, ask: Callable[[], int | None]) -> int:
        try:
            return ask() or 0
        except OSError as error:
            raise self._error(call, nbytes, str(error)) from error
