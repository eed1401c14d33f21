"""
Tiles of activations, products with tiles of weights, and what becomes of the sums.

Weights are the first operand: a tile is sixteen of their rows by 32 of K, so that a row of
weights is unpacked as it lies (:mod:`.nbits_amx_unpack`). Activations are the second, whose
layout of pairs costs a transposition, once for all weights; sums come out transposed, and are
turned back once for all of K.

Four sums are in flight, as a product takes four times as long as what it keeps the unit busy
for: two groups of weights by 32 rows of activations or, where 16 are left, by even and odd
tiles of K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seamline_cpu.amx import TILE, Tiles
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.kernels.nbits_activations import load_floats, upper_bfloat16
from seamline_cpu.kernels.nbits_amx_unpack import DEEP, PAIR, order_of
from seamline_cpu.kernels.nbits_layout import GROUP
from seamline_cpu.vectors import F32, I16, I32, I64, Vectors, vector

__all__ = ["SUMS", "emit_finished", "emit_packed", "emit_product", "finisher", "product",
           "row_packer", "switches"]  # fmt: skip

SUMS = 4 * TILE  #: bytes of the sums in flight
_LINE = TILE // GROUP


def transposed(v: Vectors, rows: list[Any]) -> list[Any]:
    """Transpose 16 registers of 16 words."""
    half = GROUP // 2
    for _ in range(4):
        made = []
        for a, b in zip(rows[:half], rows[half:], strict=True):
            for low in (0, half):
                lanes = [k for i in range(low, low + half) for k in (i, GROUP + i)]
                made.append(v.shuffle(a, lanes, b))
        rows = made
    return rows


def row_packer(variant: str, kind: str, bits: int, step: int) -> Any:
    """
    Make the intrinsic that packs 16 rows by 32 of K as a tile.

    Its arguments are int64: the first value, the bytes between rows, how many rows there
    are, how many of K, and where to. Past those of K is zero.
    """

    def pack(context: Any, x: Any, pitch: Any, rows: Any, count: Any, out: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            emit_packed(Vectors(builder, variant), kind, order_of(bits, step), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return native(pack)


def emit_packed(v: Vectors, kind: str, order: list[int], args: Any) -> None:
    """Emit the code of :func:`row_packer`'s intrinsic, from its arguments."""
    x, pitch, rows, count, out = args
    b, size, made = v.builder, 4 if kind == "float32" else 2, []
    start, upper = x, [2 * k + 1 for k in order]
    for row in range(GROUP):
        if row:
            # The last row again for those past it: nobody reads their products.
            there = b.icmp_signed(">", rows, v.constant(I64, row))
            start = b.select(there, b.add(start, pitch), start)
        halves = []
        for half in range(0, DEEP, GROUP):
            place, left = v.add(start, half * size), v.add(count, -half)
            values = load_floats(v, kind, place, GROUP, left)
            halves.append(v.cast(upper_bfloat16(v, values), I16))
        made.append(v.cast(v.shuffle(halves[0], upper, halves[1]), I32))
    for k, line in enumerate(transposed(v, made)):
        v.store(line, v.add(out, _LINE * k), 4)


def product(variant: str, tiles: Callable[[Vectors], Tiles], *, single: bool) -> Any:
    """
    Make the intrinsic that adds two groups times 32 rows, or 16, to their sums.

    Its arguments are int64: tiles of activations, of weights, tiles of K, sums, and whether
    there are any yet. With ``single`` sums of odd tiles of K stand behind the even ones'.
    """

    def multiply(context: Any, x: Any, w: Any, count: Any, sums: Any, onto: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            emit_product(v, tiles(v), args, single=single)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return native(multiply)


def emit_product(v: Vectors, t: Tiles, args: Any, *, single: bool) -> None:
    """Emit the code of :func:`product`'s intrinsic, from its arguments."""
    x, w, count, sums, onto = args
    b = v.builder
    places = [v.add(sums, TILE * i) for i in range(4)]
    there = b.icmp_signed("!=", onto, v.constant(I64, 0))
    with b.if_else(there) as (some, none):
        with some:
            for i, place in enumerate(places):
                t.load(i, place)
        with none:
            for i in range(4):
                t.zero(i)
    if single:
        _by_parity(v, t, x, w, count)
    else:
        v.loop(count, [], lambda i, _: _squared(v, t, x, w, i))
    for i, place in enumerate(places):
        t.store(i, place)


def _squared(v: Vectors, t: Tiles, x: Any, w: Any, i: Any) -> list[Any]:
    """Multiply two tiles of weights by two of activations."""
    left, right = v.add(w, v.times(i, PAIR)), v.add(x, v.times(i, PAIR))
    t.load(4, left)
    t.load(6, right)
    t.multiply(0, 4, 6)
    t.load(7, v.add(right, TILE))
    t.multiply(1, 4, 7)
    t.load(5, v.add(left, TILE))
    t.multiply(2, 5, 6)
    t.multiply(3, 5, 7)
    return []


def _by_parity(v: Vectors, t: Tiles, x: Any, w: Any, count: Any) -> None:
    """Multiply two tiles of weights by one of activations, two tiles of K at a time."""
    b, two = v.builder, v.constant(I64, 2)

    def one(left: Any, right: Any, first: int) -> list[Any]:
        t.load(6, right)
        for h in range(2):
            t.load(4 + h, v.add(left, TILE * h))
            t.multiply(first + h, 4 + h, 6)
        return []

    def both(i: Any, _: list[Any]) -> list[Any]:
        left, right = v.add(w, v.times(i, 2 * PAIR)), v.add(x, v.times(i, 2 * TILE))
        one(left, right, 0)
        return one(v.add(left, PAIR), v.add(right, TILE), 2)

    v.loop(b.sdiv(count, two), [], both)
    last = v.add(count, -1)
    odd = b.srem(count, two)
    left, right = v.add(w, v.times(last, PAIR)), v.add(x, v.times(last, TILE))
    v.loop(odd, [], lambda i, _: one(left, right, 0))


def finisher(variant: str) -> Any:
    """
    Make the intrinsic that writes a tile of sums with the bias.

    Its arguments are int64: sums, those to add or the same place for none, bias, where to,
    the bytes between rows there, how many rows, and how many columns.
    """

    def finish(
        context: Any, sums: Any, more: Any, bias: Any, y: Any, pitch: Any, rows: Any,
        columns: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            emit_finished(Vectors(builder, variant), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    return native(finish)


def emit_finished(v: Vectors, args: Any) -> None:
    """Emit the code of :func:`finisher`'s intrinsic, from its arguments."""
    sums, more, bias, y, pitch, rows, columns = args
    b, kind = v.builder, vector(F32, GROUP)
    places = [v.add(sums, line) for line in range(0, TILE, _LINE)]
    with b.if_then(b.icmp_signed("!=", sums, more)):
        for line, place in zip(range(0, TILE, _LINE), places, strict=True):
            other = v.load(kind, v.add(more, line), 4)
            v.store(b.fadd(v.load(kind, place, 4), other), place, 4)
    added, out = v.load(kind, bias, 4), v.every(y, pitch, GROUP)
    made = transposed(v, [v.load(kind, place, 4) for place in places])
    lines = [b.fadd(line, added) for line in made]
    sixteen = v.constant(I64, GROUP)
    whole = b.and_(
        b.icmp_signed(">=", rows, sixteen), b.icmp_signed(">=", columns, sixteen)
    )
    with b.if_else(whole) as (all_of_it, part_of_it):
        with all_of_it:
            for line, to in zip(lines, out, strict=True):
                v.store(line, to, 4)
        with part_of_it:
            for row, (line, to) in enumerate(zip(lines, out, strict=True)):
                there = b.icmp_signed(">", rows, v.constant(I64, row))
                v.store_part(line, to, b.select(there, columns, v.constant(I64, 0)))


def switches(variant: str, tiles: Callable[[Vectors], Tiles]) -> tuple[Any, Any]:
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
