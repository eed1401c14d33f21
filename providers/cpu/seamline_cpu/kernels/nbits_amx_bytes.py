"""
Packed codes times 8-bit activations, in byte tiles of AMX.

A step of K is multiplied for up to sixteen rows by one instruction: rows of activations are
the first tile as they lie, codes of a word taken plane by plane are rows of the second. What
vector code is left with is unpacking, once for all rows, and scaling a step's integers as
:mod:`.nbits_int8` does, so that results are the same to the byte.

Both ways lead through memory, and a tile is not loaded before what was stored there has left
the core's store buffer, nor that before all earlier work is done: step by step, nothing would
overlap. So a chunk of steps is unpacked, then multiplied, then scaled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_cpu.amx import TILE, Tiles
from seamline_cpu.commands import Command
from seamline_cpu.ir import types
from seamline_cpu.jit import inlined, native
from seamline_cpu.kernels.nbits_amx_tiles import switches
from seamline_cpu.kernels.nbits_commands import (
    CONFIGURATION_AT,
    int8_products_of,
    quantising,
)
from seamline_cpu.kernels.nbits_int8 import Int8Tile, Step
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_tiles import AHEAD, store_rows
from seamline_cpu.vectors import F32, I64, Vectors, vector

__all__ = ["BYTES_FROM", "byte_configuration", "byte_products", "byte_tile", "emit",
           "scratch_nbytes", "tile_of"]  # fmt: skip

BYTES_FROM = 32  #: rows from which byte tiles pay
_CHUNK = 16  # steps of a group that are unpacked, then multiplied, then scaled
_LINE = TILE // GROUP
_LEFT, _RIGHT = 4, 5  # tiles: activations, the first group's codes; sums are 0 and on


def tile_of(m: int) -> tuple[int, int]:
    """Give the rows and groups of a tile for M rows: few tiles, of about one height."""
    tiles = -(-m // GROUP)
    rows = -(-m // tiles)
    return rows, 1 if rows > GROUP // 2 else 2


def byte_configuration(rows: int, step: int) -> Array:
    """Give what ``ldtilecfg`` reads: tiles for ``rows`` of activations and a step of K."""
    made = np.zeros(64, np.uint8)
    made[0] = 1
    widths, heights = made[16:32:2], made[48:56]
    widths[:], heights[:] = _LINE, rows
    widths[_LEFT] = step
    heights[_RIGHT:] = step // 4
    return made


def scratch_nbytes() -> int:
    """Give the bytes that a thread needs: codes and sums of a chunk."""
    return _CHUNK * (GROUP // 2 * _LINE + TILE)


def byte_tile(
    variant: str, form: Form, rows: int, groups: int, tiles: Callable[[Vectors], Tiles]
) -> Any:
    """
    Make the intrinsic that computes ``rows`` by ``16 * groups`` of the product.

    Its arguments are those of :func:`.nbits_int8.int8_tile`, with :func:`scratch_nbytes`
    at the last. Tiles must have been configured.
    """
    bits, depth, half, zero = form.bits, form.step, form.half, form.zero

    def tile(
        context: Any, w: Any, across: Any, record: Any, after: Any, q: Any, q_pitch: Any,
        scale: Any, total: Any, s_pitch: Any, blocks: Any, steps: Any, bias: Any, y: Any,
        pitch: Any, columns: Any, scratch: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            emit(v, tiles(v), Form(bits, depth, half, zero), rows, groups, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 16), generate

    return native(tile)


class _Walk:
    """Emits how a chunk of steps goes along the blocks: by record, and by step in it."""

    def __init__(self, v: Vectors, record: Any, steps: Any) -> None:
        self.v, self.record, self.steps = v, record, steps

    def next(self, start: Any, inside: Any) -> list[Any]:
        """Give where the next step's record begins, and its number in it."""
        v, b = self.v, self.v.builder
        more = v.add(inside, 1)
        over = b.icmp_signed("==", more, self.steps)
        return [
            b.select(over, b.add(start, self.record), start),
            b.select(over, v.constant(I64, 0), more),
        ]


def emit(v: Vectors, t: Tiles, form: Form, rows: int, groups: int, args: Any) -> None:
    """Emit the code of :func:`byte_tile`'s intrinsic, from its arguments."""
    (w, across, record, after, q, q_pitch, scale, total, s_pitch, blocks, steps, bias, y,
     pitch, columns, scratch) = args  # fmt: skip
    b, tile, walk = v.builder, Int8Tile(v, form, groups), _Walk(v, record, steps)
    streams = v.every(w, across, groups)
    factors, totals = (v.every(x, s_pitch, rows) for x in (scale, total))
    size = form.step // 4 * _LINE
    chunked = _CHUNK // groups
    held = v.add(scratch, _CHUNK * GROUP // 2 * _LINE)
    every, most = b.mul(blocks, steps), v.constant(I64, chunked)

    def chunk(c: Any, carried: list[Any]) -> list[Any]:
        *sums, start, inside = carried
        first = b.mul(c, most)
        left = b.sub(every, first)
        count = b.select(b.icmp_signed("<", left, most), left, most)

        def unpacked(i: Any, carried: list[Any]) -> list[Any]:
            start, inside = carried
            place = v.times(inside, 4 * GROUP * form.words)
            codes = [v.add(stream, start, place) for stream in streams]
            _unpacked(tile, codes, v.add(scratch, v.times(i, groups * size)), size)
            return walk.next(start, inside)

        def multiplied(i: Any, _: list[Any]) -> list[Any]:
            t.load(_LEFT, v.add(q, v.times(b.add(first, i), form.step)), q_pitch)
            out = v.add(held, v.times(i, groups * TILE))
            for g in range(groups):
                t.load(_RIGHT + g, v.add(scratch, v.times(i, groups * size), g * size))
                t.zero(g)
                t.multiply_bytes(g, _LEFT, _RIGHT + g)
                t.store(g, v.add(out, g * TILE))
            return []

        def scaled(i: Any, carried: list[Any]) -> list[Any]:
            *sums, start, inside = carried
            four = v.times(b.add(first, i), 4)
            step = Step(
                [],
                [],
                [v.add(x, four) for x in factors],
                [v.add(x, four) for x in totals],
            )
            records = [v.add(stream, start) for stream in streams]
            scales, zeros = tile.scales(records, after)
            out = v.add(held, v.times(i, groups * TILE))
            dots = [
                [
                    b.add(
                        x,
                        v.load(
                            tile.words, v.add(out, g * TILE, _LINE * r + 4 * lane), 4
                        ),
                    )
                    for x, (g, lane) in zip(row, tile.parts, strict=True)
                ]
                for r, row in enumerate(tile.starts(step, zeros))
            ]
            made = tile.scaled(step, dots, scales, zeros, sums)
            return [*made, *walk.next(start, inside)]

        v.loop(count, [start, inside], unpacked)
        v.loop(count, [], multiplied)
        return v.loop(count, [*sums, start, inside], scaled)

    zero, each = v.constant(I64, 0), len(tile.parts)
    blank = [v.constant(vector(F32, v.lanes), 0.0)] * (rows * each)
    chunks = b.sdiv(v.add(every, chunked - 1), most)
    sums = v.loop(chunks, [*blank, zero, zero], chunk)[:-2]
    by_row = [sums[at : at + each] for at in range(0, rows * each, each)]
    store_rows(v, by_row, bias, y, pitch, columns)


def _unpacked(tile: Int8Tile, codes: list[Any], to: Any, size: int) -> None:
    """Write a step's codes of each group, a byte each, as rows of a tile."""
    v, form = tile.v, tile.form
    for place in codes:
        for line in range(form.words + 1):
            v.prefetch(v.add(place, AHEAD + 64 * line))
    for g, lane in tile.parts:
        for word in range(form.words):
            raw = v.load(tile.words, v.add(codes[g], 4 * (GROUP * word + lane)), 4)
            for plane in range(form.planes):
                row = g * size + _LINE * (word * form.planes + plane) + 4 * lane
                v.store(tile.plane(raw, plane), v.add(to, row), 4)


@functools.cache
def byte_products(
    form: Form, rows: int, groups: int, kind: str | None = None, variant: str = "amx",
    tiles: Callable[[Vectors], Tiles] = Tiles,
) -> Command:  # fmt: skip
    """
    Give the command that multiplies quantised activations, in tiles.

    With the ``kind`` of activations each thread quantises all of them for itself first.
    """
    tile = byte_tile(variant, form, rows, groups, tiles)
    own = None if kind is None else quantising(variant, kind, form.step, form.planes)
    begin, end = switches(variant, tiles)

    @inlined
    def begun(a: Any, share: int) -> None:
        begin(a[CONFIGURATION_AT])

    @inlined
    def ended() -> None:
        end()

    return int8_products_of(tile, groups, rows, own, begun, ended)
