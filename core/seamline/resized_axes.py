"""
Where Resize samples: exact coordinates, for any provider.

Coordinates are fractions. In floating point a coordinate that lies exactly between two
samples falls to either side, by the rounding of the scale, and another pixel is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import attrs
import numpy as np

from seamline.axes import axes_of
from seamline.kernel import Call
from seamline.provider import Array

__all__ = ["AxisPlan", "affine", "axis_plans", "coordinates", "exact"]

_HALF = Fraction(1, 2)
_DENOMINATORS = 4096


def exact(scale: float) -> Fraction:
    """
    Give the fraction that a float32 scale stands for: the simplest that rounds to it.

    Examples
    --------
    >>> exact(np.float32(0.6)), exact(np.float32(1 / 3))
    (Fraction(3, 5), Fraction(1, 3))
    """
    given = Fraction(float(scale))
    simple = given.limit_denominator(_DENOMINATORS)
    return simple if np.float32(float(simple)) == np.float32(scale) else given


@attrs.frozen
class AxisPlan:
    """
    One axis to resize.

    Attributes
    ----------
    size, length
        Elements before and after.
    scale
        Length over size, before the length was rounded.
    start, end
        The region of interest, as parts of the axis.
    """

    size: int
    length: int
    scale: Fraction
    start: Fraction = Fraction(0)
    end: Fraction = Fraction(1)


def affine(axis: AxisPlan, mode: str) -> tuple[Fraction, Fraction]:
    """
    Give the place in the input of the first output element, and the step to each next.

    Raises
    ------
    ValueError
        The mode is none of Resize-19, whose formulas these are.
    """
    n, m, scale = axis.size, axis.length, axis.scale
    if mode == "asymmetric":
        return Fraction(0), 1 / scale
    if mode == "align_corners":
        whole = scale * n
        step = Fraction(n - 1) / (whole - 1) if whole != 1 else Fraction(0)
        return Fraction(0), step
    if mode == "tf_crop_and_resize":
        start, end = axis.start, axis.end
        if m == 1:
            return _HALF * (start + end) * (n - 1), Fraction(0)
        return start * (n - 1), (end - start) * (n - 1) / (m - 1)
    if mode == "tf_half_pixel_for_nn":
        return _HALF / scale, 1 / scale
    if mode == "pytorch_half_pixel" and m == 1:
        return Fraction(0), Fraction(0)
    if mode not in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        raise ValueError(f"unknown coordinate_transformation_mode {mode!r}")
    shift = -_HALF
    if mode == "half_pixel_symmetric":
        shift += Fraction(n, 2) * (1 - m / (scale * n))
    return _HALF / scale + shift, 1 / scale


def coordinates(axis: AxisPlan, mode: str) -> list[Fraction]:
    """Give the place in the input of each output element."""
    start, step = affine(axis, mode)
    return [start + i * step for i in range(axis.length)]


def axis_plans(
    call: Call,
    scales: Array | None,
    sizes: Array | None = None,
    roi: Array | None = None,
) -> dict[int, AxisPlan]:
    """
    Give the plan of each axis that a Resize or Upsample names.

    Raises
    ------
    ValueError
        What is given does not lead to the sizes that were planned.
    """
    if scales is not None and scales.size:
        return _by_scales(call, scales, roi)
    if sizes is None or not sizes.size:
        raise ValueError("neither scales nor sizes are given")
    return _by_sizes(call, sizes, roi)


def _by_scales(call: Call, scales: Array, roi: Array | None) -> dict[int, AxisPlan]:
    plans = {}
    x, out = call.inputs[0], call.outputs[0]
    for axis, scale, start, end in _each(call, scales, roi):
        n, m, s = x.shape[axis], out.shape[axis], exact(scale)
        if not s > 0:
            raise ValueError(f"scale {scale} of axis {axis} is not above 0")
        # The plan may have multiplied in floating point, and so be 1 off.
        if abs(n * (end - start) * s - m) > 1:
            raise ValueError(
                f"scale {scale} of axis {axis} does not lead from {n} to {m}"
            )
        plans[axis] = AxisPlan(n, m, s, start, end)
    return plans


def _by_sizes(call: Call, sizes: Array, roi: Array | None) -> dict[int, AxisPlan]:
    x, out = call.inputs[0], call.outputs[0]
    policy = call.attr("keep_aspect_ratio_policy", "stretch")
    each = list(_each(call, sizes, roi))
    if 0 in x.shape:
        return {}
    scales = [Fraction(int(size), x.shape[axis]) for axis, size, _, _ in each]
    if policy != "stretch":
        scales = [min(scales) if policy == "not_larger" else max(scales)] * len(scales)
    plans = {}
    for (axis, size, start, end), scale in zip(each, scales, strict=True):
        n = x.shape[axis]
        wanted = (
            int(size) if policy == "stretch" else math.floor(scale * n + Fraction(1, 2))
        )
        if wanted != out.shape[axis]:
            raise ValueError(f"axis {axis} becomes {wanted}, the plan says {out.shape}")
        plans[axis] = AxisPlan(n, wanted, scale, start, end)
    return plans


def _each(
    call: Call, values: Array, roi: Array | None
) -> Sequence[tuple[int, Any, Fraction, Fraction]]:
    """Give axis, value, start and end of the region, for each axis to resize."""
    rank = len(call.inputs[0].shape)
    axes = axes_of(call.attr("axes", range(rank)), rank)
    count = len(axes)
    if values.size != count:
        raise ValueError(f"{values.size} scales or sizes for {count} axes")
    crops = call.attr("coordinate_transformation_mode") == "tf_crop_and_resize"
    if not crops or roi is None or not roi.size:
        edges = [Fraction(0)] * count + [Fraction(1)] * count
    else:
        edges = [Fraction(float(edge)) for edge in roi.ravel()]
    return list(zip(axes, values.ravel(), edges[:count], edges[count:], strict=True))
