"""
Rows of activations times packed weights by AMX, as exact as float32 arithmetic.

Activations are split once for the product (:mod:`.nbits_split`). A turn is some groups of
weights and a block of rows. For each piece of K the turn's codes are made to tiles, which stay
in the core's second cache for all of its rows; sixteen rows' piece of activations stays in the
first for all of its groups.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.amx import CONFIGURATION, TILE, Tiles
from seamline_cpu.commands import Command, bind, command
from seamline_cpu.huge_pages import huge
from seamline_cpu.kernels.nbits_amx_tiles import switches
from seamline_cpu.kernels.nbits_amx_unpack import DEEP
from seamline_cpu.kernels.nbits_layout import GROUP, Form, Packed
from seamline_cpu.kernels.nbits_many import fill, weights_of
from seamline_cpu.kernels.nbits_split import LINE, PARTS, splitter, tabler
from seamline_cpu.kernels.nbits_split_tile import split_product
from seamline_cpu.kernels.nbits_turns import clear_turns, counters, next_turn
from seamline_cpu.kernels.tile_turns import Turns
from seamline_cpu.vectors import Vectors

__all__ = ["by_split_tiles"]

PIECE = 256  #: floats of K whose weights are made to tiles at once
_HIGH, _MOST = 64, 36  # rows and groups in a turn, at most: both stay in a second cache
_TURNS = 4  # of each thread, so that one which was held up leaves some to others
(_TURNS_AT, _PARTS, _M, _K, _A, _A_PITCH, _TILES, _DEPTH, _W, _ACROSS, _RECORD, _AFTER, _BLOCKS,
 _STEPS, _BIAS, _Y, _N, _GROUPS, _SCRATCH, _STRIDE, _PIECE, _PER, _HIGH_AT,
 _CONFIGURATION) = range(24)  # fmt: skip
_SLOTS = (
    "turns_at", "parts", "m", "k", "a", "a_pitch", "tiles", "depth", "w", "across", "record",
    "after", "blocks", "steps", "bias", "y", "n", "groups", "scratch", "stride", "piece",
    "per", "high", "configuration",
)  # fmt: skip


@functools.cache
def split(variant: str, kind: str, bits: int) -> Command:
    """Give the command that splits activations and starts the turns anew."""
    write, size = splitter(variant, kind, bits), 4 if kind == "float32" else 2
    each = PARTS[kind] * TILE

    def run(a: Any, share: int, shares: int) -> None:
        clear_turns(a[_TURNS_AT], a[_PARTS])
        m, depth = a[_M], a[_DEPTH]
        every = (m + GROUP - 1) // GROUP * depth
        for i in range(every * share // shares, every * (share + 1) // shares):
            row, deep = i // depth * GROUP, i % depth
            source = a[_A] + row * a[_A_PITCH] + DEEP * deep * size
            write(
                source, a[_A_PITCH], m - row, a[_K] - DEEP * deep, a[_TILES] + i * each
            )

    return command(run)


@functools.cache
def products(
    form: Form,
    parts: int,
    variant: str = "amx",
    tiles: Callable[[Vectors], Tiles] = Tiles,
) -> Command:
    """Give the command that multiplies split activations by weights."""
    write, multiply = tabler(variant, form), split_product(variant, tiles, parts)
    (begin, end), each = switches(variant, tiles), parts * TILE

    def run(a: Any, share: int, shares: int) -> None:
        n, m, per, steps = a[_N], a[_M], a[_PER], a[_STEPS]
        size, high = steps * TILE + LINE, a[_HIGH_AT]
        parts_of_m = (m + high - 1) // high
        every = parts_of_m * ((a[_GROUPS] + per - 1) // per)
        room = a[_SCRATCH] + share * a[_STRIDE]
        w, across = room + TILE, a[_PIECE] * size
        begin(a[_CONFIGURATION])
        turn = next_turn(a[_TURNS_AT], share, shares, every)
        while turn >= 0:
            low, first = turn % parts_of_m * high, turn // parts_of_m * per
            top, last = min(low + high, m), min(first + per, a[_GROUPS])
            for start in range(0, a[_BLOCKS], a[_PIECE]):
                deep = min(a[_PIECE], a[_BLOCKS] - start)
                for g in range(first, last):
                    source = a[_W] + g * a[_ACROSS] + start * a[_RECORD]
                    to = w + (g - first) * across
                    write(source, a[_RECORD], a[_AFTER], deep, steps, to)
                for row in range(low, top, GROUP):
                    x = a[_TILES] + (row // GROUP * a[_DEPTH] + start * steps) * each
                    for g in range(first, last):
                        to = a[_Y] + 4 * (row * n + GROUP * g)
                        bias = a[_BIAS] + 4 * GROUP * g
                        given, pitch = (to, 4 * n) if start > 0 else (bias, 0)
                        multiply(x, w + (g - first) * across, deep, steps, given, pitch, to,
                                 4 * n, m - row, n - GROUP * g, room)  # fmt: skip
            turn = next_turn(a[_TURNS_AT], share, shares, every)
        end()

    return command(run)


def _turns(tall: int, groups: int, threads: int) -> Turns:
    """Divide tiles of rows, and groups of weights, among threads."""
    parts = -(-tall * GROUP // _HIGH)
    per = min(max(groups * parts // (_TURNS * threads), 1), _MOST)
    return Turns(per, -(-tall // parts) * GROUP)


def by_split_tiles(
    packed: Packed, x: Array, kind: str, bias: Array, y: Array, threads: int, *,
    variant: str = "amx", tiles: Callable[[Vectors], Tiles] = Tiles, piece: int = PIECE,
    turns: Turns | None = None,
) -> list[Run]:  # fmt: skip
    """
    Bind a product that is exact but for the rounding of its sums.

    ``variant`` and ``tiles`` emit the code; others than AMX's own can stand in for it.
    ``piece`` is how many floats of K are unpacked at once, ``turns`` what threads take.
    """
    (m, k), form, parts = x.shape, packed.form, PARTS[kind]
    depth, tall = packed.depth // DEEP, -(-m // GROUP)
    groups, steps = -(-packed.n // GROUP), packed.block // DEEP
    blocks = max(piece // packed.block, 1)
    how = turns or _turns(tall, groups, threads)
    held = huge(tall * depth * parts * TILE)
    stride = TILE + how.per * blocks * (steps * TILE + LINE)
    scratch, (counted, turns_at) = huge(threads * stride), counters(threads)
    a = np.zeros(len(_SLOTS), np.int64)
    fill(
        a, _SLOTS, turns_at=turns_at, parts=threads, m=m, k=k, a=x.ctypes.data,
        a_pitch=x.strides[0], tiles=held.ctypes.data, depth=depth, bias=bias.ctypes.data,
        y=y.ctypes.data, scratch=scratch.ctypes.data, stride=stride, piece=blocks,
        per=how.per, high=how.high, configuration=CONFIGURATION.ctypes.data,
        **(weights_of(packed) | {"groups": groups}),
    )  # fmt: skip
    keep = (x, bias, y, packed, held, scratch, counted)
    first = split(variant, kind, form.bits)
    multiply = products(form, parts, variant, tiles)
    return [bind(what, a, threads, keep=keep) for what in (first, multiply)]
