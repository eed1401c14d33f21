"""
Some rows of float32 activations times packed weights: weights that never leave registers.

A register's worth of codes becomes floats, with the scale, and is multiplied by a value of
every row at once; every sum stays in its register along all of K. So weights are unpacked
once, and where rows are a dozen or two, that is a small part. Activations are read from
pieces of K, in which rows are a constant number of bytes apart (:mod:`.nbits_pieces`):
one address serves all rows, and a value goes to all lanes in the instruction that multiplies.
"""

from __future__ import annotations

import functools
from typing import Any

from seamline_cpu.commands import Command, command
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.kernels.nbits_float import Weights
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_operands import SLOTS
from seamline_cpu.kernels.nbits_pieces import copier
from seamline_cpu.kernels.nbits_tiles import AHEAD, parts_of, store_rows
from seamline_cpu.kernels.nbits_turns import next_turn
from seamline_cpu.row_tiles import APART
from seamline_cpu.vectors import F32, Vectors

__all__ = ["emit_held", "held_products"]

(_TURNS_AT, _DEPTH, _W, _ACROSS, _RECORD, _AFTER, _BLOCKS, _BLOCK, _STEPS, _BIAS, _Y, _N,
 _GROUPS, _PER, _SCRATCH, _STRIDE) = (SLOTS.index(name) for name in (
    "turns_at", "depth", "w", "across", "record", "after", "blocks", "block", "steps", "bias",
    "y", "n", "groups", "per", "scratch", "stride"))  # fmt: skip


def _held_tile(variant: str, form: Form, rows: int, groups: int, pitch: int) -> Any:
    """
    Make the intrinsic that computes ``rows`` by ``16 * groups`` of the product.

    Its arguments are int64: the first group's records, the bytes between groups, a record's
    bytes, where in it the scales are; activations, rows ``pitch`` bytes apart, and the bytes
    between pieces; blocks in a piece, blocks, and steps in a block; the bias, the output, the
    bytes between its rows, and how many columns it has from here on.
    """
    bits, depth, half, zero = form.bits, form.step, form.half, form.zero

    def tile(
        context: Any, w: Any, across: Any, record: Any, after: Any, x: Any, apart: Any,
        each: Any, blocks: Any, steps: Any, bias: Any, y: Any, y_pitch: Any, columns: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            emit_held(v, Form(bits, depth, half, zero), rows, groups, pitch, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 13), generate

    return native(tile)


def emit_held(
    v: Vectors, form: Form, rows: int, groups: int, pitch: int, args: Any
) -> None:
    """Emit a tile; see :func:`_held_tile`."""
    (
        w,
        across,
        record,
        after,
        x,
        apart,
        each,
        blocks,
        steps,
        bias,
        y,
        y_pitch,
        columns,
    ) = args
    b, weights, parts = v.builder, Weights(v, form), parts_of(v, groups)
    streams, words = v.every(w, across, groups), v.times(steps, form.words)

    def piece(number: Any, sums: list[Any]) -> list[Any]:
        first, start = b.mul(number, each), v.add(x, b.mul(number, apart))
        left = b.sub(blocks, first)
        count = b.select(b.icmp_signed("<", left, each), left, each)

        def block(i: Any, sums: list[Any]) -> list[Any]:
            at = b.mul(b.add(first, i), record)
            codes = [v.add(stream, at) for stream in streams]
            scales = [weights.scales(v.add(codes[g], after), lane) for g, lane in parts]
            values = v.add(start, v.times(b.mul(i, words), 4 * 32 // form.bits))

            def word(j: Any, sums: list[Any]) -> list[Any]:
                here = [v.add(place, v.times(j, 4 * GROUP)) for place in codes]
                near = v.add(values, v.times(j, 4 * 32 // form.bits))
                return _multiplied(weights, parts, here, near, pitch, scales, sums)

            return v.loop(words, sums, word)

        return v.loop(count, sums, block)

    blank = [v.constant(weights.floats, 0.0)] * (rows * len(parts))
    pieces = b.sdiv(v.add(blocks, each, -1), each)
    sums, some = v.loop(pieces, blank, piece), len(parts)
    by_row = [sums[at : at + some] for at in range(0, rows * some, some)]
    store_rows(v, by_row, bias, y, y_pitch, columns)


def _multiplied(
    weights: Weights, parts: Any, codes: list[Any], values: Any, pitch: int, scales: Any,
    sums: list[Any],
) -> list[Any]:  # fmt: skip
    """Add a word's products to sums, by row and part."""
    v, b, count, sums = weights.v, weights.v.builder, len(parts), list(sums)
    for place in codes:
        v.prefetch(v.add(place, AHEAD))
    raw = [v.load(weights.words, v.add(codes[g], 4 * lane), 4) for g, lane in parts]
    for k in range(32 // weights.form.bits):
        made = [
            b.fmul(weights.weight(code, k, zero), scale)
            for code, (scale, zero) in zip(raw, scales, strict=True)
        ]
        for row in range(len(sums) // count):
            x = v.broadcast(F32, v.add(values, row * pitch + 4 * k), v.lanes)
            for part, weight in enumerate(made):
                at = row * count + part
                sums[at] = v.multiply_add(weight, x, sums[at])
    return sums


@functools.cache
def held_products(
    variant: str, form: Form, kind: str, piece: int, rows: int, columns: int
) -> Command:
    """Give the command that multiplies ``rows`` rows by weights in registers."""
    groups, pitch = columns // GROUP, 4 * (piece + APART)
    tile = _held_tile(variant, form, rows, groups, pitch)
    copy = copier(variant, kind, piece)

    def run(a: Any, share: int, shares: int) -> None:
        n, count, per = a[_N], a[_GROUPS], a[_PER] * groups
        turns, x = (count + per - 1) // per, a[_SCRATCH] + share * a[_STRIDE]
        for start in range(0, a[_DEPTH], piece):
            copy(a, 0, rows, start, x + start // piece * rows * pitch)
        turn = next_turn(a[_TURNS_AT], share, shares, turns)
        while turn >= 0:
            for g in range(turn * per, min((turn + 1) * per, count), groups):
                # A group that is not there is the one before: its columns are not either.
                across = a[_ACROSS] if g + groups <= count else 0
                tile(
                    a[_W] + g * a[_ACROSS], across, a[_RECORD], a[_AFTER], x,
                    rows * pitch, piece // a[_BLOCK], a[_BLOCKS], a[_STEPS],
                    a[_BIAS] + 4 * GROUP * g, a[_Y] + 4 * GROUP * g, 4 * n, n - GROUP * g,
                )  # fmt: skip
            turn = next_turn(a[_TURNS_AT], share, shares, turns)

    return command(run)
