"""
Concat, Split, Slice and Transpose: copies between parts of tensors.

A part that lies in one piece is one copy of the driver; any other is one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from seamline.axes import axes_of, axis_of, equal_parts, integers, slices
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline_cuda.elements import MOVED
from seamline_cuda.limits import unfit
from seamline_cuda.regions import Region, moved
from seamline_cuda.works import Work

__all__ = ["add_to", "concat", "slice_of", "split", "transpose"]


def transpose(call: Call) -> Sequence[Work]:
    """Permute axes, through squares of shared memory where the last axis moves."""
    x, out = call.inputs[0], call.outputs[0]
    rank = len(x.shape)
    order = axes_of(call.attr("perm", range(rank)[::-1]), rank)
    return moved(Region.of(x).permuted(order), Region.of(out))


def concat(call: Call) -> Sequence[Work]:
    """Copy each part to where it belongs."""
    out = Region.of(call.outputs[0])
    axis = axis_of(call.attr("axis"), len(out.sizes))
    parts = [Region.of(x) for x in call.inputs if x is not None]
    ends = list(accumulate((part.sizes[axis] for part in parts), initial=0))
    if ends[-1] != out.sizes[axis]:
        raise ValueError(
            f"gives {ends[-1]} along axis {axis}, the plan says {list(out.sizes)}"
        )
    return [
        work
        for part, (start, stop) in zip(parts, pairwise(ends), strict=True)
        for work in moved(part, out.along(axis, start, stop))
    ]


def split(call: Call) -> Sequence[Work]:
    """Cut into parts of the sizes given, or equal ones."""
    x, count = Region.of(call.inputs[0]), len(call.outputs)
    axis = axis_of(call.attr("axis", 0), len(x.sizes))
    given = call.attr("split") if call.since < 13 else integers(call.input(1))
    if call.attr("num_outputs", count) != count:
        raise ValueError(f"num_outputs is not {count}, the number of outputs")
    parts = given or equal_parts(x.sizes[axis], count, uneven=call.since >= 18)
    if len(parts) != count or min(parts) < 0 or sum(parts) != x.sizes[axis]:
        raise ValueError(
            f"parts of {list(parts)} are not {count} parts of the {x.sizes[axis]} "
            f"elements of axis {axis}"
        )
    return [
        work
        for out, (start, stop) in zip(
            call.outputs, pairwise(accumulate(parts, initial=0)), strict=True
        )
        if out is not None
        for work in moved(x.along(axis, start, stop), Region.of(out))
    ]


def slice_of(call: Call) -> Sequence[Work]:
    """Cut by starts, ends and steps; a negative step walks backwards."""
    x, out = Region.of(call.inputs[0]), Region.of(call.outputs[0])
    if call.since < 10:
        names = ("starts", "ends", "axes")
        starts, ends, axes = (call.attr(name) for name in names)
        steps = None
    else:
        starts, ends, axes, steps = (integers(call.input(i)) for i in range(1, 5))
    return moved(x.cut(*slices(x.sizes, starts or (), ends or (), axes, steps)), out)


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for op_type, since, on_host, function in (
        ("Transpose", 1, (), transpose),
        ("Concat", 4, (), concat),
        ("Split", (2, 11), (), split),
        ("Split", 13, (1,), split),
        ("Slice", (1, 1), (), slice_of),
        ("Slice", 10, (1, 2, 3, 4), slice_of),
    ):
        table.kernel(
            op_type,
            since=since,
            dtypes=MOVED,
            when=unfit,
            host_inputs=on_host,
            variant="copies",
            because="a part in one piece is one copy, any other one kernel",
            not_capturable=None,
        )(function)
