"""RotaryEmbedding as commands: positions are read and checked, then rows are rotated."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.atomics import ints, longs
from seamline_cpu.commands import Native, bind, checked, command, joined
from seamline_cpu.kernels.attention_floats import KINDS, padded
from seamline_cpu.kernels.group_query_commands import ROWS, place_rows

__all__ = ["bind_rotation"]

_SHARED_FROM = 1 << 14  #: elements from which more threads rotate
(_POSITIONS, _BYTES, _SIZE, _BATCH, _LENGTH, _TABLES, _PLACES, _WRONG) = range(8)


@command
def _positions(a: Any, share: int, shares: int) -> None:
    """Give each row's line of the tables; one outside leaves a mark, and is read as 0."""
    wrong = longs(a[_WRONG])
    for i in range(a[_BATCH] * a[_LENGTH]):
        index, more = (0, i % a[_LENGTH]) if a[_SIZE] == 1 else (i, 0)
        place = more
        if a[_BYTES] == 8:
            place += longs(a[_POSITIONS])[index]
        else:
            place += ints(a[_POSITIONS])[index]
        if place < 0 or place >= a[_TABLES]:
            wrong[1] = place
            wrong[0] = 1
            place = 0
        longs(a[_PLACES])[i] = place


def bind_rotation(
    x: Array, cos: Array, sin: Array, positions: Array | None, interleaved: bool, y: Array,
    threads: int,
) -> Run | None:  # fmt: skip
    """
    Bind the rotation of heads by rows of tables; None where NumPy has to do it.

    Parameters
    ----------
    x, y
        (batch, length, heads, size), of any strides but for neighbours.
    cos, sin
        (positions, half), or (batch or 1, length, half) where there are no positions.
    positions
        (batch, length), or one number: where every entry starts. Read at each run.

    Returns
    -------
    Native or None
        Raises IndexError, once it has run, for a position outside of the tables.
    """
    (batch, length, heads, size), half = x.shape, cos.shape[-1]
    alike = all(v.dtype == x.dtype for v in (cos, sin, y)) and x.dtype.name in KINDS
    close = all(v.flags.c_contiguous for v in (cos, sin))
    close = close and all(v.strides[3] == v.itemsize or size == 1 for v in (x, y))
    if not (alike and close and x.size and len(cos)):
        return None
    places = np.zeros((batch, length), np.int64)
    if positions is None:
        lines = np.arange(len(cos) * length).reshape(len(cos), length)
        places[...] = lines
    table = np.tile(np.array([length, 0, 0], np.int64), (batch, 1))
    shares = min(threads, batch * length) if x.size >= _SHARED_FROM else 1
    stride = 6 * int(padded(size)) + 16
    room = np.empty(shares * stride, np.float32)
    values = {
        "batch": batch, "rows": length, "heads": heads, "size": size, "half": half,
        "interleaved": int(interleaved), "table": table.ctypes.data,
        "places": places.ctypes.data, "kind": KINDS[x.dtype.name],
        "out_kind": KINDS[x.dtype.name], "room": room.ctypes.data, "stride": 4 * stride,
        "cos": cos.ctypes.data, "sin": sin.ctypes.data, "table_pitch": half * cos.itemsize,
    }  # fmt: skip
    for name, v in (("x", x), ("out", y)):
        by = (f"{name}_batch", f"{name}_row", f"{name}_head")
        values |= dict(zip(by, v.strides, strict=False)) | {name: v.ctypes.data}
    arguments = [int(values.get(name, 0)) for name in ROWS]
    kept = (x, cos, sin, y, places, table, room)
    rotation = bind(place_rows, arguments, shares, keep=kept)
    if positions is None:
        return rotation
    return _placed(rotation, positions, len(cos), places)


def _placed(rotation: Native, positions: Array, tables: int, places: Array) -> Run:
    wrong = np.zeros(2, np.int64)
    arguments = [
        positions.ctypes.data, positions.itemsize, positions.size, *places.shape, tables,
        places.ctypes.data, wrong.ctypes.data,
    ]  # fmt: skip
    first = bind(_positions, arguments, 1, keep=(positions, places, wrong))
    both = joined([first, rotation])
    assert both is not None, "both are commands"

    def check() -> None:
        if wrong[0]:
            wrong[0] = 0
            raise IndexError(
                f"position {wrong[1]} is outside [0, {tables}) of the caches"
            )

    return checked(both, check)
