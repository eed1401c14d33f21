"""
Scatter and its kin: a copy of the data, with updates written or folded in.

Indices are checked before the first write. Where the output shares the data's memory only
the updates are written. Of updates without a reduction that meet, the last one stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import ANY, INDICES
from seamline_cpu.binding import axis_of, row_offsets, same_bytes
from seamline_cpu.kernels.gathering import element_finder
from seamline_cpu.table import TABLE

__all__: list[str] = []

_FOLDS: Mapping[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
_FIRST = ((0, 0),)


def _refuse(node: NodeView) -> str | None:
    how, kind = node.attributes.get("reduction", "none"), node.tensor(0)
    if how != "none" and how not in _FOLDS:
        return f"reduction is {how!r}, not none, {', '.join(_FOLDS)}"
    if how != "none" and kind is not None and kind.dtype == "string":
        return f"strings have no reduction {how!r}"
    return None


def _writer(how: str, target: Array, updates: Array) -> Callable[[Array], None]:
    if how == "none":

        def write(at: Array) -> None:
            target[at] = updates

        return write
    fold = _FOLDS[how].at
    return lambda at: fold(target, at, updates)


def _scatter(
    call: Call, find: Callable[[Array], Array], target: Array, updates: Array
) -> Run:
    data, out = call.inputs[0], call.outputs[0]
    given = call.inputs[2]
    # One value may be both data and updates: then the copy must not be overwritten.
    shared = np.may_share_memory(out, given)
    source = np.empty_like(updates) if shared else updates
    write = _writer(call.attr("reduction", "none"), target, source)
    copy = same_bytes(data, out)
    known = call.constant(1)
    fixed = None if known is None else find(known)
    indices = call.inputs[1]

    def run() -> None:
        at = find(indices) if fixed is None else fixed
        if shared:
            np.copyto(source, updates)
        copy()
        write(at)

    return run


@TABLE.kernel("Scatter", dtypes={0: ANY, 1: INDICES}, aliases=_FIRST)
@TABLE.kernel(
    "ScatterElements", dtypes={0: ANY, 1: INDICES}, when=_refuse, aliases=_FIRST
)
def scatter_elements(call: Call) -> Run:
    """Write each update where its index, along one axis, says."""
    data, indices, updates = call.inputs
    if indices.shape != updates.shape:
        raise ValueError(
            f"{list(indices.shape)} indices, {list(updates.shape)} updates"
        )
    axis = axis_of(call.attr("axis", 0), data.ndim)
    find = element_finder(data.shape, indices.shape, axis)
    flat = call.outputs[0].reshape(-1)
    return _scatter(
        call, lambda given: find(given).reshape(-1), flat, updates.reshape(-1)
    )


@TABLE.kernel("ScatterND", dtypes={0: ANY, 1: ("int64",)}, when=_refuse, aliases=_FIRST)
def scatter_nd(call: Call) -> Run:
    """Write each slice of updates where its tuple of indices says."""
    data, indices, updates = call.inputs
    depth = indices.shape[-1]
    sizes, inner = data.shape[:depth], math.prod(data.shape[depth:])
    if depth > data.ndim or updates.shape != indices.shape[:-1] + data.shape[depth:]:
        raise ValueError(
            f"updates {list(updates.shape)} at tuples {list(indices.shape)} "
            f"do not fit data {list(data.shape)}"
        )
    rows = call.outputs[0].reshape(math.prod(sizes), inner)
    slices = updates.reshape(-1 if inner else math.prod(indices.shape[:-1]), inner)
    if inner == 1:
        rows, slices = rows.reshape(-1), slices.reshape(-1)
    return _scatter(
        call, lambda given: row_offsets(given, sizes).reshape(-1), rows, slices
    )


@TABLE.kernel(
    "TensorScatter", dtypes={0: ANY, 2: ("int64",)}, aliases=_FIRST, bounded=(0,)
)
def tensor_scatter(call: Call) -> Run:
    """Write each batch's update into its cache from its own position on."""
    past, update, starts = call.inputs[0], call.inputs[1], call.input(2)
    out, circular = call.outputs[0], call.attr("mode", "linear") == "circular"
    axis = axis_of(call.attr("axis", -2), past.ndim)
    if axis == 0:
        raise ValueError("axis 0 is the batch, not the sequence")
    size, count, batch = past.shape[axis], update.shape[axis], past.shape[0]
    copy = same_bytes(past, out)
    cache, fresh = np.moveaxis(out, axis, 1), np.moveaxis(update, axis, 1)
    steps, each = np.arange(count), np.arange(batch)[:, None]
    shared = np.may_share_memory(out, update)

    def run() -> None:
        first: Any = np.zeros(batch, np.int64) if starts is None else starts
        over = (first < 0) if circular else (first < 0) | (first + count > size)
        if over.any():
            raise IndexError(
                f"write index {first[over][0]} and {count} updates leave "
                f"axis {axis} with size {size}"
            )
        values = fresh.copy() if shared else fresh
        copy()
        at = first[:, None] + steps
        cache[each, at % size if circular else at] = values

    return run
