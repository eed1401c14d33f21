"""Transpose: nothing to do, one copy in runs, or tiles that stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.np.numpy_support import carray

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import ANY
from seamline_cpu.atomics import bytes_at, ints, longs, shorts
from seamline_cpu.binding import axes_of, copying, same_bytes
from seamline_cpu.commands import Command, Native, bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.recorded import moved
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__ = ["merged"]

_TILED_ELEMENTS = 1 << 10  # below this all of it is in the nearest cache
_THREADED_ELEMENTS = 1 << 17


def _moves(node: NodeView) -> str | None:
    kind = node.tensor(0)
    if kind is None or kind.shape is None:
        return "its rank is not known"
    rank = len(kind.shape)
    order = node.attributes.get("perm", tuple(range(rank))[::-1])
    if sorted(order) != list(range(rank)):
        return "perm is not a permutation"
    long = [axis for axis in order if kind.shape[axis] != 1]
    return None if long == sorted(long) else "it moves data"


@TABLE.kernel(
    "Transpose",
    dtypes=ANY,
    when=_moves,
    views=((0, 0),),
    because="only axes of size 1 move",
    not_capturable=moved,
)
def transpose_units(call: Call) -> Run:
    """Move axes of size 1: the bytes stay as they are."""
    return same_bytes(call.inputs[0], call.outputs[0])


@TABLE.kernel("Transpose", dtypes=ANY, not_capturable=moved)
def transpose(call: Call) -> Run:
    """Copy with the axes in another order, the reverse one unless given."""
    x, out = call.inputs[0], call.outputs[0]
    order = axes_of(call.attr("perm", range(x.ndim)[::-1]), x.ndim)
    if len(order) != x.ndim:
        raise ValueError(f"perm {list(order)} is not for {x.ndim} dimensions")
    view = x.transpose(order)
    threads = threads_of(call.options)
    if view.shape != out.shape:
        return copying(view, out)
    sizes, places = merged(x.shape, order)
    if places == tuple(range(len(places))):
        return same_bytes(x, out)
    swaps = places in ((1, 0), (0, 2, 1))
    tiled = swaps and x.size >= _TILED_ELEMENTS and x.dtype != object
    if not tiled or x.dtype.itemsize not in _TURNS:
        return copying(view, out, threads)
    *planes, rows, columns = sizes
    return bind_turn(x, out, math.prod(planes), rows, columns, threads)


def merged(
    sizes: Sequence[int], order: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """
    Give the same move over fewer axes: neighbours that stay neighbours become one.

    Examples
    --------
    >>> merged((1, 128, 12, 64), (0, 2, 3, 1))
    ((128, 768), (1, 0))
    """
    groups: list[list[int]] = []
    for axis in (axis for axis in order if sizes[axis] != 1):
        before = groups[-1][-1] if groups else None
        between = [] if before is None else sizes[before + 1 : axis]
        if before is not None and before < axis and all(n == 1 for n in between):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    in_order = sorted(groups)
    shape = tuple([math.prod(sizes[axis] for axis in group) for group in in_order])
    return shape, tuple([in_order.index(group) for group in groups])


@jit
def _turn_planes(
    source: Any,
    target: Any,
    planes: int,
    rows: int,
    columns: int,
    share: int,
    shares: int,
) -> None:
    """
    Take ``target[p, c, r] = source[p, r, c]``, both flat, in tiles of 8 by 8.

    The loops over a tile have fixed lengths, so that they become moves of vectors; eight
    lines of the target are written to their ends before the next eight begin. Indices
    are unsigned because signed ones are tested for counting from the end.
    """
    blocks = (columns + 7) // 8
    total = planes * blocks
    for job in range(total * share // shares, total * (share + 1) // shares):
        base, start = job // blocks * rows * columns, job % blocks * 8
        whole = rows - rows % 8 if start + 8 <= columns else 0
        for first in range(0, whole, 8):
            read = np.uint64(base + first * columns + start)
            write = np.uint64(base + start * rows + first)
            for c in range(8):
                for r in range(8):
                    target[write + np.uint64(c * rows + r)] = source[
                        read + np.uint64(r * columns + c)
                    ]
        for c in range(start, min(start + 8, columns)):
            for r in range(whole, rows):
                target[np.uint64(base + c * rows + r)] = source[
                    np.uint64(base + r * columns + c)
                ]


@command
def _turn_1(a: Any, share: int, shares: int) -> None:
    """Arguments: addresses of source and target, planes, rows, columns; as all of these."""
    size = a[2] * a[3] * a[4]
    source, target = carray(bytes_at(a[0]), (size,)), carray(bytes_at(a[1]), (size,))
    _turn_planes(source, target, a[2], a[3], a[4], share, shares)


@command
def _turn_2(a: Any, share: int, shares: int) -> None:
    size = a[2] * a[3] * a[4]
    source, target = carray(shorts(a[0]), (size,)), carray(shorts(a[1]), (size,))
    _turn_planes(source, target, a[2], a[3], a[4], share, shares)


@command
def _turn_4(a: Any, share: int, shares: int) -> None:
    size = a[2] * a[3] * a[4]
    source, target = carray(ints(a[0]), (size,)), carray(ints(a[1]), (size,))
    _turn_planes(source, target, a[2], a[3], a[4], share, shares)


@command
def _turn_8(a: Any, share: int, shares: int) -> None:
    size = a[2] * a[3] * a[4]
    source, target = carray(longs(a[0]), (size,)), carray(longs(a[1]), (size,))
    _turn_planes(source, target, a[2], a[3], a[4], share, shares)


#: By the bytes of an element.
_TURNS: dict[int, Command] = {1: _turn_1, 2: _turn_2, 4: _turn_4, 8: _turn_8}


def bind_turn(
    x: Array, out: Array, planes: int, rows: int, columns: int, threads: int
) -> Native:
    """Bind ``out[p, c, r] = x[p, r, c]`` for C-contiguous arrays of one element size."""
    shares = threads if x.size >= _THREADED_ELEMENTS else 1
    arguments = [x.ctypes.data, out.ctypes.data, planes, rows, columns]
    return bind(_TURNS[x.dtype.itemsize], arguments, shares, keep=(x, out))
