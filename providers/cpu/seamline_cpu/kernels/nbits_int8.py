"""
Packed codes times 8-bit activations, in tiles of registers.

For each step of K a lane adds up the products of one row's codes with one row of
activations, exactly, in integers; then, in float32,

    y[m, n] += scale[n, block] * activation_scale[m, step] * (dot - zero[n, block] * sum[m, step])

where the zero point is taken off in integers if it is whole. Integer sums of 16 bits are
enough for a step of codes of 4 bits (see :mod:`seamline_cpu.vectors`), so without VNNI one
widening serves 32 products. Codes of a word are taken plane by plane: the four codes that
lie at one place of the word's bytes are one operand, and activations lie in that order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.kernels.nbits_codebooks import WHOLE, doubled
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_tiles import AHEAD, load_scales, parts_of, store_rows
from seamline_cpu.vectors import F32, I8, I16, I32, Vectors, vector

__all__ = ["Step", "Tile", "emit", "int8_tile"]


@attrs.frozen
class Step:
    """Addresses of a step's operands: codes by group, the others by row of activations."""

    codes: list[Any]
    q: list[Any]
    scale: list[Any]
    total: list[Any]


class Tile:
    """Emits ``rows`` of activations by ``groups`` of weights."""

    def __init__(self, v: Vectors, form: Form, groups: int) -> None:
        self.v, self.form = v, form
        self.parts = parts_of(v, groups)
        self.words = vector(I32, v.lanes)
        self.in_words = v.has_byte_dot or form.bits == 8

    def dots(self, step: Step, zeros: list[Any]) -> list[list[Any]]:
        """Give the sums of a step's products, by row and part, as int32."""
        if self.in_words:
            every = range(self.form.words)
            return self._products(step, self.starts(step, zeros), every)
        blank: list[list[Any]] = [[None] * len(self.parts) for _ in step.q]
        # Bytes up to 24 leave room for five sums of pairs in 16 bits: 5 * 2 * 24 * 127.
        most = 2 if self.form.zero in WHOLE else self.form.words
        made = [
            self._products(step, blank, range(at, min(at + most, self.form.words)))
            for at in range(0, self.form.words, most)
        ]
        # Loaded after the products: LLVM would not wait, and keep them in memory.
        sums = self.starts(step, zeros)
        for pairs in made:
            sums = [
                [self.v.widen_pairs(a, b) for a, b in zip(*row, strict=True)]
                for row in zip(sums, pairs, strict=True)
            ]
        return sums

    def _products(
        self, step: Step, sums: list[list[Any]], words: Iterable[int]
    ) -> list[list[Any]]:
        v, form, each = self.v, self.form, len(self.parts)
        for word in words:
            raw = [
                v.load(self.words, v.add(step.codes[g], 4 * (GROUP * word + lane)), 4)
                for g, lane in self.parts
            ]
            for plane in range(form.planes):
                codes = [self.plane(x, plane) for x in raw]
                made = []
                for q, row in zip(step.q, sums, strict=True):
                    at = v.add(q, 4 * (word * form.planes + plane))
                    x = v.broadcast(I32, at, v.lanes)
                    made += [
                        self._product(total, code, x)
                        for total, code in zip(row, codes, strict=True)
                    ]
                # All sums of a plane first: what LLVM would rather do needs more registers.
                made = v.settled(made) if len(sums) > 1 else made
                sums = [made[i : i + each] for i in range(0, len(made), each)]
        return sums

    def plane(self, raw: Any, plane: int) -> Any:
        """Give the codes at one place of a word's bytes, or what they stand for, a byte each."""
        b, bits = self.v.builder, self.form.bits
        if bits == 8:
            return raw
        mask = int.from_bytes(bytes([(1 << bits) - 1] * 4), "little")
        moved = b.lshr(raw, self.v.constant(self.words, plane * bits)) if plane else raw
        codes = b.and_(moved, self.v.constant(self.words, mask))
        zero = self.form.zero
        return doubled(self.v, zero, codes) if zero in WHOLE else codes

    def _product(self, total: Any, code: Any, x: Any) -> Any:
        if self.in_words:
            return self.v.bytes_dot(total, code, x)
        pairs = self.v.byte_pairs(code, x)
        return pairs if total is None else self.v.builder.add(total, pairs)

    def starts(self, step: Step, zeros: list[Any]) -> list[list[Any]]:
        """Give what products are added to: the zero points' share, where it is whole."""
        v, b = self.v, self.v.builder
        blank = v.constant(self.words, 0)
        if self.form.zero == "floats":
            return [[blank] * len(self.parts) for _ in step.total]
        if self.form.zero == "middle" or self.form.zero in WHOLE:
            totals = [v.broadcast(I32, place, v.lanes) for place in step.total]
            return [[x] * len(self.parts) for x in totals]
        # A step's sum fits 16 bits: LLVM then multiplies pairs, which is quicker than words.
        words = [b.zext(z, self.words) for z in zeros]
        low = [b.sext(v.load(I16, place, 4), I32) for place in step.total]
        return [[b.mul(z, v.splat(x, v.lanes)) for z in words] for x in low]

    def scaled(
        self, step: Step, dots: list[list[Any]], scales: list[Any], zeros: list[Any],
        sums: list[Any],
    ) -> list[Any]:  # fmt: skip
        """Add a step's integers, scaled, to the float sums."""
        v, b, made = self.v, self.v.builder, []
        for row, of_row in enumerate(dots):
            a = v.broadcast(F32, step.scale[row], v.lanes)
            for part, dot in enumerate(of_row):
                value = b.sitofp(dot, vector(F32, v.lanes))
                if self.form.zero == "floats":
                    less = b.sitofp(v.load(I32, step.total[row], 4), F32)
                    value = v.multiply_add(zeros[part], v.splat(less, v.lanes), value)
                factor = b.fmul(scales[part], a)
                total = sums[row * len(self.parts) + part]
                made.append(v.multiply_add(value, factor, total))
        return made

    def scales(self, codes: list[Any], after: Any) -> tuple[list[Any], list[Any]]:
        """Load the scales and zero points of a block."""
        v, form, lanes = self.v, self.form, self.v.lanes
        size, scales, zeros = form.scale_nbytes // GROUP, [], []
        for group, lane in self.parts:
            start = v.add(codes[group], after)
            scale = load_scales(v, form.half, v.add(start, size * lane), lanes)
            if form.zero in WHOLE:  # whose values were doubled
                scale = v.builder.fmul(scale, v.constant(scale.type, 0.5))
            scales.append(scale)
            behind = v.add(start, form.scale_nbytes)
            if form.zero == "bytes":
                zeros.append(v.load(vector(I8, lanes), v.add(behind, lane)))
            elif form.zero == "floats":
                at = v.add(behind, size * lane)
                zeros.append(load_scales(v, form.half, at, lanes))
        return scales, zeros


def int8_tile(variant: str, form: Form, rows: int, groups: int) -> Any:
    """
    Make the intrinsic that computes ``rows`` by ``16 * groups`` of the product.

    Its arguments are int64: the first group's records, the bytes between groups, a record's
    bytes, where in it the scales are; quantised activations and the bytes between their
    rows; their scales, their sums times the zero point's factor, and the bytes between
    rows of both; blocks, and steps in a block; the bias, the output, the bytes between its
    rows, and how many columns it has from here on.
    """
    bits, depth, half, zero = form.bits, form.step, form.half, form.zero

    def tile(
        context: Any, w: Any, across: Any, record: Any, after: Any, q: Any, q_pitch: Any,
        scale: Any, total: Any, s_pitch: Any, blocks: Any, steps: Any, bias: Any, y: Any,
        pitch: Any, columns: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            emit(v, Form(bits, depth, half, zero), rows, groups, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 15), generate

    return native(tile)


def emit(v: Vectors, form: Form, rows: int, groups: int, args: Any) -> None:
    """Emit the code of :func:`int8_tile`'s intrinsic, from its arguments."""
    (w, across, record, after, q, q_pitch, scale, total, s_pitch, blocks, steps, bias, y,
     pitch, columns) = args  # fmt: skip
    b, tile = v.builder, Tile(v, form, groups)
    streams = v.every(w, across, groups)
    inputs = v.every(q, q_pitch, rows)
    factors, totals = (v.every(x, s_pitch, rows) for x in (scale, total))

    def block(i: Any, sums: list[Any]) -> list[Any]:
        codes = [v.add(stream, b.mul(i, record)) for stream in streams]
        scales, zeros = tile.scales(codes, after)

        def turn(j: Any, sums: list[Any]) -> list[Any]:
            number = b.add(b.mul(i, steps), j)
            four = v.times(number, 4)
            step = Step(
                [v.add(place, v.times(j, 64 * form.words)) for place in codes],
                [v.add(place, v.times(number, form.step)) for place in inputs],
                [v.add(place, four) for place in factors],
                [v.add(place, four) for place in totals],
            )
            for place in step.codes:
                for line in range(form.words + 1):
                    v.prefetch(v.add(place, AHEAD + 64 * line))
            dots = tile.dots(step, zeros)
            return tile.scaled(step, dots, scales, zeros, sums)

        return v.loop(steps, sums, turn)

    count = rows * len(tile.parts)
    sums = v.loop(blocks, [v.constant(vector(F32, v.lanes), 0.0)] * count, block)
    each = len(tile.parts)
    store_rows(
        v,
        [sums[at : at + each] for at in range(0, count, each)],
        bias,
        y,
        pitch,
        columns,
    )
