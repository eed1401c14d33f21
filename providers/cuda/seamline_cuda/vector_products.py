"""
A matrix times one vector: which kernels, over which parts of the device.

See :mod:`seamline_cuda.vector_texts` for what they do.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from seamline_cuda.vector_texts import (
    EVEN,
    LANES,
    THREADS,
    adding_kernel,
    columns_kernel,
    rows_kernel,
)
from seamline_cuda.works import KernelWork

__all__ = ["VectorProduct"]

_BLOCKS = 528  #: that fill a device of 132 multiprocessors four times
_LEAST_DEPTH = 64  #: rows of a part, below which cutting costs more than it hides


@attrs.frozen
class VectorProduct:
    """
    ``out = alpha * m @ x + beta * added``, of a matrix of ``size`` sums of ``depth`` each.

    Attributes
    ----------
    by_rows
        What is summed lies together in the matrix.
    """

    dtype: str
    size: int
    depth: int
    by_rows: bool

    @property
    def parts(self) -> int:
        """Give the parts that the depth is cut into."""
        if self.by_rows:
            return 1
        tiles = -(-self.size // self._across(wide=True))
        return max(1, min(-(-_BLOCKS // tiles), self.depth // _LEAST_DEPTH))

    @property
    def scratch_nbytes(self) -> int:
        """Give the bytes of the parts' sums."""
        return 4 * self.size * self.parts if self.parts > 1 else 0

    def _across(self, *, wide: bool) -> int:
        return LANES * EVEN // self._width if wide else 32

    @property
    def _width(self) -> int:
        return 4 if self.dtype == "float32" else 2

    def work(
        self, matrix: int, vector: int, out: int, scratch: int, *, alpha: float = 1.0,
        beta: float = 0.0, added: int = 0, added_step: int = 0, bias: int = 0,
        relu: bool = False,
    ) -> Sequence[KernelWork]:  # fmt: skip
        """
        Give the launches over addresses.

        Parameters
        ----------
        scratch
            Address of :attr:`scratch_nbytes`.
        added, added_step
            Address of what is added, and elements from one sum's to the next, 0 or 1.
        bias
            Address of what is added besides, one for each sum, or 0.
        relu
            What is below 0 becomes 0 at the end.
        """
        ending = (alpha, beta, added_step, int(bias != 0), int(relu))
        leading = self.depth if self.by_rows else self.size
        places = (matrix, vector) if self.by_rows else (matrix,)
        wide = not any(n % EVEN for n in (*places, leading * self._width))
        if self.by_rows:
            kernel = rows_kernel(self.dtype, wide=wide)
            numbers = (self.size, self.depth, leading)
            given = (matrix, vector, added, bias, out, *numbers, *ending)
            return [KernelWork(kernel, given, 32 * self.size, THREADS)]
        tiles, parts = -(-self.size // self._across(wide=wide)), self.parts
        part = -(-self.depth // parts)
        sizes = (self.size, self.depth, leading, tiles, part)
        cut = parts > 1
        kernel = columns_kernel(self.dtype, wide=wide, cut=cut)
        blocks = tiles * parts
        count = blocks * THREADS
        if not cut:
            whole = (matrix, vector, added, bias, out, *sizes, *ending)
            return [KernelWork(kernel, whole, count, THREADS, blocks)]
        ends = (scratch, added, bias, out, self.size, parts, *ending)
        return [
            KernelWork(kernel, (matrix, vector, scratch, *sizes), count, THREADS, blocks),
            KernelWork(adding_kernel(self.dtype), ends, self.size),
        ]  # fmt: skip
