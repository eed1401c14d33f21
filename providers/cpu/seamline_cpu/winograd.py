"""
Convolutions of three by three by fewer products: Winograd's method in float32.

Four neighbouring outputs of a filter of three taps are bilinear in three taps and six
inputs. Take five points and infinity; ``y = A' [(G g) * (B' d)]`` with G and A the powers
at the points, three and four of them, and B' the inverse transposed of their Vandermonde
matrix: 6 products instead of 12. Along both axes, sixteen outputs take 36 instead of 144.
The products of all channels are 36 matrix products, one for each pair of points.

**What it costs in digits.** Outputs are differences of larger sums, so rounding grows with
the matrices' entries. The points 0, 5/8, -5/8, 3/2, -3/2 are nearly the best of few bits,
and all entries of A and B are exact in float32: the error is about twice that of direct
sums of as many channels, where the usual 0, 1, -1, 2, -2 lose a whole digit. It depends on
the largest products around, not on each output's own: it is below :data:`GROWTH` times the
rounding of a sum of all channels and some twenty terms more, times the sum over channels of
the largest input of a tile times the largest weight of a window.

**Infinity and NaN** would reach all outputs of a tile. An output that is not finite is
therefore a sign that its tile is to be computed directly. None can hide: each product of
the definition is a combination of the tile's products, in one of which its input stands.

S. Winograd, "Arithmetic Complexity of Computations", 1980; A. Lavin and S. Gray, "Fast
Algorithms for Convolutional Neural Networks", 2016, for filters along two axes; B. Barabasz
and others, "Error Analysis and Improving the Accuracy of Winograd Convolution", 2020.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

__all__ = ["GROWTH", "INPUTS", "OUTPUTS", "POINTS", "TILE", "WEIGHTS", "transformed"]

TAPS = 3
TILE = 4  #: outputs of a tile along an axis
_FINITE = tuple(map(Fraction, ("0", "5/8", "-5/8", "3/2", "-3/2")))
POINTS = len(_FINITE) + 1  #: along an axis

Matrix = tuple[tuple[Fraction, ...], ...]


def _from_roots(roots: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """Give the coefficients, lowest first, of the polynomial that is 0 at ``roots``."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        found = [
            a - root * b for a, b in zip(shifted, [*found, Fraction(0)], strict=True)
        ]
    return tuple(found)


def _others(point: Fraction) -> tuple[Fraction, ...]:
    return tuple(other for other in _FINITE if other != point)


def _powers(count: int) -> Matrix:
    """Give each point's powers; at infinity, the highest alone."""
    rows = [tuple(point**i for i in range(count)) for point in _FINITE]
    return (*rows, (Fraction(0),) * (count - 1) + (Fraction(1),))


def _inputs() -> Matrix:
    rows = [(*_from_roots(_others(point)), Fraction(0)) for point in _FINITE]
    return (*rows, _from_roots(_FINITE))


def _weights() -> Matrix:
    """Give G: powers, divided by what the inputs' rows were multiplied by."""
    scales = [_at(_from_roots(_others(point)), point) for point in _FINITE]
    rows = _powers(TAPS)
    scaled = [
        tuple(x / scale for x in row)
        for row, scale in zip(rows[:-1], scales, strict=True)
    ]
    return (*scaled, rows[-1])


def _at(coefficients: tuple[Fraction, ...], point: Fraction) -> Fraction:
    return sum((c * point**i for i, c in enumerate(coefficients)), Fraction(0))


#: B', ``(POINTS, POINTS)``: applied to neighbouring inputs.
INPUTS: Matrix = _inputs()
#: A', ``(TILE, POINTS)``: applied to the points' sums.
OUTPUTS: Matrix = tuple(zip(*_powers(TILE), strict=True))


#: G, ``(POINTS, TAPS)``: applied to a filter's taps.
WEIGHTS: Matrix = _weights()


def _growth() -> float:
    sizes = [
        sum(map(abs, taken)) * sum(map(abs, given))
        for taken, given in zip(INPUTS, WEIGHTS, strict=True)
    ]
    rows = [
        sum(abs(a) * size for a, size in zip(row, sizes, strict=True))
        for row in OUTPUTS
    ]
    return float(max(rows) ** 2)  # by both axes


#: How much larger than the products of the definition a tile's terms are at most, together.
GROWTH = _growth()


def transformed(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Give ``G w G'`` of windows ``(..., 3, 3)``, as float64 ``(..., POINTS, POINTS)``."""
    g = np.array([[float(x) for x in row] for row in WEIGHTS])
    wide = weights.astype(np.float64)
    found: np.ndarray[Any, Any] = np.einsum("ia,...ab,jb->...ij", g, wide, g)
    return found
