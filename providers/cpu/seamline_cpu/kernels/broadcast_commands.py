"""
Arithmetic of two float32 tensors, and functions of one, as compiled commands.

Broadcasting is folded away when a node is bound: axes that are contiguous in all operands
are joined, and what is left is at most three loops whose innermost steps by one element or
by none. Where more are left, or an array is not C-contiguous, NumPy does the work. The
operations here are exact by IEEE 754, so either way gives the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.kernels import Call
from seamline.provider import Array
from seamline_cpu.atomics import floats
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import elementwise, matrix, threads_of
from seamline_cpu.strides import folded

__all__ = ["BINARY", "UNARY", "bind_binary", "bind_unary"]

f4 = np.float32
#: Elements from which more threads pay: below, a thread that is held up costs more than it saves.
_SHARED_FROM = 524_288
_LINE = 16  # floats of a cache line, which two threads must not share
_ADD, _SUB, _MUL, _DIV = 0, 1, 2, 3
_NEG, _ABS, _SQRT, _RECIPROCAL, _FLOOR, _CEIL, _RELU = 0, 1, 2, 3, 4, 5, 6

BINARY = {"Add": _ADD, "Sub": _SUB, "Mul": _MUL, "Div": _DIV}
UNARY = {
    "Neg": _NEG,
    "Abs": _ABS,
    "Sqrt": _SQRT,
    "Reciprocal": _RECIPROCAL,
    "Floor": _FLOOR,
    "Ceil": _CEIL,
    "Relu": _RELU,
}
_OP, _OUTER, _ROWS, _N, _A, _B, _OUT, _A0, _A1, _A2, _B0, _B1, _B2 = range(13)


@elementwise
def _pairs(op: int, x: Any, y: Any, out: Any) -> None:
    if op == 0:
        for i in range(out.size):
            out[i] = x[i] + y[i]
    elif op == 1:
        for i in range(out.size):
            out[i] = x[i] - y[i]
    elif op == 2:
        for i in range(out.size):
            out[i] = x[i] * y[i]
    else:
        for i in range(out.size):
            out[i] = x[i] / y[i]


@elementwise
def _by_number(op: int, x: Any, y: Any, out: Any) -> None:
    if op == 0:
        for i in range(out.size):
            out[i] = x[i] + y
    elif op == 1:
        for i in range(out.size):
            out[i] = x[i] - y
    elif op == 2:
        for i in range(out.size):
            out[i] = x[i] * y
    else:
        for i in range(out.size):
            out[i] = x[i] / y


@elementwise
def _number_by(op: int, x: Any, y: Any, out: Any) -> None:
    if op == 1:
        for i in range(out.size):
            out[i] = x - y[i]
    else:
        for i in range(out.size):
            out[i] = x / y[i]


@jit
def _run_of(
    op: int, a: int, b: int, out: int, n: int, along_a: int, along_b: int
) -> None:
    """Do one innermost loop; a number beside a row where an operand does not step."""
    z = matrix(floats(out), 1, n)[0]
    if along_a != 0 and along_b != 0:
        _pairs(op, matrix(floats(a), 1, n)[0], matrix(floats(b), 1, n)[0], z)
    elif along_a != 0:
        _by_number(op, matrix(floats(a), 1, n)[0], floats(b)[0], z)
    elif op == 0 or op == 2:
        _by_number(op, matrix(floats(b), 1, n)[0], floats(a)[0], z)
    else:
        _number_by(op, floats(a)[0], matrix(floats(b), 1, n)[0], z)


@command
def _binary(a: Any, share: int, shares: int) -> None:
    """Shares are of the rows, or of a row where there are too few."""
    rows, n = a[_ROWS], a[_N]
    total = a[_OUTER] * rows
    first, end, low, high = 0, total, 0, n
    if total >= 4 * shares:
        first, end = total * share // shares, total * (share + 1) // shares
    elif shares > 1:
        step = ((n + shares - 1) // shares + 15) // 16 * 16
        low, high = min(n, share * step), min(n, (share + 1) * step)
    for r in range(first, end):
        i, j = r // rows, r % rows
        at_a = a[_A] + 4 * (i * a[_A0] + j * a[_A1] + low * a[_A2])
        at_b = a[_B] + 4 * (i * a[_B0] + j * a[_B1] + low * a[_B2])
        to = a[_OUT] + 4 * (r * n + low)
        _run_of(a[_OP], at_a, at_b, to, high - low, a[_A2], a[_B2])


@elementwise
def _each(op: int, x: Any, out: Any) -> None:
    one = f4(1.0)
    if op == 0:
        for i in range(out.size):
            out[i] = -x[i]
    elif op == 1:
        for i in range(out.size):
            out[i] = abs(x[i])
    elif op == 2:
        for i in range(out.size):
            out[i] = np.sqrt(x[i])
    else:
        for i in range(out.size):
            out[i] = one / x[i]


@elementwise
def _each_cut(op: int, x: Any, out: Any) -> None:
    zero = f4(0.0)
    if op == 4:
        for i in range(out.size):
            out[i] = np.floor(x[i])
    elif op == 5:
        for i in range(out.size):
            out[i] = np.ceil(x[i])
    else:
        for i in range(out.size):
            out[i] = zero if x[i] < zero else x[i]


@command
def _unary(a: Any, share: int, shares: int) -> None:
    """Arguments: operation, size, addresses of x and of the output."""
    n = a[1]
    step = ((n + shares - 1) // shares + 15) // 16 * 16
    low, high = min(n, share * step), min(n, (share + 1) * step)
    x = matrix(floats(a[2] + 4 * low), 1, high - low)[0]
    out = matrix(floats(a[3] + 4 * low), 1, high - low)[0]
    if a[0] <= _RECIPROCAL:
        _each(a[0], x, out)
    else:
        _each_cut(a[0], x, out)


def bind_binary(op: str, call: Call, a: Array, b: Array, out: Array) -> Native | None:
    """Bind ``out = a op b``, broadcast to ``out``; None where NumPy has to do it."""
    if any(x.dtype != f4 for x in (a, b, out)) or not out.size:
        return None
    if not all(x.flags.c_contiguous for x in (a, b, out)):
        return None
    wide = [np.broadcast_to(x, out.shape) for x in (a, b)]
    steps = [[s // 4 for s in x.strides] for x in (*wide, out)]
    sizes, (along_a, along_b, _) = folded(out.shape, steps)
    missing = 3 - len(sizes)
    if missing < 0:
        return None
    sizes = [1] * missing + sizes
    along_a, along_b = [0] * missing + along_a, [0] * missing + along_b
    if len(sizes) == missing:
        along_a[-1] = along_b[-1] = 1
    if not (along_a[-1] in (0, 1) and along_b[-1] in (0, 1)):
        return None
    if along_a[-1] == along_b[-1] == 0:
        return None  # both spread over an output that is larger than either
    where = [x.ctypes.data for x in (a, b, out)]
    arguments = [BINARY[op], *sizes, *where, *along_a, *along_b]
    return bind(_binary, arguments, _shares(call, out.size), keep=(a, b, out))


def bind_unary(op: str, call: Call, x: Array, out: Array) -> Native | None:
    """Bind ``out = op(x)``; None where NumPy has to do it."""
    if x.dtype != f4 or out.dtype != f4 or not out.size:
        return None
    if not (x.flags.c_contiguous and out.flags.c_contiguous):
        return None
    arguments = [UNARY[op], x.size, x.ctypes.data, out.ctypes.data]
    return bind(_unary, arguments, _shares(call, out.size), keep=(x, out))


def _shares(call: Call, size: int) -> int:
    return threads_of(call.options) if size >= _SHARED_FROM else 1
