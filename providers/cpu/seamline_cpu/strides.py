"""Loops over strided arrays: which axes are one to all operands."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["folded"]


def folded(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """
    Join the axes that all operands step through as one; axes of one element go.

    Parameters
    ----------
    strides
        For each operand its step along each axis, all in one unit.

    Examples
    --------
    >>> folded((2, 3, 4), [(12, 4, 1), (0, 4, 1)])
    ([2, 12], [[12, 1], [0, 1]])
    """
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(
            mine[-1] == size * given[axis]
            for mine, given in zip(steps, strides, strict=True)
        ):
            sizes[-1] *= size
            for mine, given in zip(steps, strides, strict=True):
                mine[-1] = given[axis]
        else:
            sizes.append(size)
            for mine, given in zip(steps, strides, strict=True):
                mine.append(given[axis])
    return sizes, steps
