"""Gather and its kin: indices are checked before anything is read."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import ANY, INDICES
from seamline_cpu.binding import axis_of, copying, row_offsets, strides_of, within
from seamline_cpu.kernels.gather_commands import bind_gather
from seamline_cpu.kernels.recorded import moved
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__ = ["element_finder", "unpacked"]

# NumPy's own check costs a buffer for the result, ours two passes over the indices.
_SMALL_NBYTES = 1 << 15


@TABLE.kernel("Gather", dtypes={0: ANY, 1: INDICES}, not_capturable=moved)
def gather(call: Call) -> Run:
    """Take slices along an axis: a command, or one copy of a view for one constant index."""
    x, indices, out = call.inputs[0], call.inputs[1], call.outputs[0]
    axis = axis_of(call.attr("axis", 0), x.ndim)
    known, size = call.constant(1), x.shape[axis]
    whole = (slice(None),) * x.ndim
    if known is not None:
        at = within(known, size, axis)
        if at.ndim == 0:
            # The ellipsis keeps a view where plain indexing would give a scalar.
            one = slice(int(at), int(at) + 1)
            return copying(
                x[(..., *whole[:axis], one, *whole[axis + 1 :])],
                np.expand_dims(out, axis),
            )
        if not out.size:
            return copying(out, out)
        kept = np.ascontiguousarray(at, np.int64)
        native = bind_gather(x, kept, axis, out, threads_of(call.options))
        return native or partial(x.take, at, axis, out, "wrap")
    native = bind_gather(x, indices, axis, out, threads_of(call.options))
    if native is not None:
        return native
    if out.size and size and out.nbytes <= _SMALL_NBYTES:
        return partial(x.take, indices, axis, out, "raise")

    def run() -> None:
        at = within(indices, size, axis)
        if out.size:
            x.take(at, axis, out, "wrap")

    return run


@TABLE.kernel("GatherElements", dtypes={0: ANY, 1: INDICES})
def gather_elements(call: Call) -> Run:
    """Take ``x[i][index[i][j]]``, for the axis that the index replaces."""
    x, out = call.inputs[0], call.outputs[0]
    axis = axis_of(call.attr("axis", 0), x.ndim)
    flat = x.reshape(-1)
    find = element_finder(x.shape, call.inputs[1].shape, axis)
    known = call.constant(1)
    if known is not None:
        return _taken(flat, find(known), out, call)

    def run() -> None:
        at = find(call.inputs[1])
        if at.size:
            flat.take(at, None, out, "wrap")

    return run


def element_finder(
    sizes: tuple[int, ...], index_sizes: tuple[int, ...], axis: int
) -> Any:
    """
    Give the function from indices along an axis to offsets in the flat data.

    Everywhere but on the axis an element keeps its place, so that part is added up once.
    """
    strides = strides_of(sizes)
    if len(index_sizes) != len(sizes):
        raise ValueError(
            f"indices {list(index_sizes)} for data {list(sizes)}: other rank"
        )
    base = np.zeros(index_sizes, np.intp)
    for other, (count, size) in enumerate(zip(index_sizes, sizes, strict=True)):
        if other == axis:
            continue
        if count > size:
            raise ValueError(f"indices {list(index_sizes)} exceed data {list(sizes)}")
        along = np.arange(count) * strides[other]
        base += along.reshape((count,) + (1,) * (len(sizes) - other - 1))
    size, stride = sizes[axis], strides[axis]

    def find(indices: Array) -> Array:
        found = within(indices, size, axis) * stride
        found += base
        return found

    return find


def _taken(rows: Array, at: Array, out: Array, call: Call) -> Run:
    """Bind rows at places that are known and lie inside."""
    if not out.size:
        return copying(out, out)
    places = np.ascontiguousarray(at, np.int64)
    native = bind_gather(rows, places, 0, out, threads_of(call.options))
    return native or partial(rows.take, at, 0, out, "wrap")


@TABLE.kernel("GatherND", dtypes={0: ANY, 1: ("int64",)})
def gather_nd(call: Call) -> Run:
    """Take slices by tuples of indices, after ``batch_dims`` axes in common."""
    x, indices, out = call.inputs[0], call.inputs[1], call.outputs[0]
    batch, depth = call.attr("batch_dims", 0), indices.shape[-1]
    if x.shape[:batch] != indices.shape[:batch] or batch + depth > x.ndim:
        raise ValueError(f"tuples {list(indices.shape)} do not index {list(x.shape)}")
    sizes = x.shape[batch : batch + depth]
    per_batch, inner = math.prod(sizes), math.prod(x.shape[batch + depth :])
    count = math.prod(x.shape[:batch])
    rows = x.reshape(count * per_batch, inner)
    first = np.arange(count).reshape(
        x.shape[:batch] + (1,) * (indices.ndim - 1 - batch)
    )
    found = out.reshape(*indices.shape[:-1], inner)

    def find(given: Array) -> Array:
        found_rows = row_offsets(given, sizes, batch)
        return np.asarray(found_rows + first * per_batch)

    known = call.constant(1)
    if known is not None:
        at = find(known)
        return _taken(rows, at, found, call)

    def run() -> None:
        at = find(indices)
        if out.size:
            rows.take(at, 0, found, "wrap")

    return run


def unpacked(packed: Array, bits: int) -> Array:
    """
    Give the elements of bytes along the last axis, the lowest bits first.

    Examples
    --------
    >>> unpacked(np.array([0x21, 0x43], np.uint8), 4).tolist()
    [1, 2, 3, 4]
    """
    if bits == 8 or packed.dtype != np.uint8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    apart = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return apart.reshape(*packed.shape[:-1], packed.shape[-1] * len(shifts))
