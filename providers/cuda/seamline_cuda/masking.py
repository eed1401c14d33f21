"""Trilu, OneHot and ReverseSequence: what they look at is read on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seamline.axes import axis_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import INTEGERS, numpy_dtype
from seamline_cuda.elements import FLOATS, MOVED
from seamline_cuda.gathering import unit_of
from seamline_cuda.limits import bytes_of, rank_of, unfit
from seamline_cuda.mask_text import hot_kernel, reversed_kernel, triangle_kernel
from seamline_cuda.works import Complaint, KernelWork, Work

__all__ = ["add_to", "one_hot", "reverse_sequence", "trilu"]

_TYPES = tuple(
    name
    for name in MOVED
    if numpy_dtype(name).itemsize <= 8 and name != "float8_e8m0fnu"  # it has no 0
)


def trilu(call: Call) -> Sequence[Work]:
    """Keep the part above, or below, the diagonal ``k``; 0 elsewhere."""
    x, out, given = call.inputs[0], call.outputs[0], call.input(1)
    kernel = triangle_kernel(bytes_of(x.kind.dtype), bool(call.attr("upper", 1)))
    count = math.prod(x.shape)
    k = given.address if given is not None else 0
    arguments = (
        x.address, k, out.address, count, *x.shape[-2:], int(given is not None),
    )  # fmt: skip
    return [KernelWork(kernel, arguments, count)] if count else []


def one_hot(call: Call) -> Sequence[Work]:
    """Give the on-value where an index says, else the off-value; outside it is all off."""
    indices, values, out = call.inputs[0], call.inputs[2], call.outputs[0]
    axis = axis_of(call.attr("axis", -1), len(out.shape))
    kernel = hot_kernel(indices.kind.dtype, bytes_of(values.kind.dtype))
    count = math.prod(out.shape)
    arguments = (
        indices.address, values.address, out.address, count, out.shape[axis],
        math.prod(out.shape[axis + 1 :]),
    )  # fmt: skip
    return [KernelWork(kernel, arguments, count)] if count else []


def reverse_sequence(call: Call) -> Sequence[Work]:
    """Reverse the first ``sequence_lens[b]`` steps of each sequence."""
    x, lengths, out = call.inputs[0], call.inputs[1], call.outputs[0]
    batch_first = call.attr("batch_axis", 1) == 0
    outer, middle = x.shape[:2]
    steps = middle if batch_first else outer
    unit, inner = unit_of(
        math.prod(x.shape[2:]), bytes_of(x.kind.dtype), x.address, out.address
    )
    why = Complaint(f"sequence_lens leave [0, {steps}]")
    count = outer * middle * inner
    arguments = (
        x.address, lengths.address, out.address, why, count, inner, middle, steps,
    )  # fmt: skip
    kernel = reversed_kernel(unit, batch_first)
    return [KernelWork(kernel, arguments, count)] if count else []


def _matrices(node: NodeView) -> str | None:
    rank = rank_of(node)
    if rank is not None and rank < 2:
        return f"rank {rank} is less than a matrix has"
    return unfit(node)


def _values(node: NodeView) -> str | None:
    kind = node.tensor(2)
    if kind is not None and kind.dtype not in _TYPES:
        return f"values of {kind.dtype} are not of 1, 2, 4 or 8 bytes"
    return unfit(node)


def _sequences(node: NodeView) -> str | None:
    axes = node.attributes.get("time_axis", 0), node.attributes.get("batch_axis", 1)
    if sorted(axes) != [0, 1]:
        return f"time_axis and batch_axis {axes} are not 0 and 1"
    return _matrices(node)


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    numbers = (*FLOATS, "float64", *INTEGERS)
    for op_type, since, dtypes, on_host, when, function in (
        ("Trilu", 14, _TYPES, (), _matrices, trilu),
        ("OneHot", 9, numbers, (1,), _values, one_hot),
        ("ReverseSequence", 10, MOVED, (), _sequences, reverse_sequence),
    ):
        table.kernel(
            op_type,
            since=since,
            dtypes=dtypes,
            when=when,
            host_inputs=on_host,
            variant="masked",
            because="what it looks at is read on the device",
            not_capturable=None,
        )(function)
