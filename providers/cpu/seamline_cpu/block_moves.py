"""
Blocks of short rows, copied or thinned out, in LLVM vector code.

Images late in a network have rows of 7 to 30 floats, of which a call and a loop for each row
take longer than the copy. Here one loop goes over the rows, and each is done in vectors of
which the last overlaps the one before, so that nothing is left over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.atomics import floats
from seamline_cpu.integer_tiles import VARIANT
from seamline_cpu.ir import types
from seamline_cpu.jit import jit, native
from seamline_cpu.vectors import F32, Vectors, vector

__all__ = ["copy_block", "fill_floats", "thin_block", "thin_rows"]

_LONG, _SHORT = 8, 4  # lanes


def _moved(v: Vectors, source: Any, step: int, lanes: int) -> Any:
    """Load ``lanes`` floats, each ``step`` after the one before; nothing past the last."""
    kind = vector(F32, lanes)
    if step == 1:
        return v.load(kind, source)
    # The second vector begins one float early, and so ends with the last that is wanted.
    first, second = (v.load(kind, v.add(source, at)) for at in (0, 4 * (lanes - 1)))
    return v.shuffle(first, [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)], second)  # fmt: skip


def _block(step: int, lanes: int) -> Any:
    """Emit the loops for rows of at least ``lanes`` floats, all of them written."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, pitch, target, target_pitch, rows, vectors, last = args
        v = Vectors(builder, VARIANT.variant)

        def move(here: Any, there: Any, at: Any) -> None:
            given = _moved(v, v.add(here, v.times(at, 4 * step)), step, lanes)
            v.store(given, v.add(there, v.times(at, 4)))

        def row(index: Any, held: list[Any]) -> list[Any]:
            here, there = held

            def one(index: Any, none: list[Any]) -> list[Any]:
                move(here, there, v.times(index, lanes))
                return none

            v.loop(vectors, [], one)
            move(here, there, last)
            return [builder.add(here, pitch), builder.add(there, target_pitch)]

        v.loop(rows, [source, target], row)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


def _moving(step: int, lanes: int) -> Any:
    """Make the intrinsic of :func:`_block`."""

    def move(
        context: Any, source: Any, pitch: Any, target: Any, target_pitch: Any, rows: Any,
        vectors: Any, last: Any,
    ) -> Any:  # fmt: skip
        return _block(step, lanes)

    return native(move)


@jit
def thin_rows(
    source: int, pitch: int, target: int, target_pitch: int, rows: int, count: int, step: int
) -> None:  # fmt: skip
    """Copy ``rows`` rows of ``count`` floats, each ``step`` after the one before."""
    for r in range(rows):
        values, to = floats(source + r * pitch), floats(target + r * target_pitch)
        for i in range(count):
            to[i] = values[i * step]


def _blocks(step: int) -> Any:
    """Make the function that moves rows of floats that are ``step`` apart."""
    by_long, by_short = _moving(step, _LONG), _moving(step, _SHORT)

    @jit
    def moved(
        source: int, pitch: int, target: int, target_pitch: int, rows: int, count: int
    ) -> None:
        if count >= _LONG:
            vectors = (count - 1) // _LONG
            by_long(source, pitch, target, target_pitch, rows, vectors, count - _LONG)
        elif count >= _SHORT:
            by_short(source, pitch, target, target_pitch, rows, 1, count - _SHORT)
        else:
            thin_rows(source, pitch, target, target_pitch, rows, count, step)

    return moved


#: Copy rows of floats: addresses of the first and bytes between rows, of both sides; rows, and
#: floats in each.
copy_block = _blocks(1)
#: The same, of every other float.
thin_block = _blocks(2)


@jit
def fill_floats(target: int, count: int, value: np.float32) -> None:
    """Write a float32 ``count`` times."""
    to = floats(target)
    for i in range(count):
        to[i] = value
