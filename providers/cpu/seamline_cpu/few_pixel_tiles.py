"""
Register tiles of few pixels by many output channels: a vector's lanes are channels.

Where an image has fewer pixels than two vectors hold, tiles of neighbouring pixels would
mostly multiply nothing. Here a pixel is a row of the tile, four or six of them, and a weight
is read once for all.
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.integer_tiles import VARIANT
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.tiles import COLUMNS, LANES
from seamline_cpu.vectors import F32, Vectors, vector

__all__ = ["four_pixels", "six_pixels"]

_KIND = vector(F32, LANES)
_PARTS = range(COLUMNS // LANES)


def _pixels(rows: int) -> Any:
    """Emit the sums of ``rows`` pixels; what is read goes once through memory, in order."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pixels, weights, depth, bias, out = args
        v = Vectors(builder, VARIANT.variant)

        def step(index: Any, sums: list[Any]) -> list[Any]:
            here = v.add(weights, v.times(index, 4 * COLUMNS))
            factors = [v.load(_KIND, v.add(here, 4 * LANES * p)) for p in _PARTS]
            given = v.add(pixels, v.times(index, 4 * rows))
            found = []
            for row in range(rows):
                value = v.broadcast(F32, v.add(given, 4 * row), LANES)
                for part in _PARTS:
                    total = sums[len(found)]
                    found.append(v.multiply_add(value, factors[part], total))
            return found

        first = [v.load(_KIND, v.add(bias, 4 * LANES * p)) for p in _PARTS]
        for i, total in enumerate(v.loop(depth, first * rows, step)):
            v.store(total, v.add(out, 4 * LANES * i))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


@native
def four_pixels(
    context: Any, pixels: Any, weights: Any, depth: Any, bias: Any, out: Any
) -> Any:
    """
    Compute ``out[p, m] = bias[m] + sum_k pixels[k, p] * weights[k, m]``: 4 by ``COLUMNS``.

    Arguments are addresses and a count; rows lie without gaps.
    """
    return _pixels(4)


@native
def six_pixels(
    context: Any, pixels: Any, weights: Any, depth: Any, bias: Any, out: Any
) -> Any:
    """As :func:`four_pixels`, of six."""
    return _pixels(6)
