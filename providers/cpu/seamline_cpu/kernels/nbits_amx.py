"""
Rows of activations times packed weights, in bfloat16 tiles of AMX.

Both sides are rounded to bfloat16 and summed in float32: less exact than float32, more so
than activations of 8 bits. A turn is some pairs of groups of weights and a block of rows. It
goes along K by pieces: each pair's piece is unpacked once for all rows of the block,
activations of the piece serve all pairs from the core's second cache, and sums wait in a
buffer. Unpacking is the limit for few rows; below :func:`from_rows` other kernels are quicker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.amx import CONFIGURATION, TILE, Tiles
from seamline_cpu.atomics import floats
from seamline_cpu.commands import Command, bind, command
from seamline_cpu.jit import inlined
from seamline_cpu.kernels.nbits_amx_tiles import (
    SUMS,
    finisher,
    product,
    row_packer,
    switches,
)
from seamline_cpu.kernels.nbits_amx_unpack import (
    DEEP,
    PAIR,
    turned_nbytes,
    turner,
    unpacker,
)
from seamline_cpu.kernels.nbits_layout import GROUP, Form, Packed
from seamline_cpu.kernels.nbits_many import fill, weights_of
from seamline_cpu.kernels.nbits_turns import clear_turns, counters, next_turn
from seamline_cpu.vectors import Vectors

__all__ = ["PIECE", "by_tiles", "from_rows", "tiled"]

f4 = np.float32
PIECE = 32  #: tiles of K whose weights are unpacked at once: 64 KiB
_BLOCK = 16  # tiles of rows to a block
_MOST = 8  # pairs of groups to a turn: their sums are 256 KiB
_TURNS = 16  # turns of each thread
(_TURNS_AT, _PARTS, _M, _K, _A, _A_PITCH, _TILES, _DEPTH, _W, _ACROSS, _RECORD, _AFTER, _BLOCKS,
 _STEPS, _BIAS, _Y, _N, _GROUPS, _SCRATCH, _STRIDE, _PIECE, _PER, _HIGH,
 _CONFIGURATION) = range(24)  # fmt: skip
_SLOTS = (
    "turns_at", "parts", "m", "k", "a", "a_pitch", "tiles", "depth", "w", "across", "record",
    "after", "blocks", "steps", "bias", "y", "n", "groups", "scratch", "stride", "piece",
    "per", "high", "configuration",
)  # fmt: skip


def from_rows(*, int8: bool) -> int:
    """Give the rows from which these tiles pay, over 8-bit or over float32 activations."""
    return 32 if int8 else 8


@inlined
def _tile_at(tiles: int, number: int, m: int, depth: int) -> tuple[int, int]:
    """Give where a tile of rows begins, and the bytes from one of K to the next."""
    place = tiles + number // 2 * depth * PAIR
    if number % 2 == 0 and (number + 1) * GROUP >= m:
        return place, TILE  # the last, without another beside it
    return place + number % 2 * TILE, PAIR


@functools.cache
def tiled(variant: str, kind: str, bits: int, step: int) -> Command:
    """Give the command that packs activations in tiles and starts the turns anew."""
    pack, size = row_packer(variant, kind, bits, step), 4 if kind == "float32" else 2

    def run(a: Any, share: int, shares: int) -> None:
        clear_turns(a[_TURNS_AT], a[_PARTS])
        m, depth = a[_M], a[_DEPTH]
        every = (m + GROUP - 1) // GROUP * depth
        for i in range(every * share // shares, every * (share + 1) // shares):
            row, deep = i // depth * GROUP, i % depth
            place, pitch = _tile_at(a[_TILES], i // depth, m, depth)
            source = a[_A] + row * a[_A_PITCH] + DEEP * deep * size
            pack(
                source, a[_A_PITCH], m - row, a[_K] - DEEP * deep, place + deep * pitch
            )

    return command(run)


@inlined
def _clear(half: int) -> None:
    """Have nothing in the second half of a tile of weights: 0 times infinity is NaN."""
    for row in range(GROUP):
        values = floats(half + row * (TILE // GROUP))
        for i in range(TILE // GROUP // 8):
            values[i] = f4(0.0)


def _unpacking(variant: str, form: Form) -> Any:
    """Make the function that unpacks ``deep`` tiles of two groups."""
    turn, unpack = turner(variant, form), unpacker(variant, form)
    in_tile = DEEP // form.step

    @inlined
    def unpacked(a: Any, g: int, start: int, deep: int, w: int) -> None:
        first, steps = start * in_tile, a[_STEPS]
        some = min(deep * in_tile, a[_BLOCKS] * steps - first)
        turned, apart = w + a[_PIECE] * PAIR, a[_RECORD] // steps
        # What is read next: the next piece, or where the next pair begins.
        ahead = (first + a[_PIECE] * in_tile) * apart
        if start + deep >= a[_DEPTH]:
            ahead = 2 * a[_ACROSS]
        for h in range(2):
            source, to = a[_W] + (g + h) * a[_ACROSS], w + h * TILE
            turn(source, a[_RECORD], a[_AFTER], first, some, steps, turned)
            unpack(turned, some, to, source + ahead, apart)
            if some < deep * in_tile:  # half a tile of K is left
                _clear(to + (deep - 1) * PAIR + TILE // GROUP // 2)

    return unpacked


def _multiplying(variant: str, tiles: Callable[[Vectors], Tiles]) -> Any:
    """Make the function that multiplies ``deep`` unpacked tiles by a block of rows."""
    square = product(variant, tiles, single=False)
    single = product(variant, tiles, single=True)

    @inlined
    def multiplied(a: Any, w: int, start: int, deep: int, low: int, top: int,
                   sums: int) -> None:  # fmt: skip
        for t in range(low, top, 2):
            x, pitch = _tile_at(a[_TILES], t, a[_M], a[_DEPTH])
            to = sums + (t - low) // 2 * SUMS
            if pitch == PAIR:
                square(x + start * pitch, w, deep, to, start)
            else:
                single(x + start * pitch, w, deep, to, start)

    return multiplied


def _finishing(variant: str) -> Any:
    """Make the function that writes two groups' sums for a block of rows."""
    finish = finisher(variant)

    @inlined
    def finished(a: Any, g: int, low: int, top: int, sums: int) -> None:
        n, m = a[_N], a[_M]
        for t in range(low, top):
            row, place = t * GROUP, sums + (t - low) // 2 * SUMS
            alone = t % 2 == 0 and row + GROUP >= m
            for h in range(2):
                at = place + (h if alone else 2 * h + t % 2) * TILE
                more, column = at + 2 * TILE if alone else at, (g + h) * GROUP
                finish(at, more, a[_BIAS] + 4 * column, a[_Y] + 4 * (row * n + column),
                       4 * n, m - row, n - column)  # fmt: skip

    return finished


@functools.cache
def _products(
    form: Form, variant: str = "amx", tiles: Callable[[Vectors], Tiles] = Tiles
) -> Command:
    """Give the command that multiplies weights by tiles of activations."""
    unpacked, multiplied = _unpacking(variant, form), _multiplying(variant, tiles)
    finished, (begin, end) = _finishing(variant), switches(variant, tiles)

    def run(a: Any, share: int, shares: int) -> None:
        count, depth, per, high = a[_GROUPS], a[_DEPTH], a[_PER], a[_HIGH]
        pairs, tall = (count + 1) // 2, (a[_M] + GROUP - 1) // GROUP
        spans, size = (pairs + per - 1) // per, high // 2 * SUMS
        every = spans * ((tall + high - 1) // high)
        w = a[_SCRATCH] + share * a[_STRIDE]
        sums = w + a[_STRIDE] - per * size
        begin(a[_CONFIGURATION])
        turn = next_turn(a[_TURNS_AT], share, shares, every)
        while turn >= 0:
            low, first = turn // spans * high, turn % spans * per
            top, last = min(low + high, tall), min(first + per, pairs)
            for start in range(0, depth, a[_PIECE]):
                deep = min(a[_PIECE], depth - start)
                for p in range(first, last):
                    unpacked(a, min(2 * p, count - 2), start, deep, w)
                    multiplied(a, w, start, deep, low, top, sums + (p - first) * size)
            for p in range(first, last):
                finished(a, min(2 * p, count - 2), low, top, sums + (p - first) * size)
            turn = next_turn(a[_TURNS_AT], share, shares, every)
        end()

    return command(run)


def by_tiles(
    packed: Packed, x: Array, kind: str, bias: Array, y: Array, threads: int, *,
    variant: str = "amx", tiles: Callable[[Vectors], Tiles] = Tiles, piece: int = PIECE,
) -> list[Run]:  # fmt: skip
    """
    Bind a product in bfloat16.

    ``variant`` and ``tiles`` emit the code; others than AMX's own can stand in for it.
    ``piece`` is how many tiles of K are unpacked at once.
    """
    (m, k), form = x.shape, packed.form
    depth, tall = -(-packed.depth // DEEP), -(-m // GROUP)
    high = min(_BLOCK, tall + tall % 2)
    pairs = -(-len(packed.data) // 2)
    per = min(_MOST, max(1, pairs * -(-tall // high) // (_TURNS * threads)))
    held = np.zeros(tall * depth * TILE + 64, np.uint8)
    stride = piece * (PAIR + DEEP // form.step * turned_nbytes(form))
    stride = -(-stride // 64) * 64 + per * (high // 2) * SUMS
    scratch, (turns, turns_at) = (
        np.zeros(threads * stride + 64, np.uint8),
        counters(threads),
    )
    a = np.zeros(len(_SLOTS), np.int64)
    fill(
        a, _SLOTS, turns_at=turns_at, parts=threads, m=m, k=k, a=x.ctypes.data,
        a_pitch=x.strides[0], tiles=_aligned(held), depth=depth, bias=bias.ctypes.data,
        y=y.ctypes.data, scratch=_aligned(scratch), stride=stride, piece=piece, per=per,
        high=high, configuration=CONFIGURATION.ctypes.data, **weights_of(packed),
    )  # fmt: skip
    keep = (x, bias, y, packed, held, scratch, turns)
    first = tiled(variant, kind, form.bits, form.step)
    multiply = _products(form, variant, tiles)
    return [bind(what, a, threads, keep=keep) for what in (first, multiply)]


def _aligned(x: Array) -> int:
    """Give the address of an array's first whole cache line."""
    return int(x.ctypes.data + -x.ctypes.data % 64)
