"""
com.microsoft MatMulNBits: float rows times weights of 2, 4 or 8 bits in blocks.

Row ``n`` of the weights is ``ceil(K / block)`` blocks, each of ``block * bits / 8`` bytes
with the low bits first; its zero points are packed alike and padded to a whole byte for
each row. What lies past K in the last block is never multiplied by anything but zero.

Few rows of A: each weight is unpacked in registers, and
``sum(a (q - z) s) = s (sum(a q) - z sum(a))`` for each block. Many rows: a few hundred
rows of weights at a time are unpacked into a scratch that fits the cache, for BLAS. No
float copy of the weights is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import row_kernel, sums, threads_of
from seamline_cpu.table import TABLE

__all__ = ["dot_rows", "unpack_rows", "zero_points"]

f4 = np.float32
_DTYPES = ("float32", "float16", "bfloat16")
#: Rows of A from which unpacking for BLAS is quicker than unpacking for each row.
_BLAS_FROM = 12
#: Bytes of unpacked weights at a time: what a core's own cache holds.
_SCRATCH = 1 << 20


@sums
def _dot(codes: Any, a: Any, shift: int, mask: int) -> Any:
    total = f4(0.0)
    for j in range(codes.shape[0]):
        total += f4(np.uint8((codes[j] >> np.uint8(shift)) & np.uint8(mask))) * a[j]
    return total


@jit
def dot_rows(
    codes: Any, scale: Any, zero: Any, a: Any, sums_of_a: Any, bits: int, y: Any,
    first: int, end: int,
) -> None:  # fmt: skip
    """
    Write ``y[m, n]`` for weights ``first`` to ``end``.

    ``codes`` is (N, blocks, bytes), ``a`` (M, blocks, 8 / bits, bytes): the values that
    meet the lowest bits of each byte, then the next; ``sums_of_a`` (M, blocks).
    """
    mask = (1 << bits) - 1
    for n in range(first, end):
        for m in range(a.shape[0]):
            total = f4(0.0)
            for b in range(codes.shape[1]):
                part = f4(0.0)
                for plane in range(a.shape[2]):
                    part += _dot(codes[n, b], a[m, b, plane], plane * bits, mask)
                total += scale[n, b] * (part - zero[n, b] * sums_of_a[m, b])
            y[m, n] = total


@jit
def unpack_rows(
    codes: Any,
    scale: Any,
    zero: Any,
    bits: int,
    start: int,
    out: Any,
    first: int,
    end: int,
) -> None:
    """Write weights ``start + i`` as float32 into row ``i`` of ``out``, (rows, K)."""
    planes, mask = 8 // bits, np.uint8((1 << bits) - 1)
    size = codes.shape[2] * planes
    for i in range(first, end):
        for b in range(codes.shape[1]):
            s, z = scale[start + i, b], zero[start + i, b]
            for j in range(min(size, out.shape[1] - b * size)):
                byte = codes[start + i, b, j // planes]
                code = np.uint8(byte >> np.uint8((j % planes) * bits)) & mask
                out[i, b * size + j] = (f4(code) - z) * s


def zero_points(given: Array | None, bits: int, n: int, blocks: int) -> Array:
    """
    Give (N, blocks) float32 zero points from packed or float ones, or the middle code.

    A packed row is a whole number of bytes; bits past the last block are ignored.
    """
    if given is None:
        return np.full((n, blocks), 1 << (bits - 1), f4)
    if given.dtype != np.uint8:
        return given.reshape(n, blocks).astype(f4)
    packed: Array = given.reshape(n, -1)
    shifts = np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)
    codes = (packed[:, :, None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(codes.reshape(n, -1)[:, :blocks], f4)


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
    when=_refused,
)  # fmt: skip
def matmul_nbits(call: Call) -> Run:
    """Bind MatMulNBits; A, scales and results are taken to and from float32."""
    k, n = int(call.attr("K")), int(call.attr("N"))
    bits, block = int(call.attr("bits", 4)), int(call.attr("block_size"))
    a, b, y, bias = call.input(0), call.input(1), call.output(0), call.input(5)
    blocks = -(-k // block)
    if b.size == 0:  # an omitted projection
        return lambda: y.fill(0) if bias is None else np.copyto(y, bias)
    codes = b.reshape(n, blocks, block * bits // 8)
    rows = a.reshape(-1, k)
    wide_y = np.empty((len(rows), n), f4)
    fixed = [call.view.has_input(3)][: call.constant(3) is not None]

    def factors() -> tuple[Array, Array]:
        scale = call.input(2).reshape(n, blocks).astype(f4)
        return scale, zero_points(call.input(3), bits, n, blocks)

    known = call.constant(2) is not None and (call.input(3) is None or bool(fixed))
    indices = (2, 3) if call.input(3) is not None else (2,)
    kept = (
        call.resident(f"float factors {bits} {n} {blocks}", indices, factors)
        if known
        else None
    )
    many = len(rows) >= _BLAS_FROM
    multiply = _many if many else _few
    threads = threads_of(call.options)

    def run() -> None:
        scale, zero = kept or factors()
        multiply(rows, codes, scale, zero, bits, wide_y, threads)
        if bias is not None:
            np.add(wide_y, bias.astype(f4, copy=False), out=wide_y)
        np.copyto(y, wide_y.reshape(y.shape), casting="unsafe")

    return run


def _few(
    rows: Array,
    codes: Array,
    scale: Array,
    zero: Array,
    bits: int,
    y: Array,
    threads: int,
) -> None:
    n, blocks, width = codes.shape
    planes = 8 // bits
    padded = np.zeros((len(rows), blocks * width * planes), f4)
    padded[:, : rows.shape[1]] = rows
    laid = padded.reshape(len(rows), blocks, width, planes)
    arrays = (codes, scale, zero, np.ascontiguousarray(laid.swapaxes(2, 3)),
              laid.sum(axis=(2, 3)), bits, y)  # fmt: skip
    row_kernel(dot_rows, arrays, n, codes.size * planes * len(rows), threads)()


def _many(
    rows: Array,
    codes: Array,
    scale: Array,
    zero: Array,
    bits: int,
    y: Array,
    threads: int,
) -> None:
    n, k = len(codes), rows.shape[1]
    left = rows.astype(f4, copy=False)
    at_once = min(n, max(16, _SCRATCH // (4 * k)))
    scratch = np.empty((at_once, k), f4)
    for start in range(0, n, at_once):
        count = min(at_once, n - start)
        arrays = (codes, scale, zero, bits, start, scratch)
        row_kernel(unpack_rows, arrays, count, count * k, threads)()
        np.matmul(left, scratch[:count].T, out=y[:, start : start + count])
