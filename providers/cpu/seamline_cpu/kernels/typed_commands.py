"""
Comparisons, logic, Where and integer arithmetic as commands.

Small tensors of sizes and masks of attention are made of these; in NumPy each would take a
list of commands apart. They are exact. What they do not take (other types, more than three
loops, arrays that are not C-contiguous) NumPy does, with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seamline.kernels import Call
from seamline.provider import Array
from seamline_cpu.atomics import bytes_at, floats, ints, longs, shorts
from seamline_cpu.commands import Command, Native, bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels import typed_loops as loops
from seamline_cpu.kernels.rows import matrix, threads_of
from seamline_cpu.strides import portion, three_loops

__all__ = ["COMPARED", "COUNTED", "bind_arithmetic", "bind_comparison", "bind_where"]

_SHARED_FROM = 262_144  #: elements from which more threads pay
_OP, _OUTER, _ROWS, _N, _A, _B, _OUT, _A0, _A1, _A2, _B0, _B1, _B2 = range(13)
_C, _C0, _C1, _C2 = range(13, 17)
_EITHER, _NUMBER_LAST, _NUMBER_FIRST = range(3)
_FORM = 13

_compare, _compare_by_number = loops.compare, loops.compare_by_number
_arithmetic, _arithmetic_by_number = loops.arithmetic, loops.arithmetic_by_number


@jit
def _places(a: Any, r: int, low: int, width: int) -> Any:
    """Give the addresses of both operands' lines."""
    i, j = r // a[_ROWS], r % a[_ROWS]
    one = a[_A] + width * (i * a[_A0] + j * a[_A1] + low * a[_A2])
    other = a[_B] + width * (i * a[_B0] + j * a[_B1] + low * a[_B2])
    return one, other


@jit
def _compared(op: int, form: int, x: Any, y: Any, out: int, n: int) -> None:
    one, other, to = (
        matrix(x, 1, n)[0],
        matrix(y, 1, n)[0],
        matrix(bytes_at(out), 1, n)[0],
    )
    if form == _EITHER:
        _compare(op, one, other, to)
    elif form == _NUMBER_LAST:
        _compare_by_number(op, one, y[0], to)
    else:
        _compare_by_number(op, other, x[0], to)


@command
def _compare_floats(a: Any, share: int, shares: int) -> None:
    first, end, low, high = portion(a[_OUTER] * a[_ROWS], a[_N], share, shares)
    for r in range(first, end):
        x, y = _places(a, r, low, 4)
        to = a[_OUT] + r * a[_N] + low
        _compared(a[_OP], a[_FORM], floats(x), floats(y), to, high - low)


@command
def _compare_ints(a: Any, share: int, shares: int) -> None:
    first, end, low, high = portion(a[_OUTER] * a[_ROWS], a[_N], share, shares)
    for r in range(first, end):
        x, y = _places(a, r, low, 4)
        to = a[_OUT] + r * a[_N] + low
        _compared(a[_OP], a[_FORM], ints(x), ints(y), to, high - low)


@command
def _compare_longs(a: Any, share: int, shares: int) -> None:
    first, end, low, high = portion(a[_OUTER] * a[_ROWS], a[_N], share, shares)
    for r in range(first, end):
        x, y = _places(a, r, low, 8)
        to = a[_OUT] + r * a[_N] + low
        _compared(a[_OP], a[_FORM], longs(x), longs(y), to, high - low)


@jit
def _computed(op: int, form: int, x: Any, y: Any, out: Any, n: int) -> None:
    one, other, to = matrix(x, 1, n)[0], matrix(y, 1, n)[0], matrix(out, 1, n)[0]
    if form == _EITHER:
        _arithmetic(op, one, other, to)
    elif form == _NUMBER_LAST:
        _arithmetic_by_number(op, one, y[0], to)
    else:
        _arithmetic_by_number(op, other, x[0], to)


@command
def _compute_ints(a: Any, share: int, shares: int) -> None:
    first, end, low, high = portion(a[_OUTER] * a[_ROWS], a[_N], share, shares)
    for r in range(first, end):
        x, y = _places(a, r, low, 4)
        to = ints(a[_OUT] + 4 * (r * a[_N] + low))
        _computed(a[_OP], a[_FORM], ints(x), ints(y), to, high - low)


@command
def _compute_longs(a: Any, share: int, shares: int) -> None:
    first, end, low, high = portion(a[_OUTER] * a[_ROWS], a[_N], share, shares)
    for r in range(first, end):
        x, y = _places(a, r, low, 8)
        to = longs(a[_OUT] + 8 * (r * a[_N] + low))
        _computed(a[_OP], a[_FORM], longs(x), longs(y), to, high - low)


@command
def _logic(a: Any, share: int, shares: int) -> None:
    """Write and, or, exclusive or of truth values, which are 0 or 1."""
    first, end, low, high = portion(a[_OUTER] * a[_ROWS], a[_N], share, shares)
    op, down, along = a[_OP], a[_A2], a[_B2]
    for r in range(first, end):
        one, other = _places(a, r, low, 1)
        x, y, to = bytes_at(one), bytes_at(other), bytes_at(a[_OUT] + r * a[_N] + low)
        for i in range(high - low):
            u, v = x[i * down], y[i * along]
            to[i] = u & v if op == 0 else (u | v if op == 1 else u ^ v)


@jit
def _choose(
    c: Any, x: Any, y: Any, out: Any, n: int, sc: int, sx: int, sy: int
) -> None:
    for i in range(n):
        u, v = x[i * sx], y[i * sy]
        out[i] = u if c[i * sc] != 0 else v


@command
def _where(a: Any, share: int, shares: int) -> None:
    """Choose between elements, whose size stands in place of the operation."""
    first, end, low, high = portion(a[_OUTER] * a[_ROWS], a[_N], share, shares)
    width, n = a[_OP], high - low
    for r in range(first, end):
        x, y = _places(a, r, low, width)
        i, j = r // a[_ROWS], r % a[_ROWS]
        c = bytes_at(a[_C] + i * a[_C0] + j * a[_C1] + low * a[_C2])
        to = a[_OUT] + width * (r * a[_N] + low)
        if width == 4:
            _choose(c, ints(x), ints(y), ints(to), n, a[_C2], a[_A2], a[_B2])
        elif width == 8:
            _choose(c, longs(x), longs(y), longs(to), n, a[_C2], a[_A2], a[_B2])
        elif width == 1:
            _choose(
                c, bytes_at(x), bytes_at(y), bytes_at(to), n, a[_C2], a[_A2], a[_B2]
            )
        else:
            _choose(c, shorts(x), shorts(y), shorts(to), n, a[_C2], a[_A2], a[_B2])


_COMPARE: Mapping[str, Command] = {
    "float32": _compare_floats, "int32": _compare_ints, "int64": _compare_longs,
}  # fmt: skip
_COMPUTE: Mapping[str, Command] = {"int32": _compute_ints, "int64": _compute_longs}
_COMPARISONS = {
    "Equal": loops.EQUAL, "Less": loops.LESS, "LessOrEqual": loops.LESS_EQUAL,
    "Greater": loops.GREATER, "GreaterOrEqual": loops.GREATER_EQUAL,
}  # fmt: skip
_ARITHMETIC = {
    "Add": loops.ADD, "Sub": loops.SUB, "Mul": loops.MUL, "Div": loops.DIV,
    "Max": loops.MAX, "Min": loops.MIN, "Sum": loops.ADD,
}  # fmt: skip
_LOGIC = {"And": 0, "Or": 1, "Xor": 2}
#: Element types of comparisons and of arithmetic here.
COMPARED, COUNTED = frozenset(_COMPARE), frozenset(_COMPUTE)


def bind_comparison(
    op: str, call: Call, a: Array, b: Array, out: Array
) -> Native | None:
    """Bind a comparison or a junction of truth values; None where NumPy has to do it."""
    if op in _LOGIC:
        return _bind(_logic, _LOGIC[op], call, a, b, out)
    what = _COMPARE.get(a.dtype.name)
    if what is None or op not in _COMPARISONS:
        return None
    code = _COMPARISONS[op]
    return _bind(what, code, call, a, b, out, flipped=loops.FLIPPED[code])


def bind_arithmetic(
    op: str, call: Call, a: Array, b: Array, out: Array
) -> Native | None:
    """Bind ``out = a op b`` of int32 or int64; None where NumPy has to do it."""
    what = _COMPUTE.get(a.dtype.name)
    if what is None or out.dtype != a.dtype or op not in _ARITHMETIC:
        return None
    code = _ARITHMETIC[op]
    turned = {loops.SUB: loops.SUB_FROM, loops.DIV: loops.DIV_INTO}.get(code, code)
    return _bind(what, code, call, a, b, out, flipped=turned)


def _bind(
    what: Command,
    code: int,
    call: Call,
    a: Array,
    b: Array,
    out: Array,
    flipped: int = 0,
) -> Native | None:
    found = three_loops(out, (a, b)) if a.dtype == b.dtype else None
    if found is None:
        return None
    sizes, (along_a, along_b) = found
    if what is not _logic and along_a[-1] == along_b[-1] == 0:
        return None
    form = _EITHER
    if along_b[-1] == 0:
        form = _NUMBER_LAST
    elif along_a[-1] == 0:
        form, code = _NUMBER_FIRST, flipped if what is not _logic else code
    where = [x.ctypes.data for x in (a, b, out)]
    arguments = [code, *sizes, *where, *along_a, *along_b, form]
    return bind(what, arguments, _shares(call, out.size), keep=(a, b, out))


def bind_where(call: Call, c: Array, x: Array, y: Array, out: Array) -> Native | None:
    """Bind ``out = x where c, else y``, all broadcast; None where NumPy has to do it."""
    if out.dtype.hasobject or out.itemsize not in (1, 2, 4, 8):
        return None
    found = three_loops(out, (x, y, c))
    if found is None:
        return None
    sizes, (along_x, along_y, along_c) = found
    where = [array.ctypes.data for array in (x, y, out)]
    arguments = [
        out.itemsize,
        *sizes,
        *where,
        *along_x,
        *along_y,
        c.ctypes.data,
        *along_c,
    ]
    return bind(_where, arguments, _shares(call, out.size), keep=(c, x, y, out))


def _shares(call: Call, size: int) -> int:
    return threads_of(call.options) if size >= _SHARED_FROM else 1
