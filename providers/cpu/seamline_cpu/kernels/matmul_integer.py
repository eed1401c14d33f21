"""
Products of 8-bit integers, exact: MatMulInteger and QLinearMatMul.

The right matrix is packed for compiled tiles of integers, once where it is constant. Where
stacks of matrices broadcast, or zero points differ between them, BLAS multiplies floats: both operands are moved into [-128, 127], so a product is at most 2**14 and a sum of 1024
of them at most 2**24: float32 holds every partial sum exactly, in whatever order BLAS
adds. Longer sums are cut into runs of 1024 that are added as integers. Zero points enter
through the sums of rows and columns: ``sum((a - p)(b - q)) = sum(ab) - p sum(b) - q
sum(a) + K p q``, in 32 bits that wrap, as ONNX allows.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline.fitting import Check, all_of, dims, unlike
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import Dim
from seamline_cpu.binding import in_order, nothing
from seamline_cpu.commands import Native, joined
from seamline_cpu.kernels.byte_endings import Ending
from seamline_cpu.kernels.byte_panels import BytePanels
from seamline_cpu.kernels.byte_product import bind_bytes
from seamline_cpu.kernels.byte_repacking import bind_repacking
from seamline_cpu.kernels.int8_choice import group_of, variant_for
from seamline_cpu.kernels.recorded import OF_BYTES, in_python
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__ = ["bind_product"]

_BYTES = ("int8", "uint8")
_EXACT_RUN = 1024
_BECAUSE = (
    "a constant right side is packed once, another in each run; stacks of matrices that "
    "broadcast are multiplied by BLAS as floats that stay exact"
)


def _signed(x: Array, out: Array | None = None) -> Array:
    """Give 8-bit integers as float32 in [-128, 127]."""
    out = np.empty(x.shape, np.float32) if out is None else out
    np.copyto(out, x)
    if x.dtype == np.uint8:
        out -= np.float32(128)
    return out


def _middle(zero: Array | None, x: Array, axis: int) -> Array:
    """Give a zero point moved as its operand is, laid along rows or columns, int32."""
    moved = 128 if x.dtype == np.uint8 else 0
    if zero is None:
        return np.asarray(-moved, np.int32)
    value = zero.astype(np.int32) - np.int32(moved)
    if value.size == 1:
        return value.reshape(())
    if value.ndim == 1:
        return value[:, None] if axis == -1 else value
    return value


def bind_product(
    call: Call, a: Array, b: Array, b_index: int, zeros: tuple[int, int], out: Array
) -> Run:
    """
    Bind the product of 8-bit matrices less their zero points.

    Parameters
    ----------
    b_index
        Which input ``b`` is: a constant one is packed.
    zeros
        Which inputs are the zero points of ``a`` and ``b``.
    out
        int32, C-contiguous; takes the sums, which wrap.
    """
    if not out.size:
        return nothing
    y = out.reshape(-1, 1 if b.ndim == 1 else b.shape[-1])
    if (native := _bind_native(call, a, b, b_index, zeros, y)) is not None:
        return native
    return _by_floats(a, b, (call.input(zeros[0]), call.input(zeros[1])), out)


def _bind_native(
    call: Call, a: Array, b: Array, b_index: int, zeros: tuple[int, int],
    y: Array | Ending,
) -> Native | None:  # fmt: skip
    """Bind the product by commands; None where they do not suit. ``y`` is ``(M, N)``."""
    if _suits_panels(call, a, b_index, zeros):
        return _bind_packed(call, a, b_index, zeros, y)
    p, q = (call.input(index) for index in zeros)
    stacked = b.ndim > 2 and a.shape[:-2] == b.shape[:-2]
    by_row = p is None or p.size == 1 or (p.ndim == 1 and a.ndim == 2)
    plain = by_row and (q is None or q.size == 1 or (q.ndim == 1 and b.ndim > 1))
    if not plain or not (stacked or b.ndim < 3) or not a.size:
        return None
    if not (a.flags.c_contiguous and b.flags.c_contiguous):
        return None
    threads, variant = threads_of(call.options), variant_for(call.options)
    right = b.reshape(1, -1, 1) if b.ndim == 1 else b.reshape(-1, *b.shape[-2:])
    left = a.reshape(len(right), -1, right.shape[1])
    pack, panels, moved = bind_repacking(right, q, group_of(variant), threads)
    return joined([pack, bind_bytes(left, p, panels, moved, y, threads, variant)])


def _bind_packed(
    call: Call, a: Array, b_index: int, zeros: tuple[int, int], y: Array | Ending
) -> Native:
    b: Any = call.constant(b_index)
    columns = b.reshape(-1, 1) if b.ndim == 1 else b
    variant = variant_for(call.options)
    group = group_of(variant)
    panels = call.resident(
        f"bytes of {columns.shape} by {group}", {b_index},
        lambda: BytePanels.of(columns, group),
    )  # fmt: skip
    m = len(y.y) if isinstance(y, Ending) else len(y)
    point = None if call.input(zeros[1]) is None else call.constant(zeros[1])
    return bind_bytes(
        a.reshape(m, columns.shape[0]), call.input(zeros[0]), panels, panels.zeros(point),
        y, threads_of(call.options), variant,
    )  # fmt: skip


def _suits_panels(call: Call, a: Array, b_index: int, zeros: tuple[int, int]) -> bool:
    """Tell whether compiled tiles take the product: B and its zero points are constant."""
    b, p, q = call.constant(b_index), *(call.input(index) for index in zeros)
    if b is None or b.ndim > 2 or (q is not None and call.constant(zeros[1]) is None):
        return False
    by_rows = p is None or p.size == 1 or (p.ndim == 1 and a.ndim == 2)
    return by_rows and a.flags.c_contiguous and (q is None or q.ndim < 2)


def _by_floats(
    a: Array, b: Array, zeros: tuple[Array | None, Array | None], out: Array
) -> Run:
    left = a[None] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    wide = np.empty(left.shape, np.float32)
    k = np.int32(left.shape[-1])

    def run() -> None:
        total = _exact(_signed(left, wide), _signed(right))
        p, q = _middle(zeros[0], left, -1), _middle(zeros[1], right, -2)
        if p.any():
            total -= p * _sum(right, -2)
        if q.any():
            total -= q * _sum(left, -1)
            total += p * q * k
        np.copyto(out, total.reshape(out.shape))

    return run


def _sum(x: Array, axis: int) -> Array:
    moved = np.int32(128 * x.shape[axis] if x.dtype == np.uint8 else 0)
    return np.add.reduce(x, axis=axis, dtype=np.int32, keepdims=True) - moved


def _exact(a: Array, b: Array) -> Array:
    """Multiply whole numbers in [-128, 127] held as float32; give int32."""
    k = a.shape[-1]
    if b.ndim == 2 and a.ndim > 2:
        rows = _exact(a.reshape(-1, k), b)
        return rows.reshape(*a.shape[:-1], b.shape[-1])
    if k <= _EXACT_RUN:
        return np.asarray(np.matmul(a, b), np.int32)
    total: Any = np.int32(0)
    for first in range(0, k, _EXACT_RUN):
        run = slice(first, first + _EXACT_RUN)
        total = total + np.matmul(a[..., run], b[..., run, :]).astype(np.int32)
    return np.asarray(total)


def _unfit_points(*pairs: tuple[int, int, int]) -> Check:
    """Give the check of zero points: one, one along a matrix' axis, or one a row of it."""

    def check(view: NodeView) -> str | None:
        for index, of, axis in pairs:
            x = dims(view, of)
            if x is None:
                continue
            forms: list[tuple[Dim, ...]] = [(), (1,)]
            if len(x) > 1:
                kept = x[:-1] if axis == -2 else x[:-2]
                forms.append((x[axis],))
                forms.append((*kept, 1) if axis == -2 else (*kept, 1, x[-1]))
            if reason := unlike(view, index, f"input {index}", *forms):
                return reason
        return None

    return check


def _resident(index: int, view: NodeView) -> int:
    b = view.constant(index)
    return b.nbytes if b is not None and b.ndim < 3 else 0


def _plain(a: int, b: int) -> Check:
    """Accept products of matrices that do not broadcast, without scales for each row."""

    def check(node: NodeView) -> str | None:
        one, other = node.tensor(a), node.tensor(b)
        if node.op_type == "QLinearMatMul":
            out = node.tensor(6)
            if out is not None and out.is_sized and out.shape not in ((), (1,)):
                return in_python("it has an output scale for each row")
        if one is None or other is None or one.shape is None or other.shape is None:
            return None
        if len(other.shape) > 2 and one.shape[:-2] != other.shape[:-2]:
            return in_python(f"its matrices are {one} and {other}, which broadcast")
        return None

    return check


@TABLE.kernel(
    "MatMulInteger", since=10, dtypes={0: _BYTES, 1: _BYTES},
    when=_unfit_points((2, 0, -2), (3, 1, -1)),
    resident=functools.partial(_resident, 1), variant="packed", because=_BECAUSE,
    not_capturable=all_of(OF_BYTES, _plain(0, 1)),
)  # fmt: skip
def matmul_integer(call: Call) -> Run:
    """Bind MatMulInteger; zero points by tensor, by row of A, by column of B."""
    return bind_product(
        call, call.inputs[0], call.inputs[1], 1, (2, 3), call.outputs[0]
    )


@TABLE.kernel(
    "QLinearMatMul", since=10, dtypes={0: _BYTES, 3: _BYTES, 7: _BYTES},
    when=_unfit_points((1, 0, -2), (2, 0, -2), (4, 3, -1), (5, 3, -1)),
    resident=functools.partial(_resident, 3), variant="packed", because=_BECAUSE,
    not_capturable=all_of(OF_BYTES, _plain(0, 3)),
)  # fmt: skip
def qlinear_matmul(call: Call) -> Run:
    """Bind QLinearMatMul: exact sums, one float32 factor, halves to even, saturated."""
    a, b, y = call.inputs[0], call.inputs[3], call.outputs[0]
    scales, y_scale, y_zero = (call.inputs[1], call.inputs[4]), *call.inputs[6:8]
    if _are_plain(scales, y_scale, y_zero, y):
        rows = y.reshape(-1, y.shape[-1] if b.ndim > 1 else 1)
        ending = Ending(rows, *scales, last=y_scale, zero=y_zero)
        if (native := _bind_native(call, a, b, 3, (2, 5), ending)) is not None:
            return native
    sums = np.empty(y.shape, np.int32)
    multiply = bind_product(call, a, b, 3, (2, 5), sums)
    return in_order([multiply, _rounded(call, sums)])


def _are_plain(
    scales: tuple[Array, Array], y_scale: Array, y_zero: Array, y: Array
) -> bool:
    """Tell whether the command takes the scales: by row of a matrix, and by column."""
    by_row = scales[0].size == 1 or (scales[0].ndim == 1 and y.ndim == 2)
    by_column = scales[1].size == 1 or scales[1].ndim == 1
    singles = y_scale.size == y_zero.size == 1
    single = all(s.dtype == np.float32 for s in (*scales, y_scale))
    return by_row and by_column and singles and single and bool(y.size)


def _rounded(call: Call, sums: Array) -> Run:
    """Bind what scales, rounds and saturates, where scales are of any form."""
    y = call.outputs[0]
    a_scale, b_scale, y_scale, y_zero = (call.inputs[i] for i in (1, 4, 6, 7))
    info = np.iinfo(y.dtype)

    def run() -> None:
        rows, columns, out = (s.astype(np.float32) for s in (a_scale, b_scale, y_scale))
        rows = rows[:, None] if rows.ndim == 1 and rows.size > 1 else rows
        factor = (
            rows * columns / (out[:, None] if out.ndim == 1 and out.size > 1 else out)
        )
        zero = y_zero.astype(np.float32)
        zero = zero[:, None] if zero.ndim == 1 and zero.size > 1 else zero
        scaled = np.rint(sums * factor.astype(np.float64))
        np.copyto(y, np.clip(scaled + zero, info.min, info.max), casting="unsafe")

    return run
