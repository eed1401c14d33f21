"""
Packed codes times several rows of 8-bit activations: codes that never leave registers.

The sums are those of :mod:`.nbits_int8`, in another order. A step's codes of sixteen rows of
weights are eight registers of bytes. They are unpacked once, and each row of activations
takes its whole dot with them before the next ones begin: an integer sum needs a register for
a moment only, and the float sums of sixteen rows have room beside the codes. So weights are
read and unpacked once for up to sixteen rows, where a tile that goes along the words of a
step, with all its integer sums alive, has room for four to six.

What the rows of a tile need lies together, step by step: codes of every row, then scales,
then sums of codes times what zero points are multiples of. One address serves all of them,
as distances are constants, and a value goes to all lanes in the instruction that multiplies.
"""

from __future__ import annotations

import functools
from typing import Any

from seamline_cpu.commands import Command, command
from seamline_cpu.ir import types
from seamline_cpu.jit import inlined, native
from seamline_cpu.kernels.nbits_activations import quantiser
from seamline_cpu.kernels.nbits_commands import walked
from seamline_cpu.kernels.nbits_int8 import Step, Tile
from seamline_cpu.kernels.nbits_layout import GROUP, Form
from seamline_cpu.kernels.nbits_operands import SLOTS
from seamline_cpu.kernels.nbits_tiles import AHEAD, store_rows
from seamline_cpu.kernels.nbits_turns import clear_turns
from seamline_cpu.vectors import F32, I32, Vectors, vector

__all__ = [
    "emit_held_bytes",
    "held_bytes_products",
    "quantised_by_step",
    "step_nbytes",
]

_AT_ONCE = (
    4  # rows whose dots are in flight: a multiplication takes five turns of a core
)
(_TURNS_AT, _PARTS, _W, _ACROSS, _RECORD, _AFTER, _BLOCKS, _STEPS, _BIAS, _X, _X_PITCH, _Y,
 _Y_PITCH, _N, _M, _K, _A, _A_PITCH, _X_OWN, _FACTOR) = (SLOTS.index(name) for name in (
    "turns_at", "parts", "w", "across", "record", "after", "blocks", "steps", "bias", "x",
    "x_pitch", "y", "y_pitch", "n", "m", "k", "a", "a_pitch", "x_own", "factor"))  # fmt: skip


def step_nbytes(step: int, rows: int) -> int:
    """Give the bytes of a step's activations: codes, scales and sums of ``rows`` rows."""
    return rows * (step + 8)


def _held_tile(variant: str, form: Form, rows: int) -> Any:
    """
    Make the intrinsic that computes ``rows`` by 16 of the product.

    Its arguments are int64: a group's records, a record's bytes, where in it the scales are;
    quantised activations, step by step; blocks, and steps in a block; the bias, the output,
    the bytes between its rows, and how many columns it has from here on.
    """
    bits, depth, half, zero = form.bits, form.step, form.half, form.zero

    def tile(
        context: Any, w: Any, record: Any, after: Any, x: Any, blocks: Any, steps: Any,
        bias: Any, y: Any, pitch: Any, columns: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            v = Vectors(builder, variant)
            emit_held_bytes(v, Form(bits, depth, half, zero), rows, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 10), generate

    return native(tile)


def emit_held_bytes(v: Vectors, form: Form, rows: int, args: Any) -> None:
    """Emit a tile; see :func:`_held_tile`."""
    w, record, after, x, blocks, steps, bias, y, pitch, columns = args
    b, tile = v.builder, Tile(v, form, 1)
    each = step_nbytes(form.step, rows)

    def block(i: Any, sums: list[Any]) -> list[Any]:
        codes = v.add(w, b.mul(i, record))
        scales, zeros = tile.scales([codes], after)

        def turn(j: Any, sums: list[Any]) -> list[Any]:
            here = v.add(codes, v.times(j, 4 * GROUP * form.words))
            near = v.add(x, v.times(b.add(b.mul(i, steps), j), each))
            for line in range(form.words + 1):
                v.prefetch(v.add(here, AHEAD + 64 * line))
            held, made = _unpacked(tile, here), []
            for low in range(0, rows, _AT_ONCE):
                some = range(low, min(low + _AT_ONCE, rows))
                step = _operands(v, form, near, rows, some)
                dots = _dots(tile, held, step, zeros)
                at = len(tile.parts) * low
                taken = sums[at : at + len(tile.parts) * len(some)]
                made += v.settled(tile.scaled(step, dots, scales, zeros, taken))
            return made

        return v.loop(steps, sums, turn)

    each_row = len(tile.parts)
    blank = [v.constant(vector(F32, v.lanes), 0.0)] * (rows * each_row)
    sums = v.loop(blocks, blank, block)
    by_row = [sums[at : at + each_row] for at in range(0, len(sums), each_row)]
    store_rows(v, by_row, bias, y, pitch, columns)


def _unpacked(tile: Tile, codes: Any) -> list[list[Any]]:
    """Give a step's codes, in the order of activations, each by part."""
    v, form, made = tile.v, tile.form, []
    for word in range(form.words):
        raw = [
            v.load(tile.words, v.add(codes, 4 * (GROUP * word + lane)), 4)
            for _, lane in tile.parts
        ]
        planes = range(form.planes)
        made += [[tile.plane(part, plane) for part in raw] for plane in planes]
    each = len(tile.parts)
    flat = v.settled([part for code in made for part in code])
    return [flat[at : at + each] for at in range(0, len(flat), each)]


def _operands(v: Vectors, form: Form, near: Any, rows: int, some: range) -> Step:
    """Give where some rows' operands of a step are."""
    scales = rows * form.step
    return Step(
        [],
        [v.add(near, form.step * row) for row in some],
        [v.add(near, scales + 4 * row) for row in some],
        [v.add(near, scales + 4 * (rows + row)) for row in some],
    )


def _dots(
    tile: Tile, codes: list[list[Any]], step: Step, zeros: list[Any]
) -> list[list[Any]]:
    """Give the sums of a step's products, by row and part, as int32."""
    v, sums = tile.v, tile.starts(step, zeros)
    for k, code in enumerate(codes):
        for i, q in enumerate(step.q):
            x = v.broadcast(I32, v.add(q, 4 * k), v.lanes)
            sums[i] = [
                v.bytes_dot(total, part, x)
                for total, part in zip(sums[i], code, strict=True)
            ]
    each = len(tile.parts)
    flat = v.settled([total for row in sums for total in row])
    return [flat[at : at + each] for at in range(0, len(flat), each)]


@functools.cache
def _quantising(variant: str, kind: str, form: Form, rows: int) -> Any:
    """Make the function that quantises steps ``at`` to ``end`` of all tiles' rows."""
    step, each = form.step, step_nbytes(form.step, rows)
    quantise = quantiser(variant, kind, step, form.planes)
    size = 4 if kind == "float32" else 2

    @inlined
    def steps_quantised(a: Any, share: int, at: int, end: int) -> None:
        steps, to = a[_BLOCKS] * a[_STEPS], a[_X] + share * a[_X_OWN]
        while at < end:
            line, first = at // steps, at % steps
            count = min(steps - first, end - at)
            # The last tile begins earlier where it would be cut.
            row = min(line // rows * rows, a[_M] - rows) + line % rows
            place = to + line // rows * a[_X_PITCH] + first * each
            scale = place + rows * step + line % rows * 4
            quantise(
                a[_A] + row * a[_A_PITCH] + first * step * size, a[_K] - first * step,
                place + line % rows * step, scale, scale + 4 * rows, count, a[_FACTOR],
                each, each,
            )  # fmt: skip
            at += count

    return steps_quantised


@inlined
def _all_steps(a: Any, rows: int) -> int:
    """Give the steps of all tiles' rows."""
    count: int = (a[_M] + rows - 1) // rows * rows * a[_BLOCKS] * a[_STEPS]
    return count


@functools.cache
def quantised_by_step(variant: str, kind: str, form: Form, rows: int) -> Command:
    """Give the command that quantises activations for such tiles, and starts turns anew."""
    quantise = _quantising(variant, kind, form, rows)

    def run(a: Any, share: int, shares: int) -> None:
        clear_turns(a[_TURNS_AT], a[_PARTS])
        every = _all_steps(a, rows)
        quantise(a, 0, every * share // shares, every * (share + 1) // shares)

    return command(run)


@functools.cache
def held_bytes_products(
    variant: str, form: Form, rows: int, kind: str | None = None
) -> Command:
    """
    Give the command that multiplies activations, ``rows`` at a time and no fewer.

    With the ``kind`` of activations each thread quantises all of them for itself first.
    """
    tile = _held_tile(variant, form, rows)

    @inlined
    def panel(a: Any, share: int, g: int, low: int, high: int) -> None:
        w, x = a[_W] + g * a[_ACROSS], a[_X] + share * a[_X_OWN]
        for row in range(low, high, rows):
            to = a[_Y] + min(row, a[_M] - rows) * a[_Y_PITCH] + 4 * GROUP * g
            tile(
                w, a[_RECORD], a[_AFTER], x + row // rows * a[_X_PITCH], a[_BLOCKS],
                a[_STEPS], a[_BIAS] + 4 * GROUP * g, to, a[_Y_PITCH], a[_N] - GROUP * g,
            )  # fmt: skip

    if kind is None:
        return walked(1, panel)
    quantise = _quantising(variant, kind, form, rows)

    @inlined
    def begun(a: Any, share: int) -> None:
        quantise(a, share, 0, _all_steps(a, rows))

    return walked(1, panel, begun)
