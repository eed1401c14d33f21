"""Operators that cut, join, mask and reverse along axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from seamline.axes import axis_of, equal_parts, integers, slices
from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import ANY
from seamline_cpu.binding import copying, from_host, in_order
from seamline_cpu.kernels.padding import ZERO_FILLED
from seamline_cpu.kernels.recorded import known, moved
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

# --- Slice ----------------------------------------------------------------------------


@TABLE.kernel(
    "Slice", since=(1, 1), dtypes=ANY, not_capturable=all_of(moved, known(1, 2, 3, 4))
)
def slice_by_attributes(call: Call) -> Run:
    """Cut by attributes, with steps of 1."""
    starts, ends = call.attr("starts"), call.attr("ends")
    found = slices(call.inputs[0].shape, starts, ends, call.attr("axes"), None)
    threads = threads_of(call.options)
    return copying(call.inputs[0][(..., *found)], call.outputs[0], threads)


@TABLE.kernel(
    "Slice",
    since=10,
    dtypes=ANY,
    host_inputs={1, 2, 3, 4},
    not_capturable=all_of(moved, known(1, 2, 3, 4)),
)
def slice_by_inputs(call: Call) -> Run:
    """Cut by inputs: one copy of a view, made at build where they are constant."""
    x, out = call.inputs[0], call.outputs[0]

    def make(*given: Array | None) -> Run:
        starts, ends, axes, steps = map(integers, given)
        found = slices(x.shape, starts or (), ends or (), axes, steps)
        return copying(x[(..., *found)], out, threads_of(call.options))

    return from_host(call, [1, 2, 3, 4], make)


# --- Split, Concat --------------------------------------------------------------------


@TABLE.kernel(
    "Split", since=(2, 11), dtypes=ANY, not_capturable=all_of(moved, known(1))
)
def split_by_attribute(call: Call) -> Run:
    """Cut into parts of the sizes in the attribute, or equal ones."""
    return _split(call, call.attr("split"))


@TABLE.kernel(
    "Split",
    since=13,
    dtypes=ANY,
    host_inputs={1},
    not_capturable=all_of(moved, known(1)),
)
def split_by_input(call: Call) -> Run:
    """Cut into parts of the sizes in the input, or equal ones."""
    return from_host(call, [1], lambda given: _split(call, integers(given)))


def _split(call: Call, given: Sequence[int] | None) -> Run:
    x, count = call.inputs[0], len(call.outputs)
    axis = axis_of(call.attr("axis", 0), x.ndim)
    if call.attr("num_outputs", count) != count:
        raise ValueError(f"num_outputs is not {count}, the number of outputs")
    parts = (
        equal_parts(x.shape[axis], count, uneven=call.since >= 18)
        if given is None
        else tuple(given)
    )
    if len(parts) != count or min(parts) < 0 or sum(parts) != x.shape[axis]:
        raise ValueError(
            f"parts of {list(parts)} are not {count} parts of "
            f"the {x.shape[axis]} elements of axis {axis}"
        )
    ends = np.cumsum((0, *parts)).tolist()
    whole = (slice(None),) * axis
    return in_order(
        [
            copying(x[(*whole, slice(start, end))], out, threads_of(call.options))
            for out, (start, end) in zip(call.outputs, pairwise(ends), strict=True)
            if out is not None
        ]
    )


@TABLE.kernel("Concat", since=4, dtypes=ANY, not_capturable=moved)
def concat(call: Call) -> Run:
    """Join along an axis: a copy of each part to where it belongs."""
    out = call.outputs[0]
    axis = axis_of(call.attr("axis"), out.ndim)
    arrays = [a for a in call.inputs if a is not None]
    ends = np.cumsum([0, *[a.shape[axis] for a in arrays]]).tolist()
    if ends[-1] != out.shape[axis]:
        raise ValueError(
            f"gives {ends[-1]} along axis {axis}, the plan says {list(out.shape)}"
        )
    whole = (slice(None),) * axis
    return in_order(
        [
            copying(x, out[(*whole, slice(start, end))], threads_of(call.options))
            for x, (start, end) in zip(arrays, pairwise(ends), strict=True)
        ]
    )


# --- Trilu, ReverseSequence, Compress -------------------------------------------------


@TABLE.kernel("Trilu", dtypes=ZERO_FILLED, host_inputs={1}, aliases=((0, 0),))
def trilu(call: Call) -> Run:
    """Keep the part above, or below, the diagonal ``k``; 0 elsewhere."""
    x, out = call.inputs[0], call.outputs[0]
    zero = np.zeros((), out.dtype)
    upper = call.attr("upper", 1)

    def make(given: Array | None) -> Run:
        k = (integers(given) or (0,))[0]
        rows, columns = x.shape[-2:]
        k = min(max(k, -rows - 1), columns + 1)
        above = np.arange(columns) - np.arange(rows)[:, None]
        drop = above < k if upper else above > k
        return in_order(
            [partial(np.copyto, out, x), partial(np.copyto, out, zero, where=drop)]
        )

    return from_host(call, [1], make)


@TABLE.kernel("ReverseSequence", dtypes=ANY)
def reverse_sequence(call: Call) -> Run:
    """Reverse the first ``sequence_lens[b]`` steps of each sequence."""
    time, batch = call.attr("time_axis", 0), call.attr("batch_axis", 1)
    x = np.moveaxis(call.inputs[0], (time, batch), (0, 1))
    out = np.moveaxis(call.outputs[0], (time, batch), (0, 1))
    lengths, steps = call.inputs[1], np.arange(x.shape[0])[:, None]
    each = np.arange(x.shape[1])

    def run() -> None:
        if lengths.size and (lengths.min() < 0 or lengths.max() > len(steps)):
            raise ValueError(
                f"sequence_lens {lengths.tolist()} leave [0, {len(steps)}], axis {time}"
            )
        at = np.where(steps < lengths, lengths - 1 - steps, steps)
        np.copyto(out, x[at, each])

    return run


@TABLE.simple("Compress", dtypes=ANY, sizes_at_run=True)
def compress(x: Array, condition: Array, *, axis: int | None = None) -> Array:
    """Keep the slices, or with no axis the elements, where the condition holds."""
    size = x.size if axis is None else x.shape[axis_of(axis, x.ndim)]
    if condition[size:].any():
        raise IndexError(f"condition keeps element {size} or a later one of {size}")
    return np.compress(condition[:size], x, axis=axis)
