"""
The right matrix of a product, laid out in panels of ``COLUMNS`` columns for register tiles.

A constant is packed once for a session; what changes is packed by a command, in every run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_cpu.atomics import floats
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.huge_pages import huge
from seamline_cpu.jit import jit
from seamline_cpu.tiles import COLUMNS, copy_row

__all__ = ["bind_packing", "empty_panels", "pack_panel", "pack_panels", "packed_nbytes"]

f4 = np.float32
_SHARED_FROM = 1 << 16  #: elements from which more threads pay


@jit
def pack_panel(
    b: int, down: int, along: int, columns: int, depth: int, out: int
) -> None:
    """Write up to ``COLUMNS`` columns at ``b`` as (depth, COLUMNS), zeros past the end."""
    if along == 1 and columns >= COLUMNS:
        for k in range(depth):
            copy_row(out + 4 * k * COLUMNS, b + 4 * k * down)
        return
    source, target = floats(b), floats(out)
    if columns < COLUMNS:
        for i in range(depth * COLUMNS):
            target[i] = f4(0.0)
    for j in range(min(columns, COLUMNS)):
        for k in range(depth):
            target[k * COLUMNS + j] = source[k * down + j * along]


@jit
def _pack_panels(b: Any, down: int, along: int, n: int, depth: int, out: Any) -> None:
    for p in range((n + COLUMNS - 1) // COLUMNS):
        column = p * COLUMNS
        source, target = b + 4 * column * along, out + 4 * column * depth
        pack_panel(source, down, along, n - column, depth, target)


def packed_nbytes(b: Array) -> int:
    """Give the bytes that a packed matrix takes."""
    return 4 * int(b.shape[0]) * COLUMNS * -(-int(b.shape[1]) // COLUMNS)


def empty_panels(shape: Sequence[int]) -> Array:
    """Give room for the panels of a (K, N) matrix; no vector lies on two cache lines."""
    made = (-(-shape[1] // COLUMNS), shape[0], COLUMNS)
    return huge(4 * math.prod(made)).view(f4).reshape(made)


def pack_panels(b: Array) -> Array:
    """Give (K, N), of any strides, as (panels, K, COLUMNS), padded with zeros."""
    depth, n = b.shape
    out = empty_panels(b.shape)
    down, along = (s // 4 for s in b.strides)
    _pack_panels(b.ctypes.data, down, along, n, depth, out.ctypes.data)
    return out


@command
def _packing(a: Any, share: int, shares: int) -> None:
    """Arguments: addresses of b and of its panels, both steps of b, columns and depth."""
    n, depth = a[4], a[5]
    panels = (n + COLUMNS - 1) // COLUMNS
    first, end = panels * share // shares, panels * (share + 1) // shares
    source, target = (
        a[0] + 4 * first * COLUMNS * a[3],
        a[1] + 4 * first * COLUMNS * depth,
    )
    width = min(n, end * COLUMNS) - first * COLUMNS
    _pack_panels(source, a[2], a[3], width, depth, target)


def bind_packing(b: Array, panels: Array, threads: int) -> Native:
    """Bind what :func:`pack_panels` does, into panels that are there already."""
    depth, n = b.shape
    shares = threads if b.size >= _SHARED_FROM else 1
    arguments = [
        b.ctypes.data,
        panels.ctypes.data,
        *[s // 4 for s in b.strides],
        n,
        depth,
    ]
    return bind(_packing, arguments, min(shares, len(panels)), keep=(b, panels))
