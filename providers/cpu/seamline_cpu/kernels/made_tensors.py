"""Operators that make a tensor from a shape, or from where it begins and ends."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import ANY
from seamline_cpu.binding import copying, filling, from_host, in_order, integers
from seamline_cpu.kernels.recorded import known, moved
from seamline_cpu.table import TABLE

__all__: list[str] = []


@TABLE.kernel(
    "ConstantOfShape",
    dtypes=("int64",),
    host_inputs={0},
    not_capturable=all_of(moved, known(0)),
)
def constant_of_shape(call: Call) -> Run:
    """Fill with one value, 0 of float32 unless given."""
    value, out = call.attr("value"), call.outputs[0]
    one = np.zeros((), np.float32) if value is None else value.reshape(())

    def make(wanted: Array) -> Run:
        if (integers(wanted) or ()) != out.shape:
            raise ValueError(f"asks for {wanted.tolist()}, the plan says {out.shape}")
        return filling(one, out)

    return from_host(call, [0], make)


@TABLE.kernel(
    "Range",
    dtypes=("float32", "float16", "float64", "int16", "int32", "int64"),
    host_inputs={0, 1, 2},
    not_capturable=all_of(moved, known(0, 1, 2)),
)
def range_(call: Call) -> Run:
    """Give ``start + i * delta``; float16 is counted in float32."""
    out = call.outputs[0]

    def make(start: Array, limit: Array, delta: Array) -> Run:
        values = counted(start, limit, delta)
        if values.shape != out.shape:
            raise ValueError(
                f"gives {values.size} elements, the plan says {list(out.shape)}"
            )
        return copying(values, out)

    return from_host(call, [0, 1, 2], make)


@TABLE.simple(
    "Range", dtypes=("bfloat16",), host_inputs={0, 1, 2}, sizes_at_run=True
)  # no shape inference counts in bfloat16
def counted(start: Array, limit: Array, delta: Array) -> Array:
    """Give ``start + i * delta``; 16-bit floats are counted in float32."""
    dtype = start.dtype
    short = dtype.kind not in "iu" and dtype.itemsize == 2
    kind = np.dtype(np.float32) if short else dtype
    first, last, step = (a.reshape(()).astype(kind) for a in (start, limit, delta))
    places = np.arange(_steps(first, last, step)).astype(kind)
    with np.errstate(all="ignore"):
        return np.asarray(first + places * step).astype(dtype)


def _steps(start: Array, limit: Array, delta: Array) -> int:
    if delta == 0:
        raise ValueError("delta is 0: the range has no end")
    if start.dtype.kind in "iu":
        return max(-((int(start) - int(limit)) // int(delta)), 0)
    return max(math.ceil((float(limit) - float(start)) / float(delta)), 0)


@TABLE.kernel("EyeLike", dtypes=ANY)
def eye_like(call: Call) -> Run:
    """Fill with 0, and 1 on the diagonal ``k`` above the main one."""
    out, k = call.outputs[0], call.attr("k", 0)
    rows, columns = out.shape
    length = min(rows, columns - k) if k >= 0 else min(rows + k, columns)
    clear = partial(out.fill, 0)
    if length <= 0:
        return clear
    first = k if k >= 0 else -k * columns
    on_diagonal = out.reshape(-1)[first :: columns + 1][:length]
    return in_order([clear, partial(on_diagonal.fill, 1)])
