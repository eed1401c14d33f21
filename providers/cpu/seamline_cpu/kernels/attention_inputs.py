"""
What stands before attention in its list of commands: caches, masks, lengths, biases.

Each function binds what it can as commands and gives the array that attention is to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_cpu.atomics import floats, ints, longs
from seamline_cpu.binding import copying
from seamline_cpu.commands import bind, command
from seamline_cpu.kernels.attention_floats import KINDS, row_of
from seamline_cpu.kernels.attention_native import Bias

__all__ = ["joined_cache", "key_mask", "lengths_table", "widened"]

f4 = np.float32
_CHUNK = 4096  # floats widened by one share at a time
Runs = list[Callable[[], object]]


@command
def _widen(a: Any, share: int, shares: int) -> None:
    """Arguments: kind, elements, and the addresses of both arrays."""
    n, pieces = a[1], (a[1] + _CHUNK - 1) // _CHUNK
    for i in range(pieces * share // shares, pieces * (share + 1) // shares):
        first = i * _CHUNK
        count = min(_CHUNK, n - first)
        row_of(a[0], a[2] + 2 * first, count, a[3] + 4 * first)


def widened(x: Array, threads: int, runs: Runs) -> Array:
    """Give an array as float32, widened by a command in front where it is narrower."""
    if x.dtype == f4:
        return x
    n = x.size
    room = np.empty(-(-n // 16) * 16, f4)
    arguments = [KINDS[x.dtype.name], n, x.ctypes.data, room.ctypes.data]
    shares = min(threads, -(-n // _CHUNK))
    runs.append(bind(_widen, arguments, shares, keep=(x, room)))
    return room[:n].reshape(x.shape)


@command
def _lengths(a: Any, share: int, shares: int) -> None:
    """Arguments: entries, lengths, bytes of one, rows, most keys and the table."""
    for entry in range(a[0]):
        length = longs(a[1])[entry] if a[2] == 8 else ints(a[1])[entry]
        line = longs(a[5] + 24 * entry)
        line[0] = a[3]
        line[1] = length - a[3]
        line[2] = min(max(length, 0), a[4])


def lengths_table(lengths: Array, rows: int, keys: int, runs: Runs) -> Array:
    """Give a table of entries whose keys are counted by an input, read at each run."""
    table = np.zeros((lengths.size, 3), np.int64)
    arguments = [lengths.size, lengths.ctypes.data, lengths.itemsize, rows, keys,
                 table.ctypes.data]  # fmt: skip
    runs.append(bind(_lengths, arguments, 1, keep=(lengths, table)))
    return table


@command
def _ends(a: Any, share: int, shares: int) -> None:
    """Arguments: entries, keys, ends, starts or 0, where to, and the filler."""
    keys, filler = a[1], floats(a[5])[0]
    for entry in range(a[0]):
        end = ints(a[2])[entry]
        start = ints(a[3])[entry] if a[3] != 0 else 0
        line = floats(a[4] + 4 * entry * keys)
        for key in range(keys):
            line[key] = f4(0.0) if start <= key < end else filler


def key_mask(
    mask: Array, batch: int, queries: int, keys: int, filler: float, runs: Runs
) -> Bias:
    """
    Give onnxruntime's integer masks as a bias.

    Of one axis it has the end of each entry's keys, and perhaps behind them their starts;
    of two it is (batch, keys), of three (batch, queries, keys).

    Raises
    ------
    ValueError
        It is for another number of keys.
    """
    if mask.ndim > 1:
        if mask.shape[-1] != keys:
            raise ValueError(f"the mask spans {mask.shape[-1]} keys of {keys}")
        return Bias(mask[:, None, None, :] if mask.ndim == 2 else mask[:, None], filler)
    made, number = np.empty((batch, 1, 1, keys), f4), np.array([filler], f4)
    starts = mask[batch : 2 * batch] if mask.size > batch else None
    arguments = [
        batch, keys, mask.ctypes.data, 0 if starts is None else starts.ctypes.data,
        made.ctypes.data, number.ctypes.data,
    ]  # fmt: skip
    runs.append(bind(_ends, arguments, 1, keep=(mask, made, number)))
    return Bias(made, filler)


def joined_cache(
    past: Array | None, now: Array, target: Array | None, threads: int, runs: Runs
) -> Array:
    """Put what is new behind what is past, in the output where one is asked for."""
    if past is None:
        if target is not None:
            runs.append(copying(now, target, threads))
        return now
    before = past.shape[2]
    if target is None:
        shape = (*now.shape[:2], before + now.shape[2], now.shape[3])
        target = np.empty(shape, now.dtype)
    runs.append(copying(past, target[:, :, :before], threads, apart=True))
    runs.append(copying(now, target[:, :, before:], threads, apart=True))
    return target
