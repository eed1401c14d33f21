"""
Virtual memory of one GPU: the driver's verbs, under the rules of the core's protocol.

A physical handle is mapped whole and made readable and writable in the same step; where
making it accessible fails, it is unmapped again, so that a verb either happened or did
not. Before any unmap everything in flight on the device is waited for, without condition:
a kernel that reads pages taken from under it ends the process's use of the device.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from seamline.devices import Device, Gauges, VirtualMemoryError
from seamline.mapping_book import MappingBook, Pages
from seamline_cuda.device import Gpu
from seamline_cuda.driver import call, constant, enumeration
from seamline_cuda.errors import CudaError
from seamline_cuda.gate import GATE, Gate

__all__ = ["CudaVirtualMemory"]


def _nothing(_: str) -> None:
    """Observe nothing."""


def _forget(_: int) -> None:
    """Leave it to the driver: what was released goes with its last mapping."""


@attrs.define(eq=False)
class CudaVirtualMemory:
    """
    Implements :class:`~seamline.devices.VirtualMemory` by the driver.

    Attributes
    ----------
    gpu
        The open device; it outlives this.
    limit
        Most bytes that may be owned; None for what the device has.
    before
        Told each verb (``access`` among them, the second half of ``map``) before it does
        anything; what it raises ends the call.
    """

    gpu: Gpu
    limit: int | None = None
    before: Callable[[str], object] = _nothing
    gate: Gate = GATE
    _lock: threading.RLock = attrs.field(factory=threading.RLock, init=False)
    _book: MappingBook = attrs.field(factory=lambda: MappingBook(_forget), init=False)
    _granule: int = attrs.field(default=0, init=False)
    _kind: Any = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._kind = _kind_of_memory(self.gpu.device.index)
        flag = enumeration(
            "CUmemAllocationGranularity_flags", "CU_MEM_ALLOC_GRANULARITY_RECOMMENDED"
        )
        with self.gpu.here():
            given = call("cuMemGetAllocationGranularity", self._kind, flag)
        self._granule = int(given)

    @property
    def device(self) -> Device:
        """Say which device."""
        return self.gpu.device

    @property
    def granularity(self) -> int:
        """Give the bytes of one granule, as the driver reports it."""
        return self._granule

    def gauges(self) -> Gauges:
        """Give bytes mapped and owned; what of it is live is its user's to say."""
        return Gauges(0, self._book.mapped, self._book.owned)

    # -- the driver's verbs --------------------------------------------------------------

    def reserve(self, nbytes: int) -> int:
        """Reserve addresses without pages; give the first one."""
        with self._verb("reserve"), self._lock:
            self._whole("reserve", nbytes)
            given = self._ask("reserve", nbytes, "cuMemAddressReserve", nbytes, 0, 0, 0)
            self._book.reserved[int(given)] = nbytes
            return int(given)

    def create(self, nbytes: int) -> int:
        """Create physical pages, their contents undefined; give their handle."""
        with self._verb("create"), self._lock:
            self._whole("create", nbytes)
            owned = self._book.owned
            if self.limit is not None and owned + nbytes > self.limit:
                left = self.limit - owned
                why = f"the limit of {self.limit} bytes leaves {left}"
                raise self._error("create", nbytes, why)
            handle = self._ask("create", nbytes, "cuMemCreate", nbytes, self._kind, 0)
            return self._book.add_pages(int(handle), nbytes)

    def map(self, address: int, handle: int) -> None:
        """Put pages at reserved addresses that hold none, to be read and written."""
        with self._verb("map"), self._lock:
            pages = self._pages("map", handle)
            nbytes, end = pages.nbytes, address + pages.nbytes
            if address % self._granule or not self._book.inside(address, end):
                raise self._error("map", nbytes, "it is not within a reservation")
            if self._book.overlapping(address, end):
                raise self._error("map", nbytes, "something is mapped there")
            self._ask("map", nbytes, "cuMemMap", address, nbytes, 0, pages.token, 0)
            try:
                self.before("access")
                access = self._access()
                self._ask("map", nbytes, "cuMemSetAccess", address, nbytes, [access], 1)
            except BaseException:
                call("cuMemUnmap", address, nbytes)
                raise
            self._book.add_mapping(address, pages)

    def unmap(self, address: int, nbytes: int) -> None:
        """Take whole mappings away, once nothing in flight can read them."""
        self.gate.legal("unmaps, which waits for work in flight")
        with self._verb("unmap"):
            # Outside the lock: work in flight may need a memory call to end.
            self.gpu.drain()
            self.gpu.usable()
            with self._lock:
                found = self._book.overlapping(address, address + nbytes)
                if not self._book.exactly(found, address, nbytes):
                    why = "it is not exactly what was mapped there"
                    raise self._error("unmap", nbytes, why)
                for start in found:
                    part = self._book.maps[start].nbytes
                    self._ask("unmap", part, "cuMemUnmap", start, part)
                    self._book.remove_mapping(start)

    def release(self, handle: int) -> None:
        """Give pages back; they go when their last mapping does."""
        with self._verb("release"), self._lock:
            pages = self._pages("release", handle)
            self._ask("release", pages.nbytes, "cuMemRelease", pages.token)
            self._book.release(handle)

    def free(self, address: int, nbytes: int) -> None:
        """Give a whole reservation back; nothing may be mapped in it."""
        with self._verb("free"), self._lock:
            if self._book.reserved.get(address) != nbytes:
                raise self._error("free", nbytes, f"{address:#x} was not reserved so")
            if self._book.overlapping(address, address + nbytes):
                raise self._error("free", nbytes, "something is still mapped there")
            self._ask("free", nbytes, "cuMemAddressFree", address, nbytes)
            del self._book.reserved[address]

    def close(self) -> None:
        """Give everything back; a second call does nothing."""
        book = self._book
        with self.gate.memory_call("closing memory"), self._lock, self.gpu.here():
            if book.maps:
                self.gpu.drain()
            for start in list(book.maps):
                call("cuMemUnmap", start, book.maps[start].nbytes)
                book.remove_mapping(start)
            for handle, pages in list(book.pages.items()):
                call("cuMemRelease", pages.token)
                book.release(handle)
            while book.reserved:
                call("cuMemAddressFree", *book.reserved.popitem())

    # -- behind them ---------------------------------------------------------------------

    @contextlib.contextmanager
    def _verb(self, verb: str) -> Iterator[None]:
        """Hold what holds around every verb: the observer, the gate, the device."""
        self.before(verb)
        with self.gate.memory_call(f"{verb} on {self.device}"), self.gpu.here():
            yield

    def _access(self) -> Any:
        access = constant("CUmemAccessDesc")()
        access.location = self._kind.location
        access.flags = enumeration(
            "CUmemAccess_flags", "CU_MEM_ACCESS_FLAGS_PROT_READWRITE"
        )
        return access

    def _ask(self, verb: str, nbytes: int, name: str, *given: Any) -> Any:
        try:
            return call(name, *given)
        except CudaError as error:
            self.gpu.noticed(error)
            raise self._error(verb, nbytes, str(error)) from error

    def _error(self, verb: str, nbytes: int, why: str) -> VirtualMemoryError:
        try:
            free = self.gpu.free_bytes()
        except CudaError:  # a lost device does not say
            free = None
        return VirtualMemoryError(self.device, verb, nbytes, why, self.gauges(), free)

    def _pages(self, verb: str, handle: int) -> Pages:
        found = self._book.pages.get(handle)
        if found is None:
            raise self._error(verb, 0, f"there are no pages {handle}")
        return found

    def _whole(self, verb: str, nbytes: int) -> None:
        if nbytes <= 0 or nbytes % self._granule:
            raise self._error(verb, nbytes, f"no multiple of {self._granule} bytes")


def _kind_of_memory(index: int) -> Any:
    kind = constant("CUmemAllocationProp")()
    kind.type = enumeration("CUmemAllocationType", "CU_MEM_ALLOCATION_TYPE_PINNED")
    location = enumeration("CUmemLocationType", "CU_MEM_LOCATION_TYPE_DEVICE")
    kind.location.type = location
    kind.location.id = index
    return kind
