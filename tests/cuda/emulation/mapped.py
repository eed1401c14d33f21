"""
A device's memory, in pages of the host.

Addresses of the device are the host's with a bit that no host address has, so that a host
that touches device memory by mistake ends as it would with a GPU, while the emulation gets
there by taking the bit away. Pinned memory of the host has one address for both.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import threading

import attrs
from tests.cuda.emulation.pointers import IllegalAccessError
from tests.cuda.emulation.results import require

from seamline import mapping_calls as calls

DEVICE = 1 << 48
GRANULE = 1 << 16  #: bytes; fewer than a GPU's 2 MiB, which nothing may count on
TOTAL = 150_754_820_096  #: bytes, of an H200
_GARBAGE_UPTO = 8 << 20  # bytes of pages that start as garbage; larger ones as zeros
_GARBAGE = 0xCB


@attrs.define(eq=False)
class Pages:
    nbytes: int
    file: int
    maps: int = 0
    released: bool = False


@attrs.define(eq=False)
class Mapping:
    nbytes: int
    pages: Pages
    accessible: bool = False


class Mapped:
    """What is reserved, created, mapped and pinned; the driver's rules for each verb."""

    def __init__(self):
        self.lock = threading.RLock()
        self.reserved = {}
        self.pages = {}
        self.maps = {}
        self.pinned = {}
        self.owned = 0
        self._next = 0x1000
        self._stretches = None

    # -- the driver's verbs --------------------------------------------------------------

    def reserve(self, nbytes):
        require(nbytes > 0 and nbytes % GRANULE == 0, "CUDA_ERROR_INVALID_VALUE")
        with self.lock:
            try:
                start = calls.map_nothing(nbytes + GRANULE)
            except OSError as error:
                require(False, "CUDA_ERROR_OUT_OF_MEMORY", str(error))
            address = -(-start // GRANULE) * GRANULE
            self.reserved[address | DEVICE] = (nbytes, start)
            return address | DEVICE

    def create(self, nbytes):
        require(nbytes > 0 and nbytes % GRANULE == 0, "CUDA_ERROR_INVALID_VALUE")
        with self.lock:
            require(self.owned + nbytes <= TOTAL, "CUDA_ERROR_OUT_OF_MEMORY")
            file = os.memfd_create("emulated")
            os.ftruncate(file, nbytes)
            if nbytes <= _GARBAGE_UPTO:
                os.pwrite(file, bytes([_GARBAGE]) * nbytes, 0)
            self._next += 1
            self.pages[self._next] = Pages(nbytes, file)
            self.owned += nbytes
            return self._next

    def map(self, address, nbytes, handle):
        with self.lock:
            pages = self._of(handle)
            inside = any(
                start <= address and address + nbytes <= start + size
                for start, (size, _) in self.reserved.items()
            )
            free = not self._over(address, nbytes)
            whole = nbytes == pages.nbytes and address % GRANULE == 0
            require(inside and free and whole, "CUDA_ERROR_INVALID_VALUE")
            calls.map_pages(address & ~DEVICE, nbytes, pages.file, visible=True)
            self.maps[address] = Mapping(nbytes, pages)
            pages.maps += 1
            self._stretches = None

    def allow(self, address, nbytes):
        with self.lock:
            found = self._over(address, nbytes)
            size = sum(self.maps[start].nbytes for start in found)
            require(found and size == nbytes, "CUDA_ERROR_INVALID_VALUE")
            for start in found:
                self.maps[start].accessible = True
            self._stretches = None

    def unmap(self, address, nbytes):
        with self.lock:
            found = self._over(address, nbytes)
            size = sum(self.maps[start].nbytes for start in found)
            require(found and size == nbytes, "CUDA_ERROR_INVALID_VALUE")
            calls.map_nothing(nbytes, address & ~DEVICE)
            for start in found:
                pages = self.maps.pop(start).pages
                pages.maps -= 1
                self._dropped(pages)
            self._stretches = None

    def release(self, handle):
        with self.lock:
            pages = self._of(handle)
            pages.released = True
            del self.pages[int(handle)]
            self._dropped(pages)

    def free(self, address, nbytes):
        with self.lock:
            size, start = self.reserved.get(address, (0, 0))
            empty = not self._over(address, nbytes)
            require(size == nbytes and empty, "CUDA_ERROR_INVALID_VALUE")
            calls.unmap(start, nbytes + GRANULE)
            del self.reserved[address]

    def pin(self, nbytes):
        require(nbytes > 0, "CUDA_ERROR_INVALID_VALUE")
        with self.lock:
            room = -(-nbytes // 4096) * 4096
            start = calls.map_nothing(room)
            calls.change_access(start, room, visible=True)
            ctypes.memset(start, _GARBAGE, min(room, _GARBAGE_UPTO))
            self.pinned[start] = (nbytes, room)
            self._stretches = None
            return start

    def unpin(self, address):
        with self.lock:
            ours = self.pinned.get(address, (0, 0))[1] > 0
            require(ours, "CUDA_ERROR_INVALID_VALUE")
            calls.unmap(address, self.pinned.pop(address)[1])
            self._stretches = None

    def register(self, address, nbytes):
        """Pin memory that is the host's own, and stays so."""
        require(nbytes > 0, "CUDA_ERROR_INVALID_VALUE")
        with self.lock:
            apart = all(
                address + nbytes <= start or start + size <= address
                for start, (size, _) in self.pinned.items()
            )
            require(apart, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED")
            self.pinned[address] = (nbytes, 0)
            self._stretches = None

    def unregister(self, address):
        with self.lock:
            ours = self.pinned.get(address, (0, 1))[1] == 0
            require(ours, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED")
            del self.pinned[address]
            self._stretches = None

    def close(self):
        """Give everything back, whoever held it."""
        with self.lock:
            for address, mapping in list(self.maps.items()):
                self.unmap(address, mapping.nbytes)
            for handle in list(self.pages):
                self.release(handle)
            for address, (nbytes, _) in list(self.reserved.items()):
                self.free(address, nbytes)
            for address, (_, room) in list(self.pinned.items()):
                (self.unpin if room else self.unregister)(address)

    # -- looking -------------------------------------------------------------------------

    def stretch(self, address):
        """Give first address, end, and the distance to the host's address."""
        with self.lock:
            if self._stretches is None:
                self._stretches = self._merged()
            at = bisect.bisect_right(self._stretches, (address, 1 << 64, 0)) - 1
            if at < 0 or address >= self._stretches[at][1]:
                return None
            return self._stretches[at]

    def host(self, address, nbytes, what):
        """Give the host's address of bytes of the device or of pinned memory."""
        found = self.stretch(address)
        if found is None or address + nbytes > found[1]:
            raise IllegalAccessError(
                f"{what}: {nbytes} bytes at {address:#x} are not mapped"
            )
        return address + found[2]

    def is_pinned(self, address):
        found = self.stretch(address)
        return found is not None and found[2] == 0

    def is_device(self, address):
        """Tell whether an address is of some reservation, mapped or not."""
        with self.lock:
            return any(s <= address < s + n for s, (n, _) in self.reserved.items())

    def left(self):
        """Count what was not given back."""
        counts = {
            "reservations": len(self.reserved), "pages": len(self.pages),
            "mappings": len(self.maps), "pinned": len(self.pinned),
        }  # fmt: skip
        return {name: count for name, count in counts.items() if count}

    def _merged(self):
        parts = [
            (s, s + m.nbytes, -DEVICE) for s, m in self.maps.items() if m.accessible
        ]
        merged = []
        for start, end, shift in sorted(parts):
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], end, shift)
            else:
                merged.append((start, end, shift))
        return sorted(merged + [(s, s + n, 0) for s, (n, _) in self.pinned.items()])

    def _of(self, handle):
        require(int(handle) in self.pages, "CUDA_ERROR_INVALID_VALUE", "no such pages")
        return self.pages[int(handle)]

    def _over(self, address, nbytes):
        end = address + nbytes
        return [s for s, m in self.maps.items() if s < end and address < s + m.nbytes]

    def _dropped(self, pages):
        if pages.released and not pages.maps:
            os.close(pages.file)
            self.owned -= pages.nbytes
