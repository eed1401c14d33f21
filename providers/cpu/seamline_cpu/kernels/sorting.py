"""TopK, ArgMax, ArgMin, Hardmax, OneHot, NonZero and Unique."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import ANY, BOOL, FLOATS, NUMBERS, STRING
from seamline_cpu.binding import axis_of, from_host, in_order
from seamline_cpu.kernels.selection import select_rows
from seamline_cpu.table import TABLE

__all__: list[str] = []

_RANKED = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float32),
    "bfloat16": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "uint64": np.dtype(np.uint64),
}


# --- TopK -----------------------------------------------------------------------------


@TABLE.kernel("TopK", since=(1, 1), dtypes=FLOATS)
def top_k_by_attribute(call: Call) -> Run:
    """Give the ``k`` largest along an axis, ``k`` an attribute."""
    return _top_k(call, call.attr("k"))


@TABLE.kernel("TopK", since=10, dtypes=NUMBERS, host_inputs={1})
def top_k(call: Call) -> Run:
    """Give the ``k`` largest or smallest along an axis; of equals the lower index first."""
    return from_host(call, [1], lambda k: _top_k(call, int(k.reshape(-1)[0])))


def _top_k(call: Call, k: int) -> Run:
    x, values, indices = call.inputs[0], call.output(0), call.output(1)
    axis = axis_of(call.attr("axis", -1), x.ndim)
    n = x.shape[axis]
    if not 0 <= k <= n:
        raise ValueError(f"k is {k}, axis {axis} has {n} elements")
    largest = bool(call.attr("largest", 1))
    moved = x.swapaxes(axis, -1)
    lead = moved.shape[:-1]
    # Four compiled forms serve every type; none changes the order of values.
    kind = _RANKED.get(x.dtype.name, np.dtype(np.int64))
    at = np.empty((math.prod(lead), k), np.intp)

    def run() -> None:
        rows = moved.astype(kind, "C", copy=False).reshape(len(at), n)
        select_rows(rows, at, largest)
        found = at.reshape(*lead, k).swapaxes(axis, -1)
        if values is not None:
            np.copyto(values, np.take_along_axis(x, found, axis))
        if indices is not None:
            np.copyto(indices, found)

    return run


# --- ArgMax, ArgMin, Hardmax ----------------------------------------------------------


@TABLE.kernel("ArgMax", dtypes=NUMBERS)
@TABLE.kernel("ArgMin", dtypes=NUMBERS)
def arg_extreme(call: Call) -> Run:
    """Give the index of the largest or smallest; of equals the first, or the last."""
    x, out = call.inputs[0], call.outputs[0]
    axis = axis_of(call.attr("axis", 0), x.ndim)
    if not x.shape[axis] and out.size:
        raise ValueError(f"axis {axis} has no elements")
    target = out.reshape([n for i, n in enumerate(x.shape) if i != axis])
    largest = call.view.op_type == "ArgMax"
    last = call.attr("select_last_index", 0)
    view = np.flip(x, axis) if last else x
    # A view of the data keeps its address, and a bound method looks nothing up.
    find: Callable[..., Any] = view.argmax if largest else view.argmin
    forward = partial(find, axis, target)
    if not last:
        return forward
    return in_order([forward, partial(np.subtract, x.shape[axis] - 1, target, target)])


@TABLE.kernel("Hardmax", dtypes=FLOATS)
def hardmax(call: Call) -> Run:
    """Give 1 at the first of the largest, 0 elsewhere; rows as of the opset's rule."""
    x, out = call.inputs[0], call.outputs[0]
    if call.since < 13:
        axis = call.attr("axis", 1)
        axis = axis if axis == x.ndim else axis_of(axis, x.ndim)
        shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        rows, marks = x.reshape(shape), out.reshape(shape)
    else:
        axis = axis_of(call.attr("axis", -1), x.ndim)
        rows, marks = x.swapaxes(axis, -1), out.swapaxes(axis, -1)

    def run() -> None:
        out.fill(0)
        if out.size:
            at = rows.argmax(axis=-1)
            np.put_along_axis(marks, at[..., None], 1, axis=-1)

    return run


# --- OneHot ---------------------------------------------------------------------------


@TABLE.kernel("OneHot", dtypes={0: NUMBERS, 1: NUMBERS, 2: ANY}, host_inputs={1})
def one_hot(call: Call) -> Run:
    """Give ``values[1]`` where the index stands, ``values[0]`` elsewhere."""
    indices, values, out = call.inputs[0], call.inputs[2], call.outputs[0]
    axis = axis_of(call.attr("axis", -1), out.ndim)
    off, on = values[0:1].reshape(()), values[1:2].reshape(())

    def make(given: Array) -> Run:
        depth = int(given.reshape(-1)[0])
        if out.shape[axis] != depth:
            raise ValueError(f"depth is {depth}, the plan says {out.shape[axis]}")
        places = np.arange(depth).reshape((depth,) + (1,) * (out.ndim - axis - 1))

        def run() -> None:
            at = indices.astype(np.int64, copy=False)
            at = np.expand_dims(np.where(at < 0, at + depth, at), axis)
            np.copyto(out, off)
            np.copyto(out, on, where=at == places)

        return run

    return from_host(call, [1], make)


# --- sizes found at run ---------------------------------------------------------------


@TABLE.simple("NonZero", dtypes=NUMBERS + BOOL + STRING, sizes_at_run=True)
def non_zero(x: Array) -> Array:
    """Give the places that are not 0, one column each, in row-major order."""
    if x.ndim == 0:
        return np.zeros((0, int(bool(x))), np.int64)
    return np.array(np.nonzero(x), np.int64)


@TABLE.simple("Unique", dtypes=NUMBERS + BOOL + STRING, sizes_at_run=True)
def unique(
    x: Array,
    *,
    axis: int | None = None,
    sorted: int = 1,  # noqa: A002 (ONNX's own name)
) -> tuple[Array, Array, Array, Array]:
    """
    Give the distinct elements, or slices of an axis, and where they stand.

    Returns
    -------
    tuple
        The values, the first place of each, each place's value, and how many of each.
    """
    keys = x.astype(np.float32) if x.dtype.name == "bfloat16" else x
    if axis is not None:
        axis = axis_of(axis, x.ndim)
        if x.dtype == object:
            # NumPy sorts no slices of objects; their ranks sort the same way.
            keys = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    _, first, inverse, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        first, counts, inverse = first[order], counts[order], place[inverse]
    values = (x.reshape(-1) if axis is None else x).take(
        first, 0 if axis is None else axis
    )
    return values, first, inverse, counts
