"""
Attention of few queries over many keys, as when one token is decoded.

Its time is that of reading keys and values, so both are read once for all heads that share
them, and keys are cut into parts, so that threads have work where there are few heads.
Each part gives its greatest score, its sum and its weighted values; these are then joined
as the streaming softmax joins blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import floats, longs
from seamline_cpu.commands import command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.attention_arguments import (
    BLOCK,
    SLOTS,
    block_at,
    cap_scores,
    head_of,
    high_of,
    low_of,
    shape_scores,
)
from seamline_cpu.kernels.attention_floats import padded, put_row, row_of
from seamline_cpu.kernels.attention_rows import add_weighted, query_products
from seamline_cpu.kernels.float32_math import exp
from seamline_cpu.kernels.rows import exp_of_row, matrix, max_of_row
from seamline_cpu.tiles import LANES

__all__ = ["attend_few", "few_floats", "join_parts", "part_floats"]

f4 = np.float32
_AT = {name: number for number, name in enumerate(SLOTS)}
(_Q, _Q_BATCH, _Q_HEAD, _Q_ROW, _K, _K_BATCH, _K_HEAD, _K_ROW, _V, _V_BATCH, _V_HEAD, _V_ROW,
 _Y, _Y_BATCH, _Y_HEAD, _Y_ROW, _ENTRIES, _HEADS, _GROUP, _ROWS, _DEPTH, _WIDTH, _KEYS, _TABLE,
 ) = range(24)  # fmt: skip
_NUMBERS, _SINKS, _SINK_STEP = _AT["numbers"], _AT["sinks"], _AT["sink_step"]
_SCRATCH, _STRIDE = _AT["scratch"], _AT["stride"]
_Q_KIND, _KV_KIND, _Y_KIND = _AT["q_kind"], _AT["kv_kind"], _AT["y_kind"]
_BIAS, _MORE, _SPLITS, _PARTS = _AT["bias"], _AT["more"], _AT["splits"], _AT["parts"]
_MANY = 4  # queries that make up for the more frequent joining of shorter blocks
_HELD = 6144  # floats: 24 KiB of the first cache's 32 or more
_HEAD = 16  # floats before a part's values: its greatest score and its sum


def few_floats(depth: int, width: int, queries: int, narrow: bool) -> int:
    """Give the floats of scratch of one share: queries, scores, weights, and rows."""
    rows = int(padded(depth)) + int(padded(width))
    return queries * int(padded(depth)) + 2 * BLOCK + rows * (BLOCK if narrow else 1)


def part_floats(width: int) -> int:
    """Give the floats of a part's result: greatest score, sum, and values."""
    return int(padded(width)) + _HEAD


@jit
def _begin(
    a: Any, entry: int, head: int, scratch: int, parts: int, pitch: int, room: int
) -> None:
    """Copy the queries, times the scale, and set each part to one that saw no key."""
    depth, rows, scale = a[_DEPTH], a[_ROWS], floats(a[_NUMBERS])[0]
    for query in range(a[_GROUP] * rows):
        at = a[_Q] + entry * a[_Q_BATCH] + query % rows * a[_Q_ROW]
        at += (head * a[_GROUP] + query // rows) * a[_Q_HEAD]
        x = floats(row_of(a[_Q_KIND], at, depth, room))
        target = floats(scratch + 4 * query * padded(depth))
        for d in range(depth):
            target[d] = x[d] * scale
        for d in range(depth, padded(depth)):
            target[d] = f4(0.0)
        found = floats(parts + query * pitch)
        for i in range(_HEAD + padded(a[_WIDTH])):
            found[i] = f4(0.0)
        found[0] = f4(-np.inf)


@jit
def _block(
    a: Any, entry: int, which: int, row: int, key: int, count: int, query: int, scores: int,
    k: int, k_row: int, v: int, v_row: int, part: int,
) -> None:  # fmt: skip
    """Bring a query's part up to a block of keys; its weights lie behind the scores."""
    depth, width, found = a[_DEPTH], a[_WIDTH], floats(part)
    weights, made = scores + 4 * BLOCK, part + 4 * _HEAD
    cap, line = floats(a[_NUMBERS])[1], matrix(floats(scores), 1, count)[0]
    query_products(k, k_row, count, query, depth, scores)
    if cap > f4(0.0):
        cap_scores(line, cap)
    if a[_BIAS] != 0:
        shape_scores(a, _BIAS, entry, which, row, key, count, scores, 1)
    if a[_MORE] != 0:
        shape_scores(a, _MORE, entry, which, row, key, count, scores, 1)
    most = max(found[0], max_of_row(line))
    shift = f4(0.0) if most == f4(-np.inf) else most
    factor = exp(found[0] - shift)
    total = exp_of_row(line, shift, matrix(floats(weights), 1, count)[0])
    for d in range(width):
        floats(made)[d] *= factor
    add_weighted(v, v_row, count, weights, width, made)
    found[0], found[1] = most, found[1] * factor + total


@jit
def _bounds(a: Any, entry: int, row: int) -> Any:
    """Give the keys that a row sees; none for a row that its entry does not have."""
    line = longs(a[_TABLE] + 24 * entry)
    position = line[1] + row
    high = high_of(a, entry, position) if row < line[0] else 0
    return low_of(a, position), high


@jit
def _keys_at_once(a: Any) -> int:
    """Give how many keys and values stay in the first cache while all queries read them."""
    if a[_GROUP] * a[_ROWS] < _MANY:
        return BLOCK
    held = _HELD // (a[_DEPTH] + a[_WIDTH]) // LANES * LANES
    return int(max(2 * LANES, min(BLOCK, held)))


@jit
def _share_of(a: Any, pair: int, split: int, scratch: int) -> None:
    """Attend all queries that share a head of keys, over one part of what they see."""
    entry, head, rows = pair // a[_HEADS], pair % a[_HEADS], a[_ROWS]
    depth = a[_DEPTH]
    scores = scratch + 4 * a[_GROUP] * rows * padded(depth)
    room = scores + 8 * BLOCK
    size = 4 * (padded(a[_WIDTH]) + _HEAD)
    pitch = size * a[_SPLITS]
    parts = a[_PARTS] + pair * a[_GROUP] * rows * pitch + split * size
    _begin(a, entry, head, scratch, parts, pitch, room)
    least, most = a[_KEYS], 0
    for row in range(rows):
        low, high = _bounds(a, entry, row)
        if high > low:
            least, most = min(least, low), max(most, high)
    keys = max(most - least, 0)
    first = least + keys * split // a[_SPLITS]
    end = least + keys * (split + 1) // a[_SPLITS]
    keys_at, values_at = head_of(a, _K, entry, head), head_of(a, _V, entry, head)
    kind = a[_KV_KIND]
    block = _keys_at_once(a)
    for key in range(first, end, block):
        last = min(key + block, end)
        k, k_row = block_at(kind, keys_at, a[_K_ROW], key, last - key, depth, room)
        more = room + 4 * padded(depth) * BLOCK
        v, v_row = block_at(
            kind, values_at, a[_V_ROW], key, last - key, a[_WIDTH], more
        )
        for query in range(a[_GROUP] * rows):
            row = query % rows
            low, high = _bounds(a, entry, row)
            start, stop = max(low, key), min(high, last)
            if stop > start:
                _block(
                    a, entry, head * a[_GROUP] + query // rows, row, start, stop - start,
                    scratch + 4 * query * padded(depth), scores,
                    k + (start - key) * k_row, k_row, v + (start - key) * v_row, v_row,
                    parts + query * pitch,
                )  # fmt: skip


@command
def attend_few(a: Any, share: int, shares: int) -> None:
    """Attend over each part of the keys; shares take parts in turns."""
    for item in range(share, a[_ENTRIES] * a[_HEADS] * a[_SPLITS], shares):
        scratch = a[_SCRATCH] + share * a[_STRIDE]
        _share_of(a, item // a[_SPLITS], item % a[_SPLITS], scratch)


@command
def join_parts(a: Any, share: int, shares: int) -> None:
    """Join the parts of each query, with its sink if there is one."""
    splits, rows, width = a[_SPLITS], a[_ROWS], a[_WIDTH]
    queries = a[_GROUP] * rows
    size = 4 * (padded(width) + _HEAD)
    for item in range(share, a[_ENTRIES] * a[_HEADS] * queries, shares):
        query, pair = item % queries, item // queries
        which = pair % a[_HEADS] * a[_GROUP] + query // rows
        parts = a[_PARTS] + item * splits * size
        most, total = f4(-np.inf), f4(0.0)
        if a[_SINKS] != 0:
            most, total = floats(a[_SINKS])[which * a[_SINK_STEP]], f4(1.0)
        first = most
        for split in range(splits):
            most = max(most, floats(parts + split * size)[0])
        shift = f4(0.0) if most == f4(-np.inf) else most
        total *= exp(first - shift)
        made = floats(parts + 4 * _HEAD)
        factor = exp(floats(parts)[0] - shift)
        total += floats(parts)[1] * factor
        for d in range(width):
            made[d] *= factor
        for split in range(1, splits):
            part = floats(parts + split * size)
            factor = exp(part[0] - shift)
            total += part[1] * factor
            for d in range(width):
                made[d] += part[_HEAD + d] * factor
        scale = f4(1.0) / total if total != f4(0.0) else f4(0.0)
        for d in range(width):
            made[d] *= scale
        y = a[_Y] + pair // a[_HEADS] * a[_Y_BATCH] + query % rows * a[_Y_ROW]
        put_row(a[_Y_KIND], parts + 4 * _HEAD, width, y + which * a[_Y_HEAD])
