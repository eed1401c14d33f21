"""
The ``cuda`` of a kernel's text: positions, shared and local memory, what lanes do together.

One object serves all threads of a launch. Whoever runs them sets where the next one is
before it goes on. What threads do together is handed to :attr:`Names.together`, which
gives the thread's part of the result once all have come.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

from tests.cuda.emulation.pointers import Checked
from tests.cuda.emulation.sharing import Shared

#: Names whose use makes a kernel run in lock-step.
COLLECTIVE = {
    "syncthreads", "syncwarp", "shfl_sync", "shfl_up_sync", "shfl_down_sync",
    "shfl_xor_sync", "ballot_sync", "any_sync", "all_sync", "activemask", "shared",
    "syncthreads_count", "syncthreads_and", "syncthreads_or",
}  # fmt: skip
WARP = 32


class Place:
    """A position, as ``cuda.threadIdx`` gives it."""

    __slots__ = ("x", "y", "z")

    def __init__(self, x=0, y=0, z=0):
        self.x, self.y, self.z = x, y, z


class Names:
    """What ``cuda`` stands for in one launch."""

    warpsize = WARP

    def __init__(self, grid, block, kernel="kernel"):
        self.kernel = kernel
        self.gridDim, self.blockDim = Place(*grid), Place(*block)
        self.blockIdx, self.threadIdx = Place(), Place()
        self.rank = 0  # of the thread in its block
        self.together = None
        self.block_epoch, self.warp_epochs = 0, [0] * WARP
        self.shared_memory = {}
        self.shared = SimpleNamespace(array=self._shared)
        self.local = SimpleNamespace(array=self._local)
        self.atomic = Atomic()

    @property
    def laneid(self):
        return self.rank % WARP

    def grid(self, rank):
        given = [
            getattr(self.blockIdx, a) * getattr(self.blockDim, a) + getattr(self.threadIdx, a)
            for a in "xyz"[:rank]
        ]  # fmt: skip
        return given[0] if rank == 1 else tuple(given)

    def gridsize(self, rank):
        given = [
            getattr(self.gridDim, a) * getattr(self.blockDim, a) for a in "xyz"[:rank]
        ]
        return given[0] if rank == 1 else tuple(given)

    def _shared(self, shape, dtype, alignment=None):
        line = sys._getframe(1).f_lineno
        if line not in self.shared_memory:
            where = f"{self.kernel}, shared memory of line {line}"
            self.shared_memory[line] = Shared(shape, dtype, where, self)
        return self.shared_memory[line]

    def _local(self, shape, dtype):
        line = sys._getframe(1).f_lineno
        return Checked(shape, dtype, f"{self.kernel}, local memory of line {line}")

    def _all(self, what, mask=None, value=None, more=0):
        if self.together is None:
            raise RuntimeError(f"{what} in a kernel that was not run in lock-step")
        return self.together(what, sys._getframe(2).f_lineno, mask, value, more)

    def syncthreads(self):
        self._all("syncthreads")

    def syncthreads_count(self, predicate):
        return self._all("syncthreads_count", None, bool(predicate))

    def syncthreads_and(self, predicate):
        return self._all("syncthreads_and", None, bool(predicate))

    def syncthreads_or(self, predicate):
        return self._all("syncthreads_or", None, bool(predicate))

    def syncwarp(self, mask=0xFFFFFFFF):
        self._all("syncwarp", mask)

    def shfl_sync(self, mask, value, lane):
        return self._all("shfl_sync", mask, value, int(lane))

    def shfl_xor_sync(self, mask, value, lanes):
        return self._all("shfl_xor_sync", mask, value, int(lanes))

    def shfl_down_sync(self, mask, value, delta):
        return self._all("shfl_down_sync", mask, value, int(delta))

    def shfl_up_sync(self, mask, value, delta):
        return self._all("shfl_up_sync", mask, value, int(delta))

    def ballot_sync(self, mask, predicate):
        return self._all("ballot_sync", mask, bool(predicate))

    def any_sync(self, mask, predicate):
        return self._all("any_sync", mask, bool(predicate))

    def all_sync(self, mask, predicate):
        return self._all("all_sync", mask, bool(predicate))

    def threadfence(self):
        """Order writes; one thread at a time runs here, so they are in order."""

    threadfence_block = threadfence_system = threadfence


class Atomic:
    """``cuda.atomic``: each gives what was there before."""

    @staticmethod
    def _changed(array, index, new):
        if isinstance(array, Shared):
            return array.changed(index, new)
        old = array[index]
        array[index] = new(old)
        return old

    def add(self, array, index, value):
        return self._changed(array, index, lambda old: old + value)

    def sub(self, array, index, value):
        return self._changed(array, index, lambda old: old - value)

    def max(self, array, index, value):
        return self._changed(array, index, lambda old: max(old, value))

    def min(self, array, index, value):
        return self._changed(array, index, lambda old: min(old, value))

    def exch(self, array, index, value):
        return self._changed(array, index, lambda old: value)

    def and_(self, array, index, value):
        return self._changed(array, index, lambda old: old & value)

    def or_(self, array, index, value):
        return self._changed(array, index, lambda old: old | value)

    def cas(self, array, index, expected, value):
        return self._changed(
            array, index, lambda old: value if old == expected else old
        )
