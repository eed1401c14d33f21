"""
What the commands of attention are told, and how they find ranges and biases of keys.

Distances are in bytes, so that keys and values lie as they come: heads before rows or
behind them, in a packed projection, or in a cache longer than what it holds.

A query sees a run of keys: those of its entry of the batch, up to its own position where
attention is causal, and within the window. Runs are found in each run of the command from a
table of one line for each entry: how many rows it has, the position of the first, and how
many keys. What is added to scores beside that are up to two biases: numbers, or masks of
booleans or integers whose zeros become one number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import bytes_at, floats, ints, longs
from seamline_cpu.jit import jit
from seamline_cpu.kernels.attention_floats import padded, rows_of
from seamline_cpu.kernels.float32_math import tanh
from seamline_cpu.kernels.rows import elementwise

__all__ = [
    "BLOCK",
    "FLOATS",
    "SLOTS",
    "bias_of",
    "block_at",
    "cap_scores",
    "head_of",
    "high_of",
    "low_of",
    "shape_scores",
]

f4 = np.float32
#: Keys at a time: their scores for a panel of queries stay in the first cache.
BLOCK = 192

#: Names of the arguments, in their order.
SLOTS = (
    "q", "q_batch", "q_head", "q_row", "k", "k_batch", "k_head", "k_row",
    "v", "v_batch", "v_head", "v_row", "y", "y_batch", "y_head", "y_row",
    "batch", "heads", "group", "rows", "depth", "width", "keys", "table",
    "causal", "left", "right", "numbers", "sinks", "sink_step", "scratch", "stride",
    "bias", "bias_kind", "bias_batch", "bias_head", "bias_row", "bias_key", "bias_full",
    "more", "more_kind", "more_batch", "more_head", "more_row", "more_key", "more_full",
    "splits", "parts", "q_kind", "kv_kind", "y_kind", "held",
)  # fmt: skip
#: Places in ``numbers``: float32.
FLOATS = ("scale", "softcap", "bias_filler", "more_filler")

(_LEFT, _RIGHT, _CAUSAL, _TABLE, _NUMBERS) = (
    SLOTS.index(name) for name in ("left", "right", "causal", "table", "numbers")
)
_BIAS, _MORE = SLOTS.index("bias"), SLOTS.index("more")
_KIND, _BATCH, _HEAD, _ROW, _KEY, _FULL = range(1, 7)


@elementwise
def cap_scores(scores: Any, cap: Any) -> None:
    """Bring scores between ``-cap`` and ``cap``, smoothly."""
    for i in range(scores.size):
        scores[i] = tanh(scores[i] / cap) * cap


@jit
def low_of(a: Any, position: int) -> int:
    """Give the first key that a query at a position sees."""
    return max(0, position - a[_LEFT]) if a[_LEFT] >= 0 else 0


@jit
def high_of(a: Any, entry: int, position: int) -> int:
    """Give the end of the keys that a query at a position sees."""
    end = longs(a[_TABLE])[3 * entry + 2]
    if a[_CAUSAL] != 0:
        end = min(end, position + 1)
    if a[_RIGHT] >= 0:
        end = min(end, position + a[_RIGHT] + 1)
    return int(max(end, 0))


@jit
def bias_of(kind: int, address: int, filler: Any) -> Any:
    """Read one bias: a float32, or a mask of bytes or int32, where zero is ``filler``."""
    if kind == 1:
        return floats(address)[0]
    seen = bytes_at(address)[0] != 0 if kind == 2 else ints(address)[0] != 0
    return f4(0.0) if seen else filler


@jit
def shape_scores(
    a: Any, which: int, entry: int, head: int, row: int, key: int, count: int, out: int,
    step: int,
) -> None:  # fmt: skip
    """
    Add a query's bias to its scores of ``count`` keys from ``key`` on.

    ``which`` is the bias's first argument; scores are ``step`` floats apart.
    """
    kind, filler = (
        a[which + _KIND],
        floats(a[_NUMBERS])[2 if which == _BIAS else 3],
    )
    at = a[which] + entry * a[which + _BATCH] + head * a[which + _HEAD]
    at += row * a[which + _ROW] + key * a[which + _KEY]
    by, target = a[which + _KEY], floats(out)
    if kind == 1 and by == 4:
        source = floats(at)
        for t in range(count):
            target[t * step] += source[t]
        return
    for t in range(count):
        target[t * step] += bias_of(kind, at + t * by, filler)


@jit
def head_of(a: Any, which: int, entry: int, head: int) -> int:
    """Give where a head's keys or values begin; ``which`` is their address's argument."""
    return int(a[which] + entry * a[which + 1] + head * a[which + 2])


@jit
def block_at(
    kind: int, start: int, pitch: int, key: int, count: int, n: int, room: int
) -> Any:
    """Give where a block of a head's rows stands as float32, and its rows' distance."""
    if kind == 0:
        return start + key * pitch, pitch
    return rows_of(kind, start + key * pitch, pitch, count, n, room), 4 * padded(n)
