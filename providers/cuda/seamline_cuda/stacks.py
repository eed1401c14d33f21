"""
How stacks of matrices meet in a product: batches, and which matrices each begins at.

>>> Stacks.of((4, 1), (3,))
Stacks(batch=4, a_step=1, b_step=0, starts=((0, 0, 0), (0, 1, 1), (0, 2, 2)), step=3)
>>> Stacks.of((), (2, 5))
Stacks(batch=10, a_step=0, b_step=1, starts=((0, 0, 0),), step=1)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import attrs

from seamline_cuda.broadcasting import Layout

__all__ = ["Stacks"]


@attrs.frozen
class Stacks:
    """
    Products of two stacks, as batches of one length.

    Attributes
    ----------
    batch
        Products of each batch.
    a_step, b_step, step
        Matrices from one product to the next: of the factors, and of the result.
    starts
        For each batch, the matrices that it begins at: of the factors, and of the result.
    """

    batch: int
    a_step: int
    b_step: int
    starts: tuple[tuple[int, int, int], ...]
    step: int

    @classmethod
    def of(cls, a: Sequence[int], b: Sequence[int]) -> Stacks:
        """
        Arrange stacks of these sizes, which broadcast to the result's by ONNX's rules.

        The longest run of the result becomes the batch, so that there are few of them.
        """
        rank = max(len(a), len(b))
        wide = [(1,) * (rank - len(sizes)) + tuple(sizes) for sizes in (a, b)]
        shape = [y if x == 1 else x for x, y in zip(*wide, strict=True)]
        layout = Layout.of(shape, wide)
        sizes = layout.sizes
        if not sizes:
            return cls(1, 0, 0, ((0, 0, 0),), 1)
        steps = [
            (*each, math.prod(sizes[axis + 1 :]))
            for axis, each in enumerate(zip(*layout.strides, strict=True))
        ]
        longest = sizes.index(max(sizes))
        others = [axis for axis in range(len(sizes)) if axis != longest]
        starts = []
        for place in itertools.product(*(range(sizes[axis]) for axis in others)):
            each = [
                [at * step for step in steps[axis]]
                for at, axis in zip(place, others, strict=True)
            ]
            first, second, third = (
                sum(column) for column in zip((0, 0, 0), *each, strict=True)
            )
            starts.append((first, second, third))
        a_step, b_step, step = steps[longest]
        return cls(sizes[longest], a_step, b_step, tuple(starts), step)
