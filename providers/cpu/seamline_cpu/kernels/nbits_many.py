"""Which commands multiply more than a few rows of floats by packed weights, over what memory."""

from __future__ import annotations

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.commands import bind
from seamline_cpu.huge_pages import huge
from seamline_cpu.kernels.nbits_held import held_products
from seamline_cpu.kernels.nbits_layout import GROUP, Packed
from seamline_cpu.kernels.nbits_operands import SLOTS
from seamline_cpu.kernels.nbits_pieces import unpacked_products
from seamline_cpu.kernels.nbits_plans import Plan, plan
from seamline_cpu.kernels.nbits_turns import SHARED_FROM, counters
from seamline_cpu.kernels.tile_turns import begun
from seamline_cpu.row_tiles import APART

__all__ = ["by_pieces", "fill", "room", "weights_of"]

f4 = np.float32


def fill(arguments: Array, slots: tuple[str, ...], **values: int) -> None:
    """Write a command's arguments by name."""
    for name, value in values.items():
        arguments[slots.index(name)] = value


def room(m: int, depth: int) -> Array:
    """Make room for float32 activations, each row off the others' cache sets."""
    return np.zeros((m, depth + 16), f4)


def weights_of(packed: Packed) -> dict[str, int]:
    """Give the arguments that say where weights are."""
    groups, blocks, record = packed.data.shape
    return {
        "w": packed.data.ctypes.data, "across": blocks * record, "record": record,
        "after": GROUP * packed.block * packed.form.bits // 8, "blocks": blocks,
        "steps": packed.block // packed.form.step, "n": packed.n, "groups": groups,
    }  # fmt: skip


def by_pieces(
    packed: Packed, x: Array, kind: str, bias: Array, y: Array, threads: int, *, variant: str,
    planned: Plan | None = None,
) -> list[Run]:  # fmt: skip
    """Bind a product in float32, as planned by :mod:`.nbits_plans`."""
    m, k = x.shape
    shares = threads if m * k * packed.n >= SHARED_FROM else 1
    how = planned or plan(variant, m, packed.n, packed.block, shares)
    # Each thread's rows and, in front of them, weights; a cache line apart from the next's.
    pitch, pieces = 4 * (how.piece + APART), -(-packed.depth // how.piece)
    weights = 4 * how.piece * how.columns if how.unpacked else 0
    rows = how.high if how.unpacked else pieces * m
    stride = weights + rows * pitch + 64
    scratch = huge(shares * stride)
    a, (turns, turns_at) = np.zeros(len(SLOTS), np.int64), counters(shares)
    fill(
        a, SLOTS, turns_at=turns_at, parts=shares, m=m, k=k, a=x.ctypes.data,
        a_pitch=x.strides[0], depth=packed.depth, block=packed.block, bias=bias.ctypes.data,
        y=y.ctypes.data, per=how.per, rows=how.high, scratch=scratch.ctypes.data,
        stride=stride, **weights_of(packed),
    )  # fmt: skip
    products = unpacked_products if how.unpacked else held_products
    multiply = products(variant, packed.form, kind, how.piece, how.rows, how.columns)
    keep = (x, bias, y, packed, scratch, turns)
    return [bind(begun, a, 1, keep=keep), bind(multiply, a, shares, keep=keep)]
