"""CumSum and CumProd, inclusive or exclusive, forward or in reverse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import FLOATS
from seamline_cpu.atomics import floats, ints, longs
from seamline_cpu.commands import bind, command
from seamline_cpu.kernels.recorded import known, only
from seamline_cpu.table import TABLE

__all__: list[str] = []

_LONG, _INT, _FLOAT = range(3)
#: Element types that a command adds up; integers wrap, so that signs do not matter.
_KINDS = {
    "int64": _LONG,
    "uint64": _LONG,
    "int32": _INT,
    "uint32": _INT,
    "float32": _FLOAT,
}
_WHOLE = ("int32", "int64", "uint32", "uint64")
_DTYPES = (*FLOATS, *_WHOLE)


@command
def _running(a: Any, share: int, shares: int) -> None:
    """
    Add up along the middle axis of (outer, n, inner).

    Arguments: outer, n, inner, x, y, what an element is, and whether exclusive, reverse.
    """
    n, inner, kind = a[1], a[2], a[5]
    for i in range(a[0]):
        for j in range(inner):
            total, whole, single = np.int64(0), np.int32(0), np.float32(0.0)
            for k in range(n):
                at = (i * n + (n - 1 - k if a[7] else k)) * inner + j
                if kind == _LONG:
                    x, y = longs(a[3]), longs(a[4])
                    before, total = total, total + x[at]
                    y[at] = before if a[6] else total
                elif kind == _INT:
                    p, q = ints(a[3]), ints(a[4])
                    kept, whole = whole, np.int32(whole + p[at])
                    q[at] = kept if a[6] else whole
                else:
                    u, v = floats(a[3]), floats(a[4])
                    last, single = single, np.float32(single + u[at])
                    v[at] = last if a[6] else single


def _sums(call: Call, x: Array, axis: int, y: Array) -> Run | None:
    """Bind CumSum along a known axis as a command; None where NumPy has to do it."""
    kind = _KINDS.get(x.dtype.name)
    if kind is None or not -x.ndim <= axis < x.ndim or not x.flags.c_contiguous:
        return None
    axis %= x.ndim
    sizes = [math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])]
    ways = [int(bool(call.attr(name, 0))) for name in ("exclusive", "reverse")]
    arguments = [*sizes, x.ctypes.data, y.ctypes.data, kind, *ways]
    return bind(_running, arguments, 1, keep=(x, y))


def _bind(call: Call, ufunc: Any, first: int) -> Run:
    """Bind an accumulation; ``first`` stands where an exclusive one starts."""
    x, axis_input, y = call.input(0), call.input(1), call.output(0)
    known = call.constant(1)
    if first == 0 and known is not None and known.size == 1:
        native = _sums(call, x, int(known.reshape(())), y)
        if native is not None:
            return native
    exclusive, reverse = bool(call.attr("exclusive", 0)), bool(call.attr("reverse", 0))
    wide = np.dtype(np.float32) if x.itemsize == 2 else x.dtype
    straight = wide == x.dtype

    def on(array: Array, axis: int) -> Array:
        moved = np.moveaxis(array, axis, 0)
        return moved[::-1] if reverse else moved

    def run() -> None:
        axis = int(axis_input.reshape(-1)[0])
        if not -x.ndim <= axis < x.ndim:
            raise ValueError(f"axis {axis} is outside rank {x.ndim}")
        source, target = on(x, axis), on(y, axis)
        if exclusive and len(target):
            target[0] = first
            source, target = source[:-1], target[1:]
        if straight:
            ufunc.accumulate(source, axis=0, out=target)
        else:
            target[...] = ufunc.accumulate(source.astype(wide), axis=0)

    return run


@TABLE.kernel(
    "CumSum",
    since=11,
    dtypes=_DTYPES,
    host_inputs={1},
    not_capturable=all_of(only("float32", *_WHOLE), known(1)),
)
def cumsum(call: Call) -> Run:
    """Bind CumSum; half precision is summed in float32."""
    return _bind(call, np.add, 0)


@TABLE.kernel("CumProd", since=26, dtypes=_DTYPES, host_inputs={1})
def cumprod(call: Call) -> Run:
    """Bind CumProd; half precision is multiplied in float32."""
    return _bind(call, np.multiply, 1)
