"""
Many rows of activations times packed weights, in bfloat16 tiles of AMX.

Both sides are rounded to bfloat16 and summed in float32: less exact than float32, more so
than activations of 8 bits. Sixteen rows by 32 of K are one tile of activations; they are
packed so first. Weights are unpacked for two groups and :data:`PIECE` tiles of K at once,
which serve all rows of a block; their sums stay in a buffer of the core's first caches and
go to the output, with the bias, at the end. Unpacking is the limit for fewer than about 64
rows; below :data:`FROM_ROWS` the 8-bit products are quicker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from seamline_cpu.amx import TILE, Tiles
from seamline_cpu.atomics import fetch_add, floats
from seamline_cpu.commands import Command, command
from seamline_cpu.ir import types
from seamline_cpu.jit import jit, native
from seamline_cpu.kernels.nbits_activations import as_16_bits, load_floats
from seamline_cpu.kernels.nbits_float import Weights
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_tiles import parts_of
from seamline_cpu.vectors import I32, I64, Vectors, vector

__all__ = ["AMX_SLOTS", "FROM_ROWS", "SCRATCH", "amx_products", "tiled"]

f4 = np.float32
FROM_ROWS = 17  #: rows from which tiles pay
PIECE = 64  #: tiles of K whose weights are unpacked at once: 128 KiB
_BLOCK = 16  # tiles of rows whose sums are kept: 32 KiB for two groups
_DEEP = 32  # of K in a tile
_PAIR = 2 * TILE  # bytes of two groups' weights, or of two groups' sums of 16 rows
#: Bytes that a thread needs.
SCRATCH = (PIECE + _BLOCK) * _PAIR
(_NEXT_AT, _NEXT, _M, _K, _A, _A_PITCH, _TILES, _DEPTH, _W, _ACROSS, _RECORD, _AFTER, _BLOCKS,
 _STEPS, _BIAS, _Y, _N, _GROUPS, _SCRATCH, _CONFIGURATION) = range(20)  # fmt: skip
#: Names of the arguments, in their order; ``depth`` is tiles of K.
AMX_SLOTS = (
    "next_at", "next", "m", "k", "a", "a_pitch", "tiles", "depth", "w", "across", "record",
    "after", "blocks", "steps", "bias", "y", "n", "groups", "scratch", "configuration",
)  # fmt: skip


def _row_packer(variant: str, kind: str) -> Any:
    """Make the intrinsic that writes 32 of K as bfloat16: from, how many there are, to."""

    def pack(context: Any, x: Any, count: Any, out: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            x, count, out = args
            size = 4 if kind == "float32" else 2
            for half in range(0, _DEEP, 16):
                left = v.add(count, -half)
                values = load_floats(v, kind, v.add(x, half * size), 16, left)
                v.store(as_16_bits(v, "bfloat16", values), v.add(out, 2 * half), 2)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), generate

    return native(pack)


@functools.cache
def tiled(variant: str, kind: str) -> Command:
    """Give the command that packs activations in tiles and starts the counter anew."""
    pack, size = _row_packer(variant, kind), 4 if kind == "float32" else 2

    def run(a: Any, share: int, shares: int) -> None:
        a[_NEXT] = 0
        m, depth = a[_M], a[_DEPTH]
        # Tiles of rows come in pairs; rows past the last are packed as zeros.
        rows = (m + 2 * GROUP - 1) // (2 * GROUP) * (2 * GROUP)
        for r in range(rows * share // shares, rows * (share + 1) // shares):
            source = a[_A] + min(r, m - 1) * a[_A_PITCH]
            target = a[_TILES] + (r // GROUP * depth) * TILE + r % GROUP * 64
            for t in range(depth):
                count = a[_K] - _DEEP * t if r < m else 0
                pack(source + _DEEP * t * size, count, target + t * TILE)

    return command(run)


def _unpacker(variant: str, form: Form) -> Any:
    """
    Make the intrinsic that unpacks steps of a group to tiles.

    Its arguments are int64: the first record, a record's bytes, where in it the scales are,
    the first step, how many, steps in a block, and where to.
    """
    bits, depth, half, zero = form.bits, form.step, form.half, form.zero

    def unpack(
        context: Any, w: Any, record: Any, after: Any, first: Any, count: Any, steps: Any,
        out: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            _emit_unpack(v, Form(bits, depth, half, zero), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    return native(unpack)


def _emit_unpack(v: Vectors, form: Form, args: Any) -> None:
    w, record, after, first, count, steps, out = args
    b, weights, each = v.builder, Weights(v, form), 32 // form.bits
    in_tile = _DEEP // form.step

    def step(i: Any, _: list[Any]) -> list[Any]:
        number = b.add(first, i)
        block, inside = b.sdiv(number, steps), b.srem(number, steps)
        start = v.add(w, b.mul(block, record))
        codes = v.add(start, v.times(inside, 4 * GROUP * form.words))
        tile = v.times(b.sdiv(i, v.constant(I64, in_tile)), _PAIR)
        place = v.times(b.srem(i, v.constant(I64, in_tile)), TILE // in_tile)
        to = v.add(out, tile, place)
        for lane in [lane for _, lane in parts_of(v, 1)]:
            scale, zero = weights.scales(v.add(start, after), lane)
            for word in range(form.words):
                at = v.add(codes, 4 * (GROUP * word + lane))
                raw = v.load(weights.words, at, 4)
                for pair in range(each // 2):
                    low, high = (
                        _rounded(
                            v, b.fmul(weights.weight(raw, 2 * pair + k, zero), scale)
                        )
                        for k in range(2)
                    )
                    sixteen = v.constant(weights.words, 16)
                    both = b.or_(b.lshr(low, sixteen), high)
                    row = word * (each // 2) + pair
                    v.store(both, v.add(to, 64 * row + 4 * lane), 4)
        return []

    v.loop(count, [], step)


def _rounded(v: Vectors, value: Any) -> Any:
    """Round to the upper 16 bits, half up in magnitude; the lower become 0."""
    b, words = v.builder, vector(I32, v.lanes)
    bits = b.add(b.bitcast(value, words), v.constant(words, 0x8000))
    return b.and_(bits, v.constant(words, 0xFFFF0000))


def _product(variant: str, tiles: Callable[[Vectors], Tiles]) -> Any:
    """
    Make the intrinsic that adds 32 rows times two groups to their sums.

    Its arguments are int64: tiles of the first 16 rows, bytes to those of the next, weights,
    tiles of K, sums, and whether there are any yet.
    """

    def product(
        context: Any, a: Any, across: Any, w: Any, count: Any, sums: Any, onto: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            _emit_product(v, tiles(v), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return native(product)


def _emit_product(v: Vectors, t: Tiles, args: Any) -> None:
    a, across, w, count, sums, onto = args
    b = v.builder
    places = [v.add(sums, _PAIR * (i // 2), 64 * (i % 2)) for i in range(4)]
    there = b.icmp_signed("!=", onto, v.constant(I64, 0))
    with b.if_else(there) as (some, none):
        with some:
            for i, place in enumerate(places):
                t.load(i, place, 128)
        with none:
            for i in range(4):
                t.zero(i)

    def deep(i: Any, _: list[Any]) -> list[Any]:
        left, right = v.add(a, v.times(i, TILE)), v.add(w, v.times(i, _PAIR))
        t.load(4, left)
        t.load(6, right)
        t.multiply(0, 4, 6)
        t.load(7, v.add(right, TILE))
        t.multiply(1, 4, 7)
        t.load(5, b.add(left, across))
        t.multiply(2, 5, 6)
        t.multiply(3, 5, 7)
        return []

    v.loop(count, [], deep)
    for i, place in enumerate(places):
        t.store(i, place, 128)


def _switches(variant: str, tiles: Callable[[Vectors], Tiles]) -> tuple[Any, Any]:
    """Make the intrinsics that configure and release the tiles."""

    def begin(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            tiles(Vectors(builder, variant)).configure(args[0])
            return context.get_dummy_value()

        return types.void(types.int64), generate

    def end(context: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            tiles(Vectors(builder, variant)).release()
            return context.get_dummy_value()

        return types.void(), generate

    return native(begin), native(end)


@jit
def _finish(sums: int, rows: int, columns: int, bias: int, y: int, pitch: int) -> None:
    """Write sums, 32 columns to a row, with the bias."""
    added = floats(bias)
    for r in range(rows):
        source, target = floats(sums + 128 * r), floats(y + r * pitch)
        for j in range(min(columns, 2 * GROUP)):
            target[j] = source[j] + added[j]


@jit
def _clear(half: int) -> None:
    """Have nothing in the second half of a tile of weights: 0 times infinity is NaN."""
    values = floats(half)
    for i in range(TILE // 8):
        values[i] = f4(0.0)


@functools.cache
def amx_products(
    form: Form, variant: str = "amx", tiles: Callable[[Vectors], Tiles] = Tiles
) -> Command:
    """Give the command that multiplies tiles of activations by weights."""
    unpack, product = _unpacker(variant, form), _product(variant, tiles)
    begin, end = _switches(variant, tiles)
    in_tile = _DEEP // form.step

    def run(a: Any, share: int, shares: int) -> None:
        count, depth, n, m = a[_GROUPS], a[_DEPTH], a[_N], a[_M]
        steps = a[_BLOCKS] * a[_STEPS]
        pairs, high = (count + 1) // 2, (m + GROUP - 1) // GROUP
        every = pairs * ((high + _BLOCK - 1) // _BLOCK)
        w = a[_SCRATCH] + share * SCRATCH
        sums = w + PIECE * _PAIR
        begin(a[_CONFIGURATION])
        turn = fetch_add(a[_NEXT_AT], 1)
        while turn < every:
            g, low = min(turn % pairs * 2, count - 2), turn // pairs * _BLOCK
            top = min(low + _BLOCK, high)
            for start in range(0, depth, PIECE):
                deep = min(PIECE, depth - start)
                some = min(deep * in_tile, steps - start * in_tile)
                for h in range(2):
                    unpack(a[_W] + (g + h) * a[_ACROSS], a[_RECORD], a[_AFTER],
                           start * in_tile, some, a[_STEPS], w + h * TILE)  # fmt: skip
                    if some < deep * in_tile:  # half a tile of K is left
                        _clear(w + (deep - 1) * _PAIR + h * TILE + TILE // 2)
                for t in range(low, top, 2):
                    product(a[_TILES] + (t * depth + start) * TILE, depth * TILE, w, deep,
                            sums + (t - low) * _PAIR, start)  # fmt: skip
            row = low * GROUP
            _finish(sums, min(top * GROUP, m) - row, n - g * GROUP, a[_BIAS] + 64 * g,
                    a[_Y] + 4 * (row * n + g * GROUP), 4 * n)  # fmt: skip
            turn = fetch_add(a[_NEXT_AT], 1)
        end()

    return command(run)
