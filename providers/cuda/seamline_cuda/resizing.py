"""
Resize and Upsample: nearest, linear in up to three axes, and cubic in up to two.

Coordinates are worked out here as fractions; see :mod:`seamline_cuda.resize_text` for what
becomes of them. Axes that keep their sizes are joined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import attrs
import numpy as np

from seamline.axes import axes_of, strides_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.resized_axes import AxisPlan, affine, axis_plans
from seamline.tensors import numpy_dtype
from seamline_cuda.elements import FLOATS, MOVED
from seamline_cuda.limits import unfit
from seamline_cuda.resize_stretched import Stretched
from seamline_cuda.resize_text import Sampling
from seamline_cuda.works import CopyWork, KernelWork, Work

__all__ = ["add_to", "resize"]

_MODES = ("nearest", "linear", "cubic")
_AXES = {"nearest": 64, "linear": 3, "cubic": 2}  # 1, 8 and 16 samples
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_TYPES = tuple(name for name in MOVED if numpy_dtype(name).itemsize <= 8)
_WHOLE, _WIDE = 1 << 31, 1 << 62


@attrs.frozen
class _Moving:
    """The numbers of one resized axis, as the kernel takes them."""

    size: int
    length: int
    rise: int
    base: int
    over: int
    back: int
    inside: tuple[int, int]
    squeeze: float

    @property
    def reach(self) -> int:
        """Give the greatest number that a coordinate is computed with."""
        return max(self.over, self.base + abs(self.rise) * self.length)


def resize(call: Call) -> Sequence[Work]:
    """Resize by scales or to sizes, of all axes or of those named."""
    x, out = call.inputs[0], call.outputs[0]
    plans = axis_plans(call, *_asked(call))
    count = math.prod(out.shape)
    if not count:
        return []
    if not math.prod(x.shape):
        raise ValueError(f"cannot make {list(out.shape)} from no elements")
    moving = {
        axis: _moving(call, plan)
        for axis, plan in plans.items()
        if not _stays(call, plan)
    }
    if not moving:
        return [CopyWork(out.address, x.address, x.nbytes)]
    mode = call.attr("mode", "nearest")
    if len(moving) > _AXES[mode]:
        raise ValueError(f"mode {mode} over {len(moving)} axes; up to {_AXES[mode]} are accepted")  # fmt: skip
    axes = _joined(x.shape, out.shape, moving)
    reach = max(m.reach for m in moving.values())
    if reach >= _WIDE:
        raise ValueError("the scales' fractions are too fine for 64 bits")
    cropped = call.attr("coordinate_transformation_mode") == "tf_crop_and_resize"
    stretches = mode != "nearest" and bool(call.attr("antialias", 0))
    sampling = (Stretched if stretches else Sampling)(
        mode, x.kind.dtype, tuple(m is not None for *_, m in axes), reach < _WHOLE,
        cropped, bool(call.attr("exclude_outside", 0)),
    )  # fmt: skip
    arguments = (x.address, out.address, count, *_numbers(call, axes, sampling))
    return [KernelWork(sampling.kernel(), arguments, count)]


def _asked(call: Call) -> tuple[Any, Any, Any]:
    """Give scales, sizes and region, from wherever the version has them."""
    if call.view.op_type == "Upsample" and call.since < 9:
        return np.array(call.attr("scales"), np.float32), None, None
    if call.since < 11:
        return call.inputs[1], None, None
    return call.input(2), call.input(3), call.input(1)


def _coordinates(call: Call, plan: AxisPlan) -> tuple[Fraction, Fraction]:
    default = "asymmetric" if call.since < 11 else "half_pixel"
    return affine(plan, call.attr("coordinate_transformation_mode", default))


def _stays(call: Call, plan: AxisPlan) -> bool:
    start, step = _coordinates(call, plan)
    return plan.size == plan.length and start == 0 and (step == 1 or plan.size == 1)


def _moving(call: Call, plan: AxisPlan) -> _Moving:
    start, step = _coordinates(call, plan)
    last, inside = plan.length - 1, (0, plan.length - 1)
    if call.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        inside = _inside(start, step, plan)
    if call.attr("mode", "nearest") == "nearest":
        # Before opset 11 a sample below the first output's was never taken twice.
        old = "ceil" if plan.scale < 1 else "floor"
        how = call.attr("nearest_mode", "round_prefer_floor")
        start, step = _rounded(start, step, old if call.since < 11 else how)
    over = math.lcm(start.denominator, step.denominator)
    back = max(0, math.ceil(-min(start, start + last * step)))
    base = (start + back) * over
    return _Moving(
        plan.size, plan.length, int(step * over), int(base), over, back, inside,
        min(float(plan.scale), 1.0),
    )  # fmt: skip


def _rounded(start: Fraction, step: Fraction, how: str) -> tuple[Fraction, Fraction]:
    """Shift coordinates so that their floors are the samples that are nearest."""
    half = Fraction(1, 2)
    if how == "floor":
        return start, step
    if how == "round_prefer_ceil":
        return start + half, step
    # A ceiling is the floor of what lies less than 1, by one part, above.
    if how == "round_prefer_floor":
        start -= half
    part = Fraction(1, math.lcm(start.denominator, step.denominator))
    return start + 1 - part, step


def _inside(start: Fraction, step: Fraction, plan: AxisPlan) -> tuple[int, int]:
    """Give the first and last place whose coordinate lies between the edges."""
    found = [
        i for i in range(plan.length) if 0 <= start + i * step <= plan.size - 1
    ]  # fmt: skip
    return (found[0], found[-1]) if found else (1, 0)


_Axes = list[tuple[int, int, "_Moving | None"]]


def _joined(
    sizes: Sequence[int], lengths: Sequence[int], moving: Mapping[int, _Moving]
) -> _Axes:
    """Join neighbours that keep their places; give sizes before and after, and numbers."""
    found: _Axes = []
    for axis, (size, length) in enumerate(zip(sizes, lengths, strict=True)):
        one = moving.get(axis)
        if found and one is None and found[-1][2] is None:
            before, after, _ = found.pop()
            size, length = before * size, after * length
        found.append((size, length, one))
    return found


def _numbers(call: Call, axes: _Axes, sampling: Sampling) -> list[float]:
    numbers: list[float] = [length for _, length, _ in axes[1:]]
    numbers += strides_of([size for size, _, _ in axes])
    moved = [one for _, _, one in axes if one is not None]
    for one in moved:
        numbers += [one.size, one.rise, one.base, one.over, one.back]
    if sampling.cropped:
        value = float(call.attr("extrapolation_value", 0.0))
        numbers.append(_bits(value, sampling))
        numbers += [end for one in moved for end in one.inside]
    if sampling.mode == "cubic":
        numbers.append(float(call.attr("cubic_coeff_a", -0.75)))
    if isinstance(sampling, Stretched):
        far = 2 if sampling.mode == "cubic" else 1
        for one in moved:
            numbers += [one.squeeze, math.ceil(far / one.squeeze)]
    return numbers


def _bits(value: float, sampling: Sampling) -> float:
    """Give a value as the kernel holds elements: as bits where they are only moved."""
    if sampling.mode != "nearest":
        return value
    held = np.array(value).astype(numpy_dtype(sampling.dtype))
    return int.from_bytes(held.tobytes(), "little")


def _refused(node: NodeView) -> str | None:
    mode, kind = node.attributes.get("mode", "nearest"), node.tensor(0)
    rounding = node.attributes.get("nearest_mode", "floor")
    accepted = (*FLOATS, "float64")
    if mode not in _MODES:
        return f"mode {mode!r} is none of {', '.join(_MODES)}"
    if rounding not in _ROUNDINGS:
        return f"nearest_mode {rounding!r} is none of {', '.join(_ROUNDINGS)}"
    if mode != "nearest" and kind is not None and kind.dtype not in accepted:
        return f"mode {mode} of {kind.dtype}; it is accepted for {', '.join(accepted)}"
    return unfit(node) or _too_many(node, mode)


def _too_many(node: NodeView, mode: str) -> str | None:
    """Refuse more axes than a kernel has samples for, as far as sizes and scales tell."""
    kind, made = node.tensor(0), node.outputs[0]
    sizes, lengths = getattr(kind, "shape", None), getattr(made, "shape", None)
    if sizes is None or lengths is None:
        return None
    axes = axes_of(node.attributes.get("axes", range(len(sizes))), len(sizes))
    given = node.constant(2 if node.since_version > 10 else 1)
    scales = given.ravel() if given is not None and given.size == len(axes) else [1.0] * len(axes)  # fmt: skip
    crops = node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"  # fmt: skip
    moving = 0
    for axis, scale in zip(axes, scales, strict=True):
        size, length = sizes[axis], lengths[axis]
        if isinstance(size, int) and isinstance(length, int):
            moving += size != length or (size > 1 and (crops or scale != 1))
    if moving > _AXES[mode]:
        return f"mode {mode} over {moving} axes; up to {_AXES[mode]} are accepted"
    return None


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for op_type, since, on_host in (
        ("Upsample", (7, 7), ()),
        ("Upsample", 9, (1,)),
        ("Resize", (10, 10), (1,)),
        ("Resize", 11, (1, 2, 3)),
    ):
        table.kernel(
            op_type,
            since=since,
            dtypes=_TYPES,
            when=_refused,
            host_inputs=on_host,
            variant="sampled",
            because="coordinates are whole numbers and a division, exact at every tie",
            not_capturable=None,
        )(resize)
