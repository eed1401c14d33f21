"""RoiAlign and MaxRoiPool: a window of fixed size from each region of interest."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from seamline.provider import Array
from seamline.tensors import FLOATS
from seamline_cpu.table import TABLE

__all__: list[str] = []


def _line(
    start: float, extent: float, bins: int, samples: int, size: int
) -> tuple[Array, Array, Array, Array]:
    """
    Give, for each sample along an axis, its lower and upper element and their weights.

    Samples more than one element outside weigh nothing; others are held to the edge.
    """
    step = extent / bins
    inner = (np.arange(samples) + 0.5) * step / max(samples, 1)
    at = (start + np.arange(bins)[:, None] * step + inner).reshape(-1)
    inside = (at >= -1) & (at <= size)
    held = np.maximum(at, 0)
    low = np.minimum(np.nan_to_num(held).astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    share = np.where(low >= size - 1, 0, held - low)
    return low, high, np.where(inside, 1 - share, 0), np.where(inside, share, 0)


@TABLE.simple("RoiAlign", dtypes={0: FLOATS, 1: FLOATS})
def roi_align(
    x: Array,
    rois: Array,
    batch_indices: Array,
    *,
    coordinate_transformation_mode: str = "",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    since_version: int = 22,
) -> Array:
    """
    Average, or take the largest of, points sampled in each bin of each region.

    The largest is over the four weighted neighbours of every point, as ONNX's cases are.
    """
    default = "half_pixel" if since_version >= 16 else "output_half_pixel"
    half = (coordinate_transformation_mode or default) == "half_pixel"
    kind = np.float64 if x.dtype == np.float64 else np.float32
    wide = x.astype(kind)
    out = np.zeros((len(rois), x.shape[1], output_height, output_width), kind)
    for n, (roi, image) in enumerate(zip(rois, batch_indices, strict=True)):
        if not 0 <= image < x.shape[0]:
            raise IndexError(f"batch index {image} is outside {x.shape[0]} images")
        left, top, right, bottom = roi.astype(np.float64) * spatial_scale - half * 0.5
        extents = [bottom - top, right - left]
        if not half:
            extents = [max(extent, 1.0) for extent in extents]
        bins = (output_height, output_width)
        samples = [
            sampling_ratio if sampling_ratio > 0 else max(math.ceil(e / b), 0)
            for e, b in zip(extents, bins, strict=True)
        ]
        if 0 in samples:
            continue
        rows = _line(top, extents[0], bins[0], samples[0], x.shape[2])
        columns = _line(left, extents[1], bins[1], samples[1], x.shape[3])
        out[n] = _pooled(wide[image], rows, columns, (bins[0], samples[0], bins[1], samples[1]), mode)  # fmt: skip
    return out.astype(x.dtype)


def _pooled(
    plane: Array,
    rows: tuple[Array, Array, Array, Array],
    columns: tuple[Array, Array, Array, Array],
    grid: tuple[int, int, int, int],
    mode: str,
) -> Array:
    parts = []
    for y in (0, 1):
        for x in (0, 1):
            picked = plane[:, rows[y][:, None], columns[x]]
            weight = (rows[2 + y][:, None] * columns[2 + x]).astype(plane.dtype)
            parts.append((picked * weight).reshape(len(plane), *grid))
    if mode == "max":
        return np.asarray(np.max(np.maximum.reduce(parts), (2, 4)))
    return np.asarray(np.mean(sum(parts), (2, 4)))


def _rounded(x: float) -> int:
    """Round half away from zero, as C does."""
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


@TABLE.simple("MaxRoiPool", dtypes={0: FLOATS, 1: FLOATS})
def max_roi_pool(
    x: Array,
    rois: Array,
    *,
    pooled_shape: Sequence[int],
    spatial_scale: float = 1.0,
) -> Array:
    """Take the largest element of each bin; an empty bin gives 0 (Fast R-CNN)."""
    height, width = pooled_shape
    out = np.zeros((len(rois), x.shape[1], height, width), x.dtype)
    for n, roi in enumerate(rois.astype(np.float64)):
        image = int(roi[0])
        if not 0 <= image < x.shape[0]:
            raise IndexError(f"batch index {image} is outside {x.shape[0]} images")
        left, top, right, bottom = (_rounded(v * spatial_scale) for v in roi[1:])
        down, across = max(bottom - top + 1, 1), max(right - left + 1, 1)
        for i, j in np.ndindex(height, width):
            y0, y1 = (
                top + e for e in (i * down // height, -(-(i + 1) * down // height))
            )
            x0, x1 = (left + e for e in (j * across // width, -(-(j + 1) * across // width)))  # fmt: skip
            window = x[image, :, max(y0, 0) : max(y1, 0), max(x0, 0) : max(x1, 0)]
            if window.shape[1] and window.shape[2]:
                out[n, :, i, j] = window.max((1, 2))
    return out
