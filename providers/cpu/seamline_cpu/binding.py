"""What kernels that move data share: axes, host values, copies and index checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from seamline.axes import axes_of, axis_of, integers, strides_of
from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline_cpu.commands import joined
from seamline_cpu.moving import bind_move

__all__ = [
    "axes_of",
    "axis_of",
    "copying",
    "filling",
    "from_host",
    "in_order",
    "integers",
    "nothing",
    "row_offsets",
    "same_bytes",
    "strides_of",
    "within",
]


def nothing() -> None:
    """Run nothing: the output is the input's memory already."""


def from_host(call: Call, indices: Sequence[int], make: Callable[..., Run]) -> Run:
    """
    Make a run from the values of host inputs: now if all are constant, else when known.

    ``make`` takes one array, or None, for each index. What it made is kept for as long
    as the values stay the same.
    """
    arrays = [call.input(index) for index in indices]
    known = [call.constant(index) for index in indices]
    if all(a is None or k is not None for a, k in zip(arrays, known, strict=True)):
        return make(*known)
    fed = [array for array in arrays if array is not None]
    last: list[bytes] = []
    run: Run = nothing

    def again() -> None:
        nonlocal last, run
        now = [array.tobytes() for array in fed]
        if now != last:
            run = make(*[None if a is None else a.copy() for a in arrays])
            last = now
        run()

    return again


def copying(
    source: Array, target: Array, threads: int = 1, *, apart: bool = False
) -> Run:
    """
    Copy a view to a place of the same shape, by a command where there is one.

    ``apart`` says that they do not overlap, though their outer bounds do.
    """
    if source.shape != target.shape:
        raise ValueError(
            f"gives {list(source.shape)}, the plan says {list(target.shape)}"
        )
    if not target.size:
        return nothing
    native = bind_move(source, target, threads, apart=apart)
    return native or partial(np.copyto, target, source)


def filling(value: Array, target: Array) -> Run:
    """Repeat an array, read at each run, to fill a place that it broadcasts to."""
    return copying(np.broadcast_to(value, target.shape), target)


def same_bytes(source: Array, target: Array) -> Run:
    """Give the input's bytes under the output's shape: nothing where they are there."""
    if _address(source) == _address(target):
        return nothing
    return copying(source.reshape(-1), target.reshape(-1))


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def in_order(runs: Sequence[Run]) -> Run:
    """Join runs into one."""
    runs = [run for run in runs if run is not nothing]
    if not runs:
        return nothing
    if len(runs) == 1:
        return runs[0]
    if (native := joined(runs)) is not None:
        return native
    steps = tuple(runs)

    def run() -> None:
        for step in steps:
            step()

    return run


def within(indices: Array, size: int, axis: int) -> Array:
    """
    Count indices from the front, as ``intp``.

    Raises
    ------
    IndexError
        An index lies outside ``[-size, size - 1]``; names it, the axis and the size.
    """
    found = indices.astype(np.intp, copy=False)
    if not found.size:
        return found
    low = found.min()
    if low < -size or found.max() >= size:
        wrong = found[(found < -size) | (found >= size)].flat[0]
        raise IndexError(
            f"index {wrong} is out of bounds for axis {axis} with size {size}"
        )
    return np.where(found < 0, found + size, found) if low < 0 else found


def row_offsets(indices: Array, sizes: Sequence[int], first_axis: int = 0) -> Array:
    """
    Turn index tuples, the last axis of ``indices``, into numbers of rows.

    ``sizes`` are those of the axes that the tuples index; the first of them is the data's
    axis ``first_axis``.
    """
    total: Any = np.zeros(indices.shape[:-1], np.intp)
    for column, size in enumerate(sizes):
        total = total * size + within(indices[..., column], size, first_axis + column)
    return np.asarray(total)
