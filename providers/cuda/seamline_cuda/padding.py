"""
Pad and CenterCropPad: one kernel over the result, which looks up where each element comes from.

The value is read on the device. Axes that are not padded are joined with the one before,
so an image padded at its edges is taken apart into two or three places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from seamline.axes import axes_of, integers, pads_of, strides_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import numpy_dtype
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import MOVED, STORED
from seamline_cuda.kernel_text import position
from seamline_cuda.limits import bytes_of, unfit
from seamline_cuda.loops import looped
from seamline_cuda.works import KernelWork, Work

__all__ = ["MODES", "add_to", "center_crop_pad", "pad", "pad_kernel"]

MODES = ("constant", "reflect", "edge", "wrap")
_TYPES = tuple(name for name in MOVED if numpy_dtype(name).itemsize <= 8)


@attrs.frozen
class _Axis:
    """One axis: its size, what lies before the input's first element, and the result's size."""

    size: int
    before: int
    length: int

    @property
    def is_kept(self) -> bool:
        return self.before == 0 and self.length == self.size

    @property
    def is_near(self) -> bool:
        """Tell whether no place lies outside by as much as the axis is long."""
        after = self.length - self.before - self.size
        return max(self.before, after) < self.size


def pad(call: Call) -> Sequence[Work]:
    """Pad, or crop where a pad is negative."""
    rank = len(call.inputs[0].shape)
    if call.since < 11:
        pads, axes, value = call.attr("pads"), None, call.attr("value", 0.0)
    else:
        pads, axes = integers(call.inputs[1]) or (), integers(call.input(3))
        value = 0.0
    before, after = pads_of(pads, axes, rank)
    return _padded(call, before, after, call.attr("mode", "constant"), value)


def center_crop_pad(call: Call) -> Sequence[Work]:
    """Crop, or pad with 0, around the middle; odd remainders go to the right."""
    sizes = call.inputs[0].shape
    axes = axes_of(call.attr("axes", range(len(sizes))), len(sizes))
    before, after = [0] * len(sizes), [0] * len(sizes)
    for axis, wanted in zip(axes, integers(call.inputs[1]) or (), strict=True):
        more = wanted - sizes[axis]
        before[axis] = more // 2 if more >= 0 else -(-more // 2)
        after[axis] = more - before[axis]
    return _padded(call, before, after, "constant", 0.0)


def _padded(
    call: Call, before: Sequence[int], after: Sequence[int], mode: str, value: float
) -> Sequence[Work]:
    x, out = call.inputs[0], call.outputs[0]
    found = [n + b + a for n, b, a in zip(x.shape, before, after, strict=True)]
    if found != list(out.shape):
        raise ValueError(f"pads give {found}, the plan says {list(out.shape)}")
    count = math.prod(found)
    if not count:
        return []
    if mode != "constant" and not math.prod(x.shape):
        raise ValueError(
            f"mode {mode} cannot pad {list(x.shape)}, which has no elements"
        )
    axes = _joined(x.shape, before, found, mode)
    steps = strides_of([axis.size for axis in axes])
    dtype = x.kind.dtype
    filler = None if call.view.op_type == "CenterCropPad" else call.input(2)
    bits = np.array(value).astype(numpy_dtype(dtype)).tobytes()
    near = mode in ("reflect", "wrap") and all(axis.is_near for axis in axes)
    kernel = pad_kernel(bytes_of(dtype), len(axes), mode, near)
    arguments = (
        x.address, out.address, filler.address if filler is not None else out.address,
        count, int(filler is not None), int.from_bytes(bits, "little"),
        *[axis.length for axis in axes[1:]], *[axis.size for axis in axes],
        *[axis.before for axis in axes], *steps,
    )  # fmt: skip
    return [KernelWork(kernel, arguments, count)]


def _joined(
    sizes: Sequence[int], before: Sequence[int], lengths: Sequence[int], mode: str
) -> list[_Axis]:
    """Join an axis that is kept whole with the one before it."""
    found: list[_Axis] = []
    for size, b, length in zip(sizes, before, lengths, strict=True):
        axis = _Axis(size, b, length)
        # A reflected axis counts in its own elements, a constant beside it in any.
        if found and axis.is_kept and (mode == "constant" or found[-1].is_kept):
            last = found.pop()
            axis = _Axis(last.size * size, last.before * size, last.length * size)
        found.append(axis)
    return found


def _source(mode: str, axis: int, u: str, near: bool) -> list[str]:
    """
    Write where along its input axis an element comes from.

    ``near``: no place lies further outside than the axis is long, so that one step back
    leads inside, and no division is needed.
    """
    at, n = f"from{axis}_{u}", f"n{axis}"
    lines = [f"{at} = np.int64(at{axis}_{u}) - before{axis}"]
    if mode == "edge":
        return [*lines, f"{at} = min(max({at}, np.int64(0)), {n} - np.int64(1))"]
    if mode == "wrap" and near:
        over = f"{at} - {n} if {at} >= {n} else {at}"
        return [*lines, f"{at} = {at} + {n} if {at} < 0 else ({over})"]
    if mode == "wrap":
        return [*lines, f"{at} = ({at} % {n} + {n}) % {n}"]
    if mode == "reflect" and near:
        lines.append(f"{at} = -{at} if {at} < 0 else {at}")
        return [*lines, f"{at} = min({at}, np.int64(2) * {n} - np.int64(2) - {at})"]
    if mode == "reflect":
        period = f"period{axis}_{u}"
        return [
            *lines,
            f"{period} = max(np.int64(2) * {n} - np.int64(2), np.int64(1))",
            f"{at} = ({at} % {period} + {period}) % {period}",
            f"{at} = min({at}, {period} - {at})",
            f"{at} = min({at}, {n} - np.int64(1))",
        ]
    return lines


def pad_kernel(width: int, rank: int, mode: str, near: bool = False) -> DeviceKernel:
    """
    Give the kernel over elements of the result.

    Its parameters are source, target, the address of the value, the count, whether there
    is such a value, the bits that stand for it where not, the result's inner sizes, and for
    every axis the input's size, what lies before it, and its step.
    """
    name, stored = f"pad_{mode}_{rank}" + ("_near" if near else ""), STORED[width]

    def load(u: str) -> list[str]:
        lines = position(f"i{u}", rank, u)
        for axis in range(rank):
            lines += _source(mode, axis, u, near)
        terms = [f"from{a}_{u} * step{a}" for a in range(rank)]
        place = " + ".join(terms) or "0"
        if mode != "constant" or not rank:
            return [*lines, f"x{u} = source[{place}]"]
        inside = " and ".join(
            f"from{a}_{u} >= 0 and from{a}_{u} < n{a}" for a in range(rank)
        )
        return [
            *lines,
            f"x{u} = value",
            f"if {inside}:",
            f"    x{u} = source[{place}]",
        ]

    names = [f"size{a}" for a in range(1, rank)]
    names += [f"{what}{a}" for what in ("n", "before", "step") for a in range(rank)]
    parameters = ", ".join(["source", "target", "filler", "n", "given", "bits", *names])
    lines = [
        f"def {name}({parameters}):",
        f"    value = filler[0] if given else np.{stored}(bits)",
        *looped(load, lambda u: [f"target[i{u}] = x{u}"]),
    ]
    signature = (
        *[f"{stored}*"] * 3, "int64", "int64", "uint64",
        *["uint32"] * max(rank - 1, 0), *["int64"] * (3 * rank),
    )  # fmt: skip
    return DeviceKernel(name, "\n".join(lines) + "\n", signature)


def _refused(node: NodeView) -> str | None:
    mode = node.attributes.get("mode", "constant")
    if mode not in MODES:
        return f"mode {mode!r} is none of {', '.join(MODES)}"
    return unfit(node)


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for op_type, since, on_host, function in (
        ("Pad", (2, 2), (), pad),
        ("Pad", 11, (1, 3), pad),
        ("CenterCropPad", 18, (1,), center_crop_pad),
    ):
        table.kernel(
            op_type,
            since=since,
            dtypes=_TYPES,
            when=_refused,
            host_inputs=on_host,
            variant="padded",
            because="one kernel finds each element's source",
            not_capturable=None,
        )(function)
