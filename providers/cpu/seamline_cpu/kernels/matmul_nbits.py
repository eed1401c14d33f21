"""
com.microsoft MatMulNBits: float rows times weights of 2, 4 or 8 bits in blocks.

Row ``n`` of the weights is ``ceil(K / block)`` blocks, each of ``block * bits / 8`` bytes
with the low bits first; its zero points are packed alike and padded to a whole byte for
each row. What lies past K in the last block is never multiplied by anything but zero.

The bytes are kept as panels: byte by byte, those of ``COLUMNS`` neighbouring rows lie
together, so that they fill a vector register. Few rows of A: codes are unpacked in
registers, and ``sum(a (q - z) s) = s (sum(a q) - z sum(a))`` for each block. Many rows: a
panel at a time is unpacked to float32 for the register tiles. No float copy of the weights
is kept.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline_cpu.atomics import floats
from seamline_cpu.commands import bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.code_strips import (
    add_codes_2,
    add_codes_4,
    add_codes_8,
    unpack_2,
    unpack_4,
    unpack_8,
)
from seamline_cpu.kernels.fitting import all_of
from seamline_cpu.kernels.packed_product import SPARE, pack_left, tile
from seamline_cpu.kernels.quantized_fitting import unfit_blocks
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE
from seamline_cpu.tiles import COLUMNS, ROWS

__all__ = ["Weights", "zero_points"]

f4 = np.float32
_DTYPES = ("float32", "float16", "bfloat16")
#: Rows of A from which unpacking a panel once is quicker than once for each row.
_MANY = 6
_CODES, _SCALE, _ZERO, _A, _SUMS, _Y, _M, _K, _N, _BLOCKS, _WIDTH, _BITS, _SCRATCH, _STRIDE = (
    range(14)
)  # fmt: skip


@attrs.frozen(eq=False)
class Weights:
    """
    Quantized weights as panels of ``COLUMNS`` rows, filled up with zeros.

    Attributes
    ----------
    codes
        uint8, (panels, blocks, bytes of a block, COLUMNS).
    scale, zero
        float32, (panels, blocks, COLUMNS).
    n, bits
        Rows of weights, and bits of a weight.
    """

    codes: Array
    scale: Array
    zero: Array
    n: int
    bits: int

    @property
    def padded(self) -> int:
        """Give K rounded up to whole blocks."""
        return int(self.codes.shape[1] * self.codes.shape[2] * (8 // self.bits))


@jit
def _add_codes(bits: int, codes: int, count: int, values: int, sums: int) -> None:
    if bits == 4:
        add_codes_4(codes, count, values, sums)
    elif bits == 8:
        add_codes_8(codes, count, values, sums)
    else:
        add_codes_2(codes, count, values, sums)


@jit
def _unpack(bits: int, codes: int, count: int, scale: int, zero: int, out: int) -> None:
    if bits == 4:
        unpack_4(codes, count, scale, zero, out)
    elif bits == 8:
        unpack_8(codes, count, scale, zero, out)
    else:
        unpack_2(codes, count, scale, zero, out)


@command
def _few(a: Any, share: int, shares: int) -> None:
    """Multiply each row of A by panels of codes."""
    blocks, width, bits, n = a[_BLOCKS], a[_WIDTH], a[_BITS], a[_N]
    planes, panels = 8 // bits, (n + COLUMNS - 1) // COLUMNS
    sums = a[_SCRATCH] + share * a[_STRIDE]
    part, total = floats(sums), floats(sums + 4 * COLUMNS)
    for p in range(panels * share // shares, panels * (share + 1) // shares):
        for m in range(a[_M]):
            for c in range(COLUMNS):
                total[c] = f4(0.0)
            for b in range(blocks):
                at = p * blocks + b
                x = a[_A] + 4 * (m * blocks + b) * width * planes
                _add_codes(bits, a[_CODES] + at * width * COLUMNS, width, x, sums)
                scale = floats(a[_SCALE] + 4 * at * COLUMNS)
                zero = floats(a[_ZERO] + 4 * at * COLUMNS)
                weight = floats(a[_SUMS])[m * blocks + b]
                for c in range(COLUMNS):
                    total[c] += scale[c] * (part[c] - zero[c] * weight)
            y = floats(a[_Y] + 4 * (m * n + p * COLUMNS))
            for c in range(min(COLUMNS, n - p * COLUMNS)):
                y[c] = total[c]


@command
def _many(a: Any, share: int, shares: int) -> None:
    """Unpack a panel of weights, and multiply all of A, packed, by it."""
    blocks, width, bits, n = a[_BLOCKS], a[_WIDTH], a[_BITS], a[_N]
    m, depth, size = a[_M], a[_K], width * (8 // bits)
    panels = (n + COLUMNS - 1) // COLUMNS
    right = a[_SCRATCH] + share * a[_STRIDE]
    spare = right + a[_STRIDE] - 4 * SPARE
    for p in range(panels * share // shares, panels * (share + 1) // shares):
        for b in range(blocks):
            at, out = p * blocks + b, right + 4 * b * size * COLUMNS
            scale, zero = a[_SCALE] + 4 * at * COLUMNS, a[_ZERO] + 4 * at * COLUMNS
            _unpack(bits, a[_CODES] + at * width * COLUMNS, width, scale, zero, out)
        for r in range(0, m, ROWS):
            y = a[_Y] + 4 * (r * n + p * COLUMNS)
            left = a[_A] + 4 * r * depth
            tile(left, right, depth, m - r, n - p * COLUMNS, spare, y, 4 * n)


def zero_points(given: Array | None, bits: int, n: int, blocks: int) -> Array:
    """
    Give (N, blocks) float32 zero points from packed or float ones, or the middle code.

    A packed row is a whole number of bytes; bits past the last block are ignored.
    """
    if given is None:
        return np.full((n, blocks), 1 << (bits - 1), f4)
    if given.dtype != np.uint8:
        return given.reshape(n, blocks).astype(f4)
    rows: Array = given.reshape(n, -1)
    shifts = np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)
    codes = (rows[:, :, None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(codes.reshape(n, -1)[:, :blocks], f4)


def _panels(x: Array) -> Array:
    """Lay (N, ...) out as (panels, ..., COLUMNS), with zeros past N."""
    panels = -(-len(x) // COLUMNS)
    full = np.zeros((panels * COLUMNS, *x.shape[1:]), x.dtype)
    full[: len(x)] = x
    return np.ascontiguousarray(
        np.moveaxis(full.reshape(panels, COLUMNS, *x.shape[1:]), 1, -1)
    )


def _weights(call: Call, n: int, blocks: int, bits: int, width: int) -> Weights:
    scale = call.input(2).reshape(n, blocks).astype(f4)
    zero = zero_points(call.input(3), bits, n, blocks)
    codes = call.input(1).reshape(n, blocks, width)
    return Weights(_panels(codes), _panels(scale), _panels(zero), n, bits)


def _refused(view: NodeView) -> str | None:
    bits = view.attributes.get("bits", 4)
    if bits not in (2, 4, 8):
        return f"weights of {bits} bits are not implemented, only 2, 4 and 8"
    if view.has_input(4):
        return "g_idx (deprecated) is not implemented; reorder the weights instead"
    if view.attributes.get("weight_prepacked", 0):
        return "weights packed for another device cannot be read"
    kind = view.tensor(3)
    if kind is not None and kind.dtype not in (*_DTYPES, "uint8"):
        return f"zero points are {kind.dtype}, not uint8 or a float"
    return None


@TABLE.kernel(
    "MatMulNBits", domain="com.microsoft", dtypes={0: _DTYPES, 1: ("uint8",), 2: _DTYPES},
    when=all_of(_refused, unfit_blocks),
)  # fmt: skip
def matmul_nbits(call: Call) -> Run:
    """Bind MatMulNBits; A, scales and results are taken to and from float32."""
    k, n = int(call.attr("K")), int(call.attr("N"))
    bits, block = int(call.attr("bits", 4)), int(call.attr("block_size"))
    a, y, bias = call.input(0), call.output(0), call.input(5)
    if call.input(1).size == 0:  # an omitted projection
        return lambda: y.fill(0) if bias is None else np.copyto(y, bias)
    if y.size == 0:
        return lambda: None
    form = (n, -(-k // block), bits, block * bits // 8)
    rows = a.reshape(-1, k)
    out = y.reshape(-1, n) if y.dtype == f4 else np.empty((len(rows), n), f4)
    given = [i for i in (1, 2, 3) if call.view.has_input(i)]
    fixed = all(call.constant(i) is not None for i in given)
    bound = _many_rows if len(rows) >= _MANY else _few_rows
    threads = threads_of(call.options)

    def multiplied() -> Run:
        if not fixed:
            return bound(rows, _weights(call, *form), out, threads)
        kept = call.resident(f"panels {form}", given, lambda: _weights(call, *form))
        return bound(rows, kept, out, threads)

    multiply = multiplied() if fixed else None

    def run() -> None:
        (multiply or multiplied())()
        if bias is not None:
            np.add(out, bias.astype(f4, copy=False), out=out)
        if y.dtype != f4:
            np.copyto(y, out.reshape(y.shape), casting="unsafe")

    return run


def _arguments(w: Weights, a: Array, sums: Array, y: Array, k: int) -> list[int]:
    pointers = [x.ctypes.data for x in (w.codes, w.scale, w.zero, a, sums, y)]
    return [*pointers, len(y), k, w.n, *w.codes.shape[1:3], w.bits]


def _few_rows(rows: Array, w: Weights, y: Array, threads: int) -> Run:
    m, k = rows.shape
    blocks = w.codes.shape[1]
    padded = np.zeros((m, w.padded), f4)
    sums, split = np.empty((m, blocks), f4), padded.reshape(m, blocks, -1)
    scratch = np.empty((threads, 2 * COLUMNS), f4)
    arguments = [*_arguments(w, padded, sums, y, k), scratch.ctypes.data, 8 * COLUMNS]
    shares = threads if m * w.codes.size >= 1 << 16 else 1
    multiply = bind(_few, arguments, shares, keep=(w, padded, sums, y, scratch))
    head = padded[:, :k]

    def run() -> None:
        np.copyto(head, rows)
        np.add.reduce(split, axis=2, out=sums)
        multiply()

    return run


def _many_rows(rows: Array, w: Weights, y: Array, threads: int) -> Run:
    m, k = rows.shape
    wide = rows if rows.dtype == f4 else np.empty(rows.shape, f4)
    left = np.empty((-(-m // ROWS), k, ROWS), f4)
    stride = w.padded * COLUMNS + SPARE
    scratch = np.zeros((threads, stride), f4)
    arguments = [*_arguments(w, left, left, y, k), scratch.ctypes.data, 4 * stride]
    shares = threads if m * w.codes.size >= 1 << 16 else 1
    multiply = bind(_many, arguments, shares, keep=(w, left, y, scratch))

    def run() -> None:
        if wide is not rows:
            np.copyto(wide, rows)
        pack_left(wide, left)
        multiply()

    return run
