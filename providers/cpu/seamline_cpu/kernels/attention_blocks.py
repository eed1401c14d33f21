"""
Attention of many queries: a panel of them against all their keys, a block at a time.

One piece of work is ``COLUMNS`` queries of one head of keys, taken from all the heads that
share it: their scores, weights and sums stay in a core's nearest caches, and what memory
sees is keys and values, once for each panel.

Rows of keys that lie far apart fall on a few lines of the first cache and push each other out.
Where several panels read them, and where they are to be widened, they are brought together
first, once for a head.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import floats, ints, longs
from seamline_cpu.commands import command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.attention_arguments import (
    BLOCK,
    SLOTS,
    bias_of,
    block_at,
    cap_scores,
    head_of,
    high_of,
    low_of,
    shape_scores,
)
from seamline_cpu.kernels.attention_floats import padded, put_row, row_of, rows_of
from seamline_cpu.kernels.attention_tiles import (
    LINE,
    fold,
    hide,
    key_products,
    value_products,
)
from seamline_cpu.kernels.rows import matrix
from seamline_cpu.moving import copy_bytes
from seamline_cpu.tiles import COLUMNS

__all__ = ["attend_blocks", "held_floats", "panel_floats"]

f4, i4 = np.float32, np.int32
_AT = {name: number for number, name in enumerate(SLOTS)}
(_Q, _Q_BATCH, _Q_HEAD, _Q_ROW, _K, _K_BATCH, _K_HEAD, _K_ROW, _V, _V_BATCH, _V_HEAD, _V_ROW,
 _Y, _Y_BATCH, _Y_HEAD, _Y_ROW, _ENTRIES, _HEADS, _GROUP, _ROWS, _DEPTH, _WIDTH, _KEYS, _TABLE,
 ) = range(24)  # fmt: skip
_NUMBERS, _SINKS, _SINK_STEP = _AT["numbers"], _AT["sinks"], _AT["sink_step"]
_SCRATCH, _STRIDE = _AT["scratch"], _AT["stride"]
_BIAS, _MORE = _AT["bias"], _AT["more"]
_Q_KIND, _KV_KIND, _Y_KIND = _AT["q_kind"], _AT["kv_kind"], _AT["y_kind"]
_HELD = _AT["held"]
_KIND, _BATCH, _HEAD, _ROW, _KEY, _FULL = range(1, 7)
_NONE = i4(2147483647)


def held_floats(depth: int, width: int, keys: int) -> int:
    """Give the floats that a head's keys and values take where they are brought together."""
    return keys * (int(padded(depth)) + int(padded(width)))


def panel_floats(depth: int, width: int, narrow: bool) -> int:
    """Give the floats of scratch that one panel takes; more where inputs are narrow."""
    rows = int(padded(depth)) + int(padded(width))
    return COLUMNS * (depth + width + BLOCK + 4) + rows * (BLOCK if narrow else 1)


@jit
def _fill(
    a: Any, entry: int, head: int, first: int, n: int, panel: int, room: int
) -> None:
    """Pack ``n`` queries, times the scale, as the columns of a panel; others are zero."""
    depth, rows = a[_DEPTH], a[_ROWS]
    scale, out = floats(a[_NUMBERS])[0], floats(panel)
    for c in range(COLUMNS):
        if c >= n:
            for d in range(depth):
                out[d * COLUMNS + c] = f4(0.0)
            continue
        member, row = (first + c) // rows, (first + c) % rows
        at = a[_Q] + entry * a[_Q_BATCH] + row * a[_Q_ROW]
        at += (head * a[_GROUP] + member) * a[_Q_HEAD]
        x = floats(row_of(a[_Q_KIND], at, depth, room))
        for d in range(depth):
            out[d * COLUMNS + c] = x[d] * scale


@jit
def _begin(a: Any, entry: int, head: int, first: int, n: int, state: int) -> None:
    """Set what each column sees, and its greatest score and sum before any key."""
    lows, highs = ints(state), ints(state + LINE)
    greatest, sums = floats(state + 2 * LINE), floats(state + 3 * LINE)
    rows, valid = a[_ROWS], longs(a[_TABLE])[3 * entry]
    start = longs(a[_TABLE])[3 * entry + 1]
    for c in range(COLUMNS):
        greatest[c], sums[c] = f4(-np.inf), f4(0.0)
        if c >= n:  # nobody reads it, so that it need not be hidden from anything
            lows[c], highs[c] = i4(0), _NONE
            continue
        member, row = (first + c) // rows, (first + c) % rows
        lows[c] = i4(low_of(a, start + row))
        highs[c] = i4(high_of(a, entry, start + row)) if row < valid else i4(0)
        if a[_SINKS] != 0:
            which = (head * a[_GROUP] + member) * a[_SINK_STEP]
            greatest[c], sums[c] = floats(a[_SINKS])[which], f4(1.0)


@jit
def _span(n: int, state: int) -> Any:
    """Give the least and the greatest start, and the least and greatest end, of columns."""
    lows, highs = ints(state), ints(state + LINE)
    low, last_low, high, first_high = i4(_NONE), i4(0), i4(0), i4(_NONE)
    for c in range(n):
        last_low, first_high = max(last_low, lows[c]), min(first_high, highs[c])
        if highs[c] > lows[c]:
            low, high = min(low, lows[c]), max(high, highs[c])
    return low, last_low, high, first_high


@jit
def _add_bias(
    a: Any, which: int, entry: int, head: int, first: int, n: int, key: int, count: int,
    scores: int,
) -> None:  # fmt: skip
    """Add one of the biases to a block of scores."""
    if a[which + _FULL] != 0:
        rows = a[_ROWS]
        for c in range(n):
            member, row = (first + c) // rows, (first + c) % rows
            shape_scores(
                a, which, entry, head * a[_GROUP] + member, row, key, count,
                scores + 4 * c, COLUMNS,
            )  # fmt: skip
        return
    at = a[which] + entry * a[which + _BATCH] + key * a[which + _KEY]
    filler = floats(a[_NUMBERS])[2 if which == _BIAS else 3]
    for t in range(count):
        value = bias_of(a[which + _KIND], at + t * a[which + _KEY], filler)
        line = matrix(floats(scores + t * LINE), 1, COLUMNS)[0]
        for c in range(COLUMNS):
            line[c] += value


@jit
def _finish(
    a: Any, entry: int, head: int, first: int, n: int, state: int, out: int, room: int
) -> None:
    """Divide by the sums, and write each query's row; one that saw no key gives zeros."""
    width, rows, made = a[_WIDTH], a[_ROWS], floats(out)
    sums = floats(state + 3 * LINE)
    for c in range(n):
        member, row = (first + c) // rows, (first + c) % rows
        at = a[_Y] + entry * a[_Y_BATCH] + row * a[_Y_ROW]
        at += (head * a[_GROUP] + member) * a[_Y_HEAD]
        y = floats(at) if a[_Y_KIND] == 0 else floats(room)
        total = sums[c]
        factor = f4(1.0) / total if total != f4(0.0) else f4(0.0)
        for d in range(width):
            y[d] = made[d * COLUMNS + c] * factor
        if a[_Y_KIND] != 0:
            put_row(a[_Y_KIND], room, width, at)


@jit
def _shape(
    a: Any, entry: int, head: int, first: int, n: int, key: int, count: int, scores: int
) -> None:
    """Cap a block of scores and add the biases."""
    cap = floats(a[_NUMBERS])[1]
    if cap > f4(0.0):
        cap_scores(matrix(floats(scores), 1, count * COLUMNS)[0], cap)
    if a[_BIAS] != 0:
        _add_bias(a, _BIAS, entry, head, first, n, key, count, scores)
    if a[_MORE] != 0:
        _add_bias(a, _MORE, entry, head, first, n, key, count, scores)


@jit
def _panel(
    a: Any, entry: int, head: int, first: int, n: int, scratch: int, kind: int, keys: int,
    k_pitch: int, values: int, v_pitch: int,
) -> None:  # fmt: skip
    """Attend for up to ``COLUMNS`` queries of one head, whose keys and values are given."""
    depth, width = a[_DEPTH], a[_WIDTH]
    out = scratch + depth * LINE
    scores = out + width * LINE
    state = scores + BLOCK * LINE
    room = state + 4 * LINE
    _fill(a, entry, head, first, n, scratch, room)
    _begin(a, entry, head, first, n, state)
    for i in range(width * COLUMNS):
        floats(out)[i] = f4(0.0)
    low, last_low, high, first_high = _span(n, state)
    key = low
    while key < high:
        count = min(BLOCK, high - key)
        k, k_row = block_at(kind, keys, k_pitch, key, count, depth, room)
        key_products(k, k_row, count, scratch, depth, scores)
        _shape(a, entry, head, first, n, key, count, scores)
        if key < last_low or key + count > first_high:
            hide(scores, key, count, state, state + LINE)
        fold(scores, count, state + 2 * LINE, state + 3 * LINE, out, width)
        v, v_row = block_at(kind, values, v_pitch, key, count, width, room)
        value_products(v, v_row, count, scores, width, out)
        key += count
    _finish(a, entry, head, first, n, state, out, room)


@jit
def _hold(kind: int, start: int, pitch: int, count: int, n: int, out: int) -> None:
    """Bring the rows of a head together, as float32."""
    if kind != 0:
        rows_of(kind, start, pitch, count, n, out)
        return
    for row in range(count):
        copy_bytes(out + 4 * row * padded(n), start + row * pitch, 4 * n)


@jit
def _head(a: Any, pair: int, scratch: int) -> None:
    """Attend for all queries of one head, after its keys and values were brought together."""
    entry, head, kind = pair // a[_HEADS], pair % a[_HEADS], a[_KV_KIND]
    count = min(max(longs(a[_TABLE])[3 * entry + 2], 0), a[_KEYS])
    keys = scratch + a[_HELD]
    values = keys + 4 * a[_KEYS] * padded(a[_DEPTH])
    k_row, v_row = 4 * padded(a[_DEPTH]), 4 * padded(a[_WIDTH])
    _hold(kind, head_of(a, _K, entry, head), a[_K_ROW], count, a[_DEPTH], keys)
    _hold(kind, head_of(a, _V, entry, head), a[_V_ROW], count, a[_WIDTH], values)
    queries = a[_GROUP] * a[_ROWS]
    for first in range(0, queries, COLUMNS):
        n = min(COLUMNS, queries - first)
        _panel(a, entry, head, first, n, scratch, 0, keys, k_row, values, v_row)


@command
def attend_blocks(a: Any, share: int, shares: int) -> None:
    """Attend for all queries; shares take heads or panels in turns, since causal ones grow."""
    queries, heads = a[_GROUP] * a[_ROWS], a[_HEADS]
    panels = (queries + COLUMNS - 1) // COLUMNS
    scratch = a[_SCRATCH] + share * a[_STRIDE]
    if a[_HELD] != 0:
        for pair in range(share, a[_ENTRIES] * heads, shares):
            _head(a, pair, scratch)
        return
    for item in range(share, a[_ENTRIES] * heads * panels, shares):
        panel, pair = item % panels, item // panels
        first = panel * COLUMNS
        entry, head = pair // heads, pair % heads
        _panel(
            a, entry, head, first, min(COLUMNS, queries - first), scratch, a[_KV_KIND],
            head_of(a, _K, entry, head), a[_K_ROW], head_of(a, _V, entry, head), a[_V_ROW],
        )  # fmt: skip
