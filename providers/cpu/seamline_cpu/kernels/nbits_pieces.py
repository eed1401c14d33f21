"""
Many rows of float32 activations times packed weights: unpack a piece, use it for all rows.

K is cut into pieces. A thread takes a few panels of weights, of the columns of a register
tile, and a block of rows. For each piece of K it copies the rows to where each is a constant
number of bytes from the next (:mod:`seamline_cpu.row_tiles`): they stay in its second cache
for all the panels. Each thread does so for itself, which takes less than it does to fetch
what another core has written. It unpacks a panel's piece, which fits into the first cache
beside the rows of a tile, and multiplies every tile of rows by it at once. So weights are
unpacked once for a block of rows, and at no time is more than a piece of one panel unpacked
for each thread. What the sums of a tile come to after a piece is kept in the output; they
begin with the bias.
"""

from __future__ import annotations

import functools
from typing import Any

from seamline_cpu.commands import Command, command
from seamline_cpu.ir import types
from seamline_cpu.jit import inlined, native
from seamline_cpu.kernels.nbits_activations import widener
from seamline_cpu.kernels.nbits_float import Weights
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_operands import SLOTS
from seamline_cpu.kernels.nbits_tiles import AHEAD, parts_of
from seamline_cpu.kernels.nbits_turns import next_turn
from seamline_cpu.row_tiles import APART, row_tile
from seamline_cpu.vectors import REGISTER, Vectors

__all__ = ["copier", "emit_unpacking", "unpacked_products", "unpacker"]

(_TURNS_AT, _GROUPS, _PER, _N, _W, _ACROSS, _RECORD, _AFTER, _STEPS, _BIAS, _Y, _DEPTH, _BLOCK,
 _SCRATCH, _STRIDE, _M, _K, _A, _A_PITCH, _HIGH) = (SLOTS.index(name) for name in (
    "turns_at", "groups", "per", "n", "w", "across", "record", "after", "steps", "bias", "y",
    "depth", "block", "scratch", "stride", "m", "k", "a", "a_pitch", "rows"))  # fmt: skip


def unpacker(variant: str, form: Form, pitch: int) -> Any:
    """
    Make the intrinsic that unpacks blocks of a group to float32.

    Its arguments are int64: the first record, a record's bytes, where in it the scales are,
    blocks, steps in a block, and where to, of which each of K is ``pitch`` bytes on.
    """
    bits, depth, half, zero = form.bits, form.step, form.half, form.zero

    def unpack(
        context: Any, w: Any, record: Any, after: Any, blocks: Any, steps: Any, out: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            emit_unpacking(v, Form(bits, depth, half, zero), pitch, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return native(unpack)


def emit_unpacking(v: Vectors, form: Form, pitch: int, args: Any) -> None:
    """Emit what unpacks; see :func:`unpacker`."""
    w, record, after, blocks, steps, out = args
    b, weights, each = v.builder, Weights(v, form), 32 // form.bits
    lanes = [lane for _, lane in parts_of(v, 1)]

    def block(i: Any, _: list[Any]) -> list[Any]:
        codes = v.add(w, b.mul(i, record))
        scales = [weights.scales(v.add(codes, after), lane) for lane in lanes]

        def word(j: Any, _: list[Any]) -> list[Any]:
            number = b.add(b.mul(b.mul(i, steps), v.constant(j.type, form.words)), j)
            line, place = (
                v.add(out, v.times(number, pitch * each)),
                v.add(codes, v.times(j, 4 * GROUP)),
            )
            v.prefetch(v.add(place, AHEAD))
            for lane, (scale, zero) in zip(lanes, scales, strict=True):
                raw = v.load(weights.words, v.add(place, 4 * lane), 4)
                for k in range(each):
                    value = b.fmul(weights.weight(raw, k, zero), scale)
                    v.store(value, v.add(line, pitch * k + 4 * lane), 4)
            return []

        v.loop(v.times(steps, form.words), [], word)
        return []

    v.loop(blocks, [], block)


@functools.cache
def copier(variant: str, kind: str, piece: int) -> Any:
    """
    Make the function that copies a piece of rows of activations.

    It takes the arguments, the first row, rows, where in K the piece begins, and where to.
    """
    widen, size = widener(variant, kind), 4 if kind == "float32" else 2
    pitch = 4 * (piece + APART)

    @inlined
    def copy(a: Any, low: int, count: int, start: int, to: int) -> None:
        deep = min(piece, a[_DEPTH] - start)
        for row in range(count):
            source = a[_A] + (low + row) * a[_A_PITCH] + start * size
            widen(source, min(deep, a[_K] - start), to + row * pitch, deep // 16)

    return copy


@functools.cache
def unpacked_products(
    variant: str, form: Form, kind: str, piece: int, rows: int, columns: int
) -> Command:
    """Give the command that multiplies activations by weights, unpacked first."""
    groups, pitch = columns // GROUP, 4 * (piece + APART)
    unpack, copy = unpacker(variant, form, 4 * columns), copier(variant, kind, piece)
    tile = row_tile(variant, rows, columns // REGISTER[variant], pitch)

    # Loops of its own: through functions that it shared with experts it was a sixth slower.
    def run(a: Any, share: int, shares: int) -> None:
        n, depth, block, per = a[_N], a[_DEPTH], a[_BLOCK], a[_PER]
        panels = (a[_GROUPS] + groups - 1) // groups
        parts = (a[_M] + a[_HIGH] - 1) // a[_HIGH]
        every = parts * ((panels + per - 1) // per)
        right = a[_SCRATCH] + share * a[_STRIDE]
        left = right + 4 * piece * columns
        turn = next_turn(a[_TURNS_AT], share, shares, every)
        while turn >= 0:
            low, first = turn % parts * a[_HIGH], turn // parts * per
            count = min(a[_HIGH], a[_M] - low)
            for start in range(0, depth, piece):
                deep = min(piece, depth - start)
                copy(a, low, count, start, left)
                for group in range(
                    first * groups, min(first + per, panels) * groups, groups
                ):
                    w = a[_W] + group * a[_ACROSS] + start // block * a[_RECORD]
                    for i in range(min(groups, a[_GROUPS] - group)):
                        unpack(
                            w + i * a[_ACROSS], a[_RECORD], a[_AFTER], deep // block,
                            a[_STEPS], right + 4 * GROUP * i,
                        )  # fmt: skip
                    y = a[_Y] + 4 * (low * n + GROUP * group)
                    bias = a[_BIAS] + 4 * GROUP * group
                    for row in range(0, count, rows):
                        to = y + row * 4 * n
                        given, pitch_given = (to, 4 * n) if start > 0 else (bias, 0)
                        tile(
                            left + row * pitch, right, deep, given, pitch_given, to, 4 * n,
                            count - row, n - GROUP * group, right,
                        )  # fmt: skip
            turn = next_turn(a[_TURNS_AT], share, shares, every)

    return command(run)
