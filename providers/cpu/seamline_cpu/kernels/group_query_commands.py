"""
The commands that stand before grouped-query attention: lengths, the cache, and new rows.

Lengths come from whoever calls, and a command cannot raise. So the first command looks at
all of them; where one does not fit, it leaves a mark, and no entry any row: nothing is
then written to a cache, and the check after the list says what was wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import floats, ints, longs, shorts
from seamline_cpu.commands import command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.attention_floats import padded, put_row, row_of
from seamline_cpu.kernels.rows import matrix, sums
from seamline_cpu.moving import copy_bytes

__all__ = ["KEEP", "LENGTHS", "ROWS", "keep_past_rows", "measure", "place_rows"]

f4 = np.float32
#: Names of the arguments of each command, in their order.
LENGTHS = (
    "lengths", "lengths_bytes", "counts", "counts_bytes", "batch", "rows", "before",
    "capacity", "widest", "positions", "positions_bytes", "total", "total_bytes", "tables",
    "table", "places", "wrong", "positions_size",
)  # fmt: skip
KEEP = (
    "batch", "heads", "table", "past", "past_batch", "past_head", "present",
    "present_batch", "present_head", "capacity", "row_bytes", "row_pitch", "past_pitch",
    "wrong",
)  # fmt: skip
ROWS = (
    "batch", "rows", "heads", "x", "x_batch", "x_row", "x_head", "out", "out_batch",
    "out_row", "out_head", "size", "weight", "epsilon", "cos", "sin", "half", "interleaved",
    "table", "places", "kind", "out_kind", "room", "stride", "past", "table_pitch",
)  # fmt: skip
(_LENGTHS, _LENGTHS_BYTES, _COUNTS, _COUNTS_BYTES, _BATCH, _NEW, _BEFORE, _CAPACITY, _WIDEST,
 _POSITIONS, _POSITIONS_BYTES, _TOTAL, _TOTAL_BYTES, _TABLES, _TABLE, _PLACES, _WRONG,
 _POSITIONS_SIZE) = range(len(LENGTHS))  # fmt: skip
(_K_BATCH, _K_HEADS, _K_TABLE, _PAST, _PAST_BATCH, _PAST_HEAD, _PRESENT, _PRESENT_BATCH,
 _PRESENT_HEAD, _K_CAPACITY, _ROW_BYTES, _ROW_PITCH, _PAST_PITCH, _K_WRONG,
 ) = range(len(KEEP))  # fmt: skip
(_R_BATCH, _R_ROWS, _R_HEADS, _X, _X_BATCH, _X_ROW, _X_HEAD, _OUT, _OUT_BATCH, _OUT_ROW,
 _OUT_HEAD, _SIZE, _WEIGHT, _EPSILON, _COS, _SIN, _HALF, _INTERLEAVED, _R_TABLE, _R_PLACES,
 _KIND, _OUT_KIND, _ROOM, _STRIDE, _R_PAST, _TABLE_PITCH,
 ) = range(len(ROWS))  # fmt: skip


@jit
def _integer(address: int, nbytes: int, index: int) -> int:
    return int(longs(address)[index] if nbytes == 8 else ints(address)[index])


@jit
def _place(a: Any, entry: int, row: int, past: int) -> int:
    """Give the rotary position of a new row; -1 where no input has it."""
    if a[_POSITIONS] == 0:
        return past + row
    nbytes, first = a[_POSITIONS_BYTES], a[_COUNTS] == 0 and a[_TOTAL] != 0
    if first and _integer(a[_TOTAL], a[_TOTAL_BYTES], 0) == a[_NEW]:
        return _integer(a[_POSITIONS], nbytes, 0) + row  # a first prompt has one start
    index = entry * a[_NEW] + row
    return _integer(a[_POSITIONS], nbytes, index) if index < a[_POSITIONS_SIZE] else -1


@jit
def _fits(a: Any, entry: int) -> bool:
    """Fill an entry's line of the table and its rows' places; tell whether all is in bounds."""
    last = _integer(a[_LENGTHS], a[_LENGTHS_BYTES], entry)
    if last < 0 or last >= a[_CAPACITY] or last >= a[_WIDEST]:
        return False
    most = min(a[_NEW], last + 1)
    new = most
    if a[_COUNTS] != 0:
        new = _integer(a[_COUNTS], a[_COUNTS_BYTES], entry)
    if new < 0 or new > most or last + 1 - new > a[_BEFORE]:
        return False
    line, places = (
        longs(a[_TABLE] + 24 * entry),
        longs(a[_PLACES] + 8 * entry * a[_NEW]),
    )
    line[0], line[1], line[2] = new, last + 1 - new, last + 1
    for row in range(new):
        places[row] = _place(a, entry, row, line[1])
        if a[_TABLES] >= 0 and (places[row] < 0 or places[row] >= a[_TABLES]):
            return False
    return True


@command
def measure(a: Any, share: int, shares: int) -> None:
    """Read all lengths: a table of rows, past and total, or of nothing and a mark."""
    most = a[_BEFORE] + a[_NEW]
    good = a[_TOTAL] == 0 or _integer(a[_TOTAL], a[_TOTAL_BYTES], 0) <= most
    for entry in range(a[_BATCH]):
        good = good and _fits(a, entry)
    longs(a[_WRONG])[0] = 0 if good else 1
    if not good:
        for i in range(3 * a[_BATCH]):
            longs(a[_TABLE])[i] = 0


@jit
def _clear(address: int, nbytes: int) -> None:
    """Write zeros."""
    halves = shorts(address)
    for i in range(nbytes // 2):
        halves[i] = np.uint16(0)


@command
def keep_past_rows(a: Any, share: int, shares: int) -> None:
    """Copy the past of each head where it is not the present's own, and clear the rest."""
    if longs(a[_K_WRONG])[0] != 0:
        return
    count, heads = a[_K_BATCH] * a[_K_HEADS], a[_K_HEADS]
    for i in range(count * share // shares, count * (share + 1) // shares):
        entry, head = i // heads, i % heads
        line = longs(a[_K_TABLE] + 24 * entry)
        target = a[_PRESENT] + entry * a[_PRESENT_BATCH] + head * a[_PRESENT_HEAD]
        if a[_PAST] != 0:
            source = a[_PAST] + entry * a[_PAST_BATCH] + head * a[_PAST_HEAD]
            copy_bytes(target, source, line[1] * a[_ROW_BYTES])
        for row in range(line[2], a[_K_CAPACITY]):
            _clear(target + row * a[_ROW_BYTES], a[_ROW_BYTES])


@sums
def _normalize(x: Any, weight: Any, epsilon: Any, y: Any) -> None:
    n, total = x.shape[0], f4(0.0)
    for j in range(n):
        total += x[j] * x[j]
    factor = f4(1.0) / np.sqrt(total / f4(n) + epsilon)
    for j in range(n):
        y[j] = x[j] * factor * weight[j]


@jit
def _rotate(x: Any, cos: Any, sin: Any, half: int, interleaved: int) -> None:
    """Rotate pairs in place: the two halves, or neighbours."""
    if interleaved:
        for i in range(half):
            one, two = x[2 * i], x[2 * i + 1]
            x[2 * i] = one * cos[i] - two * sin[i]
            x[2 * i + 1] = one * sin[i] + two * cos[i]
        return
    for i in range(half):
        one, two = x[i], x[half + i]
        x[i] = one * cos[i] - two * sin[i]
        x[half + i] = one * sin[i] + two * cos[i]


@jit
def _row(a: Any, entry: int, row: int, room: int) -> None:
    """Normalize and rotate one new row of every head, and write it where it belongs."""
    size, half, kind = a[_SIZE], a[_HALF], a[_KIND]
    wide, held = padded(size), room + 4 * padded(size)
    to = row + (longs(a[_R_TABLE] + 24 * entry)[1] if a[_R_PAST] else 0)
    cos, sin = held + 4 * wide, held + 8 * wide
    if half > 0:
        place = longs(a[_R_PLACES])[entry * a[_R_ROWS] + row] * a[_TABLE_PITCH]
        cos = row_of(kind, a[_COS] + place, half, cos)
        sin = row_of(kind, a[_SIN] + place, half, sin)
    for head in range(a[_R_HEADS]):
        source = a[_X] + entry * a[_X_BATCH] + row * a[_X_ROW] + head * a[_X_HEAD]
        target = (
            a[_OUT] + entry * a[_OUT_BATCH] + to * a[_OUT_ROW] + head * a[_OUT_HEAD]
        )
        x = row_of(kind, source, size, room)
        y = matrix(floats(held), 1, size)[0]
        if a[_WEIGHT] != 0:
            weight = row_of(kind, a[_WEIGHT], size, held + 12 * wide)
            given = matrix(floats(x), 1, size)[0]
            factors = matrix(floats(weight), 1, size)[0]
            _normalize(given, factors, floats(a[_EPSILON])[0], y)
        elif half > 0 or a[_OUT_KIND] != kind:
            copy_bytes(held, x, 4 * size)
        else:
            copy_bytes(target, source, size * (4 if kind == 0 else 2))
            continue
        if half > 0:
            _rotate(y, floats(cos), floats(sin), half, a[_INTERLEAVED])
        put_row(a[_OUT_KIND], held, size, target)


@command
def place_rows(a: Any, share: int, shares: int) -> None:
    """Bring new rows of queries, keys or values to where attention reads them."""
    count = a[_R_BATCH] * a[_R_ROWS]
    for i in range(count * share // shares, count * (share + 1) // shares):
        entry, row = i // a[_R_ROWS], i % a[_R_ROWS]
        if row < longs(a[_R_TABLE] + 24 * entry)[0]:
            _row(a, entry, row, a[_ROOM] + share * a[_STRIDE])
