"""
Cast among float32, int32, int64 and bool as commands, and tests of one element.

As :mod:`.conversions` tells it: a float beyond an integer's range becomes the nearest end
of it, and NaN becomes 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from seamline.kernels import Call
from seamline.provider import Array
from seamline_cpu.atomics import bytes_at, floats, ints, longs
from seamline_cpu.chains import Flat
from seamline_cpu.commands import Command, Native, bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import elementwise, matrix, threads_of
from seamline_cpu.strides import portion

__all__ = ["CAST", "bind_cast", "bind_nan", "bind_not"]

f4, i4, i8 = np.float32, np.int32, np.int64
_SHARED_FROM = 262_144  #: elements from which more threads pay
_TO, _N, _X, _OUT = range(4)
_FLOAT, _INT, _LONG, _BOOL = range(4)
_INT_LOW, _INT_HIGH = f4(-2147483648.0), f4(2147483648.0)
_LONG_LOW, _LONG_HIGH = f4(-9223372036854775808.0), f4(9223372036854775808.0)
_INT_MIN, _INT_MAX = i4(-2147483648), i4(2147483647)
_LONG_MIN, _LONG_MAX = i8(-9223372036854775808), i8(9223372036854775807)


@elementwise
def _plain(x: Any, out: Any) -> None:
    """Convert as C does, from integers and truth values."""
    for i in range(x.size):
        out[i] = x[i]


@elementwise
def _truth(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = x[i] != 0


@elementwise
def _to_int(x: Any, out: Any) -> None:
    for i in range(x.size):
        v = x[i]
        inside = f4(0.0) if (v != v) | (v <= _INT_LOW) | (v >= _INT_HIGH) else v
        whole = i4(inside)
        whole = _INT_MIN if v <= _INT_LOW else whole
        out[i] = _INT_MAX if v >= _INT_HIGH else whole


@elementwise
def _to_long(x: Any, out: Any) -> None:
    for i in range(x.size):
        v = x[i]
        inside = f4(0.0) if (v != v) | (v <= _LONG_LOW) | (v >= _LONG_HIGH) else v
        whole = i8(inside)
        whole = _LONG_MIN if v <= _LONG_LOW else whole
        out[i] = _LONG_MAX if v >= _LONG_HIGH else whole


@jit
def _spread(x: Any, to: int, out: int, low: int, n: int) -> None:
    """Write integers or truth values as the type asked for."""
    if to == _FLOAT:
        _plain(x, matrix(floats(out + 4 * low), 1, n)[0])
    elif to == _INT:
        _plain(x, matrix(ints(out + 4 * low), 1, n)[0])
    elif to == _LONG:
        _plain(x, matrix(longs(out + 8 * low), 1, n)[0])
    else:
        _truth(x, matrix(bytes_at(out + low), 1, n)[0])


@command
def _from_floats(a: Any, share: int, shares: int) -> None:
    _, _, low, high = portion(1, a[_N], share, shares)
    n, to, out = high - low, a[_TO], a[_OUT]
    x = matrix(floats(a[_X] + 4 * low), 1, n)[0]
    if to == _INT:
        _to_int(x, matrix(ints(out + 4 * low), 1, n)[0])
    elif to == _LONG:
        _to_long(x, matrix(longs(out + 8 * low), 1, n)[0])
    else:
        _truth(x, matrix(bytes_at(out + low), 1, n)[0])


@command
def _from_ints(a: Any, share: int, shares: int) -> None:
    _, _, low, high = portion(1, a[_N], share, shares)
    x = matrix(ints(a[_X] + 4 * low), 1, high - low)[0]
    _spread(x, a[_TO], a[_OUT], low, high - low)


@command
def _from_longs(a: Any, share: int, shares: int) -> None:
    _, _, low, high = portion(1, a[_N], share, shares)
    x = matrix(longs(a[_X] + 8 * low), 1, high - low)[0]
    _spread(x, a[_TO], a[_OUT], low, high - low)


@command
def _from_bools(a: Any, share: int, shares: int) -> None:
    _, _, low, high = portion(1, a[_N], share, shares)
    x = matrix(bytes_at(a[_X] + low), 1, high - low)[0]
    _spread(x, a[_TO], a[_OUT], low, high - low)


@command
def _nots(a: Any, share: int, shares: int) -> None:
    _, _, low, high = portion(1, a[_N], share, shares)
    x, out = bytes_at(a[_X] + low), bytes_at(a[_OUT] + low)
    for i in range(high - low):
        out[i] = x[i] ^ 1


@command
def _nans(a: Any, share: int, shares: int) -> None:
    _, _, low, high = portion(1, a[_N], share, shares)
    x, out = floats(a[_X] + 4 * low), bytes_at(a[_OUT] + low)
    for i in range(high - low):
        out[i] = x[i] != x[i]


_FROM: Mapping[str, Command] = {
    "float32": _from_floats, "int32": _from_ints, "int64": _from_longs, "bool": _from_bools,
}  # fmt: skip
_CODES = {"float32": _FLOAT, "int32": _INT, "int64": _LONG, "bool": _BOOL}
#: The element types that are cast among each other.
CAST = frozenset(_CODES)


def bind_cast(call: Call, x: Array, out: Array) -> Native | None:
    """Bind a cast; None where NumPy has to do it."""
    source, target = x.dtype.name, out.dtype.name
    if source == target or not {source, target} <= CAST:
        return None
    return _bind(_FROM[source], _CODES[target], call, x, out)


def bind_not(call: Call, x: Array, out: Array) -> Native | None:
    """Bind the negation of truth values; None where NumPy has to do it."""
    return _bind(_nots, 0, call, x, out) if x.dtype == np.bool_ else None


def bind_nan(call: Call, x: Array, out: Array) -> Native | None:
    """Bind whether a float32 is NaN; None where NumPy has to do it."""
    return _bind(_nans, 0, call, x, out) if x.dtype == f4 else None


def _bind(what: Command, code: int, call: Call, x: Array, out: Array) -> Native | None:
    if not (x.size and x.flags.c_contiguous and out.flags.c_contiguous):
        return None
    arguments = [code, x.size, x.ctypes.data, out.ctypes.data]
    shares = threads_of(call.options) if x.size >= _SHARED_FROM else 1
    made = bind(what, arguments, shares, keep=(x, out))
    reads, writes = ((_X, x.itemsize),), ((_OUT, out.itemsize),)
    return made.stepping(Flat(x.size, _N, reads, writes))
