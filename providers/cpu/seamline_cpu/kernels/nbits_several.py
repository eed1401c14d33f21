"""Which commands multiply several rows of 8-bit activations by packed weights, over what memory."""

from __future__ import annotations

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.commands import bind
from seamline_cpu.kernels.nbits_codebooks import factor_of
from seamline_cpu.kernels.nbits_int8_held import (
    held_bytes_products,
    quantised_by_step,
    step_nbytes,
)
from seamline_cpu.kernels.nbits_layout import Packed
from seamline_cpu.kernels.nbits_many import fill, weights_of
from seamline_cpu.kernels.nbits_operands import SLOTS
from seamline_cpu.kernels.nbits_turns import (
    AT_ONCE,
    SHARED_FROM,
    TURNS,
    counters,
)
from seamline_cpu.kernels.tile_turns import begun

__all__ = ["by_held_bytes"]

#: Activations from which threads quantise together. Each for itself does fewer of them in the
#: time that it takes to meet, and to fetch what another core has written.
_TOGETHER = 1 << 16


def by_held_bytes(
    packed: Packed, x: Array, kind: str, bias: Array, y: Array, threads: int, *, variant: str,
    rows: int,
) -> list[Run]:  # fmt: skip
    """Bind a product in 8 bits for tiles of ``rows`` rows, of which there are as many."""
    (m, k), form = x.shape, packed.form
    shares = threads if m * k * packed.n >= SHARED_FROM else 1
    own = m * k < _TOGETHER
    steps, tiles = packed.depth // form.step, -(-m // rows)
    # A whole cache line, and a second that keeps tiles off each others' sets.
    pitch = -(-steps * step_nbytes(form.step, rows) // 64) * 64 + 64
    room = np.zeros((shares if own else 1) * tiles * pitch + 64, np.uint8)
    start = int(room.ctypes.data)
    a, (turns, turns_at) = np.zeros(len(SLOTS), np.int64), counters(shares)
    fill(
        a, SLOTS, turns_at=turns_at, parts=shares, m=m, k=k, a=x.ctypes.data,
        a_pitch=x.strides[0], x=start + -start % 64, x_pitch=pitch,
        x_own=tiles * pitch if own else 0, factor=factor_of(form), bias=bias.ctypes.data,
        y=y.ctypes.data, y_pitch=y.strides[0],
        per=max(1, len(packed.data) // (TURNS * shares)),
        rows=max(1, AT_ONCE // packed.depth // rows) * rows, **weights_of(packed),
    )  # fmt: skip
    keep = (x, bias, y, packed, room, turns)
    if own:
        first, multiply = begun, held_bytes_products(variant, form, rows, kind)
    else:
        first = quantised_by_step(variant, kind, form, rows)
        multiply = held_bytes_products(variant, form, rows)
    return [
        bind(first, a, 1 if own else shares, keep=keep),
        bind(multiply, a, shares, keep=keep),
    ]
