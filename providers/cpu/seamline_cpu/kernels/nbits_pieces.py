"""
Some rows and more of float32 activations times packed weights: unpack, use for all rows.

K is cut into pieces. Activations are copied so that a piece of all rows lies together, each
row a constant number of bytes from the next (:mod:`seamline_cpu.row_tiles`). A thread takes
a few panels of weights, of the columns of a register tile, and a block of rows. For each
piece of K it unpacks a panel's piece, which fits into a core's first cache beside the rows
of a tile, and multiplies every tile of rows by it at once, while the rows' piece stays in
the second cache for all the panels. So weights are unpacked once for a block of rows, and
at no time is more than a piece of one panel unpacked for each thread. What the sums of a
tile come to after a piece is kept in the output; they begin with the bias.
"""

from __future__ import annotations

import functools
from typing import Any

from seamline_cpu.commands import Command, command
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.kernels.nbits_activations import widener
from seamline_cpu.kernels.nbits_float import Weights
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_tiles import AHEAD, parts_of
from seamline_cpu.kernels.nbits_turns import clear_turns, next_turn
from seamline_cpu.row_tiles import APART, row_tile
from seamline_cpu.vectors import REGISTER, Vectors

__all__ = ["PIECE_SLOTS", "in_pieces", "unpacked_products"]

(_TURNS_AT, _PARTS, _M, _K, _A, _A_PITCH, _X, _X_ROWS, _DEPTH, _W, _ACROSS, _RECORD, _AFTER,
 _BLOCKS, _BLOCK, _STEPS, _BIAS, _Y, _N, _GROUPS, _PER, _HIGH, _SCRATCH,
 _STRIDE) = range(24)  # fmt: skip
#: Names of the arguments, in their order.
PIECE_SLOTS = (
    "turns_at", "parts", "m", "k", "a", "a_pitch", "x", "x_rows", "depth", "w", "across",
    "record", "after", "blocks", "block", "steps", "bias", "y", "n", "groups", "per", "high",
    "scratch", "stride",
)  # fmt: skip


def _unpacker(variant: str, form: Form, pitch: int) -> Any:
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
def in_pieces(variant: str, kind: str, piece: int) -> Command:
    """Give the command that copies activations in pieces, and starts the turns anew."""
    widen, size = widener(variant, kind), 4 if kind == "float32" else 2
    pitch = 4 * (piece + APART)

    def run(a: Any, share: int, shares: int) -> None:
        clear_turns(a[_TURNS_AT], a[_PARTS])
        m, depth = a[_M], a[_DEPTH]
        every = m * ((depth + piece - 1) // piece)
        for i in range(every * share // shares, every * (share + 1) // shares):
            start, row = i // m * piece, i % m
            source = a[_A] + row * a[_A_PITCH] + start * size
            target = a[_X] + (i // m * a[_X_ROWS] + row) * pitch
            deep = min(piece, depth - start)
            widen(source, min(deep, a[_K] - start), target, deep // 16)

    return command(run)


@functools.cache
def unpacked_products(
    variant: str, form: Form, piece: int, rows: int, columns: int
) -> Command:
    """Give the command that multiplies activations in pieces by weights, unpacked first."""
    groups, pitch = columns // GROUP, 4 * (piece + APART)
    unpack = _unpacker(variant, form, 4 * columns)
    tile = row_tile(variant, rows, columns // REGISTER[variant], pitch)

    def run(a: Any, share: int, shares: int) -> None:
        m, n, depth, block = a[_M], a[_N], a[_DEPTH], a[_BLOCK]
        panels = (a[_GROUPS] + groups - 1) // groups
        turns = (panels + a[_PER] - 1) // a[_PER]
        every = turns * ((m + a[_HIGH] - 1) // a[_HIGH])
        right = a[_SCRATCH] + share * a[_STRIDE]
        turn = next_turn(a[_TURNS_AT], share, shares, every)
        while turn >= 0:
            low, first = turn // turns * a[_HIGH], turn % turns * a[_PER]
            high, last = min(low + a[_HIGH], m), min(first + a[_PER], panels)
            for start in range(0, depth, piece):
                deep = min(piece, depth - start)
                left = a[_X] + start // piece * a[_X_ROWS] * pitch
                for panel in range(first, last):
                    group = panel * groups
                    w = a[_W] + group * a[_ACROSS] + start // block * a[_RECORD]
                    for i in range(min(groups, a[_GROUPS] - group)):
                        unpack(
                            w + i * a[_ACROSS], a[_RECORD], a[_AFTER], deep // block,
                            a[_STEPS], right + 4 * GROUP * i,
                        )  # fmt: skip
                    y = a[_Y] + 4 * GROUP * group
                    given, given_pitch = a[_BIAS] + 4 * GROUP * group, 0
                    if start > 0:
                        given, given_pitch = y + low * 4 * n, 4 * n
                    for row in range(low, high, rows):
                        tile(
                            left + row * pitch, right, deep, given + (row - low) * given_pitch,
                            given_pitch, y + row * 4 * n, 4 * n, high - row,
                            n - GROUP * group, right,
                        )  # fmt: skip
            turn = next_turn(a[_TURNS_AT], share, shares, every)

    return command(run)
