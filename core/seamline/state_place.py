"""One state's fixed place: its buffer on a device, what of it has pages, what is live."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from seamline.devices import Array, Buffer, Device, Growing, Memory, View
from seamline.errors import FeedError
from seamline.geometry import Mask
from seamline.states import Settled
from seamline.tensors import TensorType, dtype_name, numpy_dtype

__all__ = ["Place", "fitting"]

_EMPTY = np.zeros(0, np.uint8)

_AT_ONCE = 1 << 24  #: bytes of zeros that are written in one piece


@attrs.define(eq=False)
class Place:
    """
    Where a state lies for the session's life.

    Attributes
    ----------
    buffer
        Reserved addresses; or, where the memory cannot reserve, bytes for the whole room.
    lengths
        Live entries of each sequence.
    whole
        Why all of it has pages; empty where only what is reached needs them.
    """

    settled: Settled
    device: Device
    memory: Memory
    buffer: Growing | Buffer
    lengths: np.ndarray[Any, np.dtype[np.int64]] = attrs.field(init=False)
    whole: str = ""
    _views: dict[TensorType, View] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.lengths = np.zeros(self.settled.geometry.sequences, np.int64)
        if self.growing is None:
            self.whole = f"the memory of {self.device} has no buffers that grow"

    @property
    def growing(self) -> Growing | None:
        """Give the buffer, if it grows."""
        return self.buffer if hasattr(self.buffer, "commit") else None  # type: ignore[return-value]

    @property
    def name(self) -> str:
        """Give the state's input."""
        return self.settled.state.input

    def view(self, kind: TensorType) -> View:
        """Show the whole room; always the same view of it."""
        found = self._views.get(kind)
        if found is None:
            found = self._views[kind] = self.memory.view(self.buffer, 0, kind)
        return found

    # -- pages ---------------------------------------------------------------------------

    def mask(self, lengths: Array) -> Mask | None:
        """Say which granules a run needs that reaches so far; None where all are there."""
        growing = self.growing
        if growing is None:
            return None
        if self.whole:
            return np.ones(growing.granules, np.bool_)
        return self.settled.geometry.mask(lengths, growing.granule)

    def zero(self, parts: tuple[tuple[int, int], ...]) -> None:
        """Write zeros: what reads a whole room reads what no run has written."""
        for first, end in parts:
            for at in range(first, end, _AT_ONCE):
                self.put(at, np.zeros(min(_AT_ONCE, end - at), np.uint8))

    def need_all(self, why: str) -> None:
        """Have pages for the whole room from the next growth on."""
        self.whole = why
        self._clean()

    def shrink(self, length: int) -> None:
        """Give back what lies past this length, once nothing reads it."""
        self.lengths = np.minimum(self.lengths, length)
        growing, geometry = self.growing, self.settled.geometry
        if growing is not None:
            growing.keep(geometry.mask(self.lengths, growing.granule))
            growing.count(geometry.live(self.lengths))
        if self.whole:
            self._clean()

    def _clean(self) -> None:
        """Zero what is not live, where there are pages."""
        live = self.read()
        self.zero(self._parts())
        self.write(live)

    def facts(self) -> dict[str, Any]:
        """Say where it lies and what it holds; see :meth:`seamline.state_store.States.facts`."""
        growing, geometry = self.growing, self.settled.geometry
        live = geometry.live(self.lengths)
        granule = committed = None
        if growing is not None:
            growing.count(live)
            granule, committed = growing.granule, growing.committed
        return {
            "place": f"{self.device} at {self.buffer.address:#x}",
            "lengths": self.lengths.tolist(),
            "live_nbytes": live,
            "committed_nbytes": geometry.nbytes if committed is None else committed,
            "granule": granule,
            "granules": None if granule is None else (committed or 0) // granule,
            "crossover": None if granule is None else geometry.crossover(granule),
            "whole": self.whole,
        }

    # -- bytes ---------------------------------------------------------------------------

    def saved(self) -> Array:
        """Give all bytes that have pages, one part after the other."""
        return np.concatenate(
            [self.get(a, b - a) for a, b in self._parts()] or [_EMPTY]
        )

    def restore(self, saved: Array) -> None:
        """Put back what :meth:`saved` gave, with the same pages there."""
        at = 0
        for first, end in self._parts():
            self.put(first, saved[at : at + end - first])
            at += end - first

    def spread(self, saved: Array) -> Array:
        """Give the whole room with saved bytes where they were, and zeros elsewhere."""
        kind = self.settled.kind
        room = np.zeros(kind.sizes, numpy_dtype(kind.dtype))
        raw, at = room.reshape(-1).view(np.uint8), 0
        for first, end in self._parts():
            raw[first:end] = saved[at : at + end - first]
            at += end - first
        return room

    @staticmethod
    def empty(settled: Settled) -> Array:
        """Give the live part of a state that no run has written."""
        sizes = list(settled.kind.sizes)
        if settled.state.axis is not None:
            sizes[settled.geometry.axis] = 0
        return np.zeros(sizes, numpy_dtype(settled.kind.dtype))

    def read(self) -> Array:
        """
        Copy the live part.

        Returns
        -------
        Array
            As long as the longest sequence; zeros past the end of a shorter one.
        """
        found, windows = self._windows(int(self.lengths.max(initial=0)))
        for window, first, nbytes in self._spans():
            windows[window, :nbytes] = self.get(first, nbytes)
        return found

    def write(self, array: Array) -> None:
        """Put a first part in, as long as the array; its pages are there."""
        geometry, given = self.settled.geometry, np.ascontiguousarray(array)
        raw = given.reshape(geometry.windows, -1).view(np.uint8)
        for window, first, nbytes in self._spans():
            self.put(first, raw[window, :nbytes])

    def _windows(self, length: int) -> tuple[Array, Array]:
        geometry, kind = self.settled.geometry, self.settled.kind
        sizes = list(kind.sizes)
        if sizes:
            sizes[geometry.axis] = length
        found = np.zeros(sizes, numpy_dtype(kind.dtype))
        shape = geometry.windows, length * geometry.entry_nbytes
        return found, found.reshape(-1).view(np.uint8).reshape(shape)

    def _spans(self) -> Iterator[tuple[int, int, int]]:
        """Give each window's number, first byte and live bytes."""
        geometry = self.settled.geometry
        stride = geometry.room * geometry.entry_nbytes
        ends = geometry.counts(self.lengths) * geometry.entry_nbytes
        for window, nbytes in zip(itertools.count(), ends.tolist(), strict=False):
            if nbytes:
                yield window, window * stride, nbytes

    def get(self, first: int, nbytes: int) -> Array:
        """Read bytes that have pages."""
        target = np.empty(nbytes, np.uint8)
        self.memory.read(self._bytes(first, nbytes), target)
        return target

    def put(self, first: int, source: Array) -> None:
        """Write bytes that have pages."""
        self.memory.write(self._bytes(first, len(source)), source)

    def _bytes(self, first: int, nbytes: int) -> View:
        return self.memory.view(self.buffer, first, TensorType("uint8", (nbytes,)))

    def _parts(self) -> tuple[tuple[int, int], ...]:
        growing = self.growing
        if growing is None:
            return ((0, self.settled.geometry.nbytes),)
        return growing.committed_parts()


def fitting(settled: Settled, array: Array) -> int:
    """
    Give the length of an array that is to be a state's first part.

    Raises
    ------
    FeedError
        It does not fit.
    """
    geometry, kind = settled.geometry, settled.kind
    sizes, want = list(array.shape), list(kind.sizes)
    axis, length = settled.state.axis, geometry.room
    if axis is not None and len(sizes) == len(want):
        length = want[geometry.axis] = sizes[geometry.axis]
    if sizes != want or length > geometry.room or dtype_name(array.dtype) != kind.dtype:
        upto = "" if axis is None else f", or less along axis {axis}"
        given = f"{array.dtype}{sizes}"
        raise FeedError(f"state {settled.state.input!r} is {kind}{upto}, not {given}")
    return length
