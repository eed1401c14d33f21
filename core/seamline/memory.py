"""
The host's memory: aligned buffers whose gauges can be read.

Implements :class:`seamline.provider.Memory`. Every provider whose values live on the host
shares it, so a value passes between them without a copy.
"""

from __future__ import annotations

import threading
from typing import Any

import attrs
import numpy as np

from seamline.provider import HOST, Array, Buffer, Device, Gauges, View, VirtualMemory
from seamline.tensors import TensorType, nbytes_of, numpy_dtype

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

    @property
    def device(self) -> Device:
        """Say that it is the host."""
        return HOST

    @property
    def virtual(self) -> VirtualMemory | None:
        """Have no virtual memory of its own yet."""
        return None

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate bytes; their first contents are undefined."""
        raw = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        with self._lock:
            self._content += nbytes
        return HostBuffer(self, raw[start : start + nbytes], nbytes)

    def view(self, buffer: Buffer, offset: int, kind: TensorType) -> View:
        """Show bytes of a buffer as an array; strings get an object array of their own."""
        if kind.dtype == "string":
            return np.empty(kind.sizes, dtype=object)
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
        """Give the bytes of open buffers."""
        return Gauges(self._content, self._content, self._content)

    def closed(self, nbytes: int) -> None:
        """Count a buffer that was closed."""
        with self._lock:
            self._content -= nbytes
