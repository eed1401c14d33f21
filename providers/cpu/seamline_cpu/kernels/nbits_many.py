"""Which commands multiply many rows of floats by packed weights, over what memory."""

from __future__ import annotations

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.commands import bind
from seamline_cpu.kernels.nbits_commands import SLOTS, widened
from seamline_cpu.kernels.nbits_layout import GROUP, Packed
from seamline_cpu.kernels.nbits_panels import (
    DEPTH,
    PANEL,
    PANEL_SLOTS,
    panel_products,
    scratch_size,
    stacked_rows,
)
from seamline_cpu.kernels.nbits_turns import counters
from seamline_cpu.tiles import ROWS

__all__ = ["PANELS_FROM", "by_panels", "fill", "room", "weights_of"]

f4 = np.float32
#: Rows from which float32 weights are unpacked to memory, by 32-bit lanes in a register.
PANELS_FROM = {16: 48, 8: 12, 4: 24}
_MOST = 8  # panels that are unpacked together: each row is then read for all of them
_TURNS = 4  # turns of each thread at the weights


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


def by_panels(
    packed: Packed,
    x: Array,
    kind: str,
    bias: Array,
    y: Array,
    threads: int,
    *,
    variant: str,
) -> list[Run]:
    """Bind a product in float32; see :mod:`.nbits_panels`."""
    m, k = x.shape
    values, left = (
        room(m, packed.depth),
        np.empty((-(-m // ROWS), packed.depth, ROWS), f4),
    )
    panels = -(-len(packed.data) // PANEL)
    per = min(_MOST, max(1, panels // (_TURNS * threads)))
    stride = scratch_size(max(DEPTH, packed.block), per)
    scratch = np.zeros((threads, stride), f4)
    turns, turns_at = counters(threads)
    where = {"x": values.ctypes.data, "x_pitch": values.strides[0]}
    a, b = (np.zeros(len(names), np.int64) for names in (SLOTS, PANEL_SLOTS))
    fill(a, SLOTS, m=m, k=k, a=x.ctypes.data, a_pitch=x.strides[0], **where)
    fill(
        b, PANEL_SLOTS, turns_at=turns_at, parts=threads, m=m,
        a=where["x"], a_pitch=where["x_pitch"], left=left.ctypes.data, block=packed.block,
        bias=bias.ctypes.data, y=y.ctypes.data, per=per, scratch=scratch.ctypes.data,
        stride=4 * stride, **weights_of(packed),
    )  # fmt: skip
    keep = (x, bias, y, packed, values, left, scratch, turns)
    commands = [(widened(variant, kind), a), (stacked_rows, b)]
    commands.append((panel_products(variant, packed.form), b))
    return [bind(what, arguments, threads, keep=keep) for what, arguments in commands]
