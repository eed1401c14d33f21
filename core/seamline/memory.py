"""
The host's memory: aligned buffers whose gauges can be read.

Implements :class:`seamline.provider.Memory`. Every provider whose values live on the host
shares it, so a value passes between them without a copy.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from seamline.growing import GrowingBuffer
from seamline.provider import (
    HOST,
    Array,
    Buffer,
    Device,
    Gauges,
    View,
    VirtualMemory,
    VirtualMemoryError,
)
from seamline.tensors import TensorType, nbytes_of, numpy_dtype

if TYPE_CHECKING:
    from seamline.host_virtual_memory import HostVirtualMemory

__all__ = ["ALIGNMENT", "HostBuffer", "HostMemory"]

ALIGNMENT = 64  #: bytes: a cache line, and the widest vector


@attrs.define(eq=False)
class HostBuffer:
    """Bytes of the host at a fixed, aligned address; implements ``Buffer``."""

    owner: HostMemory
    bytes: np.ndarray[Any, np.dtype[np.uint8]] | None
    nbytes: int

    @property
    def device(self) -> Device:
        """Say that it is the host."""
        return HOST

    @property
    def address(self) -> int:
        """Give the first byte's address."""
        if self.bytes is None:
            raise ValueError("the buffer is closed")
        return int(self.bytes.ctypes.data)

    def close(self) -> None:
        """Give the bytes back."""
        if self.bytes is not None:
            self.bytes = None
            self.owner.closed(self.nbytes)


class HostMemory:
    """
    The host as a device.

    Examples
    --------
    >>> memory = HostMemory()
    >>> buffer = memory.allocate(100)
    >>> buffer.address % ALIGNMENT, memory.gauges().content
    (0, 100)
    >>> buffer.close(); memory.gauges().content
    0
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._content = 0
        self._pages: _HostPages | None = None

    @property
    def device(self) -> Device:
        """Say that it is the host."""
        return HOST

    @property
    def virtual(self) -> VirtualMemory | None:
        """Give what growing buffers have their pages from; None where the system has none."""
        pages = self._growing()
        return None if pages is None else pages.virtual

    def _growing(self) -> _HostPages | None:
        if self._pages is None and hasattr(os, "memfd_create"):
            # Imported here: other systems have none of its calls.
            from seamline.host_virtual_memory import HostVirtualMemory

            self._pages = _HostPages(HostVirtualMemory())
        return self._pages

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate bytes; their first contents are undefined."""
        raw = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        with self._lock:
            self._content += nbytes
        return HostBuffer(self, raw[start : start + nbytes], nbytes)

    def reserve(self, nbytes: int) -> GrowingBuffer:
        """
        Reserve addresses without pages; what touches them ends the process.

        Raises
        ------
        VirtualMemoryError
            There are no more addresses, or the system has no such calls.
        """
        pages = self._growing()
        if pages is None:
            why = "this system has no anonymous files to hold pages"
            raise VirtualMemoryError(HOST, "reserve", nbytes, why, self.gauges())
        virtual, granule = pages.virtual, pages.granularity
        size = -(-max(nbytes, 1) // granule) * granule
        address = virtual.reserve(size)
        return GrowingBuffer(
            HOST, address, nbytes, pages, lambda: virtual.free(address, size)
        )

    def view(self, buffer: Buffer, offset: int, kind: TensorType) -> View:
        """Show bytes of a buffer as an array; strings get an object array of their own."""
        if kind.dtype == "string":
            return np.empty(kind.sizes, dtype=object)
        if isinstance(buffer, GrowingBuffer) and buffer.device == HOST:
            return _within(buffer, offset, kind)
        if not isinstance(buffer, HostBuffer) or buffer.bytes is None:
            raise ValueError("not an open buffer of the host")
        chunk = buffer.bytes[offset : offset + nbytes_of(kind)]
        return chunk.view(numpy_dtype(kind.dtype)).reshape(kind.sizes)

    def write(self, target: View, source: Array) -> None:
        """Copy an array into a view."""
        np.copyto(target, source)

    def read(self, source: View, target: Array) -> None:
        """Copy a view into an array."""
        np.copyto(target, source)

    def synchronize(self) -> None:
        """Return at once: the host's work is done when its call returns."""

    def gauges(self) -> Gauges:
        """Give the bytes of open buffers, and of pages of those that grow."""
        plain = self._content
        if self._pages is None:
            return Gauges(plain, plain, plain)
        held, live = self._pages.virtual.gauges(), self._pages.content
        return Gauges(plain + live, plain + held.mapped, plain + held.owned)

    def closed(self, nbytes: int) -> None:
        """Count a buffer that was closed."""
        with self._lock:
            self._content -= nbytes


@attrs.define(eq=False)
class _HostPages:
    """Pages of the host's virtual memory; implements ``seamline.growing.Pages``."""

    virtual: HostVirtualMemory
    content: int = 0

    @property
    def granularity(self) -> int:
        return self.virtual.granularity

    def take(self, nbytes: int) -> int:
        return self.virtual.create(nbytes)

    def give(self, handle: int, nbytes: int) -> None:
        self.virtual.release(handle)

    def map(self, address: int, handle: int) -> None:
        self.virtual.map(address, handle)

    def unmap(self, address: int, nbytes: int) -> None:
        self.virtual.unmap(address, nbytes)

    def counted(self, nbytes: int) -> None:
        self.content += nbytes


def _within(buffer: GrowingBuffer, offset: int, kind: TensorType) -> Array:
    """Give an array over addresses of a growing buffer, whose owner outlives it."""
    nbytes = nbytes_of(kind)
    if not buffer.is_open or not 0 <= offset <= buffer.nbytes - nbytes:
        room = buffer.nbytes
        raise ValueError(
            f"{kind} at {offset} is not within an open buffer of {room} bytes"
        )
    raw = (ctypes.c_uint8 * nbytes).from_address(buffer.address + offset)
    chunk: Array = np.ctypeslib.as_array(raw)
    return chunk.view(numpy_dtype(kind.dtype)).reshape(kind.sizes)
