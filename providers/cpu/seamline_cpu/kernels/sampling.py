"""What Resize takes from exact coordinates: nearest neighbours, and weighted taps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import attrs
import numpy as np

from seamline.provider import Array
from seamline.resized_axes import AxisPlan

__all__ = ["Filter", "nearest", "taps"]

_HALF = Fraction(1, 2)


def nearest(places: Sequence[Fraction], size: int, mode: str) -> Array:
    """Give the index of the sample nearest to each place, inside ``[0, size - 1]``."""
    rounds: dict[str, Callable[[Fraction], int]] = {
        "round_prefer_floor": lambda c: math.ceil(c - _HALF),
        "round_prefer_ceil": lambda c: math.floor(c + _HALF),
        "floor": math.floor,
        "ceil": math.ceil,
    }
    if mode not in rounds:
        raise ValueError(f"nearest_mode {mode!r} is none of {', '.join(rounds)}")
    index = rounds[mode]
    return np.array([min(max(index(c), 0), size - 1) for c in places], np.intp)


@attrs.frozen
class Filter:
    """
    How samples are weighted.

    Attributes
    ----------
    cubic
        Keys's cubic with coefficient ``a`` (four taps), or linear (two).
    antialias
        Stretch the filter by 1 / scale when there are fewer outputs than inputs.
    exclude_outside
        Drop taps beyond the edges, and make up for them; else the edge repeats.
    """

    cubic: bool
    a: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False

    def weights(self, distance: Array) -> Array:
        """Give the weight at a distance, in samples."""
        x: Array = np.abs(distance)
        if not self.cubic:
            return np.asarray(np.maximum(1 - x, 0))
        a = self.a
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def taps(
    places: Sequence[Fraction], axis: AxisPlan, how: Filter
) -> tuple[Array, Array]:
    """
    Give the samples and weights of each output element, both ``(taps, length)``.

    Weights are float64; indices lie inside the axis.
    """
    squeeze = min(float(axis.scale), 1.0) if how.antialias else 1.0
    reach = math.ceil((2 if how.cubic else 1) / squeeze)
    floors = np.array([math.floor(c) for c in places], np.intp)
    parts = np.array([float(c - math.floor(c)) for c in places])
    offsets = np.arange(1 - reach, reach + 1)[:, None]
    weights = how.weights((offsets - parts) * squeeze)
    index = floors + offsets
    if how.exclude_outside:
        weights = np.where((index < 0) | (index >= axis.size), 0.0, weights)
    if how.exclude_outside or squeeze != 1.0:
        weights = weights / weights.sum(axis=0)
    return np.clip(index, 0, axis.size - 1), weights
