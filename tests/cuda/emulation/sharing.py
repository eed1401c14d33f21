"""
Shared memory of a block, and who touched it since when.

Threads run one after the other here, so a barrier that is missing would often not be seen.
Instead each element remembers who wrote it and who read it: touched by two threads, at
least once written, with no barrier between them, it is a :class:`RaceError`. A barrier of
the block orders all; between lanes of one warp, ``syncwarp`` does, and a shuffle does not,
as NVIDIA has it. Several threads may write one value.
"""

from __future__ import annotations

from tests.cuda.emulation.pointers import Checked


class RaceError(Exception):
    """Two threads touched one element, and nothing orders them."""


class Shared(Checked):
    """What ``cuda.shared.array`` gives to every thread of a block."""

    __slots__ = ("_names", "_read", "_written")

    def __init__(self, shape, dtype, where, names):
        super().__init__(shape, dtype, where)
        self._names, self._written, self._read = names, {}, {}

    def __getitem__(self, index):
        at = self._in(index)
        rank, now = self._now()
        self._ordered(at, self._written.get(at), rank, now, "written", "reads")
        readers = self._read.setdefault(at, {})
        other = readers.get(rank >> 5)
        several = other is not None and other[1:] == now and other[0] != rank
        readers[rank >> 5] = (-1 if several else rank, *now)
        return self._values[at]

    def __setitem__(self, index, value):
        at = self._in(index)
        rank, now = self._now()
        if self._values[at] != value:
            self._ordered(at, self._written.get(at), rank, now, "written", "writes")
        for warp, reader in self._read.pop(at, {}).items():
            self._ordered(at, reader, rank, now, "read", "writes", warp)
        self._written[at] = (rank, *now)
        super().__setitem__(index, value)

    def _now(self):
        names = self._names
        return names.rank, (names.block_epoch, names.warp_epochs[names.rank >> 5])

    def _ordered(self, at, last, rank, now, was, does, warp=None):
        """Refuse two threads between which no barrier lies."""
        if last is None or last[0] == rank or last[1] != now[0]:
            return
        same_warp = (last[0] >> 5 if warp is None else warp) == rank >> 5
        if same_warp and last[2] != now[1]:
            return
        other = f"thread {last[0]}" if last[0] >= 0 else "several threads"
        raise RaceError(
            f"{self.where}: element {at} was {was} by {other}, and thread {rank} {does} it with "
            "no barrier between"
        )
