"""
Pointers of a kernel: every access is looked up in what is mapped.

A :class:`Pointer` holds the mapped stretch that its address lies in as one array, so that
an access inside it costs a comparison. One outside is looked up again, as a range that
grows may have its pages elsewhere, and is an :class:`IllegalAccessError` that names kernel,
argument and index where nothing is mapped.
"""

from __future__ import annotations

import ctypes
from operator import index as whole

import numpy as np


class IllegalAccessError(Exception):
    """A kernel touched what is not mapped; ``misaligned`` where only its address is odd."""

    misaligned = False


class Arrays:
    """Memory that is a few arrays and nothing else; each is a stretch of its own."""

    def __init__(self):
        self.kept = []

    def add(self, array):
        """Give an array's address; it stays alive with this."""
        raw = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        assert raw is array, "a kernel writes in place: hand it a contiguous array"
        self.kept.append(array)
        return array.ctypes.data

    def stretch(self, address):
        """Give first address, end, and the distance to the host's address."""
        for array in self.kept:
            start = array.ctypes.data
            if start <= address < start + array.nbytes:
                return start, start + array.nbytes, 0
        return None


class Pointer:
    """An address of elements; takes whole indices, from 0 or before it."""

    __slots__ = ("_at", "_count", "_memory", "_values", "address", "dtype", "where")

    def __init__(self, memory, address, dtype, where=""):
        self._memory, self.address = memory, int(address)
        self.dtype, self.where = np.dtype(dtype), where
        self._at = self._count = 0
        self._look(self.address)

    def __getitem__(self, index):
        at = self._at + whole(index)
        if not 0 <= at < self._count:
            at = self._found(index)
        return self._values[at]

    def __setitem__(self, index, value):
        at = self._at + whole(index)
        if not 0 <= at < self._count:
            at = self._found(index)
        try:
            self._values[at] = value
        except OverflowError:  # a plain int beyond the type: its low bits
            self._values[at] = np.asarray(value).astype(self.dtype)

    def viewed(self, dtype):
        """Give the same address as one of other elements."""
        return Pointer(self._memory, self.address, dtype, self.where)

    def moved(self, index):
        """Give the address of an element, as a pointer."""
        at = self.address + whole(index) * self.dtype.itemsize
        return Pointer(self._memory, at, self.dtype, self.where)

    def _found(self, index):
        address = self.address + whole(index) * self.dtype.itemsize
        if not self._look(address):
            raise IllegalAccessError(
                f"{self.where}[{whole(index)}]: {address:#x} is not mapped"
            )
        return self._at + whole(index)

    def _look(self, address):
        found = self._memory.stretch(address)
        size = self.dtype.itemsize
        if found is None or address + size > found[1]:
            return False
        start, end, shift = found
        if self.address % size:
            error = IllegalAccessError(
                f"{self.where}: {self.address:#x} is no multiple of {size}"
            )
            error.misaligned = True
            raise error
        first = start + -start % size
        self._count = (end - first) // size
        raw = (ctypes.c_uint8 * (self._count * size)).from_address(first + shift)
        self._values = np.frombuffer(raw, np.uint8).view(self.dtype)
        self._at = (self.address - first) // size
        return True


class Checked:
    """Shared or local memory of a kernel: indices are looked at, contents start as garbage."""

    __slots__ = ("_values", "where")

    def __init__(self, shape, dtype, where):
        raw = np.empty(shape, dtype_of(dtype))
        raw.reshape(-1).view(np.uint8)[...] = 0xA5
        if raw.dtype.kind == "f":
            raw[...] = np.nan
        self._values, self.where = raw, where

    @property
    def shape(self):
        return self._values.shape

    def __len__(self):
        return len(self._values)

    def __getitem__(self, index):
        return self._values[self._in(index)]

    def __setitem__(self, index, value):
        try:
            self._values[self._in(index)] = value
        except OverflowError:
            self._values[self._in(index)] = np.asarray(value).astype(self._values.dtype)

    def _in(self, index):
        place = (
            tuple(map(whole, index)) if isinstance(index, tuple) else (whole(index),)
        )
        shape = self._values.shape
        if len(place) != len(shape) or any(
            not 0 <= at < size for at, size in zip(place, shape, strict=True)
        ):
            raise IllegalAccessError(f"{self.where}: {place} is outside of {shape}")
        return place if len(place) > 1 else place[0]


def dtype_of(given):
    """Give NumPy's type for one of Numba's, or its own."""
    name = getattr(given, "name", None)
    return np.dtype(name if isinstance(name, str) else given)
