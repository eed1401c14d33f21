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
from seamline_cpu.chains import Flat
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import elementwise, matrix, threads_of
from seamline_cpu.strides import portion, three_loops

__all__ = ["BINARY", "UNARY", "bind_binary", "bind_unary"]

f4 = np.float32
#: Elements from which more threads pay: below, a thread that is held up costs more than it saves.
_SHARED_FROM = 524_288
#: PRelu is x where it is not below 0, else y x: the slope is the second operand.
BINARY = {"Add": 0, "Sub": 1, "Mul": 2, "Div": 3, "Max": 4, "Min": 5, "PRelu": 6}
#: The last four are powers: of 2, of 3, of 1/2 and of -1/2.
UNARY = {
    "Neg": 0, "Abs": 1, "Sqrt": 2, "Reciprocal": 3, "Floor": 4, "Ceil": 5, "Relu": 6,
    "Round": 7, "Sign": 8, "Square": 9, "Cube": 10, "Root": 11, "InverseRoot": 12,
}  # fmt: skip
_CUTS, _POWERS = 4, 9  #: operations are compiled in three groups, which begin here
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
def _chosen(op: int, x: Any, y: Any, out: Any) -> None:
    """Write one of both; the larger and the smaller are NaN where either is."""
    if op == 4:
        for i in range(out.size):
            u, v = x[i], y[i]
            out[i] = u if (u >= v) | (u != u) else v
    elif op == 5:
        for i in range(out.size):
            u, v = x[i], y[i]
            out[i] = u if (u <= v) | (u != u) else v
    else:
        zero = f4(0.0)
        for i in range(out.size):
            u = x[i]
            v = y[i] * u
            out[i] = v if u < zero else u


@elementwise
def _chosen_by_number(op: int, x: Any, y: Any, out: Any) -> None:
    if op == 4:
        for i in range(out.size):
            u = x[i]
            out[i] = u if (u >= y) | (u != u) else y
    elif op == 5:
        for i in range(out.size):
            u = x[i]
            out[i] = u if (u <= y) | (u != u) else y
    else:
        zero = f4(0.0)
        for i in range(out.size):
            u = x[i]
            v = y * u
            out[i] = v if u < zero else u


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
    elif op == 3:
        for i in range(out.size):
            out[i] = x / y[i]
    else:
        below = x < f4(0.0)
        for i in range(out.size):
            v = y[i] * x
            out[i] = v if below else x


@jit
def _run_of(
    op: int, a: int, b: int, out: int, n: int, along_a: int, along_b: int
) -> None:
    """Do one innermost loop; a number beside a row where an operand does not step."""
    z = matrix(floats(out), 1, n)[0]
    x, y = matrix(floats(a), 1, n)[0], matrix(floats(b), 1, n)[0]
    if along_a != 0 and along_b != 0:
        if op < 4:
            _pairs(op, x, y, z)
        else:
            _chosen(op, x, y, z)
    elif along_a != 0:
        if op < 4:
            _by_number(op, x, y[0], z)
        else:
            _chosen_by_number(op, x, y[0], z)
    elif op == 0 or op == 2:
        _by_number(op, y, x[0], z)
    elif op == 4 or op == 5:
        _chosen_by_number(op, y, x[0], z)
    else:
        _number_by(op, x[0], y, z)


@command
def _binary(a: Any, share: int, shares: int) -> None:
    """Shares are of the rows, or of a row where there are too few."""
    rows, n = a[_ROWS], a[_N]
    first, end, low, high = portion(a[_OUTER] * rows, n, share, shares)
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
def _each_power(op: int, x: Any, out: Any) -> None:
    """Write constant powers; IEEE 754's pow(-inf, 1/2) is inf, pow(-0.0, 1/2) is 0."""
    zero, one, least, most = f4(0.0), f4(1.0), f4(-np.inf), f4(np.inf)
    if op == 9:
        for i in range(out.size):
            out[i] = x[i] * x[i]
    elif op == 10:
        for i in range(out.size):
            out[i] = x[i] * x[i] * x[i]
    elif op == 11:
        for i in range(out.size):
            v = x[i]
            root = np.sqrt(v) + zero
            out[i] = most if v == least else root
    else:
        for i in range(out.size):
            v = x[i]
            root = one / (np.sqrt(v) + zero)
            out[i] = zero if v == least else root


@elementwise
def _each_cut(op: int, x: Any, out: Any) -> None:
    zero, one, minus = f4(0.0), f4(1.0), f4(-1.0)
    if op == 4:
        for i in range(out.size):
            out[i] = np.floor(x[i])
    elif op == 5:
        for i in range(out.size):
            out[i] = np.ceil(x[i])
    elif op == 6:
        for i in range(out.size):
            out[i] = zero if x[i] < zero else x[i]
    elif op == 7:
        for i in range(out.size):
            out[i] = np.rint(x[i])
    else:
        for i in range(out.size):
            v = x[i]
            s = minus if v < zero else v  # 0 keeps its sign, and NaN stays
            out[i] = one if v > zero else s


@command
def _unary(a: Any, share: int, shares: int) -> None:
    """Arguments: operation, size, addresses of x and of the output."""
    n = a[1]
    _, _, low, high = portion(1, n, share, shares)
    x = matrix(floats(a[2] + 4 * low), 1, high - low)[0]
    out = matrix(floats(a[3] + 4 * low), 1, high - low)[0]
    if a[0] < _CUTS:
        _each(a[0], x, out)
    elif a[0] < _POWERS:
        _each_cut(a[0], x, out)
    else:
        _each_power(a[0], x, out)


def bind_binary(op: str, call: Call, a: Array, b: Array, out: Array) -> Native | None:
    """Bind ``out = a op b``, broadcast to ``out``; None where NumPy has to do it."""
    if any(x.dtype != f4 for x in (a, b, out)) or not out.size:
        return None
    loops = three_loops(out, (a, b))
    if loops is None:
        return None
    sizes, (along_a, along_b) = loops
    if along_a[-1] == along_b[-1] == 0:
        return None  # both spread over an output that is larger than either
    where = [x.ctypes.data for x in (a, b, out)]
    arguments = [BINARY[op], *sizes, *where, *along_a, *along_b]
    made = bind(_binary, arguments, _shares(call, out.size), keep=(a, b, out))
    if sizes[:2] != [1, 1]:
        return made
    steps = (along_a[-1], along_b[-1])
    operands = [(place, 4) for place in (_A, _B)]
    moving = [pair for pair, step in zip(operands, steps, strict=True) if step]
    still = [pair for pair in operands if pair not in moving]
    return made.stepping(Flat(out.size, _N, tuple(moving), ((_OUT, 4),), tuple(still)))


def bind_unary(op: str, call: Call, x: Array, out: Array) -> Native | None:
    """Bind ``out = op(x)``; None where NumPy has to do it."""
    if x.dtype != f4 or out.dtype != f4 or not out.size:
        return None
    if not (x.flags.c_contiguous and out.flags.c_contiguous):
        return None
    arguments = [UNARY[op], x.size, x.ctypes.data, out.ctypes.data]
    made = bind(_unary, arguments, _shares(call, out.size), keep=(x, out))
    return made.stepping(Flat(x.size, 1, ((2, 4),), ((3, 4),)))


def _shares(call: Call, size: int) -> int:
    return threads_of(call.options) if size >= _SHARED_FROM else 1
