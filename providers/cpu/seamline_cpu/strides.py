"""Loops over strided arrays: which axes are one to all operands, and who does which part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_cpu.jit import jit

__all__ = ["folded", "portion", "three_loops"]


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


def three_loops(
    out: Array, operands: Sequence[Array]
) -> tuple[list[int], list[list[int]]] | None:
    """
    Give three loops over an output that operands broadcast to, the last the innermost.

    Returns
    -------
    tuple or None
        Their sizes, and for each operand its steps in elements. None where more loops are
        left, an array is not C-contiguous, the innermost loop would step by more than one
        element, or an operand does not broadcast, of which NumPy says what is wrong.
    """
    arrays = (*operands, out)
    if not out.size or not all(x.flags.c_contiguous for x in arrays):
        return None
    if not all(_broadcasts(x.shape, out.shape) for x in operands):
        return None
    wide = [np.broadcast_to(x, out.shape) for x in arrays]
    steps = [[s // x.itemsize for s in x.strides] for x in wide]
    sizes, found = folded(out.shape, steps)
    missing = 3 - len(sizes)
    if missing < 0:
        return None
    if not sizes:
        return [1, 1, 1], [[0, 0, 1] for _ in operands]
    loops = [[0] * missing + one for one in found[:-1]]
    if any(one[-1] not in (0, 1) for one in loops):
        return None
    return [1] * missing + sizes, loops


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    last = to[len(to) - len(shape) :]
    return len(shape) <= len(to) and all(
        n in (1, size) for n, size in zip(shape, last, strict=True)
    )


@jit
def portion(lines: int, n: int, share: int, shares: int) -> Any:
    """
    Give a share of lines of n elements: first line, end, first element, end.

    Whole lines where there are enough, else a part of each, in runs of 64 elements, so
    that no two threads write to one cache line.
    """
    if lines >= 4 * shares:
        return lines * share // shares, lines * (share + 1) // shares, 0, n
    step = ((n + shares - 1) // shares + 63) // 64 * 64
    if shares == 1:
        step = n
    return 0, lines, min(n, share * step), min(n, (share + 1) * step)
