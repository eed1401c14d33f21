"""What convolutions share: weights and biases packed, tiles cut to the output, units."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import floats
from seamline_cpu.commands import Native, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.activation_loops import clip
from seamline_cpu.kernels.epilogues import Epilogue
from seamline_cpu.tiles import ROWS

__all__ = [
    "copy_tile",
    "in_units",
    "limited",
    "pack_bias",
    "pack_slabs",
    "pack_weights",
    "pack_words",
]

_Array = np.ndarray[Any, Any]


@jit
def copy_tile(
    source: int, pitch: int, target: int, target_pitch: int, rows: int, columns: int
) -> None:
    """
    Copy the part of a tile that lies in the output, from there or to there.

    A cut tile is computed beside the output. To add a slab it starts from what the output
    holds, as whole tiles do: the same sums in the same order round alike everywhere.
    """
    for r in range(rows):
        values, to = floats(source + r * pitch), floats(target + r * target_pitch)
        for i in range(columns):
            to[i] = values[i]


def pack_slabs(weights: _Array, groups: int, slab: int) -> _Array:
    """
    Lay weights ``(M, C, ...)`` out, flat, by ``(group, slab, tile, tap, row)``.

    ``slab`` counts channels; the taps of a slab are its channels' windows, one after the
    other. The last slab may be short, rows past a group's last are zeros.
    """
    each, depth = weights.shape[0] // groups, weights.shape[1]
    taps = int(np.prod(weights.shape[2:]))
    tiles = -(-each // ROWS)
    padded = np.zeros((groups, tiles * ROWS, depth * taps), np.float32)
    padded[:, :each] = weights.reshape(groups, each, -1)
    shaped = padded.reshape(groups, tiles, ROWS, -1).transpose(0, 1, 3, 2)
    slabs = [
        shaped[:, :, at : at + slab * taps].reshape(groups, -1)
        for at in range(0, max(1, depth * taps), slab * taps)
    ]
    return np.ascontiguousarray(np.concatenate(slabs, 1)).reshape(-1)


def pack_weights(weights: np.ndarray[Any, Any], groups: int) -> np.ndarray[Any, Any]:
    """Lay weights ``(M, C, *kernel)`` out as ``(groups, tiles, C * kernel, ROWS)``."""
    flat = weights.reshape(groups, weights.shape[0] // groups, -1)
    tiles = -(-flat.shape[1] // ROWS)
    packed = np.zeros((groups, tiles * ROWS, flat.shape[2]), np.float32)
    packed[:, : flat.shape[1]] = flat
    shaped = packed.reshape(groups, tiles, ROWS, -1).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(shaped)


def pack_words(weights: np.ndarray[Any, Any], groups: int) -> np.ndarray[Any, Any]:
    """Lay int16 weights out as ``(groups, tiles, pairs of C * kernel, ROWS, 2)``."""
    flat = weights.reshape(groups, weights.shape[0] // groups, -1)
    tiles, pairs = -(-flat.shape[1] // ROWS), -(-flat.shape[2] // 2)
    packed = np.zeros((groups, tiles * ROWS, pairs * 2), np.int16)
    packed[:, : flat.shape[1], : flat.shape[2]] = flat
    shaped = packed.reshape(groups, tiles, ROWS, pairs, 2).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(shaped)


def pack_bias(
    bias: np.ndarray[Any, Any] | None, count: int, groups: int, dtype: Any = np.float32
) -> np.ndarray[Any, Any]:
    """Lay a bias out as ``(groups, tiles * ROWS)``; zeros where there is none."""
    each = count // groups
    packed = np.zeros((groups, -(-each // ROWS) * ROWS), dtype)
    if bias is not None:
        packed[:, :each] = bias.reshape(groups, each)
    return packed


@command
def _zero(a: Any, share: int, shares: int) -> None:
    """Set the first argument, a counter, to zero."""
    a[0] = 0


def in_units(launched: Native, counter: _Array) -> Native:
    """
    Give a run of a command whose shares take units from a counter, one by one.

    A thread that the system holds up then delays one unit, and not half of the work.
    """

    def run() -> None:
        counter[0] = 0
        launched()

    reset = (_zero.address, counter.ctypes.data, 1)
    return Native(run).over((reset, *launched.rows), (launched, counter))


def limited(epilogue: Epilogue) -> tuple[_Array, tuple[int, int, int]]:
    """
    Give the limits that tiles keep to, and what of an epilogue is left for later.

    The limits of sums that are not complete, none, are followed by those of outputs.
    """
    limits = np.array([-np.inf, np.inf, -np.inf, np.inf], np.float32)
    function, numbers, more = epilogue.arguments
    if epilogue.loop is clip and more == 0:
        limits[2:], function = epilogue.numbers, 0
    return limits, (function, numbers, more)
