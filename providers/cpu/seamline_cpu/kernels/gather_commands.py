"""Gather as a command: it checks each index as it reads it, and says so afterwards."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_cpu.atomics import ints, longs
from seamline_cpu.commands import Native, bind, checked, command
from seamline_cpu.moving import copy_bytes

__all__ = ["bind_gather"]

_SHARED_FROM = 1 << 20  #: bytes from which more threads pay
(_X, _INDICES, _OUT, _OUTER, _SIZE, _COUNT, _INNER, _WIDTH, _WRONG) = range(9)


@command
def _gather(a: Any, share: int, shares: int) -> None:
    """
    Copy the slices that the indices name, in shares of the output's slices.

    An index outside is kept for the check, with a mark before it, and read as 0: commands
    after this one must find something to work on.
    """
    size, count, inner, wrong = a[_SIZE], a[_COUNT], a[_INNER], longs(a[_WRONG])
    total = a[_OUTER] * count
    for at in range(total * share // shares, total * (share + 1) // shares):
        outer, i = at // count, at % count
        index = longs(a[_INDICES])[i] if a[_WIDTH] == 8 else ints(a[_INDICES])[i]
        place = index + size if index < 0 else index
        if place < 0 or place >= size:
            wrong[1] = index
            wrong[0] = 1
            place = 0
        if size > 0:
            source, target = (
                a[_X] + (outer * size + place) * inner,
                a[_OUT] + at * inner,
            )
            if inner == 4:
                ints(target)[0] = ints(source)[0]
            elif inner == 8:
                longs(target)[0] = longs(source)[0]
            else:
                copy_bytes(target, source, inner)


def bind_gather(
    x: Array, indices: Array, axis: int, out: Array, threads: int
) -> Native | None:
    """
    Bind slices of ``x`` along an axis; None where NumPy has to take them.

    Parameters
    ----------
    indices
        int32 or int64, read at each run. From ``-size`` to ``size - 1``.

    Returns
    -------
    Native or None
        Raises IndexError, once it has run, for an index outside; names it, the axis and
        its size.
    """
    arrays = (x, indices, out)
    if (
        x.dtype.hasobject
        or not out.size
        or indices.dtype.name not in ("int32", "int64")
    ):
        return None
    if not all(array.flags.c_contiguous for array in arrays):
        return None
    wrong = np.zeros(2, np.int64)
    size = x.shape[axis]
    arguments = [
        *[array.ctypes.data for array in arrays], math.prod(x.shape[:axis]), size,
        indices.size, math.prod(x.shape[axis + 1 :]) * x.itemsize, indices.itemsize,
        wrong.ctypes.data,
    ]  # fmt: skip
    shares = threads if out.nbytes >= _SHARED_FROM else 1

    def check() -> None:
        if wrong[0]:
            wrong[0] = 0
            raise IndexError(
                f"index {wrong[1]} is out of bounds for axis {axis} with size {size}"
            )

    return checked(bind(_gather, arguments, shares, keep=(*arrays, wrong)), check)
