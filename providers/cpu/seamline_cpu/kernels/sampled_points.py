"""
Values of a tensor at points between its elements: GridSample, AffineGrid, DeformConv.

Padding and coefficients after ONNX's text,
https://onnx.ai/onnx/operators/onnx__GridSample.html.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seamline.provider import Array, NodeView
from seamline.tensors import FLOATS, NUMBERS, TensorType
from seamline_cpu.table import TABLE

__all__: list[str] = []

_SHARPNESS = -0.75  # Keys' cubic convolution, as PyTorch has it


def _wide(x: Array) -> Array:
    return x if x.dtype == np.float64 else x.astype(np.float32)


def _linear(x: Array) -> list[tuple[Array, Array]]:
    low = np.floor(x)
    return [(low, 1 - (x - low)), (low + 1, x - low)]


def _cubic(x: Array) -> list[tuple[Array, Array]]:
    low = np.floor(x)
    a, t = _SHARPNESS, x - low

    def outer(d: Array) -> Array:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    def inner(d: Array) -> Array:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    weights = (outer(t + 1), inner(t), inner(1 - t), outer(2 - t))
    return [(low + k - 1, weight) for k, weight in enumerate(weights)]


_TAPS: dict[str, Callable[[Array], list[tuple[Array, Array]]]] = {
    "linear": _linear,
    "bilinear": _linear,
    "cubic": _cubic,
    "bicubic": _cubic,
}


def _reflected(x: Array, low: float, high: float) -> Array:
    """Fold points into [low, high], back and forth."""
    span = high - low
    if span <= 0:
        return np.full_like(x, low)
    beyond = np.where(x < low, low - x, x - high)
    turns = np.trunc(beyond / span)
    rest = beyond - turns * span
    from_low = (x < low) == (turns % 2 == 0)
    folded = np.where(from_low, low + rest, high - rest)
    return np.where((x < low) | (x > high), folded, x)


def _padded(x: Array, size: int, padding: str, align: bool) -> Array:
    if padding == "border":
        return np.clip(x, 0, size - 1)
    if padding == "reflection":
        low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
        return _reflected(x, low, high)
    return x


def sample(
    x: Array,
    points: Sequence[Array],
    mode: str = "linear",
    padding: str = "zeros",
    align: bool = False,
) -> Array:
    """
    Give the values of every channel at points.

    Parameters
    ----------
    x
        ``[channels, *sizes]``.
    points
        Coordinates along each of the sizes, in elements; of one shape.

    Returns
    -------
    Array
        ``[channels, *shape of the points]``.
    """
    sizes = x.shape[1:]
    out = np.zeros((x.shape[0], *points[0].shape), x.dtype)
    if 0 in sizes:
        return out
    axes = [_TAPS[mode](_finite(p)) for p in points]
    for taps in itertools.product(*axes):
        weight = math.prod([w for _, w in taps], start=np.ones((), x.dtype))
        at = [
            _padded(place, size, padding, align)
            for (place, _), size in zip(taps, sizes, strict=True)
        ]
        picked, inside = _pick(x, at)
        out += picked * np.where(inside, weight, 0)
    return out


def _finite(x: Array) -> Array:
    """Put a NaN or an infinity far outside, where nothing is read."""
    return np.nan_to_num(x, nan=-1e9, posinf=1e9, neginf=-1e9)


def _pick(x: Array, points: Sequence[Array]) -> tuple[Array, Array]:
    """Give every channel's elements at whole points, and which of them exist."""
    inside = np.ones(points[0].shape, np.bool_)
    places: list[Any] = [slice(None)]
    for place, size in zip(points, x.shape[1:], strict=True):
        inside &= (place >= 0) & (place <= size - 1)
        places.append(np.clip(place, 0, size - 1).astype(np.int64))
    return x[tuple(places)], inside


def _rank_differs(node: NodeView) -> str | None:
    kind = node.inputs[0]
    if isinstance(kind, TensorType) and kind.shape is not None and len(kind.shape) < 3:
        return f"input 0 has {len(kind.shape)} axes; 3 or more are needed"
    mode = node.attributes.get("mode", "linear")
    known = mode == "nearest" or mode in _TAPS
    return None if known else f"mode {mode!r} is not known"


@TABLE.simple(
    "GridSample", dtypes={0: (*NUMBERS, "bool"), 1: FLOATS}, when=_rank_differs
)
def grid_sample(
    x: Array,
    grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:
    """Read ``x`` where the grid says, in [-1, 1] along each axis, the last axis first."""
    align, exact = bool(align_corners), mode == "nearest"
    wide = x.dtype == np.float64 or (x.dtype.kind in "iu" and x.dtype.itemsize > 2)
    kind = np.float64 if wide or grid.dtype == np.float64 else np.float32
    bordered = padding_mode == "border"
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    for values, places, result in zip(x, grid.astype(kind), out, strict=True):
        points = []
        for axis, size in enumerate(x.shape[2:]):
            p = places[..., x.ndim - 3 - axis]
            p = (p + 1) / 2 * (size - 1) if align else ((p + 1) * size - 1) / 2
            p = np.rint(p) if exact else p
            # A cubic's taps are held to the border one by one, as PyTorch does.
            held = (
                "zeros" if bordered and mode in ("cubic", "bicubic") else padding_mode
            )
            points.append(_padded(_finite(p), size, held, align))
        if not exact:
            result[...] = sample(values.astype(kind), points, mode, padding_mode, align)
        elif values.size:
            picked, inside = _pick(values, points)
            result[...] = np.where(inside, picked, x.dtype.type(0))
    return out


@TABLE.simple("AffineGrid", dtypes=FLOATS, host_inputs={1})
def affine_grid(theta: Array, size: Array, *, align_corners: int = 0) -> Array:
    """
    Give the grid of an affine map.

    Parameters
    ----------
    theta
        ``[batch, 2, 3]`` or ``[batch, 3, 4]``.
    size
        Of the tensor to be sampled for: batch, channels, sizes.
    """
    sizes = [int(n) for n in size[2:]]
    lines = []
    for n in sizes:
        at = np.arange(n, dtype=np.float64)
        whole = 2 * at / max(n - 1, 1) - 1
        lines.append(whole if align_corners else (2 * at + 1) / n - 1)
    mesh = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*mesh[::-1], np.ones(sizes)], -1)
    flat = points.reshape(-1, len(sizes) + 1)
    out = flat.astype(_wide(theta).dtype) @ _wide(theta).swapaxes(1, 2)
    return out.reshape(theta.shape[0], *sizes, len(sizes)).astype(theta.dtype)


def _not_flat(node: NodeView) -> str | None:
    kind = node.inputs[0]
    if isinstance(kind, TensorType) and kind.shape is not None and len(kind.shape) != 4:
        return f"input 0 has {len(kind.shape)} axes; 4 are implemented"
    return None


@TABLE.simple("DeformConv", dtypes=FLOATS, when=_not_flat)
def deform_conv(
    x: Array,
    weight: Array,
    offset: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    dilations: Sequence[int] = (1, 1),
    group: int = 1,
    kernel_shape: Sequence[int] = (),
    offset_group: int = 1,
    pads: Sequence[int] = (0, 0, 0, 0),
    strides: Sequence[int] = (1, 1),
) -> Array:
    """Convolve over elements that are moved by ``offset`` and weighed by ``mask``."""
    batch, channels = x.shape[:2]
    kh, kw = weight.shape[2:]
    rows, columns = offset.shape[2:]
    moved = _wide(offset).reshape(batch, offset_group, kh, kw, 2, rows, columns)
    y0 = (np.arange(rows) * strides[0] - pads[0])[:, None]
    x0 = np.arange(columns) * strides[1] - pads[1]
    y0 = y0 + (np.arange(kh) * dilations[0])[:, None, None, None]
    x0 = x0 + (np.arange(kw) * dilations[1])[:, None, None]
    wide, part = _wide(x), channels // offset_group
    taps = np.empty((batch, channels, kh, kw, rows, columns), wide.dtype)
    for b, g in np.ndindex(batch, offset_group):
        points = [y0 + moved[b, g, :, :, 0], x0 + moved[b, g, :, :, 1]]
        inside = slice(g * part, (g + 1) * part)
        taps[b, inside] = sample(wide[b, inside], points)
    if mask is not None:
        scale = _wide(mask).reshape(batch, offset_group, 1, kh, kw, rows, columns)
        taps = (taps.reshape(batch, offset_group, part, *scale.shape[3:]) * scale).reshape(taps.shape)  # fmt: skip
    left = _wide(weight).reshape(group, -1, channels // group * kh * kw)
    right = taps.reshape(batch, group, -1, rows * columns)
    out = (left @ right).reshape(batch, -1, rows, columns)
    if bias is not None:
        out += _wide(bias)[:, None, None]
    return out.astype(x.dtype)
