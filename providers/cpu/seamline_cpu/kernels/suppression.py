"""NonMaxSuppression: the best boxes of each class, without those that overlap them."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_cpu.table import TABLE

__all__ = ["corners", "overlaps"]


@TABLE.simple(
    "NonMaxSuppression", dtypes={0: ("float32",), 1: ("float32",)}, sizes_at_run=True
)
def non_max_suppression(
    boxes: Array,
    scores: Array,
    per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """
    Give ``[batch, class, box]`` of the boxes kept, the best of each class first.

    Of equal scores the lower box comes first. A box goes when its overlap with a kept one
    is above the threshold; scores must be above theirs, where one is given.
    """
    limit = 0 if per_class is None else int(per_class.reshape(-1)[0])
    most: Any = np.float32(0) if iou_threshold is None else iou_threshold.reshape(-1)[0]
    if not 0 <= most <= 1:
        raise ValueError(f"iou_threshold is {most}, outside [0, 1]")
    least = None if score_threshold is None else score_threshold.reshape(-1)[0]
    found: list[tuple[int, int, int]] = []
    if limit > 0:
        for batch, raw in enumerate(boxes):
            edges = corners(raw, centered=bool(center_point_box))
            for label, row in enumerate(scores[batch]):
                kept = _keep(edges, row, min(limit, len(row)), most, least)
                found += [(batch, label, box) for box in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def corners(boxes: Array, *, centered: bool) -> Array:
    """Give lower and upper edges, ``(n, 4)``, of boxes given by any diagonal or centre."""
    if centered:
        middle, half = boxes[:, :2], boxes[:, 2:] / np.float32(2)
        return np.concatenate([middle - half, middle + half], axis=1)
    one, other = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(one, other), np.maximum(one, other)], axis=1)


def overlaps(box: Array, others: Array) -> Array:
    """Give the intersection over the union of a box and each other; 0 for empty ones."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = np.maximum(sides, 0).prod(axis=1)
    areas: Array = (others[:, 2:] - others[:, :2]).prod(axis=1)
    union = (box[2:] - box[:2]).prod() + areas - common
    found: Array = np.zeros_like(common)
    np.divide(common, union, out=found, where=union > 0)
    return found


def _keep(edges: Array, scores: Array, limit: int, most: Any, least: Any) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[scores[order] > least]
    kept: list[int] = []
    while order.size and len(kept) < limit:
        best = order[0]
        kept.append(int(best))
        order = order[1:]
        order = order[overlaps(edges[best], edges[order]) <= most]
    return kept
