"""
Many rows of float32 activations times packed weights: unpack a piece, use it for all rows.

A piece is :data:`DEPTH` of K by the columns of a register tile, small enough for a core's
first cache; the tiles of :mod:`seamline_cpu.tiles` then multiply rows by it as fast as they
multiply floats, and the unpacking is one part in as many as there are rows. At no time is
more than one piece for each thread unpacked.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline_cpu.atomics import floats
from seamline_cpu.commands import Command, command
from seamline_cpu.ir import types
from seamline_cpu.jit import jit, native
from seamline_cpu.kernels.nbits_float import Weights
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_tiles import parts_of
from seamline_cpu.kernels.nbits_turns import clear_turns, next_turn
from seamline_cpu.kernels.packed_product import SPARE, pack_rows
from seamline_cpu.tiles import COLUMNS, ROWS, dot_tile_onto
from seamline_cpu.vectors import Vectors

__all__ = [
    "DEPTH",
    "PANEL",
    "PANEL_SLOTS",
    "panel_products",
    "scratch_size",
    "stacked_rows",
]

f4 = np.float32
DEPTH = 256  #: of K that are unpacked at once, at least a block
PANEL = COLUMNS // GROUP  #: groups in the columns of a register tile
(_TURNS_AT, _PARTS, _M, _A, _A_PITCH, _LEFT, _W, _ACROSS, _RECORD, _AFTER, _BLOCKS, _BLOCK, _STEPS,
 _BIAS, _Y, _N, _GROUPS, _PER, _SCRATCH, _STRIDE) = range(20)  # fmt: skip
#: Names of the arguments, in their order.
PANEL_SLOTS = (
    "turns_at", "parts", "m", "a", "a_pitch", "left", "w", "across", "record", "after", "blocks",
    "block", "steps", "bias", "y", "n", "groups", "per", "scratch", "stride",
)  # fmt: skip


def scratch_size(depth: int, panels: int) -> int:
    """Give the floats that a thread needs for pieces of several panels."""
    return panels * depth * COLUMNS + SPARE


def _unpacker(variant: str, form: Form) -> Any:
    """
    Make the intrinsic that unpacks blocks of a group to float32.

    Its arguments are int64: the first record, a record's bytes, where in it the scales are,
    blocks, steps in a block, where to, and the bytes between one of K and the next.
    """
    bits, depth, half, zero = form.bits, form.step, form.half, form.zero

    def unpack(
        context: Any, w: Any, record: Any, after: Any, blocks: Any, steps: Any, out: Any,
        pitch: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            _emit(v, Form(bits, depth, half, zero), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    return native(unpack)


def _emit(v: Vectors, form: Form, args: Any) -> None:
    w, record, after, blocks, steps, out, pitch = args
    b, weights, each = v.builder, Weights(v, form), 32 // form.bits

    def block(i: Any, _: list[Any]) -> list[Any]:
        codes = v.add(w, b.mul(i, record))
        lanes = [lane for _, lane in parts_of(v, 1)]
        scales = [weights.scales(v.add(codes, after), lane) for lane in lanes]

        def word(j: Any, _: list[Any]) -> list[Any]:
            number = b.add(b.mul(b.mul(i, steps), v.constant(j.type, form.words)), j)
            lines = v.every(
                v.add(out, b.mul(number, v.times(pitch, each))), pitch, each
            )
            for lane, (scale, zero) in zip(lanes, scales, strict=True):
                place = v.add(codes, v.times(j, 4 * GROUP), 4 * lane)
                raw = v.load(weights.words, place, 4)
                for k, to in enumerate(lines):
                    value = b.fmul(weights.weight(raw, k, zero), scale)
                    v.store(value, v.add(to, 4 * lane), 4)
            return []

        v.loop(v.times(steps, form.words), [], word)
        return []

    v.loop(blocks, [], block)


@command
def stacked_rows(a: Any, share: int, shares: int) -> None:
    """Pack rows for the register tiles, and begin the output with the bias."""
    clear_turns(a[_TURNS_AT], a[_PARTS])
    m, n, depth = a[_M], a[_N], a[_BLOCKS] * a[_BLOCK]
    stacks = (m + ROWS - 1) // ROWS
    for i in range(stacks * share // shares, stacks * (share + 1) // shares):
        row = i * ROWS
        source = floats(a[_A] + row * a[_A_PITCH])
        target = floats(a[_LEFT] + 4 * row * depth)
        pack_rows(source, a[_A_PITCH] // 4, 1, m - row, depth, target)
        bias = floats(a[_BIAS])
        for r in range(row, min(row + ROWS, m)):
            y = floats(a[_Y] + 4 * r * n)
            for j in range(n):
                y[j] = bias[j]


@jit
def _add_tile(left: int, right: int, depth: int, rows: int, columns: int, spare: int, y: int,
              pitch: int) -> None:  # fmt: skip
    """Add one tile to what lies at ``y``, cut to ``rows`` and ``columns``."""
    if rows >= ROWS and columns >= COLUMNS:
        dot_tile_onto(left, right, depth, spare, y, pitch)
        return
    made = floats(spare)
    for i in range(ROWS * COLUMNS):
        made[i] = f4(0.0)
    dot_tile_onto(left, right, depth, spare, spare, 4 * COLUMNS)
    for r in range(min(rows, ROWS)):
        target = floats(y + r * pitch)
        for j in range(min(columns, COLUMNS)):
            target[j] += made[r * COLUMNS + j]


@jit
def _add_tiles(left: int, right: int, size: int, per: int, stack: int, depth: int, m: int,
               n: int, y: int, pitch: int, spare: int) -> None:  # fmt: skip
    """Multiply all rows by up to ``per`` unpacked pieces; ``n`` columns are left at ``y``."""
    for r in range(0, m, ROWS):
        for p in range(min(per, (n + COLUMNS - 1) // COLUMNS)):
            target = y + r * pitch + 4 * p * COLUMNS
            _add_tile(left + 4 * r * stack, right + p * size, depth, m - r,
                      n - p * COLUMNS, spare, target, pitch)  # fmt: skip


@functools.cache
def panel_products(variant: str, form: Form) -> Command:
    """Give the command that multiplies stacked rows by weights, a piece at a time."""
    unpack = _unpacker(variant, form)

    def run(a: Any, share: int, shares: int) -> None:
        n, count, per, block = a[_N], a[_GROUPS], a[_PER], a[_BLOCK]
        depth, most = a[_BLOCKS] * block, max(DEPTH // block, 1)
        right = a[_SCRATCH] + share * a[_STRIDE]
        spare, size = right + a[_STRIDE] - 4 * SPARE, 4 * most * block * COLUMNS
        every = (count + per * PANEL - 1) // (per * PANEL)
        turn = next_turn(a[_TURNS_AT], share, shares, every)
        while turn >= 0:
            first = turn * per * PANEL
            for start in range(0, a[_BLOCKS], most):
                blocks = min(most, a[_BLOCKS] - start)
                for i in range(min(per * PANEL, count - first)):
                    w = a[_W] + (first + i) * a[_ACROSS] + start * a[_RECORD]
                    out = right + i // PANEL * size + i % PANEL * 4 * GROUP
                    unpack(
                        w, a[_RECORD], a[_AFTER], blocks, a[_STEPS], out, 4 * COLUMNS
                    )
                _add_tiles(
                    a[_LEFT] + 4 * start * block * ROWS, right, size, per, depth,
                    blocks * block, a[_M], n - GROUP * first, a[_Y] + 4 * GROUP * first,
                    4 * n, spare,
                )  # fmt: skip
            turn = next_turn(a[_TURNS_AT], share, shares, every)

    return command(run)
