"""
Convolutions by fewer products: Winograd's method in float32, along one axis or two.

Four neighbouring outputs of a filter of r taps are bilinear in r taps and ``n = r + 3``
inputs. Take n - 1 points and infinity; ``y = A' [(G g) * (B' d)]`` with G and A the powers
at the points, r and four of them, and B' the inverse transposed of their Vandermonde matrix.
Three taps take 6 products instead of 12, five take 8 instead of 20, and windows of three by
three, by the method along both axes, 36 instead of 144. The products of all channels are
matrix products, one for each point or pair of points.

**What it costs in digits.** Outputs are differences of larger sums, so rounding grows with
the matrices' entries. The points taken are nearly the best of few bits, and all entries of A
and B are exact in float32: the error is about twice that of direct sums of as many channels
for three taps, along one axis or two, and three times for five, where the usual points 0, 1,
-1, 2, -2 lose a whole digit. It depends on the largest products around, not on each output's
own: it is below a method's ``growth`` (of both axes, their product) times the rounding of a
sum of all channels and some twenty terms more, times the sum over channels of the largest
input of a tile times the largest weight of a window.

**Infinity and NaN** would reach all outputs of a tile. An output that is not finite is
therefore a sign that its tile is to be computed directly. None can hide: each product of
the definition is a combination of the tile's products, in one of which its input stands.

S. Winograd, "Arithmetic Complexity of Computations", 1980; A. Lavin and S. Gray, "Fast
Algorithms for Convolutional Neural Networks", 2016, for filters along two axes; B. Barabasz
and others, "Error Analysis and Improving the Accuracy of Winograd Convolution", 2020.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import attrs
import numpy as np

__all__ = ["TILE", "Matrix", "Method", "method_of", "transformed"]

TILE = 4  #: outputs of a tile along an axis
Matrix = tuple[tuple[Fraction, ...], ...]
_Roots = tuple[Fraction, ...]
#: By taps: zero, then pairs of opposite points.
_FINITE: Mapping[int, str] = {
    3: "0 5/8 -5/8 3/2 -3/2",
    5: "0 1/2 -1/2 7/8 -7/8 3/2 -3/2",
}


@attrs.frozen
class Method:
    """
    The matrices for ``TILE`` outputs of a filter along one axis.

    Attributes
    ----------
    inputs
        B', ``(points, points)``: applied to neighbouring inputs.
    weights
        G, ``(points, taps)``: applied to a filter's taps.
    outputs
        A', ``(TILE, points)``: applied to the points' sums.
    """

    taps: int
    inputs: Matrix
    weights: Matrix
    outputs: Matrix

    @property
    def points(self) -> int:
        """Give how many products four outputs take."""
        return len(self.inputs)

    @property
    def growth(self) -> float:
        """Bound a tile's terms, added up, by the largest input times the largest weight."""
        sizes = [
            sum(map(abs, taken)) * sum(map(abs, given))
            for taken, given in zip(self.inputs, self.weights, strict=True)
        ]
        rows = [
            sum(abs(a) * size for a, size in zip(row, sizes, strict=True))
            for row in self.outputs
        ]
        return float(max(rows))


@functools.cache
def method_of(taps: int) -> Method:
    """
    Give the method for a filter.

    Raises
    ------
    KeyError
        No points were chosen for so many taps.
    """
    finite = tuple(map(Fraction, _FINITE[taps].split()))
    others = [tuple(q for q in finite if q != p) for p in finite]
    inputs = [(*_from_roots(roots), Fraction(0)) for roots in others]
    # What the inputs' rows were multiplied by is taken from the weights'.
    scales = [_at(_from_roots(q), p) for q, p in zip(others, finite, strict=True)]
    scales.append(Fraction(1))  # infinity's
    weights = [
        tuple(x / scale for x in row)
        for row, scale in zip(_powers(finite, taps), scales, strict=True)
    ]
    outputs = tuple(zip(*_powers(finite, TILE), strict=True))
    return Method(taps, (*inputs, _from_roots(finite)), tuple(weights), outputs)


def _from_roots(roots: _Roots) -> tuple[Fraction, ...]:
    """Give the coefficients, lowest first, of the polynomial that is 0 at ``roots``."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        found = [
            a - root * b for a, b in zip(shifted, [*found, Fraction(0)], strict=True)
        ]
    return tuple(found)


def _at(coefficients: tuple[Fraction, ...], point: Fraction) -> Fraction:
    return sum([c * Fraction(point**i) for i, c in enumerate(coefficients)], Fraction())


def _powers(finite: _Roots, count: int) -> Matrix:
    """Give each point's powers; at infinity, the highest alone."""
    rows = [tuple(point**i for i in range(count)) for point in finite]
    return (*rows, (Fraction(0),) * (count - 1) + (Fraction(1),))


def transformed(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """
    Apply G to windows ``(..., kh, kw)`` along both axes; to none of one tap.

    Returns
    -------
    ndarray
        float64 ``(..., points down, points along)``.
    """
    found: np.ndarray[Any, Any] = weights.astype(np.float64)
    for axis in (-2, -1):
        taps = found.shape[axis]
        if taps > 1:
            g = np.array([[float(x) for x in row] for row in method_of(taps).weights])
            with np.errstate(invalid="ignore"):  # weights need not be finite
                found = np.moveaxis(np.moveaxis(found, axis, -1) @ g.T, -1, axis)
    return found
