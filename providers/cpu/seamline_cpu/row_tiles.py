"""
Register tiles of a float32 product whose left rows lie as they are, each in one run.

Sums of some rows by some registers of columns stay in registers along a piece of K. For each
k a tile loads its registers of the right matrix, which lie together, and one float of each
row, that goes to all lanes. The pitch of the rows is a constant of the code: so one address
serves all of them, where a pitch that is known only at run time takes a register for each.
What is loaded is then two thirds of what is multiplied or less, and all of it from the first
cache: a core multiplies at its full rate.

A tile that is cut, at the last rows or columns, multiplies whole and writes a part.
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.tiles import LANES
from seamline_cpu.vectors import F32, I64, Vectors, vector

__all__ = [
    "APART",
    "HEIGHTS",
    "WIDEST",
    "add_and_store",
    "emit_row_tile",
    "height",
    "row_tile",
]

#: Variant of the widest registers here; of a variant only their width counts in a tile.
WIDEST = "avx512vnni" if LANES == 16 else "avx2"
APART = 16  #: floats between rows beside K, so that they are in different cache sets
#: By 32-bit lanes in a register: heights of tiles two registers wide (four where registers
#: are of four lanes), and the time of a row in each beside the best.
HEIGHTS = {16: {8: 1.0, 11: 1.02, 13: 1.02}, 8: {4: 1.04, 6: 1.0}, 4: {3: 1.0}}

_UNROLLED = 4  # of K in a turn of the loop
_LINE = 64


def height(rows: int, lanes: int = LANES) -> int:
    """Give the height of tiles that takes least for so many rows."""
    times = HEIGHTS[lanes]
    return min(times, key=lambda h: (-(-rows // h) * h * times[h], h))


def row_tile(variant: str, rows: int, wide: int, pitch: int, lines: int = 0) -> Any:
    """
    Make the intrinsic that computes ``rows`` by ``wide`` registers of a product.

    Meanwhile it asks for ``lines`` cache lines in each turn of four of K: of the right matrix
    that is multiplied next, to the second cache.

    Its arguments are int64: the left rows, ``pitch`` bytes apart; the right matrix, (depth,
    columns of the tile); the depth; what is added to the sums, and the bytes
    between its rows, or 0 for one row that serves all; the output, and the bytes between its
    rows; how many of its rows there are from here on, at least one, and how many columns;
    what is asked for, from where on.
    """

    def tile(
        context: Any, left: Any, right: Any, depth: Any, given: Any, given_pitch: Any,
        y: Any, y_pitch: Any, high: Any, columns: Any, ahead: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            emit_row_tile(Vectors(builder, variant), rows, wide, pitch, args, lines)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 10), generate

    return native(tile)


def emit_row_tile(
    v: Vectors, rows: int, wide: int, pitch: int, args: Any, lines: int = 0
) -> None:
    """Emit a tile; see :func:`row_tile`."""
    left, right, depth, given, given_pitch, y, y_pitch, high, columns, ahead = args
    b, kind, line = v.builder, vector(F32, v.lanes), 4 * v.lanes
    blank = [v.constant(kind, 0.0)] * (rows * wide)

    def some(i: Any, sums: list[Any], count: int) -> list[Any]:
        sums = list(sums)
        near = v.add(left, v.times(i, 4 * count))
        panel = v.add(right, v.times(i, wide * line * count))
        for k in range(count):
            at = [v.add(panel, line * (k * wide + part)) for part in range(wide)]
            weights = [v.load(kind, place, 4) for place in at]
            for row in range(rows):
                x = v.broadcast(F32, v.add(near, row * pitch + 4 * k), v.lanes)
                for part, weight in enumerate(weights):
                    place = row * wide + part
                    sums[place] = v.multiply_add(x, weight, sums[place])
        return sums

    many = v.constant(I64, _UNROLLED)
    turns = b.sdiv(depth, many)

    def turn(i: Any, sums: list[Any]) -> list[Any]:
        for number in range(lines):
            v.prefetch(v.add(ahead, v.times(i, _LINE * lines), _LINE * number), level=2)
        return some(i, sums, _UNROLLED)

    sums = v.loop(turns, blank, turn)
    done, rest = b.mul(turns, many), b.srem(depth, many)
    sums = v.loop(rest, sums, lambda i, held: some(b.add(i, done), held, 1))
    add_and_store(v, sums, (given, given_pitch), (y, y_pitch), high, columns, wide)


def _lines(v: Vectors, rows: int, matrix: tuple[Any, Any], high: Any) -> list[Any]:
    """Give the addresses of rows, from a start and a pitch; past the last are the last's."""
    start, pitch = matrix
    made = [start]
    for row in range(1, rows):
        there = v.builder.icmp_signed("<", v.constant(I64, row), high)
        step = v.builder.select(there, pitch, v.constant(I64, 0))
        made.append(v.add(made[-1], step))
    return made


def add_and_store(
    v: Vectors, sums: list[Any], given: tuple[Any, Any], y: tuple[Any, Any], high: Any,
    columns: Any, wide: int,
) -> None:  # fmt: skip
    """
    Add what is given to sums, by row and register, and store them.

    At the end, as a core then waits for none of it: the next tile does not need it.
    """
    b, rows = v.builder, len(sums) // wide
    kind, lanes = sums[0].type, sums[0].type.count
    shifts = [4 * lanes * part for part in range(wide)]
    left = [v.add(columns, -lanes * part) for part in range(wide)]
    whole = b.icmp_signed(">=", columns, v.constant(I64, wide * lanes))
    with b.if_else(whole) as (all_of_it, part_of_it):
        for branch, full in ((all_of_it, True), (part_of_it, False)):
            with branch:
                made = list(sums)
                for row, start in enumerate(_lines(v, rows, given, high)):
                    for part, shift in enumerate(shifts):
                        at, place = row * wide + part, v.add(start, shift)
                        more = (
                            v.load(kind, place, 4)
                            if full
                            else v.load_part(kind, place, left[part])
                        )
                        made[at] = b.fadd(made[at], more)
                # From the last row up: what is not there goes to the last row's place,
                # which then is written itself.
                starts = _lines(v, rows, y, high)
                for row in reversed(range(rows)):
                    for part, shift in enumerate(shifts):
                        value, place = (
                            made[row * wide + part],
                            v.add(starts[row], shift),
                        )
                        if full:
                            v.store(value, place, 4)
                        else:
                            v.store_part(value, place, left[part])
