"""Compiled resampling of planes, row by output row, in shares for threads."""

from __future__ import annotations

from typing import Any

from seamline_cpu.jit import jit

__all__ = ["blend_planes", "pick_planes"]


@jit
def pick_planes(
    source: Any,
    target: Any,
    rows: Any,
    columns: Any,
    doubled: bool,
    share: int,
    shares: int,
) -> None:
    """
    Take ``target[p, y, x] = source[p, rows[y], columns[x]]``.

    Parameters
    ----------
    source, target
        Planes ``(P, H, W)`` and ``(P, Y, X)`` of one type.
    rows, columns
        Indices that lie inside, ``(Y,)`` and ``(X,)``.
    doubled
        Whether ``columns`` are 0, 0, 1, 1, ... to the end of an even width.
    share, shares
        Which of how many equal ranges of output rows to do.
    """
    height, width = target.shape[1], target.shape[2]
    total = target.shape[0] * height
    first = total * share // shares
    last = total * (share + 1) // shares
    for job in range(first, last):
        plane, y = job // height, job % height
        line = target[plane, y]
        if job > first and y > 0 and rows[y] == rows[y - 1]:
            above = target[plane, y - 1]
            for x in range(width):
                line[x] = above[x]
        else:
            taken = source[plane, rows[y]]
            if doubled:  # a loop without look-ups, which vectorises
                for x in range(width // 2):
                    line[2 * x] = taken[x]
                    line[2 * x + 1] = taken[x]
            else:
                for x in range(width):
                    line[x] = taken[columns[x]]


@jit
def blend_planes(
    source: Any,
    target: Any,
    rows: Any,
    row_weights: Any,
    columns: Any,
    column_weights: Any,
    scratch: Any,
    share: int,
    shares: int,
) -> None:
    """
    Weight samples down, then across.

    Parameters
    ----------
    source, target
        Planes ``(P, H, W)`` and ``(P, Y, X)``, float32.
    rows, row_weights
        ``(taps, Y)``: intp and float32.
    columns, column_weights
        ``(taps, X)``: intp and float32.
    scratch
        ``(shares, W)`` float32.
    share, shares
        Which of how many equal ranges of output rows to do.
    """
    height, width = target.shape[1], target.shape[2]
    total = target.shape[0] * height
    blend = scratch[share]
    for job in range(total * share // shares, total * (share + 1) // shares):
        plane, y = job // height, job % height
        taken = source[plane, rows[0, y]]
        weight = row_weights[0, y]
        for x in range(blend.shape[0]):
            blend[x] = taken[x] * weight
        for k in range(1, rows.shape[0]):
            taken = source[plane, rows[k, y]]
            weight = row_weights[k, y]
            for x in range(blend.shape[0]):
                blend[x] += taken[x] * weight
        line = target[plane, y]
        for x in range(width):
            line[x] = blend[columns[0, x]] * column_weights[0, x]
        for k in range(1, columns.shape[0]):
            for x in range(width):
                line[x] += blend[columns[k, x]] * column_weights[k, x]
