"""Resampling of planes as commands: row by output row, in shares for threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np.numpy_support import carray

from seamline.provider import Array
from seamline_cpu.atomics import bytes_at, floats, ints, longs, shorts
from seamline_cpu.commands import Command, Native, bind, command
from seamline_cpu.jit import jit

__all__ = ["bind_blend", "bind_pick"]

_SOURCE, _TARGET, _PLANES, _H, _W, _Y, _X, _ROWS, _COLUMNS = range(9)
_DOUBLED = 9
_TAPS_Y, _TAPS_X, _ROW_WEIGHTS, _COLUMN_WEIGHTS, _SCRATCH = range(9, 14)


@jit
def _pick_planes(
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
def _blend_planes(
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


@jit
def _picked(a: Any, source: Any, target: Any, share: int, shares: int) -> None:
    _pick_planes(
        carray(source, (a[_PLANES], a[_H], a[_W])),
        carray(target, (a[_PLANES], a[_Y], a[_X])),
        carray(longs(a[_ROWS]), (a[_Y],)),
        carray(longs(a[_COLUMNS]), (a[_X],)),
        a[_DOUBLED] != 0,
        share,
        shares,
    )


@command
def _pick_1(a: Any, share: int, shares: int) -> None:
    _picked(a, bytes_at(a[_SOURCE]), bytes_at(a[_TARGET]), share, shares)


@command
def _pick_2(a: Any, share: int, shares: int) -> None:
    _picked(a, shorts(a[_SOURCE]), shorts(a[_TARGET]), share, shares)


@command
def _pick_4(a: Any, share: int, shares: int) -> None:
    _picked(a, ints(a[_SOURCE]), ints(a[_TARGET]), share, shares)


@command
def _pick_8(a: Any, share: int, shares: int) -> None:
    _picked(a, longs(a[_SOURCE]), longs(a[_TARGET]), share, shares)


#: By the bytes of an element.
_PICKS: dict[int, Command] = {1: _pick_1, 2: _pick_2, 4: _pick_4, 8: _pick_8}


@command
def _blend(a: Any, share: int, shares: int) -> None:
    _blend_planes(
        carray(floats(a[_SOURCE]), (a[_PLANES], a[_H], a[_W])),
        carray(floats(a[_TARGET]), (a[_PLANES], a[_Y], a[_X])),
        carray(longs(a[_ROWS]), (a[_TAPS_Y], a[_Y])),
        carray(floats(a[_ROW_WEIGHTS]), (a[_TAPS_Y], a[_Y])),
        carray(longs(a[_COLUMNS]), (a[_TAPS_X], a[_X])),
        carray(floats(a[_COLUMN_WEIGHTS]), (a[_TAPS_X], a[_X])),
        carray(floats(a[_SCRATCH]), (shares, a[_W])),
        share,
        shares,
    )


def bind_pick(
    source: Array, target: Array, rows: Array, columns: Array, threads: int
) -> Native:
    """
    Bind ``target[p, y, x] = source[p, rows[y], columns[x]]``.

    Parameters
    ----------
    source, target
        C-contiguous planes ``(P, H, W)`` and ``(P, Y, X)`` of one type of 1, 2, 4 or 8
        bytes.
    rows, columns
        Indices that lie inside, ``(Y,)`` and ``(X,)``.
    """
    rows, columns = (np.ascontiguousarray(x, np.int64) for x in (rows, columns))
    doubled = np.array_equal(columns, np.repeat(np.arange(source.shape[2]), 2))
    arguments = [source.ctypes.data, target.ctypes.data, *source.shape, *target.shape[1:],
                 rows.ctypes.data, columns.ctypes.data, int(doubled)]  # fmt: skip
    kept = (source, target, rows, columns)
    return bind(_PICKS[source.dtype.itemsize], arguments, threads, keep=kept)


def bind_blend(
    source: Array,
    target: Array,
    rows: tuple[Array, Array],
    columns: tuple[Array, Array],
    threads: int,
) -> Native:
    """
    Bind samples weighted down, then across.

    Parameters
    ----------
    source, target
        C-contiguous planes ``(P, H, W)`` and ``(P, Y, X)``, float32.
    rows, columns
        Indices, ``(taps, Y)`` and ``(taps, X)``, and the weights of each.
    """
    places = [np.ascontiguousarray(x, np.int64) for x in (rows[0], columns[0])]
    weights = [np.ascontiguousarray(x, np.float32) for x in (rows[1], columns[1])]
    scratch = np.empty((threads, source.shape[2]), np.float32)
    arguments = [
        source.ctypes.data, target.ctypes.data, *source.shape, *target.shape[1:],
        *[x.ctypes.data for x in places], *[len(x) for x in places],
        *[x.ctypes.data for x in weights], scratch.ctypes.data,
    ]  # fmt: skip
    kept = (source, target, places, weights, scratch)
    return bind(_blend, arguments, threads, keep=kept)
