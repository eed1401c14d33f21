"""Operators that say, change or repeat a shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import ANY
from seamline_cpu.binding import (
    axes_of,
    copying,
    from_host,
    integers,
    same_bytes,
)
from seamline_cpu.kernels.recorded import known, moved
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

_FIRST = ((0, 0),)


# --- what a shape is ------------------------------------------------------------------


@TABLE.kernel("Shape", dtypes=ANY, not_capturable=moved)
def shape(call: Call) -> Run:
    """Give the sizes from ``start`` to ``end``; both count from the back if negative."""
    sizes = call.inputs[0].shape
    wanted = np.array(
        sizes[call.attr("start", 0) : call.attr("end", len(sizes))], np.int64
    )
    return copying(wanted, call.outputs[0])


@TABLE.kernel("Size", dtypes=ANY, not_capturable=moved)
def size(call: Call) -> Run:
    """Give the number of elements."""
    return copying(np.array(call.inputs[0].size, np.int64), call.outputs[0])


# --- the same bytes under another shape -----------------------------------------------


@TABLE.kernel("Identity", dtypes=ANY, views=_FIRST, not_capturable=moved)
@TABLE.kernel("Flatten", dtypes=ANY, views=_FIRST, not_capturable=moved)
@TABLE.kernel(
    "Squeeze",
    since=(1, 11),
    dtypes=ANY,
    views=_FIRST,
    not_capturable=all_of(moved, known(1)),
)
@TABLE.kernel(
    "Unsqueeze",
    since=(1, 11),
    dtypes=ANY,
    views=_FIRST,
    not_capturable=all_of(moved, known(1)),
)
def reshaped(call: Call) -> Run:
    """Give the same elements; the plan worked the shape out from the attributes."""
    return same_bytes(call.inputs[0], call.outputs[0])


@TABLE.kernel(
    "Squeeze",
    since=13,
    dtypes=ANY,
    host_inputs={1},
    views=_FIRST,
    not_capturable=all_of(moved, known(1)),
)
@TABLE.kernel(
    "Unsqueeze",
    since=13,
    dtypes=ANY,
    host_inputs={1},
    views=_FIRST,
    not_capturable=all_of(moved, known(1)),
)
def reshaped_by_axes(call: Call) -> Run:
    """Give the same elements without, or with more, axes of size 1."""
    source, target = call.inputs[0], call.outputs[0]
    drops = call.view.op_type == "Squeeze"
    longer, shorter = (source, target) if drops else (target, source)

    def make(given: Array | None) -> Run:
        if given is None:
            ones = tuple([i for i, n in enumerate(longer.shape) if n == 1])
        else:
            ones = axes_of(integers(given) or (), longer.ndim)
        kept = tuple([n for i, n in enumerate(longer.shape) if i not in ones])
        if any(longer.shape[i] != 1 for i in ones) or kept != shorter.shape:
            raise ValueError(
                f"axes {list(ones)} do not lead from {list(source.shape)} "
                f"to {list(target.shape)}"
            )
        return same_bytes(source, target)

    return from_host(call, [1], make)


@TABLE.kernel(
    "Reshape",
    since=5,
    dtypes=ANY,
    host_inputs={1},
    views=_FIRST,
    not_capturable=all_of(moved, known(1)),
)
def reshape(call: Call) -> Run:
    """Give the same elements in the shape asked for; see :func:`resolved`."""
    source, target = call.inputs[0], call.outputs[0]
    allow_zero = bool(call.attr("allowzero", 0))

    def make(wanted: Array) -> Run:
        found = resolved(source.shape, integers(wanted) or (), allow_zero)
        if found != target.shape:
            raise ValueError(f"gives {list(found)}, the plan says {list(target.shape)}")
        return same_bytes(source, target)

    return from_host(call, [1], make)


def resolved(
    sizes: Sequence[int], wanted: Sequence[int], allow_zero: bool
) -> tuple[int, ...]:
    """
    Give the shape that Reshape asks for.

    One -1 takes what is left; 0 keeps the input's size, or is 0 with ``allow_zero``.

    Raises
    ------
    ValueError
        The shape does not hold the input's elements, or asks for what cannot be.

    Examples
    --------
    >>> resolved((2, 3, 4), (0, -1), allow_zero=False)
    (2, 12)
    """
    what = f"cannot reshape {list(sizes)} to {list(wanted)}"
    found = list(wanted)
    if not allow_zero:
        if any(n == 0 and i >= len(sizes) for i, n in enumerate(found)):
            raise ValueError(f"{what}: a 0 stands past the input's last axis")
        found = [sizes[i] if n == 0 else n for i, n in enumerate(found)]
    if found.count(-1) > 1 or any(n < -1 for n in found):
        raise ValueError(f"{what}: at most one size may be -1, none less")
    total = math.prod(sizes)
    if allow_zero and 0 in found and -1 in found:
        raise ValueError(f"{what}: beside a 0 that is meant, -1 has no size")
    if -1 in found:
        at = found.index(-1)
        # A size that both sides keep says nothing of the -1, even if it is 0.
        rest, given = found[:at] + found[at + 1 :], list(sizes)
        for n in tuple(rest):
            if n in given:
                rest.remove(n)
                given.remove(n)
        share = math.prod(rest)
        if share == 0 or math.prod(given) % share:
            raise ValueError(f"{what}: -1 has no size")
        found[at] = math.prod(given) // share
    if math.prod(found) != total:
        raise ValueError(f"{what}: {total} elements do not fit")
    return tuple(found)


# --- blocks of pixels -----------------------------------------------------------------


@TABLE.kernel("DepthToSpace", dtypes=ANY, not_capturable=moved)
def depth_to_space(call: Call) -> Run:
    """Spread channels over blocks of pixels (DCR: the block comes before the depth)."""
    x, out = call.inputs[0], call.outputs[0]
    n, c, h, w = x.shape
    b = call.attr("blocksize")
    deep = c // (b * b)
    if call.attr("mode", "DCR") == "DCR":
        moved = x.reshape(n, b, b, deep, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        moved = x.reshape(n, deep, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return copying(moved, out.reshape(moved.shape))


@TABLE.kernel("SpaceToDepth", dtypes=ANY, not_capturable=moved)
def space_to_depth(call: Call) -> Run:
    """Gather blocks of pixels into channels; undoes DepthToSpace of the same mode."""
    x, out = call.inputs[0], call.outputs[0]
    n, c, h, w = x.shape
    b = call.attr("blocksize")
    blocks = x.reshape(n, c, h // b, b, w // b, b)
    depth_first = call.attr("mode", "DCR") == "CRD"
    moved = blocks.transpose((0, 1, 3, 5, 2, 4) if depth_first else (0, 3, 5, 1, 2, 4))
    return copying(moved, out.reshape(moved.shape))


# --- repeats ----------------------------------------------------------------------------


@TABLE.kernel(
    "Expand", dtypes=ANY, host_inputs={1}, not_capturable=all_of(moved, known(1))
)
def expand(call: Call) -> Run:
    """Broadcast to the shape asked for, in both directions."""
    x, out = call.inputs[0], call.outputs[0]

    def make(wanted: Array) -> Run:
        found = np.broadcast_shapes(x.shape, integers(wanted) or ())
        return copying(np.broadcast_to(x, found), out, threads_of(call.options))

    return from_host(call, [1], make)


@TABLE.kernel(
    "Tile", since=6, dtypes=ANY, host_inputs={1}, not_capturable=all_of(moved, known(1))
)
def tile(call: Call) -> Run:
    """Repeat the whole along each axis: one copy of a broadcast view."""
    x, out = call.inputs[0], call.outputs[0]

    def make(given: Array) -> Run:
        repeats = integers(given) or ()
        if len(repeats) != x.ndim:
            raise ValueError(f"{len(repeats)} repeats for {x.ndim} dimensions")
        found = tuple([r * n for r, n in zip(repeats, x.shape, strict=True)])
        if found != out.shape:
            raise ValueError(f"gives {list(found)}, the plan says {list(out.shape)}")
        # Axes that stay whole need no pair: NumPy copies longer runs, and takes 64 axes.
        split: list[int] = []
        source: list[int] = []
        for r, n in zip(repeats, x.shape, strict=True):
            split += [n] if r == 1 else [r, n]
            source += [n] if r == 1 else [1, n]
        view = np.broadcast_to(x.reshape(source), split)
        return copying(view, out.reshape(split))

    return from_host(call, [1], make)
