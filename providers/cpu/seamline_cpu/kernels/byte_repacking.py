"""Right matrices of bytes that change from run to run: packed by a command, each time."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_cpu.atomics import bytes_at, ints
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.kernels.byte_panels import BytePanels
from seamline_cpu.tiles import COLUMNS

__all__ = ["bind_repacking"]

_SHARED_FROM = 65_536  # bytes from which more threads pay
(_B, _K, _N, _ITEMS, _GROUP, _CODES, _TOTALS, _FLIP, _ZEROS, _ZERO, _STEP) = range(11)
i4 = np.int32


@command
def _repacked(a: Any, share: int, shares: int) -> None:
    """Lay panels out as :meth:`BytePanels.of` does; shares are of all items' panels."""
    depth, n, group, flip = a[_K], a[_N], a[_GROUP], np.uint8(a[_FLIP])
    panels, words = (n + COLUMNS - 1) // COLUMNS, (depth + group - 1) // group
    if share == 0:
        zeros, points = ints(a[_ZEROS]), bytes_at(a[_ZERO])
        for j in range(n):
            # As the codes are: with its top bit flipped, a byte is itself less 128.
            raw = np.int64(points[j * a[_STEP]] ^ flip)
            zeros[j] = i4(raw - 256 if raw > 127 else raw)
    every = a[_ITEMS] * panels
    for unit in range(every * share // shares, every * (share + 1) // shares):
        item, panel = unit // panels, unit % panels
        first = panel * COLUMNS
        columns = min(COLUMNS, n - first)
        source = a[_B] + item * depth * n + first
        target = a[_CODES] + unit * words * COLUMNS * group
        totals = ints(a[_TOTALS] + 4 * unit * COLUMNS)
        for j in range(COLUMNS):
            totals[j] = i4(0)
        for k in range(words * group):
            row = bytes_at(source + k * n)
            to = bytes_at(target + k // group * COLUMNS * group + k % group)
            if k >= depth:
                for j in range(COLUMNS):
                    to[j * group] = np.uint8(0)
                continue
            for j in range(columns):
                code = row[j] ^ flip
                to[j * group] = code
                totals[j] += i4(code) - i4(i4(code >> np.uint8(7)) << i4(8))
            for j in range(columns, COLUMNS):
                to[j * group] = np.uint8(0)


def bind_repacking(
    b: Array, zero: Array | None, group: int, threads: int
) -> tuple[Native, BytePanels, Array]:
    """
    Bind the packing of ``(items, K, N)`` and its zero point, one or one a column.

    Returns
    -------
    tuple
        The run, the panels that it fills, and the zero points as they are moved.
    """
    items, depth, n = b.shape
    panels, words = -(-n // COLUMNS), -(-depth // group)
    codes = np.zeros((items, panels, words, COLUMNS, group), np.int8)
    totals = np.zeros(items * panels * COLUMNS, np.int32)
    flip = 0 if b.dtype == np.int8 else 128
    made = BytePanels(codes, totals, depth, n, flip)
    zeros = np.zeros(panels * COLUMNS, np.int32)
    point = np.zeros(1, b.dtype) if zero is None else zero
    arguments = [
        b.ctypes.data, depth, n, items, group, codes.ctypes.data, totals.ctypes.data, flip,
        zeros.ctypes.data, point.ctypes.data, int(point.size > 1),
    ]  # fmt: skip
    shares = min(threads, items * panels) if b.size >= _SHARED_FROM else 1
    run = bind(_repacked, arguments, max(1, shares), keep=(b, made, zeros, point))
    return run, made, zeros
