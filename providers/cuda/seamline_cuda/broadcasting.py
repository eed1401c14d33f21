"""
Where an operand's element lies for each element of a result: the fewest dimensions that say it.

>>> Layout.of((2, 3, 4), [(2, 3, 4), (), (4,)])
Layout(sizes=(6, 4), strides=((4, 1), (0, 0), (0, 1)))
>>> Layout.of((2, 3, 4), [(2, 3, 4), (1,)]).sizes
(24,)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

__all__ = ["Layout"]


@attrs.frozen
class Layout:
    """
    A loop over a result, and each operand's steps through it.

    Attributes
    ----------
    sizes
        The loop's sizes, the last one the innermost.
    strides
        For each operand, elements from one position of each loop to the next; 0 where it
        is repeated.
    """

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, shape: Sequence[int], operands: Sequence[Sequence[int]]) -> Layout:
        """
        Join dimensions that all operands step through alike.

        Parameters
        ----------
        shape
            The result's sizes.
        operands
            Sizes of each operand, which broadcast to the result's by ONNX's rules.
        """
        return cls.joined(shape, [_strides(one, len(shape)) for one in operands])

    @classmethod
    def joined(cls, shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Layout:
        """
        Join dimensions, from the steps of each operand along each.

        >>> Layout.joined((2, 3, 4), [(12, 4, 1), (-12, 4, 1)])
        Layout(sizes=(2, 12), strides=((12, 1), (-12, 1)))
        """
        kept: list[tuple[int, list[int]]] = []
        for axis, size in enumerate(shape):
            steps = [stride[axis] for stride in strides]
            if size == 1:
                continue
            if kept and kept[-1][1] == [step * size for step in steps]:
                kept[-1] = (kept[-1][0] * size, steps)
            else:
                kept.append((size, steps))
        columns = [steps for _, steps in kept]
        return cls(
            tuple(size for size, _ in kept),
            tuple(tuple(c[i] for c in columns) for i in range(len(strides))),
        )

    @property
    def count(self) -> int:
        """Give the elements of the result."""
        return math.prod(self.sizes)

    def form(self, operand: int) -> str:
        """Say how an operand is stepped through: ``flat``, ``single`` or ``strided``."""
        steps = self.strides[operand]
        if not any(steps):
            return "single"
        return "flat" if steps == _strides(self.sizes, len(self.sizes)) else "strided"


def _strides(sizes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Give C-contiguous steps, 0 for sizes of 1 and for dimensions that are not there."""
    steps, step = [0] * rank, 1
    for axis in range(1, len(sizes) + 1):
        size = sizes[-axis]
        if size != 1:
            steps[-axis] = step
        step *= size
    return tuple(steps)
