"""
Which commands multiply rows of activations by packed weights, and over what memory.

What a kernel does with a row is the same for every number of rows, except that a few rows
are scaled step by step and more of them weight by weight (:mod:`.nbits_float`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.binding import in_order
from seamline_cpu.commands import Command, bind
from seamline_cpu.instruction_sets import converts_half
from seamline_cpu.kernels.nbits_amx import by_tiles, from_rows
from seamline_cpu.kernels.nbits_codebooks import factor_of
from seamline_cpu.kernels.nbits_commands import (
    float_products,
    gathered,
    int8_products,
    narrowed,
    quantised,
    widened,
)
from seamline_cpu.kernels.nbits_layout import GROUP, Packed
from seamline_cpu.kernels.nbits_many import (
    by_pieces,
    fill,
    room,
    weights_of,
)
from seamline_cpu.kernels.nbits_operands import SLOTS
from seamline_cpu.kernels.nbits_plans import FROM_ROWS as PIECES_FROM
from seamline_cpu.kernels.nbits_plans import MOST_HELD, holds_codes
from seamline_cpu.kernels.nbits_several import by_held_bytes
from seamline_cpu.kernels.nbits_split import pays, splits
from seamline_cpu.kernels.nbits_split_product import by_split_tiles
from seamline_cpu.kernels.nbits_turns import (
    AT_ONCE,
    SHARED_FROM,
    TURNS,
    counters,
)
from seamline_cpu.kernels.tile_turns import begun
from seamline_cpu.vectors import REGISTER

__all__ = ["Product", "padded_bias"]

f4 = np.float32
#: For 32-bit lanes in a register: groups of weights that tiles of 1, 2, ... rows take.
_INT8_GROUPS = {16: (4, 4, 4, 2, 2, 2), 8: (4, 2, 1, 1, 1), 4: (2, 1, 1, 1)}
_FLOAT_GROUPS = {16: (4, 4, 2), 8: (2, 2, 1), 4: (1, 1, 1)}
_QUANTISED_APART = 1 << 13  # activations that a thread quantises in some 2 us


@attrs.frozen(eq=False)
class Product:
    """
    ``y = x @ dequantised.T + bias`` for packed weights.

    Attributes
    ----------
    variant
        Of :data:`seamline_cpu.kernels.nbits_choice.VARIANTS`.
    int8
        Activations are quantised to 8 bits.
    exact
        Activations are not rounded where tiles of AMX multiply them.
    """

    packed: Packed
    variant: str
    int8: bool
    threads: int
    exact: bool = False

    @property
    def vectors(self) -> str:
        """Give the variant of vector code: what tiles do not do."""
        return "avx512vnni" if self.variant == "amx" else self.variant

    def way(self, m: int) -> str:
        """
        Give how ``m`` rows are multiplied.

        ``split`` and ``tiles`` by AMX, as sums of bfloat16 and rounded to it; ``pieces`` by
        vectors of float32; ``held`` in 8 bits, by codes that stay in registers; ``few`` by
        vectors, each row by itself.
        """
        if self.variant == "amx":
            if self.exact and pays(m) and splits(self.packed.form):
                return "split"
            if not self.exact and m >= from_rows(int8=self.int8):
                return "tiles"
        if self.int8:
            return "held" if holds_codes(self.vectors, m) else "few"
        return "pieces" if m >= PIECES_FROM else "few"

    def bound(self, x: Array, bias: Array, y: Array) -> Run:
        """
        Bind the product over fixed memory.

        Parameters
        ----------
        x
            (M, K), C-contiguous: float32, float16 or bfloat16.
        bias
            float32, as :func:`padded_bias` gives it.
        y
            (M, N), C-contiguous, of the same type as ``x``.
        """
        runs: list[Run] = []
        source = x
        if self.packed.places is not None:
            source, run = self._gathered(x)
            runs.append(run)
        kind = str(source.dtype)
        if kind == "float16" and not converts_half():
            wide = np.empty(source.shape, f4)
            runs.append(partial(np.copyto, wide, source))
            source, kind = wide, "float32"
        out = y if y.dtype == f4 else np.empty(y.shape, f4)
        many = (self.packed, source, kind, bias, out, self.threads)
        way = self.way(len(x))
        if way == "split":
            runs += by_split_tiles(*many)
        elif way == "tiles":
            runs += by_tiles(*many)
        elif way == "pieces":
            runs += by_pieces(*many, variant=self.vectors)
        elif way == "held":
            rows = _height(len(x), MOST_HELD)
            runs += by_held_bytes(*many, variant=self.vectors, rows=rows)
        else:
            runs += self._multiplied(source, kind, bias, out)
        if out is not y:
            runs.append(self._narrowed(out, y))
        return in_order(runs)

    def _multiplied(self, x: Array, kind: str, bias: Array, y: Array) -> list[Run]:
        (m, k), packed, form = x.shape, self.packed, self.packed.form
        tall = (_INT8_GROUPS if self.int8 else _FLOAT_GROUPS)[REGISTER[self.vectors]]
        rows = _height(m, len(tall))
        groups = tall[rows - 1]
        shares = self.threads if m * k * len(bias) >= SHARED_FROM else 1
        panels = -(-len(packed.data) // groups)
        at_once = AT_ONCE // (packed.depth * (1 if self.int8 else 4))
        a, (turns, turns_at) = np.zeros(len(SLOTS), np.int64), counters(shares)
        fill(
            a, SLOTS, turns_at=turns_at, parts=shares, m=m, k=k, a=x.ctypes.data,
            a_pitch=x.strides[0], bias=bias.ctypes.data, y=y.ctypes.data,
            y_pitch=y.strides[0], per=max(1, panels // (TURNS * shares)),
            rows=max(rows, at_once // rows * rows), **weights_of(packed),
        )  # fmt: skip
        few = shares if m * k >= _QUANTISED_APART else 1
        kept: Any
        if not self.int8:
            first, few, kept = self._as_floats(a, x, kind, few)
            multiply = float_products(self.vectors, form, rows, groups)
        else:
            own = few == 1
            first = (
                begun if own else quantised(self.vectors, kind, form.step, form.planes)
            )
            kept = _quantised_room(a, m, packed, shares if own else 1)
            own_kind = kind if own else None
            multiply = int8_products(self.vectors, form, rows, groups, own_kind)
        keep = (x, bias, y, packed, kept, turns)
        return [bind(first, a, few, keep=keep), bind(multiply, a, shares, keep=keep)]

    def _as_floats(
        self, arguments: Array, x: Array, kind: str, shares: int
    ) -> tuple[Command, int, Array]:
        """Give what comes first, its shares, and activations as float32, zero past K."""
        m, k = x.shape
        # A copy is written anew at each run, and each core would have to fetch it anew.
        if kind == "float32" and k == self.packed.depth:
            first, shares, kept = begun, 1, x
        else:
            first, kept = widened(self.vectors, kind), room(m, self.packed.depth)
        fill(arguments, SLOTS, x=kept.ctypes.data, x_pitch=kept.strides[0])
        return first, shares, kept

    def _gathered(self, x: Array) -> tuple[Array, Run]:
        places = np.ascontiguousarray(self.packed.places, np.int64)
        out = np.empty((len(x), len(places)), x.dtype)
        arguments = [
            len(x), places.ctypes.data, x.ctypes.data, out.ctypes.data, x.shape[1],
            len(places), x.itemsize,
        ]  # fmt: skip
        shares = min(self.threads, len(x)) if out.size >= SHARED_FROM else 1
        return out, bind(gathered, arguments, shares, keep=(x, places, out))

    def _narrowed(self, out: Array, y: Array) -> Run:
        kind = str(y.dtype)
        if kind == "float16" and not converts_half():
            return partial(np.copyto, y, out, casting="unsafe")
        shares = self.threads if y.size >= SHARED_FROM else 1
        arguments = [out.ctypes.data, y.size, y.ctypes.data]
        return bind(narrowed(self.vectors, kind), arguments, shares, keep=(out, y))


def _height(m: int, most: int) -> int:
    """Give the height of tiles for M rows: few of them, and little computed twice."""
    # Unpacking takes about as long as one row does.
    return min(range(1, min(m, most) + 1), key=lambda h: -(-m // h) * (h + 1))


def padded_bias(bias: Array | None, groups: int) -> Array:
    """Give a bias, or zeros, as float32 for whole groups."""
    made = np.zeros(groups * GROUP, f4)
    if bias is not None:
        made[: bias.size] = bias.reshape(-1).astype(f4)
    return made


def _quantised_room(arguments: Array, m: int, packed: Packed, copies: int = 1) -> Any:
    """Make room for quantised activations, each row off the others' cache sets."""
    form, pitch = packed.form, packed.depth + 64
    count = packed.depth // form.step
    line = -(-count // 16) * 16  # no two threads write one cache line
    codes = np.zeros((copies, m, pitch), np.int8)
    scales = np.zeros((copies, m, line), f4)
    totals = np.zeros((copies, m, line), np.int32)
    fill(
        arguments, SLOTS, x=codes.ctypes.data, x_pitch=pitch, scale=scales.ctypes.data,
        total=totals.ctypes.data, s_pitch=4 * line,
        factor=factor_of(form),
    )  # fmt: skip
    if copies > 1:
        fill(arguments, SLOTS, x_own=codes.strides[0], s_own=scales.strides[0])
    return codes, scales, totals
