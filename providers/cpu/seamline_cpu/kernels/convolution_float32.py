"""Float32 convolutions over three axes: which compiled form one takes, and its binding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline.windows import Window
from seamline_cpu.binding import in_order
from seamline_cpu.kernels.convolution_dense import bind_dense, scratch_bytes
from seamline_cpu.kernels.convolution_few import (
    bind_few,
    few_bytes,
    pack_lanes,
    suits_few,
)
from seamline_cpu.kernels.convolution_planes import (
    bind_planes,
    planes_bytes,
    slab_of,
    suits_planes,
)
from seamline_cpu.kernels.convolution_pointwise import (
    SLAB,
    bind_pointwise,
    pointwise_bytes,
    suits_pointwise,
)
from seamline_cpu.kernels.convolution_thinned import (
    bind_thinned,
    suits_thinned,
    thinned_bytes,
)
from seamline_cpu.kernels.convolution_tiles import pack_bias, pack_slabs, pack_weights
from seamline_cpu.kernels.convolution_winograd import (
    bind_winograd,
    pack_points,
    suits_winograd,
    winograd_bytes,
)
from seamline_cpu.kernels.depthwise import (
    bind_depthwise,
    depthwise_bytes,
    suits_depthwise,
)
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue

__all__ = ["DIRECT", "FORMS", "OPTION", "Shape", "bind_float32"]

_Array = np.ndarray[Any, Any]
OPTION, DIRECT = "convolution", "direct"
#: What each form is, in words for a claim.
FORMS: Mapping[str, str] = {
    "depthwise": "each channel by itself, from padded planes",
    "few": "few pixels, so that lanes are output channels",
    "pointwise": "windows of one pixel, as a product of matrices",
    "thinned": "windows of one pixel that skip, whose input is copied together first",
    "winograd": "Winograd's transforms, with half of the products or less and two or three times "
    "the rounding error of direct sums",
    "planes": "taps are offsets into padded planes",
    "dense": "windows are laid out in panels",
}


@attrs.frozen
class Shape:
    """
    What a convolution's form depends on.

    Attributes
    ----------
    channels, each
        Inputs and outputs of a group.
    transforms
        Whether weights may be transformed: they are constant, so that it costs a run
        nothing, and nobody asked for direct sums.
    """

    window: Window
    images: int
    groups: int
    channels: int
    each: int
    transforms: bool

    @classmethod
    def of(
        cls,
        window: Window,
        x: Sequence[int],
        w: Sequence[int],
        view: NodeView,
        options: Mapping[str, Any],
    ) -> Shape:
        """Read a node whose input and weights have these sizes."""
        groups = view.attributes.get("group", 1)
        transforms = view.constant(1) is not None and options.get(OPTION) != DIRECT
        return cls(window, x[0], groups, w[1], w[0] // groups, transforms)

    @property
    def form(self) -> str:
        """Give the form's name: the first that suits."""
        if suits_depthwise(self.window, self.channels, self.each):
            return "depthwise"
        if suits_few(self.window, self.channels, self.each):
            return "few"
        if suits_pointwise(self.window, self.channels):
            return "pointwise"
        if suits_thinned(self.window, self.channels):
            return "thinned"
        sizes = (self.images, self.channels, self.each)
        if self.transforms and self.groups == 1 and suits_winograd(self.window, *sizes):
            return "winograd"
        return "planes" if suits_planes(self.window) else "dense"

    def nbytes(self, shares: int) -> int:
        """Give the bytes of scratch that ``shares`` shares need."""
        form, window = self.form, self.window
        if form == "depthwise":
            return depthwise_bytes(window, shares)
        if form == "few":
            return few_bytes(window, self.channels, shares)
        if form == "pointwise":
            return pointwise_bytes(shares)
        if form == "thinned":
            every = self.groups * self.channels
            return thinned_bytes(window, self.images, every, shares)
        if form == "winograd":
            return winograd_bytes(window, self.channels, self.each, shares)
        if form == "planes":
            return planes_bytes(window, self.channels, self.each, shares)
        return scratch_bytes(window, self.channels, shares)


def bind_float32(
    call: Call,
    shape: Shape,
    x: _Array,
    out: _Array,
    scratch: _Array,
    epilogue: Epilogue = PLAIN,
) -> Run:
    """Bind a float32 convolution of a node whose weights and bias are inputs 1 and 2."""
    bind = _bind_flat if shape.form in ("depthwise", "winograd") else _bind_packed
    return bind(call, shape, x, out, scratch, epilogue)


def _bind_flat(
    call: Call, shape: Shape, x: _Array, out: _Array, scratch: _Array, epilogue: Epilogue
) -> Run:  # fmt: skip
    """Bind a form that takes weights and bias as ONNX has them."""
    count, window = shape.groups * shape.each, shape.window
    threads = call.options.get("num_threads") or 1
    bias, told_bias = _kept(call, 2, "flat-bias", lambda b: _flat(b, count))
    weights, told = _kept(call, 1, "float32", _plain)
    rest = (weights, bias, out, window, scratch, threads, epilogue)
    if shape.form == "depthwise":
        return _in_order(told, told_bias, bind_depthwise(x, *rest))
    points, _ = _kept(call, 1, "points", pack_points)
    return _in_order(told_bias, bind_winograd(x, points, *rest))


def _bind_packed(
    call: Call, shape: Shape, x: _Array, out: _Array, scratch: _Array, epilogue: Epilogue
) -> Run:  # fmt: skip
    """Bind a form that takes weights and bias in row tiles."""
    groups, window, form = shape.groups, shape.window, shape.form
    threads, count = call.options.get("num_threads") or 1, groups * shape.each
    if form == "few":
        return _bind_few(call, shape, x, out, scratch, epilogue)
    bias, told_bias = _kept(
        call, 2, f"bias/{groups}", lambda b: pack_bias(b, count, groups)
    )
    run: Run
    if form == "dense":
        packed, told = _kept(
            call, 1, f"tiles/{groups}", lambda w: pack_weights(w, groups)
        )
        run = bind_dense(
            x, packed, bias, out, window, scratch, threads, epilogue=epilogue
        )
        return _in_order(told, told_bias, run)
    pointwise = form in ("pointwise", "thinned")
    slab = SLAB if pointwise else slab_of(window, shape.each)
    packed, told = _kept(
        call, 1, f"slabs/{groups}/{slab}", lambda w: pack_slabs(w, groups, slab)
    )
    rest = (groups, scratch, threads, epilogue)
    if form == "pointwise":
        run = bind_pointwise(x, packed, bias, out, *rest)
    elif form == "thinned":
        run = bind_thinned(x, packed, bias, out, window, *rest)
    else:
        run = bind_planes(x, packed, bias, out, window, *rest)
    return _in_order(told, told_bias, run)


def _bind_few(
    call: Call, shape: Shape, x: _Array, out: _Array, scratch: _Array, epilogue: Epilogue
) -> Run:  # fmt: skip
    """Bind the form of few pixels."""
    groups, threads = shape.groups, call.options.get("num_threads") or 1
    count = groups * shape.each
    bias, told_bias = _kept(
        call, 2, f"lanes/{groups}", lambda b: pack_lanes(_flat(b, count), groups)
    )
    packed, told = _kept(call, 1, f"lanes/{groups}", lambda w: pack_lanes(w, groups))
    run = bind_few(x, packed, bias, out, shape.window, scratch, threads, epilogue)
    return _in_order(told, told_bias, run)


def _plain(weights: _Array) -> _Array:
    return np.ascontiguousarray(weights, np.float32)


def _flat(bias: _Array | None, count: int) -> _Array:
    return np.zeros(count, np.float32) if bias is None else np.array(bias, np.float32)


def _in_order(*steps: Run | None) -> Run:
    return in_order([step for step in steps if step is not None])


def _kept(
    call: Call, index: int, tag: str, make: Callable[[Any], _Array]
) -> tuple[_Array, Run | None]:
    """Give an input in another layout, and what lays it out again if it may change."""
    given = call.input(index)
    if given is None:
        return make(None), None
    value = call.constant(index)
    if value is not None:
        return call.resident(tag, {index}, lambda: make(value)), None
    laid = np.array(make(given))

    def lay() -> None:
        laid[...] = make(given)

    return laid, lay
