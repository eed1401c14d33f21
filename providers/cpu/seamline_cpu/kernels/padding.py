"""Pad and CenterCropPad: the inside is copied once, then each axis filled around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seamline.axes import axes_of, integers, pads_of
from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import ANY, BOOL, FLOATS_8, NUMBERS
from seamline_cpu.binding import copying, filling, from_host, in_order
from seamline_cpu.kernels.recorded import known, moved
from seamline_cpu.table import TABLE

__all__ = ["ZERO_FILLED"]

#: types that have a 0 to fill with; float8_e8m0fnu has none
ZERO_FILLED = NUMBERS + BOOL + FLOATS_8[:-1]


@TABLE.kernel(
    "Pad", since=(2, 2), dtypes=ANY, not_capturable=all_of(moved, known(1, 3))
)
def pad_by_attributes(call: Call) -> Run:
    """Pad, or crop where a pad is negative, by attributes."""
    x, out = call.inputs[0], call.outputs[0]
    value = np.asarray(call.attr("value", 0.0)).astype(out.dtype)
    return _pad(x, out, call.attr("pads"), call.attr("mode", "constant"), value)


@TABLE.kernel(
    "Pad",
    since=11,
    dtypes=ANY,
    host_inputs={1, 3},
    not_capturable=all_of(moved, known(1, 3)),
)
def pad_by_inputs(call: Call) -> Run:
    """Pad, or crop where a pad is negative, by inputs; the fill is 0 unless given."""
    x, out = call.inputs[0], call.outputs[0]
    value = call.input(2)
    mode = call.attr("mode", "constant")
    if value is not None:
        value = value.reshape(-1)[:1].reshape(())
    elif mode == "constant":
        value = np.array("", object) if out.dtype == object else np.zeros((), out.dtype)

    def make(given: Array, on: Array | None) -> Run:
        before, after = pads_of(integers(given) or (), integers(on), x.ndim)
        return _pad(x, out, (*before, *after), mode, np.asarray(value))

    return from_host(call, [1, 3], make)


def _pad(x: Array, out: Array, pads: Sequence[int], mode: str, value: Array) -> Run:
    """Crop by the negative pads, copy what is left inside, then fill around it."""
    rank = x.ndim
    if any(n < 0 for n in out.shape) or len(pads) != 2 * rank:
        raise ValueError(f"pads {list(pads)} are not for {rank} dimensions")
    before, after = pads[:rank], pads[rank:]
    kept = tuple(
        [
            slice(min(max(-b, 0), n), max(n + min(a, 0), 0))
            for b, a, n in zip(before, after, x.shape, strict=True)
        ]
    )
    # The dots keep a scalar an array: a view, not the value of this moment.
    part: Any = (..., *kept)
    core = x[part]
    inside = [
        slice(max(b, 0), max(b, 0) + n) for b, n in zip(before, core.shape, strict=True)
    ]
    found = tuple(
        [
            n + max(b, 0) + max(a, 0)
            for n, b, a in zip(core.shape, before, after, strict=True)
        ]
    )
    if found != out.shape:
        raise ValueError(f"pads give {list(found)}, the plan says {list(out.shape)}")
    part = (..., *inside)
    runs = [copying(core, out[part])]
    for axis in range(rank):
        if out.shape[axis] == core.shape[axis]:
            continue
        runs += _around(out, inside, axis, mode, value)
        inside[axis] = slice(None)
    return in_order(runs)


def _around(
    out: Array, inside: Sequence[slice], axis: int, mode: str, value: Array
) -> list[Run]:
    """Fill both sides of one axis, where the axes before it are filled to the edge."""
    start, end, n = inside[axis].start, inside[axis].stop, out.shape[axis]

    def along(part: slice) -> Array:
        return out[(*inside[:axis], part, *inside[axis + 1 :])]

    sides = [(a, b) for a, b in ((0, start), (end, n)) if a < b]
    if mode == "constant":
        return [filling(value, along(slice(a, b))) for a, b in sides]
    if start == end and out.size:
        raise ValueError(f"mode {mode} cannot pad axis {axis}, which has no elements")
    runs: list[Run] = []
    for a, b in sides:
        sources = _sources(np.arange(a, b) - start, end - start, mode) + start
        for place, source in _stretches(a, sources.tolist()):
            there = along(place)
            repeated = np.broadcast_to(along(source), there.shape)
            runs.append(copying(repeated, there, apart=True))
    return runs


def _sources(at: Array, size: int, mode: str) -> Array:
    """Give the element that each place outside ``[0, size - 1]`` repeats."""
    if mode == "edge":
        return np.clip(at, 0, size - 1)
    if mode == "wrap":
        return at % size
    if mode != "reflect":
        raise ValueError(f"mode {mode!r} is none of constant, reflect, edge, wrap")
    period = max(2 * size - 2, 1)
    there = at % period
    return np.minimum(there, period - there) if size > 1 else np.zeros_like(at)


def _stretches(start: int, sources: Sequence[int]) -> list[tuple[slice, slice]]:
    """Cut places into runs whose sources stand still, rise or fall by 1: all are views."""
    found: list[tuple[slice, slice]] = []
    i = 0
    while i < len(sources):
        first = sources[i]
        step = sources[i + 1] - first if i + 1 < len(sources) else 0
        j = i + 1
        while j < len(sources) and sources[j] == first + step * (j - i):
            j += 1
        place = slice(start + i, start + j)
        if step == 0:
            found.append((place, slice(first, first + 1)))
        else:
            stop = first + step * (j - i)
            found.append((place, slice(first, stop if stop >= 0 else None, step)))
        i = j
    return found


@TABLE.kernel("CenterCropPad", dtypes=ZERO_FILLED, host_inputs={1})
def center_crop_pad(call: Call) -> Run:
    """Crop, or pad with 0, around the middle; odd remainders go to the right."""
    x, out = call.inputs[0], call.outputs[0]
    axes = axes_of(call.attr("axes", range(x.ndim)), x.ndim)
    zero = np.zeros((), out.dtype)

    def make(given: Array) -> Run:
        pads = [0] * (2 * x.ndim)
        for axis, wanted in zip(axes, integers(given) or (), strict=True):
            more = wanted - x.shape[axis]
            before = more // 2 if more >= 0 else -(-more // 2)
            pads[axis], pads[x.ndim + axis] = before, more - before
        return _pad(x, out, pads, "constant", zero)

    return from_host(call, [1], make)
