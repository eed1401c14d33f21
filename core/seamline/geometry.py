"""
How a tensor that grows along one axis lies in granules: arithmetic, and no memory.

A tensor ``[outer.., axis, inner..]`` in C order is a number of *windows*, one for each
index of the outer axes. Each window has room for as many *entries* as the axis has, an
entry being the inner axes' bytes, and its first entries are live. What must have pages is
every granule with a live byte in it, so the layout decides what a short sequence costs:

================  ====================  =============================
layout            sizes, axis           windows of one sequence
================  ====================  =============================
head-major        ``[B, H, S, D]``, 2   ``H``: each has a granule
sequence-major    ``[B, S, H, D]``, 1   1
token-major       ``[S, ...]``, 0       1 for all sequences
================  ====================  =============================

The granule is asked of the device, never assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

__all__ = ["Geometry", "Mask", "runs_of"]

Mask = np.ndarray[Any, np.dtype[np.bool_]]  #: one truth value for each granule
_Counts = np.ndarray[Any, np.dtype[np.int64]]


@attrs.frozen
class Geometry:
    """
    A tensor that grows along an axis.

    Attributes
    ----------
    sizes
        Of the whole room.
    axis
        The one that grows, counted from the front.
    itemsize
        Bytes of an element.

    Examples
    --------
    >>> keys = Geometry((1, 8, 4096, 128), 2, 2)
    >>> keys.windows, keys.entry_nbytes
    (8, 256)
    >>> keys.committed(1, 2 << 20) >> 20, keys.committed(4096, 2 << 20) >> 20
    (8, 8)
    >>> keys.crossover(2 << 20)
    8192
    """

    sizes: tuple[int, ...]
    axis: int
    itemsize: int

    @property
    def room(self) -> int:
        """Give the entries that a window can hold."""
        return self.sizes[self.axis]

    @property
    def windows(self) -> int:
        """Give the number of windows."""
        return math.prod(self.sizes[: self.axis])

    @property
    def entry_nbytes(self) -> int:
        """Give the bytes of one entry of one window."""
        return math.prod(self.sizes[self.axis + 1 :]) * self.itemsize

    @property
    def nbytes(self) -> int:
        """Give the bytes of the whole room."""
        return math.prod(self.sizes) * self.itemsize

    @property
    def sequences(self) -> int:
        """Give how many lengths it can have: one for each index of the first axis."""
        return self.sizes[0] if self.axis else 1

    def counts(self, lengths: int | Sequence[int] | _Counts) -> _Counts:
        """
        Give the live entries of each window.

        Parameters
        ----------
        lengths
            One for each of :attr:`sequences`, or one for all.
        """
        given: _Counts = np.asarray(lengths, np.int64).reshape(-1)
        if len(given) != self.sequences:
            given = np.full(self.sequences, given.max(initial=0), np.int64)
        return np.repeat(given, self.windows // max(self.sequences, 1))

    def live(self, lengths: int | Sequence[int] | _Counts) -> int:
        """Give the bytes that are live."""
        return int(self.counts(lengths).sum()) * self.entry_nbytes

    def spans(
        self, lengths: int | Sequence[int] | _Counts
    ) -> tuple[tuple[int, int], ...]:
        """Give the first byte of each live part and the one after it, in order."""
        stride = self.room * self.entry_nbytes
        ends = self.counts(lengths) * self.entry_nbytes
        return tuple(
            (window * stride, window * stride + int(end))
            for window, end in enumerate(ends)
            if end
        )

    def mask(self, lengths: int | Sequence[int] | _Counts, granule: int) -> Mask:
        """Say for each granule of the room whether a live byte lies in it."""
        total = -(-self.nbytes // granule)
        ends = self.counts(lengths) * self.entry_nbytes
        starts = np.arange(self.windows, dtype=np.int64) * self.room * self.entry_nbytes
        starts, ends = starts[ends > 0], (starts + ends)[ends > 0]
        edges = np.zeros(total + 1, np.int64)
        np.add.at(edges, starts // granule, 1)
        np.add.at(edges, -(-ends // granule), -1)
        return np.cumsum(edges[:-1]) > 0

    def committed(self, lengths: int | Sequence[int] | _Counts, granule: int) -> int:
        """Give the bytes of the granules that hold a live byte."""
        return int(np.count_nonzero(self.mask(lengths, granule))) * granule

    def covered(self, length: int, granule: int) -> int:
        """
        Give the length up to which the same granules do, where every window is this long.

        Examples
        --------
        >>> Geometry((2, 100, 10), 1, 1).covered(3, 64)
        6
        """
        if not self.entry_nbytes or not self.windows:
            return self.room
        mask = self.mask(length, granule)
        best = self.room
        for window in range(self.windows):
            start = window * self.room * self.entry_nbytes
            at = (start + length * self.entry_nbytes - (1 if length else 0)) // granule
            while at < len(mask) and mask[at]:
                at += 1
            # Up to the next granule without pages, or the next window.
            best = min(best, max(at * granule - start, 0) // self.entry_nbytes)
        return max(best, length)

    def crossover(self, granule: int) -> int:
        """
        Give the length from which a window fills the granule that it holds anyway.

        Below it, room that is committed granule by granule holds more than a buffer that
        doubles would, and from there on less. It depends on the size of an entry alone:
        for a head-major layout of 128 float16 elements and 2 MiB, 8192.
        """
        return -(-granule // self.entry_nbytes) if self.entry_nbytes else 0


def runs_of(mask: Mask) -> tuple[tuple[int, int], ...]:
    """
    Give the runs of True: the first granule of each and the one after its last.

    Examples
    --------
    >>> runs_of(np.array([True, True, False, True]))
    ((0, 2), (3, 4))
    """
    padded = np.concatenate(([False], mask, [False]))
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    return tuple((int(a), int(b)) for a, b in edges.reshape(-1, 2))
