"""Trilu, OneHot and ReverseSequence: what they look at is read on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seamline.axes import axis_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import INTEGERS, numpy_dtype
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS, FLOATS, MOVED, STORED
from seamline_cuda.gathering import unit_of
from seamline_cuda.limits import bytes_of, rank_of, unfit
from seamline_cuda.loops import looped
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
    stored = STORED[bytes_of(x.kind.dtype)]
    keeps = ">=" if call.attr("upper", 1) else "<="

    def load(u: str) -> list[str]:
        return [
            f"line{u} = quotient32(np.uint32(i{u}), columns)",
            f"row{u} = line{u} - quotient32(line{u}, rows) * rows",
            f"column{u} = np.uint32(i{u}) - line{u} * columns",
            f"above{u} = np.int64(column{u}) - np.int64(row{u})",
            f"x{u} = source[i{u}] if above{u} {keeps} k else np.{stored}(0)",
        ]

    name = "upper" if call.attr("upper", 1) else "lower"
    lines = [f"def {name}(source, diagonal, target, n, rows, columns, given):"]
    lines += ["    k = diagonal[0] if given else np.int64(0)"]
    lines += looped(load, lambda u: [f"target[i{u}] = x{u}"])
    signature = (
        f"{stored}*", "int64*", f"{stored}*", "int64", "uint32", "uint32", "int64",
    )  # fmt: skip
    kernel = DeviceKernel(name, "\n".join(lines) + "\n", signature)
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
    depth, element = out.shape[axis], ELEMENTS[indices.kind.dtype]
    stored = STORED[bytes_of(values.kind.dtype)]
    # A fraction is cut towards 0, as a Cast to int64 would.
    index = f"np.int64({element.load.format('indices[at]')})"

    def load(u: str) -> list[str]:
        return [
            "line = quotient32(np.uint32(i0), inner)",
            "outer = quotient32(line, depth)",
            "place = np.int64(line - outer * depth)",
            "at = np.int64(outer) * inner + np.int64(np.uint32(i0) - line * inner)",
            f"index = {index}",
            "if index < 0:",
            "    index += np.int64(depth)",
        ]

    lines = ["def one_hot(indices, values, out, n, depth, inner):"]
    lines += looped(load, lambda u: ["out[i0] = values[1] if index == place else values[0]"], 1)  # fmt: skip
    signature = (
        f"{element.stored}*", f"{stored}*", f"{stored}*", "int64", "uint32", "uint32",
    )  # fmt: skip
    kernel = DeviceKernel("one_hot", "\n".join(lines) + "\n", signature)
    count = math.prod(out.shape)
    arguments = (
        indices.address, values.address, out.address, count, depth,
        math.prod(out.shape[axis + 1 :]),
    )  # fmt: skip
    return [KernelWork(kernel, arguments, count)] if count else []


def reverse_sequence(call: Call) -> Sequence[Work]:
    """Reverse the first ``sequence_lens[b]`` steps of each sequence."""
    x, lengths, out = call.inputs[0], call.inputs[1], call.outputs[0]
    batch_first = call.attr("batch_axis", 1) == 0
    outer, middle = x.shape[:2]
    steps = middle if batch_first else outer
    step, batch = ("middle", "outer") if batch_first else ("outer", "middle")
    unit, inner = unit_of(
        math.prod(x.shape[2:]), bytes_of(x.kind.dtype), x.address, out.address
    )

    def load(u: str) -> list[str]:
        return [
            f"line{u} = quotient32(np.uint32(i{u}), inner)",
            f"outer{u} = np.int64(quotient32(line{u}, count))",
            f"middle{u} = np.int64(line{u}) - outer{u} * np.int64(count)",
            f"long{u} = lengths[{batch}{u}]",
            f"if long{u} < 0 or long{u} > steps:",
            "    wrong[0] = np.uint32(1)",
            f"    long{u} = np.int64(0)",
            f"if {step}{u} < long{u}:",
            f"    {step}{u} = long{u} - 1 - {step}{u}",
            f"from{u} = outer{u} * np.int64(count) + middle{u}",
            f"within{u} = np.int64(np.uint32(i{u}) - line{u} * inner)",
            f"x{u} = source[from{u} * np.int64(inner) + within{u}]",
        ]

    name = "reversed_rows" if batch_first else "reversed_columns"
    lines = [f"def {name}(source, lengths, target, wrong, n, inner, count, steps):"]
    lines += looped(load, lambda u: [f"target[i{u}] = x{u}"])
    stored = STORED[unit]
    signature = (
        f"{stored}*", "int64*", f"{stored}*", "uint32*", "int64", "uint32", "uint32",
        "int64",
    )  # fmt: skip
    kernel = DeviceKernel(name, "\n".join(lines) + "\n", signature)
    why = Complaint(f"sequence_lens leave [0, {steps}]")
    count = outer * middle * inner
    arguments = (
        x.address, lengths.address, out.address, why, count, inner, middle, steps,
    )  # fmt: skip
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
