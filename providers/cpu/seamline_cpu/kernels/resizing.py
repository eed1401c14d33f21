"""Resize and Upsample: indices and weights are worked out at build, axis by axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import attrs
import numpy as np

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.resized_axes import AxisPlan, axis_plans, coordinates
from seamline.tensors import ANY, NUMBERS
from seamline_cpu.binding import from_host, in_order, same_bytes
from seamline_cpu.kernels.recorded import in_python, known, moved
from seamline_cpu.kernels.resampling import bind_blend, bind_pick
from seamline_cpu.kernels.sampling import (
    Filter,
    nearest,
    taps,
)
from seamline_cpu.table import TABLE

__all__: list[str] = []

_THREADED_ELEMENTS = 1 << 16  # below this a second thread costs more than it saves
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@attrs.frozen
class _Way:
    """How a node resizes, from its attributes."""

    mode: str
    coordinates: str
    rounding: str
    filter: Filter
    outside: float


def _way(call: Call) -> _Way:
    filter_ = Filter(
        call.attr("mode", "nearest") == "cubic",
        call.attr("cubic_coeff_a", -0.75),
        bool(call.attr("antialias", 0)),
        bool(call.attr("exclude_outside", 0)),
    )
    old = call.since < 11
    return _Way(
        call.attr("mode", "nearest"),
        "asymmetric"
        if old
        else call.attr("coordinate_transformation_mode", "half_pixel"),
        "floor" if old else call.attr("nearest_mode", "round_prefer_floor"),
        filter_,
        call.attr("extrapolation_value", 0.0),
    )


def _refuse(node: NodeView) -> str | None:
    mode = node.attributes.get("mode", "nearest")
    kind = node.tensor(0)
    if mode not in ("nearest", "linear", "cubic"):
        return f"mode is {mode!r}, not nearest, linear or cubic"
    if mode != "nearest" and kind is not None and kind.dtype not in NUMBERS:
        return f"mode {mode} has no meaning for {kind.dtype}"
    return None


def _of_floats(node: NodeView) -> str | None:
    mode, kind = node.attributes.get("mode", "nearest"), node.tensor(0)
    if mode != "nearest" and (kind is None or kind.dtype != "float32"):
        return in_python("only float32 is blended by commands")
    return None


@TABLE.kernel(
    "Upsample",
    since=(7, 7),
    dtypes=ANY,
    when=_refuse,
    not_capturable=all_of(moved, known(1), _of_floats),
)
def upsample_by_attribute(call: Call) -> Run:
    """Resize by scales in an attribute."""
    scales = np.array(call.attr("scales"), np.float32)
    return _resample(call, axis_plans(call, scales))


@TABLE.kernel(
    "Upsample",
    since=9,
    dtypes=ANY,
    when=_refuse,
    host_inputs={1},
    not_capturable=all_of(moved, known(1), _of_floats),
)
@TABLE.kernel(
    "Resize",
    since=(10, 10),
    dtypes=ANY,
    when=_refuse,
    host_inputs={1},
    not_capturable=all_of(moved, known(1, 2, 3), _of_floats),
)
def resize_by_scales(call: Call) -> Run:
    """Resize by scales in an input; coordinates are ``x / scale``."""
    return from_host(call, [1], lambda s: _resample(call, axis_plans(call, s)))


@TABLE.kernel(
    "Resize",
    since=11,
    dtypes=ANY,
    when=_refuse,
    host_inputs={1, 2, 3},
    not_capturable=all_of(moved, known(1, 2, 3), _of_floats),
)
def resize(call: Call) -> Run:
    """Resize by scales or to sizes, of all axes or of those named."""

    def make(roi: Array | None, scales: Array | None, sizes: Array | None) -> Run:
        return _resample(call, axis_plans(call, scales, sizes, roi))

    return from_host(call, [1, 2, 3], make)


def _resample(call: Call, plans: Mapping[int, AxisPlan]) -> Run:
    x, out = call.inputs[0], call.outputs[0]
    if not out.size:
        return same_bytes(out, out)
    if not x.size:
        raise ValueError(f"cannot make {list(out.shape)} from no elements")
    way = _way(call)
    places = {axis: coordinates(plan, way.coordinates) for axis, plan in plans.items()}
    if way.mode == "nearest":
        run = _nearest(call, way, plans, places)
    else:
        run = _weighted(call, way, plans, places)
    if way.coordinates != "tf_crop_and_resize":
        return run
    outside = np.zeros(out.shape, bool)
    for axis, found in places.items():
        off = np.array([not 0 <= c <= plans[axis].size - 1 for c in found])
        outside |= off.reshape((-1,) + (1,) * (out.ndim - axis - 1))
    value = np.array(way.outside).astype(out.dtype)
    return in_order([run, partial(np.copyto, out, value, where=outside)])


def _threads(call: Call) -> int:
    if call.outputs[0].size < _THREADED_ELEMENTS:
        return 1
    return max(int(call.options.get("num_threads") or 1), 1)


def _planes(x: Array) -> Array:
    shape = (1,) * (2 - x.ndim) + x.shape
    return x.reshape(math.prod(shape[:-2]), *shape[-2:])


def _nearest(
    call: Call,
    way: _Way,
    plans: Mapping[int, AxisPlan],
    places: Mapping[int, list[Fraction]],
) -> Run:
    x, out = call.inputs[0], call.outputs[0]
    index = {}
    for axis, plan in plans.items():
        # Before opset 11 a sample below the first output's was never taken twice.
        shrinks = call.since < 11 and plan.scale < 1
        found = nearest(places[axis], plan.size, "ceil" if shrinks else way.rounding)
        if found.tolist() != list(range(plan.size)):
            index[axis] = found
    if not index:
        return same_bytes(x, out)
    if min(index) >= x.ndim - 2 and x.dtype.itemsize in _BITS and x.dtype != object:
        bits = _BITS[x.dtype.itemsize]
        source, target = _planes(x.view(bits)), _planes(out.view(bits))
        rows = index.get(x.ndim - 2, np.arange(source.shape[1]))
        columns = index.get(x.ndim - 1, np.arange(source.shape[2]))
        return bind_pick(source, target, rows, columns, _threads(call))
    *before, last = sorted(index.items(), key=lambda item: len(item[1]))

    def run() -> None:
        y = x
        for axis, found in before:
            y = y.take(found, axis)
        y.take(last[1], last[0], out, "clip")

    return run


def _weighted(
    call: Call,
    way: _Way,
    plans: Mapping[int, AxisPlan],
    places: Mapping[int, list[Fraction]],
) -> Run:
    x, out = call.inputs[0], call.outputs[0]
    work = np.dtype(
        np.float64 if x.dtype.itemsize > 4 or x.dtype.kind in "iu" else np.float32
    )
    steps = {}
    for axis, plan in plans.items():
        index, weights = taps(places[axis], plan, way.filter)
        if plan.size != plan.length or not _still(index, weights):
            steps[axis] = (index, weights.astype(work))
    if x.dtype == np.float32 and steps and min(steps) >= x.ndim - 2:
        return _blended(call, steps)
    rounds = way.filter.antialias

    def run() -> None:
        y: Any = x.astype(work)
        for axis, (index, weights) in steps.items():
            shape = (-1,) + (1,) * (y.ndim - axis - 1)
            y = sum(
                y.take(at, axis) * w.reshape(shape)
                for at, w in zip(index, weights, strict=True)
            )
        _settle(y, out, rounds)

    return run


def _still(index: Array, weights: Array) -> bool:
    """Tell whether the taps give each element back."""
    whole = weights == 1.0
    here = index == np.arange(index.shape[1])
    return bool((whole & here).any(axis=0).all() and (weights[~whole] == 0).all())


def _settle(values: Array, out: Array, rounds: bool) -> None:
    """Store; integers are cut to their range, and rounded only after antialiasing."""
    if out.dtype.kind in "iu":
        limits = np.iinfo(out.dtype)
        # Weights of 1/3 and 2/3 may give 2.9999999999999996 for 3, which is cut to 2.
        values = np.rint(values) if rounds else np.round(values, 9)
        values = np.clip(values, limits.min, limits.max)
    np.copyto(out, values, casting="unsafe")


def _blended(call: Call, steps: Mapping[int, tuple[Array, Array]]) -> Run:
    x, out = call.inputs[0], call.outputs[0]
    source, target = _planes(x), _planes(out)

    def step(axis: int, size: int) -> tuple[Array, Array]:
        still = (np.arange(size)[None], np.ones((1, size), np.float32))
        return steps.get(axis, still)

    rows, columns = step(x.ndim - 2, source.shape[1]), step(x.ndim - 1, source.shape[2])
    return bind_blend(source, target, rows, columns, _threads(call))
