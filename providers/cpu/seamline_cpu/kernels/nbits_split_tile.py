"""
Sixteen rows of split activations times a group of weights, scaled block by block.

A block's sums leave the tiles through memory, and are multiplied by the scales of its weights
on the way to sums in registers, one for each row. The parts of a value are multiplied by the
same tile of codes, one after the other. One block at a time: the processor begins the next
one by itself while a product's sums are still on their way, and several that were begun in
turns, each with codes of its own, took a quarter to a half longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seamline_cpu.amx import TILE, Tiles
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.kernels.nbits_layout import GROUP
from seamline_cpu.kernels.nbits_split import LINE
from seamline_cpu.row_tiles import add_and_store
from seamline_cpu.vectors import F32, Vectors, vector

__all__ = ["emit_split_product", "split_product"]


def split_product(variant: str, tiles: Callable[[Vectors], Tiles], parts: int) -> Any:
    """
    Make the intrinsic that computes 16 rows by 16 columns.

    Its arguments are int64: tiles of activations, those of one step together; scales and
    codes, a block's together; blocks, and steps in a block; what is added to the sums, and
    the bytes between its rows, or 0 for one row that serves all; the output, and the bytes
    between its rows; how many of its rows there are from here on, and how many columns; room
    for a tile.
    """

    def multiply(
        context: Any, x: Any, w: Any, blocks: Any, steps: Any, given: Any,
        given_pitch: Any, y: Any, y_pitch: Any, high: Any, columns: Any, room: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            emit_split_product(v, tiles(v), parts, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11), generate

    return native(multiply)


def emit_split_product(v: Vectors, t: Tiles, parts: int, args: Any) -> None:
    """Emit the code of :func:`split_product`'s intrinsic, from its arguments."""
    x, w, blocks, steps, given, given_pitch, y, y_pitch, high, columns, room = args
    b, kind = v.builder, vector(F32, GROUP)
    across = v.times(steps, parts * TILE)
    size = v.add(v.times(steps, TILE), LINE)

    def block(i: Any, sums: list[Any]) -> list[Any]:
        left, right = v.add(x, b.mul(i, across)), v.add(w, b.mul(i, size))
        t.zero(0)
        codes = v.add(right, LINE)
        v.loop(steps, [], lambda j, _: _step(v, t, parts, (left, codes), j))
        t.store(0, room)
        scale = v.load(kind, right, 4)
        return [
            v.multiply_add(v.load(kind, v.add(room, LINE * row), 4), scale, total)
            for row, total in enumerate(sums)
        ]

    sums = v.loop(blocks, [v.constant(kind, 0.0)] * GROUP, block)
    add_and_store(v, sums, (given, given_pitch), (y, y_pitch), high, columns, 1)


def _step(
    v: Vectors, t: Tiles, parts: int, operands: tuple[Any, Any], j: Any
) -> list[Any]:
    """Multiply all parts of a step; sums are tile 0, codes tile 1."""
    left, codes = operands
    t.load(1, v.add(codes, v.times(j, TILE)))
    for part in range(parts):
        t.load(2 + part, v.add(left, v.times(j, parts * TILE), TILE * part))
        t.multiply(0, 2 + part, 1)
    return []
