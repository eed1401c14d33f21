"""
ScatterElements and ScatterND: the data is copied, unless it is written in place, then updated.

Indices are read on the device; one that lies outside is told by a complaint. Of updates
without a reduction that meet, any may stay: the standard leaves that undefined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from seamline.axes import axis_of, strides_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import INDICES, TensorType, nbytes_of
from seamline_cuda.broadcasting import Layout
from seamline_cuda.elements import MOVED
from seamline_cuda.formula import ALL
from seamline_cuda.gathering import unit_of
from seamline_cuda.limits import bytes_of, unfit
from seamline_cuda.update_text import (
    FOLDS,
    folded_lines,
    folded_tuples,
    placed,
    placed_tuples,
)
from seamline_cuda.works import Complaint, CopyWork, KernelWork, Work

__all__ = ["add_to", "scatter_elements", "scatter_nd"]

_LONG, _FEW = 4096, 256  # updates of a line, and lines that would not fill the device


def _started(call: Call) -> tuple[list[Work], int]:
    """Give the copy of the data, and where the updates then lie."""
    data, updates, out = call.inputs[0], call.inputs[2], call.outputs[0]
    work: list[Work] = []
    source = updates.address
    if source == out.address and updates.nbytes:
        # One value is both, and its place is written over.
        work.append(CopyWork(call.workspace.address, source, updates.nbytes))
        source = call.workspace.address
    if data.address != out.address and data.nbytes:
        work.append(CopyWork(out.address, data.address, data.nbytes))
    return work, source


def _spare(node: NodeView) -> int:
    """Give the room for updates that are the data, which may be written in place."""
    kind = node.tensor(2)
    same = node.node.inputs[0] == node.node.inputs[2]
    return nbytes_of(kind) if same and kind is not None and kind.is_sized else 0


def scatter_elements(call: Call) -> Sequence[Work]:
    """Write each update where its index, along one axis, says."""
    data, indices, out = call.inputs[0], call.inputs[1], call.outputs[0]
    axis = axis_of(call.attr("axis", 0), len(data.shape))
    if indices.shape != call.inputs[2].shape:
        raise ValueError(f"{list(indices.shape)} indices for {list(call.inputs[2].shape)} updates")  # fmt: skip
    work, updates = _started(call)
    n, size = math.prod(indices.shape), data.shape[axis]
    if not n:
        return work
    why = Complaint(f"an index is out of bounds for axis {axis} with size {size}")
    places = (indices.address, updates, out.address, why)
    how = call.attr("reduction", "none")
    if how != "none":
        return [*work, _folded(call, axis, how, places)]
    steps, width = strides_of(data.shape), bytes_of(data.kind.dtype)
    kept = [0 if a == axis else step for a, step in enumerate(steps)]
    layout = Layout.joined(indices.shape, [kept, strides_of(indices.shape)])
    kernel = placed(
        min(width, 8), indices.kind.dtype, len(layout.sizes), max(width // 8, 1)
    )
    numbers = (*layout.sizes[1:], *layout.strides[0])
    return [*work, KernelWork(kernel, (*places, n, size, steps[axis], *numbers), n)]


def _folded(
    call: Call, axis: int, how: str, places: tuple[float | Complaint, ...]
) -> KernelWork:
    """Give the work that folds updates along lines, one thread for each."""
    data, indices = call.inputs[0], call.inputs[1]
    steps, along = strides_of(data.shape), strides_of(indices.shape)
    others = [a for a in range(len(steps)) if a != axis]
    layout = Layout.joined(
        [indices.shape[a] for a in others],
        [[steps[a] for a in others], [along[a] for a in others]],
    )
    kernel = folded_lines(how, data.kind.dtype, indices.kind.dtype, len(layout.sizes))
    arguments = (
        *places, layout.count, indices.shape[axis], along[axis], data.shape[axis],
        steps[axis], *layout.sizes[1:], *layout.strides[0], *layout.strides[1],
    )  # fmt: skip
    return KernelWork(kernel, arguments, layout.count, 64)


def scatter_nd(call: Call) -> Sequence[Work]:
    """Write each slice of updates where its tuple of indices says."""
    data, indices, out = call.inputs[0], call.inputs[1], call.outputs[0]
    depth, given = indices.shape[-1], call.inputs[2].shape
    if not 1 <= depth <= len(data.shape) or given != (
        indices.shape[:-1] + data.shape[depth:]
    ):
        raise ValueError(
            f"updates {list(given)} at tuples {list(indices.shape)} do not fit data "
            f"{list(data.shape)}"
        )
    work, updates = _started(call)
    n, sizes = math.prod(given), data.shape[:depth]
    if not n:
        return work
    run, how = math.prod(data.shape[depth:]), call.attr("reduction", "none")
    why = Complaint(f"a tuple of indices is outside of {list(sizes)}")
    places = (indices.address, updates, out.address, why)
    if how == "none":
        width = bytes_of(data.kind.dtype)
        unit, inner = unit_of(run, width, updates, out.address)
        n = math.prod(indices.shape[:-1]) * inner
        kernel = placed_tuples(unit, depth)
        return [*work, KernelWork(kernel, (*places, n, inner, *sizes), n)]
    kernel = folded_tuples(how, data.kind.dtype, depth)
    return [*work, KernelWork(kernel, (*places, run, n // run, *sizes), run, 64)]


def _refused(node: NodeView) -> str | None:
    how, kind = node.attributes.get("reduction", "none"), node.tensor(0)
    if how == "none":
        return unfit(node)
    if how not in FOLDS:
        return f"reduction {how!r} is none of none, {', '.join(FOLDS)}"
    if kind is not None and kind.dtype not in ALL:
        return f"{kind.dtype} has no reduction {how!r}"
    lines, count = _lines(node)
    if count > _LONG and lines < _FEW:
        return (
            f"{count} updates in a row are folded in order by one thread, for each of "
            f"{lines} lines; up to {_LONG} are accepted for fewer than {_FEW} lines"
        )
    return unfit(node)


def _lines(node: NodeView) -> tuple[int, int]:
    """Give the lines of updates that are folded in order, and how long each is."""
    data, updates = node.tensor(0), node.tensor(2)
    if data is None or updates is None or not (data.is_sized and updates.is_sized):
        return 0, 0
    total = math.prod(updates.sizes)
    if node.op_type == "ScatterND":
        return _parted(total, node.tensor(1), data.sizes)
    rank = len(data.sizes)
    count = updates.sizes[axis_of(node.attributes.get("axis", 0), rank)] if rank else 1
    return total // max(count, 1), count


def _parted(
    total: int, indices: TensorType | None, sizes: Sequence[int]
) -> tuple[int, int]:
    if indices is None or not indices.is_sized or not indices.sizes:
        return 0, 0
    run = math.prod(sizes[indices.sizes[-1] :])
    return run, total // max(run, 1)


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for op_type, since, kinds, function in (
        ("Scatter", 9, INDICES, scatter_elements),
        ("ScatterElements", 11, INDICES, scatter_elements),
        ("ScatterND", 11, ("int64",), scatter_nd),
    ):
        table.kernel(
            op_type,
            since=since,
            dtypes={0: MOVED, 1: kinds},
            when=_refused,
            aliases=((0, 0),),
            workspace=_spare,
            variant="indices",
            because="indices are read on the device; what meets is folded in order",
            not_capturable=None,
        )(function)
