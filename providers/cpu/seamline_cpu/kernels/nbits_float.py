"""
Packed codes times float32 activations: codes become floats in registers.

A code minus its zero point is exact. These tiles are of one to three rows: a step's products
are added up and scaled once, since the unpacking is the work. For more rows the scale is
taken into the weight, which serves all of them, in registers (:mod:`.nbits_held`), and
for many it is quicker to unpack to memory (:mod:`.nbits_pieces`).
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.ir import ir, types
from seamline_cpu.jit import native
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_tiles import AHEAD, load_scales, parts_of, store_rows
from seamline_cpu.vectors import F32, I8, I32, I64, Vectors, vector

__all__ = ["Weights", "float_tile"]

_CHAINS = 8  # sums in flight that keep two multiply-adders of four cycles busy


class Weights:
    """Emits the weights of one register: 32 / bits of them for each word."""

    def __init__(self, v: Vectors, form: Form) -> None:
        self.v, self.form = v, form
        self.words, self.floats = vector(I32, v.lanes), vector(F32, v.lanes)

    def scales(self, start: Any, lane: int) -> tuple[Any, Any]:
        """Load a block's scales, and its zero points as floats or, where whole, int32."""
        v, form = self.v, self.form
        size = form.scale_nbytes // GROUP
        scale = load_scales(v, form.half, v.add(start, size * lane), v.lanes)
        behind = v.add(start, form.scale_nbytes)
        if form.zero == "middle":
            return scale, v.constant(self.words, 1 << (form.bits - 1))
        if form.zero == "bytes":
            raw = v.load(vector(I8, v.lanes), v.add(behind, lane))
            return scale, v.builder.zext(raw, self.words)
        return scale, load_scales(v, form.half, v.add(behind, size * lane), v.lanes)

    def weight(self, raw: Any, number: int, zero: Any) -> Any:
        """Give a code of a word minus its zero point, as float32."""
        v, b, bits = self.v, self.v.builder, self.form.bits
        moved = b.lshr(raw, v.constant(self.words, bits * number)) if number else raw
        if bits == 4 and v.lanes == 16:
            return self._looked_up(moved, zero)
        last = bits * (number + 1) == 32
        code = moved if last else b.and_(moved, v.constant(self.words, (1 << bits) - 1))
        if self.form.zero == "floats":
            return b.fsub(b.sitofp(code, self.floats), zero)
        return b.sitofp(b.sub(code, zero), self.floats)

    def _looked_up(self, moved: Any, zero: Any) -> Any:
        """Find a code of 4 bits in a table of sixteen; the instruction ignores other bits."""
        v, b = self.v, self.v.builder
        less = 8.0 if self.form.zero == "middle" else 0.0
        table = ir.Constant(self.floats, [code - less for code in range(16)])
        name = "llvm.x86.avx512.permvar.sf.512"
        found = v.call(name, self.floats, table, moved)
        if self.form.zero == "middle":
            return found
        wide = b.sitofp(zero, self.floats) if self.form.zero == "bytes" else zero
        return b.fsub(found, wide)


def float_tile(variant: str, form: Form, rows: int, groups: int) -> Any:
    """
    Make the intrinsic that computes ``rows`` by ``16 * groups`` of the product.

    Its arguments are int64: the first group's records, the bytes between groups, a record's
    bytes, where in it the scales are; activations, zero past K, and the bytes between their
    rows; blocks, and steps in a block; the bias, the output, the bytes between its rows, and
    how many columns it has from here on.
    """
    bits, depth, half, zero = form.bits, form.step, form.half, form.zero

    def tile(
        context: Any, w: Any, across: Any, record: Any, after: Any, x: Any, x_pitch: Any,
        blocks: Any, steps: Any, bias: Any, y: Any, pitch: Any, columns: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            _emit(v, Form(bits, depth, half, zero), rows, groups, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 12), generate

    return native(tile)


def _emit(v: Vectors, form: Form, rows: int, groups: int, args: Any) -> None:
    w, across, record, after, x, x_pitch, blocks, steps, bias, y, pitch, columns = args
    b, weights, parts = v.builder, Weights(v, form), parts_of(v, groups)
    streams, inputs = v.every(w, across, groups), v.every(x, x_pitch, rows)

    def block(i: Any, sums: list[Any]) -> list[Any]:
        codes = [v.add(stream, b.mul(i, record)) for stream in streams]
        scales = [weights.scales(v.add(codes[g], after), lane) for g, lane in parts]

        def step(j: Any, sums: list[Any]) -> list[Any]:
            here = [v.add(place, v.times(j, 64 * form.words)) for place in codes]
            at = v.times(b.add(b.mul(i, steps), j), 4 * form.step)
            values = [v.add(place, at) for place in inputs]
            for place in here:
                for line in range(form.words + 1):
                    v.prefetch(v.add(place, AHEAD + 64 * line))
            return _summed(weights, parts, here, values, scales, sums)

        return v.loop(steps, sums, step)

    each = len(parts)
    start = [v.constant(weights.floats, 0.0)] * (rows * each)
    sums = v.loop(blocks, start, block)
    by_row = [sums[at : at + each] for at in range(0, rows * each, each)]
    store_rows(v, by_row, bias, y, pitch, columns)


def _words(
    weights: Weights, parts: Any, codes: Any, values: Any, scales: Any, sums: Any
) -> list[Any]:
    """
    Add a step's products, not scaled, to chains of sums, by row and part.

    A loop over words, not one stretch of code: that compiles in a third of the time.
    """
    v, form = weights.v, weights.form
    count, each = len(values) * len(parts), 32 // form.bits

    def word(i: Any, sums: list[Any]) -> list[Any]:
        sums = list(sums)
        raw = [
            v.load(weights.words, v.add(codes[g], 4 * lane, v.times(i, 4 * GROUP)), 4)
            for g, lane in parts
        ]
        x = [v.add(value, v.times(i, 4 * each)) for value in values]
        for k in range(each):
            made = [
                weights.weight(code, k, zero)
                for code, (_, zero) in zip(raw, scales, strict=True)
            ]
            chain = k * count % len(sums)
            for row, place in enumerate(x):
                factor = v.broadcast(F32, v.add(place, 4 * k), v.lanes)
                for part, weight in enumerate(made):
                    at = chain + row * len(parts) + part
                    sums[at] = v.multiply_add(weight, factor, sums[at])
        return sums

    return v.loop(v.constant(I64, form.words), sums, word)


def _summed(
    weights: Weights, parts: Any, codes: Any, values: Any, scales: Any, sums: Any
) -> list[Any]:
    """Add up a step by itself, in as many chains as hide the latency, and scale it."""
    v, b, count = weights.v, weights.v.builder, len(sums)
    chains = max(1, _CHAINS // count)
    blank = [v.constant(weights.floats, 0.0)] * (chains * count)
    made = _words(weights, parts, codes, values, scales, blank)
    totals = made[:count]
    for chain in range(1, chains):
        more = made[chain * count : (chain + 1) * count]
        totals = [b.fadd(x, y) for x, y in zip(totals, more, strict=True)]
    factors = [scale for scale, _ in scales] * len(values)
    return [
        v.multiply_add(total, factor, old)
        for total, factor, old in zip(totals, factors, sums, strict=True)
    ]
