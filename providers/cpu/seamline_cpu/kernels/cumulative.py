"""CumSum and CumProd, inclusive or exclusive, forward or in reverse."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import FLOATS
from seamline_cpu.table import TABLE

__all__: list[str] = []

_DTYPES = (*FLOATS, "int32", "int64", "uint32", "uint64")


def _bind(call: Call, ufunc: Any, first: int) -> Run:
    """Bind an accumulation; ``first`` stands where an exclusive one starts."""
    x, axis_input, y = call.input(0), call.input(1), call.output(0)
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


@TABLE.kernel("CumSum", since=11, dtypes=_DTYPES, host_inputs={1})
def cumsum(call: Call) -> Run:
    """Bind CumSum; half precision is summed in float32."""
    return _bind(call, np.add, 0)


@TABLE.kernel("CumProd", since=26, dtypes=_DTYPES, host_inputs={1})
def cumprod(call: Call) -> Run:
    """Bind CumProd; half precision is multiplied in float32."""
    return _bind(call, np.multiply, 1)
