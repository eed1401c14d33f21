"""
Values between canaries, in the memory of the provider under test.

Each value lies in a buffer of its own with a band of known bytes on either side. What is
written past a value's end is seen there, and what was never written still holds the
poison that it was given.
"""

from __future__ import annotations

import attrs
import numpy as np

from seamline.memory import HostMemory
from seamline.provider import Array, Buffer, Memory, Provider, View
from seamline.tensors import TensorType, nbytes_of, numpy_dtype

__all__ = ["POISONS", "Guarded", "memory_of", "same_bits"]

_BAND = 256  #: bytes on either side; keeps the alignment that a buffer starts with
_CANARY = 0xC9
#: NaN for floats and -1 for integers; then a byte that is neither, so that a value
#: which happens to equal one poison is told from one that was never written.
POISONS = (0xFF, 0x5A)


def memory_of(provider: Provider) -> Memory:
    """Give the memory that the provider's values live in."""
    return provider.memory() or HostMemory()


def same_bits(one: Array, other: Array) -> bool:
    """Tell whether two arrays agree in type, shape and every bit; strings by value."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.hasobject:
        return bool(np.array_equal(one, other))
    return one.tobytes() == other.tobytes()


@attrs.define(eq=False)
class Guarded:
    """One value in a buffer of its own, between two bands of canaries."""

    memory: Memory
    kind: TensorType
    buffer: Buffer
    view: View

    @classmethod
    def open(cls, memory: Memory, kind: TensorType) -> Guarded:
        """Allocate a value and lay its canaries."""
        buffer = memory.allocate(nbytes_of(kind) + 2 * _BAND)
        try:
            made = cls(memory, kind, buffer, memory.view(buffer, _BAND, kind))
            made.fill(_CANARY)
        except BaseException:
            buffer.close()
            raise
        return made

    @property
    def _nbytes(self) -> int:
        return nbytes_of(self.kind)

    def _bytes(self) -> tuple[View, Array]:
        kind = TensorType("uint8", (self._nbytes + 2 * _BAND,))
        return self.memory.view(self.buffer, 0, kind), np.empty(kind.sizes, np.uint8)

    def fill(self, byte: int) -> None:
        """Fill the value with one byte, strings with a word; lays the canaries anew."""
        if self.kind.dtype == "string":
            self.view[...] = f"poison {byte}"
            return
        view, raw = self._bytes()
        raw[...] = _CANARY
        raw[_BAND : _BAND + self._nbytes] = byte
        self.memory.write(view, raw)

    def is_filled(self, byte: int) -> bool:
        """Tell whether every byte of the value still is the one it was filled with."""
        if self.kind.dtype == "string":
            return all(item == f"poison {byte}" for item in self.view.reshape(-1))
        view, raw = self._bytes()
        self.memory.read(view, raw)
        return bool((raw[_BAND : _BAND + self._nbytes] == byte).all())

    def write(self, value: Array) -> None:
        """Write the value from the host."""
        self.memory.write(self.view, value)

    def read(self) -> Array:
        """Read the value to the host."""
        target = np.empty(self.kind.sizes, numpy_dtype(self.kind.dtype))
        self.memory.read(self.view, target)
        return target

    def trampled(self) -> str:
        """Say which canary is gone, or nothing."""
        if self.kind.dtype == "string":
            return ""
        view, raw = self._bytes()
        self.memory.read(view, raw)
        before, after = raw[:_BAND], raw[_BAND + self._nbytes :]
        for where, band, first in (("before", before[::-1], 1), ("after", after, 1)):
            touched = np.flatnonzero(band != _CANARY)
            if touched.size:
                return (
                    f"{touched.size} bytes {where} it, the nearest at distance "
                    f"{int(touched[0]) + first}"
                )
        return ""

    def close(self) -> None:
        """Give the buffer back."""
        self.view = None
        self.buffer.close()
