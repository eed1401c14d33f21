"""
Arrays of the host that results are read into, used again once nobody has them.

The device copies by itself only to memory that the driver has pinned; anything else takes
the host's own copying on top, at a fifth of the link's rate, and first touches of new pages.
An array that a caller keeps must not be taken from it, nor may it die with the device. So
results lie in memory of the process's own, which is pinned where it stands: NumPy counts
who refers to it, what nobody refers to any more is given out again, and unpinning it leaves
it as it is.

To pin takes longer than one copy. A block is pinned when it is given out a second time: who
keeps every result never pays for it.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any

import attrs
import numpy as np

from seamline.provider import Array
from seamline_cuda.driver import call
from seamline_cuda.errors import CudaError

__all__ = ["ResultArrays"]

_LEAST = 1 << 17  #: bytes of a result whose copying takes longer than what surrounds it
_LIMIT = (
    256 << 20
)  #: bytes of all blocks; pinned memory is taken from the whole machine
_PAGE = mmap.PAGESIZE


@attrs.define(eq=False)
class _Block:
    """Whole pages; ``is_pinned`` once the driver knows of them."""

    raw: Array
    is_pinned: bool = False

    @classmethod
    def of(cls, nbytes: int) -> _Block:
        return cls(np.frombuffer(mmap.mmap(-1, nbytes), np.uint8))

    @property
    def references(self) -> int:
        return sys.getrefcount(self.raw)

    def pin(self) -> None:
        call("cuMemHostRegister", self.raw.ctypes.data, self.raw.nbytes, 0)
        self.is_pinned = True

    def unpin(self) -> None:
        if self.is_pinned:
            self.is_pinned = False
            call("cuMemHostUnregister", self.raw.ctypes.data)


#: What a block counts that nobody has: its own reference, and the count's.
_ALONE = _Block.of(_PAGE).references


@attrs.define(eq=False)
class ResultArrays:
    """
    Blocks that results are read into; whoever calls holds a lock and has the device.

    Attributes
    ----------
    limit
        Most bytes of all blocks; what is more is given as an array of its own.
    refused
        What the driver said where it did not pin a block; none is tried after that.
    """

    limit: int = _LIMIT
    refused: str = ""
    _blocks: list[_Block] = attrs.field(factory=list, init=False)

    @property
    def pinned_nbytes(self) -> int:
        """Give the bytes that the driver has pinned."""
        return sum(block.raw.nbytes for block in self._blocks if block.is_pinned)

    def array(self, sizes: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Give an array of undefined contents, pinned if its block was given out before."""
        nbytes = int(np.prod(sizes, dtype=np.int64)) * dtype.itemsize
        block = self._block(nbytes) if nbytes >= _LEAST and not self.refused else None
        if block is None:
            return np.empty(sizes, dtype)
        return block.raw[:nbytes].view(dtype).reshape(sizes)

    def holds(self, array: Array) -> bool:
        """Tell whether an array lies in a pinned block."""
        return any(b.is_pinned and array.base is b.raw for b in self._blocks)

    def close(self) -> None:
        """Unpin every block; arrays that were given out stay what they are."""
        while self._blocks:
            self._blocks.pop().unpin()

    def _block(self, nbytes: int) -> _Block | None:
        free = [block for block in self._blocks if block.references == _ALONE]
        fitting = [b for b in free if nbytes <= b.raw.nbytes <= 2 * nbytes + _PAGE]
        if fitting:
            found = min(fitting, key=lambda block: block.raw.nbytes)
            self._pinned(found)
            return found
        room = -(-nbytes // _PAGE) * _PAGE
        while free and self._nbytes() + room > self.limit:
            self._blocks.remove(free[0])
            free.pop(0).unpin()
        if self._nbytes() + room > self.limit:
            return None
        self._blocks.append(_Block.of(room))
        return self._blocks[-1]

    def _pinned(self, block: _Block) -> None:
        if not block.is_pinned:
            try:
                block.pin()
            except CudaError as error:  # a limit on locked memory, say: only slower
                self.refused = str(error)

    def _nbytes(self) -> int:
        return sum(block.raw.nbytes for block in self._blocks)
