"""
QLinearAdd and QLinearMul of onnxruntime's domain.

The real numbers of two tensors of bytes are added or multiplied, and rounded to bytes. What they give is what DequantizeLinear of both, the operation and QuantizeLinear give, bit
by bit, in one pass. https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np.numpy_support import carray

from seamline.fitting import Check, unlike
from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline.tensors import Dim, TensorType, ValueType
from seamline_cpu.atomics import bytes_at, floats
from seamline_cpu.binding import nothing
from seamline_cpu.commands import bind, command
from seamline_cpu.kernels.linear_commands import point_of
from seamline_cpu.kernels.quantize_loops import code_of
from seamline_cpu.kernels.recorded import OF_BYTES
from seamline_cpu.kernels.rows import elementwise, threads_of
from seamline_cpu.strides import portion, three_loops
from seamline_cpu.table import TABLE

__all__ = ["BYTES", "single"]

BYTES = ("int8", "uint8")
_DOMAIN = "com.microsoft"
_SHARED_FROM = 131_072  # elements from which more threads pay
(_OP, _OUTER, _ROWS, _N, _A, _B, _OUT, _A0, _A1, _A2, _B0, _B1, _B2, _A_SCALE, _A_ZERO,
 _B_SCALE, _B_ZERO, _SCALE, _ZERO, _SIGN) = range(20)  # fmt: skip
f4, i4 = np.float32, np.int32


@elementwise
def _combined(
    op: int, x: Any, y: Any, out: Any, sign: Any, a: Any, a_zero: Any, b: Any, b_zero: Any,
    scale: Any, zero: Any,
) -> None:  # fmt: skip
    low, high = i4(-sign), i4(255 - sign)
    p, q = i4(a_zero + sign), i4(b_zero + sign)
    if op == 0:
        for i in range(out.size):
            u = f4(i4(i4(i4(x[i]) ^ sign) - p)) * a
            v = f4(i4(i4(i4(y[i]) ^ sign) - q)) * b
            out[i] = code_of(f4(u + v), scale, zero, low, high)
    else:
        for i in range(out.size):
            u = f4(i4(i4(i4(x[i]) ^ sign) - p)) * a
            v = f4(i4(i4(i4(y[i]) ^ sign) - q)) * b
            out[i] = code_of(f4(u * v), scale, zero, low, high)


@elementwise
def _by_number(
    op: int,
    x: Any,
    v: Any,
    out: Any,
    sign: Any,
    a: Any,
    a_zero: Any,
    scale: Any,
    zero: Any,
) -> None:
    low, high, p = i4(-sign), i4(255 - sign), i4(a_zero + sign)
    if op == 0:
        for i in range(out.size):
            u = f4(i4(i4(i4(x[i]) ^ sign) - p)) * a
            out[i] = code_of(f4(u + v), scale, zero, low, high)
    else:
        for i in range(out.size):
            u = f4(i4(i4(i4(x[i]) ^ sign) - p)) * a
            out[i] = code_of(f4(u * v), scale, zero, low, high)


@command
def _pairs(a: Any, share: int, shares: int) -> None:
    """Shares are of the rows, or of a row where there are too few."""
    rows, n, sign, op = a[_ROWS], a[_N], i4(a[_SIGN]), a[_OP]
    first, end, low, high = portion(a[_OUTER] * rows, n, share, shares)
    of_a, of_b = floats(a[_A_SCALE])[0], floats(a[_B_SCALE])[0]
    p, q = point_of(a[_A_ZERO], 0, a[_SIGN]), point_of(a[_B_ZERO], 0, a[_SIGN])
    scale, zero = floats(a[_SCALE])[0], point_of(a[_ZERO], 0, a[_SIGN])
    size = high - low
    for r in range(first, end):
        i, j = r // rows, r % rows
        x = carray(bytes_at(a[_A] + i * a[_A0] + j * a[_A1] + low * a[_A2]), (size,))
        y = carray(bytes_at(a[_B] + i * a[_B0] + j * a[_B1] + low * a[_B2]), (size,))
        out = carray(bytes_at(a[_OUT] + r * n + low), (size,))
        if size <= 0:
            continue
        if a[_A2] != 0 and a[_B2] != 0:
            _combined(op, x, y, out, sign, of_a, p, of_b, q, scale, zero)
        elif a[_A2] != 0:
            v = f4(f4(i4(i4(y[0]) ^ sign) - i4(q + sign)) * of_b)
            _by_number(op, x, v, out, sign, of_a, p, scale, zero)
        else:
            v = f4(f4(i4(i4(x[0]) ^ sign) - i4(p + sign)) * of_a)
            _by_number(op, y, v, out, sign, of_b, q, scale, zero)


def single(*indices: int, needed: tuple[int, ...] = ()) -> Check:
    """Give the check that scales and zero points have one element, and some are there."""

    def check(view: NodeView) -> str | None:
        for index in indices:
            if index in needed and not view.has_input(index):
                return f"its input {index} is left out"
            if reason := unlike(view, index, f"input {index}", (), (1,)):
                return reason
        return None

    return check


def _inferred(node: NodeView) -> list[ValueType | None]:
    a, b = node.tensor(0), node.tensor(3)
    if a is None or b is None:
        return []
    if a.shape is None or b.shape is None:
        return [TensorType(a.dtype, None)]
    rank = max(len(a.shape), len(b.shape))
    wide = [(1,) * (rank - len(shape)) + shape for shape in (a.shape, b.shape)]
    return [TensorType(a.dtype, tuple(map(_wider, *wide)))]


def _wider(one: Dim, other: Dim) -> Dim:
    if one == 1 or other == 1:
        return other if one == 1 else one
    if one == other:
        return one
    return one if isinstance(one, int) else other if isinstance(other, int) else None


def _by_numpy(call: Call, op: int) -> Run:
    """Bind what three loops do not do, in the definition's steps."""
    inputs, out = [call.input(i) for i in range(8)], call.outputs[0]
    info = np.iinfo(out.dtype)

    def real(at: int) -> Any:
        codes, scale, zero = inputs[at : at + 3]
        less = np.int32(0) if zero is None else zero.astype(np.int32)
        return (codes.astype(np.int32) - less).astype(np.float32) * scale

    def run() -> None:
        x, y = real(0), real(3)
        scaled = np.rint((x + y if op == 0 else x * y) / inputs[6])
        zero = 0.0 if inputs[7] is None else np.float64(inputs[7].reshape(()))
        codes = np.clip(np.nan_to_num(scaled, nan=info.min) + zero, info.min, info.max)
        np.copyto(out, codes.reshape(out.shape), casting="unsafe")

    return run


def _bind(call: Call, op: int) -> Run:
    a, b, out = call.inputs[0], call.inputs[3], call.outputs[0]
    if not out.size:
        return nothing
    loops = three_loops(out, (a, b))
    if loops is None or loops[1][0][-1] == loops[1][1][-1] == 0 != out.size - 1:
        return _by_numpy(call, op)
    sizes, (along_a, along_b) = loops
    inputs = [call.input(i) for i in range(8)]
    at = [0 if x is None else x.ctypes.data for x in inputs]
    sign = 128 if out.dtype == np.int8 else 0
    arguments = [
        op, *sizes, at[0], at[3], out.ctypes.data, *along_a, *along_b, at[1], at[2], at[4],
        at[5], at[6], at[7], sign,
    ]  # fmt: skip
    shares = threads_of(call.options) if out.size >= _SHARED_FROM else 1
    return bind(_pairs, arguments, shares, keep=(inputs, out))


_unfit = single(1, 2, 4, 5, 6, 7, needed=(1, 4, 6))


@TABLE.kernel(
    "QLinearAdd",
    domain=_DOMAIN,
    dtypes=BYTES,
    when=_unfit,
    variant="commands",
    not_capturable=OF_BYTES,
)
def qlinear_add(call: Call) -> Run:
    """Bind the sum of two tensors of bytes, rounded to bytes again."""
    return _bind(call, 0)


@TABLE.kernel(
    "QLinearMul",
    domain=_DOMAIN,
    dtypes=BYTES,
    when=_unfit,
    variant="commands",
    not_capturable=OF_BYTES,
)
def qlinear_mul(call: Call) -> Run:
    """Bind the product of two tensors of bytes, rounded to bytes again."""
    return _bind(call, 1)


for _op in ("QLinearAdd", "QLinearMul"):
    TABLE.infer(_op, domain=_DOMAIN)(_inferred)
