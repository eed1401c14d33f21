"""
Gather, GatherElements and GatherND: indices are read on the device.

An index that lies outside is told by a complaint, and element 0 is read in its place. A
constant index of Gather says which part it is, so that it is a copy like that of Slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from seamline.axes import axis_of, strides_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.tensors import INDICES
from seamline_cuda.broadcasting import Layout
from seamline_cuda.elements import MOVED
from seamline_cuda.gather_text import gather_kernel, picking_kernel, tuples_kernel
from seamline_cuda.limits import bytes_of, unfit
from seamline_cuda.regions import Region, moved
from seamline_cuda.works import Complaint, KernelWork, Work

__all__ = ["add_to", "gather", "gather_elements", "gather_nd", "unit_of"]


def unit_of(inner: int, width: int, *addresses: int) -> tuple[int, int]:
    """
    Give the bytes that runs of ``inner`` elements are best moved by, and how many make one.

    Examples
    --------
    >>> unit_of(6, 2, 512, 1024), unit_of(3, 16, 0)
    ((4, 3), (8, 6))
    """
    run = inner * width
    wide = next(w for w in (8, 4, 2, 1) if not any(n % w for n in (run, *addresses)))
    return wide, run // wide


def _outside(axis: int, size: int, rank: int) -> Complaint:
    return Complaint(f"an index is out of bounds for axis {axis} with size {size}")


def gather(call: Call) -> Sequence[Work]:
    """Take slices along an axis."""
    x, indices, out = call.inputs[0], call.inputs[1], call.outputs[0]
    axis = axis_of(call.attr("axis", 0), len(x.shape))
    size, total = x.shape[axis], math.prod(out.shape)
    if not total:
        return []
    if not size:
        raise ValueError(f"axis {axis} has no elements to take")
    known = call.constant(1)
    if known is not None and (part := _part(known, size, axis)) is not None:
        sizes = (*x.shape[:axis], known.size, *x.shape[axis + 1 :])
        cut = Region.of(x).cut(*[slice(None)] * axis, part)
        return moved(cut, Region.of(out, sizes))
    unit, inner = unit_of(
        math.prod(x.shape[axis + 1 :]), bytes_of(x.kind.dtype), x.address, out.address
    )
    count = math.prod(indices.shape)
    kernel = gather_kernel(unit, indices.kind.dtype)
    n = math.prod(x.shape[:axis]) * count * inner
    why = _outside(axis, size, len(x.shape))
    arguments = (
        x.address, indices.address, out.address, why, n, inner, count, size,
    )  # fmt: skip
    return [KernelWork(kernel, arguments, n)]


def _part(known: Any, size: int, axis: int) -> slice | None:
    """Give the slice that constant indices are, where they are one."""
    at = np.asarray(known).reshape(-1).astype(np.int64)
    wrong = at[(at < -size) | (at >= size)]
    if wrong.size:
        raise ValueError(
            f"index {wrong[0]} is out of bounds for axis {axis} with size {size}"
        )
    at = np.where(at < 0, at + size, at)
    step = int(at[1] - at[0]) if at.size > 1 else 1
    if step == 0 or (np.diff(at) != step).any():
        return None
    stop = int(at[-1]) + (1 if step > 0 else -1)
    return slice(int(at[0]), None if stop < 0 else stop, step)


def gather_elements(call: Call) -> Sequence[Work]:
    """Take ``x[i][index[i][j]]``, for the axis that the index replaces."""
    x, indices, out = call.inputs[0], call.inputs[1], call.outputs[0]
    axis = axis_of(call.attr("axis", 0), len(x.shape))
    n, size = math.prod(out.shape), x.shape[axis]
    if not n:
        return []
    if not size:
        raise ValueError(f"axis {axis} has no elements to take")
    steps = strides_of(x.shape)
    kept = [0 if a == axis else step for a, step in enumerate(steps)]
    layout = Layout.joined(indices.shape, [kept, strides_of(indices.shape)])
    width, rank = bytes_of(x.kind.dtype), len(layout.sizes)
    parts = max(width // 8, 1)
    kernel = picking_kernel(min(width, 8), indices.kind.dtype, rank, parts)
    arguments = (
        x.address, indices.address, out.address, _outside(axis, size, len(x.shape)),
        n, size, steps[axis], *layout.sizes[1:], *layout.strides[0],
    )  # fmt: skip
    return [KernelWork(kernel, arguments, n)]


def gather_nd(call: Call) -> Sequence[Work]:
    """Take the slices that tuples of indices name, batch by batch."""
    x, indices, out = call.inputs[0], call.inputs[1], call.outputs[0]
    batches = int(call.attr("batch_dims", 0))
    depth = indices.shape[-1]
    if x.shape[:batches] != indices.shape[:batches]:
        raise ValueError(
            f"{list(indices.shape)} indices are not of batches as the data"
        )
    if not 1 <= depth <= len(x.shape) - batches:
        raise ValueError(f"tuples of {depth} for data of rank {len(x.shape)}")
    sizes = x.shape[batches : batches + depth]
    if not math.prod(out.shape):
        return []
    if not math.prod(sizes):
        raise ValueError("the axes that tuples name have no elements to take")
    run = math.prod(x.shape[batches + depth :])
    unit, inner = unit_of(run, bytes_of(x.kind.dtype), x.address, out.address)
    rows = math.prod(indices.shape[batches:-1])
    n = math.prod(x.shape[:batches]) * rows * inner
    why = Complaint(f"a tuple of indices is outside of {list(sizes)}")
    arguments = (x.address, indices.address, out.address, why, n, inner, rows, *sizes)
    return [KernelWork(tuples_kernel(unit, depth), arguments, n)]


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for op_type, kinds, function in (
        ("Gather", INDICES, gather),
        ("GatherElements", INDICES, gather_elements),
        ("GatherND", ("int64",), gather_nd),
    ):
        table.kernel(
            op_type,
            dtypes={0: MOVED, 1: kinds},
            when=unfit,
            variant="indices",
            because="indices are read on the device, so one recording serves them all",
            not_capturable=None,
        )(function)
