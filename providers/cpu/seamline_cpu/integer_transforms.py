"""
Short correlations by fewer products, exact in integers: Toom and Cook's method, transposed.

Outputs of a filter of r taps, ``y[i] = sum_s g[s] d[i + s]`` for i below m, are bilinear in
r taps and ``n = m + r - 1`` inputs. Take n points, and evaluate the taps as a polynomial
there (``V_r g``); transform the inputs by the inverse of the points' Vandermonde matrix;
multiply point by point; then ``y = V_m' p``. That is n products instead of ``m r``: four
outputs of four taps take 7 instead of 16, of three taps 6 instead of 12, of five 8 instead
of 20. Two or three such filters side by side are again a filter, of run by run, and two
runs of it take 3 products instead of 4, or 4 instead of 6: eight outputs of twelve taps by
28 products instead of 96.

**Why it is exact.** The points 0, 1, -1, 2, -2, 1/2 and -1/2, as pairs ``(p, q)``, and
infinity make every matrix rational with small numbers. Each row k of the inputs' transform
is multiplied by the least ``N_k`` that makes it whole; a byte less a byte lies within
255, and transformed inputs and weights stay within 16 bits (:meth:`Nested.headroom`).
Products are then summed over channels in 32 bits that wrap, which is exact modulo 2**32,
and so is what follows: ``N_k`` is odd times a power of two. Odd numbers have an inverse
modulo 2**32. The powers of two are brought to the largest, 2**e, and taken off at the end
by a shift, for which the result itself must lie within ``2**(31 - e)``.

A. Toom, "The complexity of a scheme of functional elements ...", 1963; S. Winograd,
"Arithmetic Complexity of Computations", 1980, for the transposition.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import attrs

__all__ = ["LARGEST", "Nested", "Transform", "nested", "transform_of"]

LARGEST = 255  #: of a byte less a byte
#: Points p / q; the last, infinity, always stands at the end.
_POINTS = ((0, 1), (1, 1), (-1, 1), (2, 1), (-2, 1), (1, 2), (-1, 2))
_INFINITY = (1, 0)

Matrix = tuple[tuple[int, ...], ...]


@attrs.frozen
class Transform:
    """
    The matrices for m outputs of a filter of ``taps`` taps.

    Attributes
    ----------
    inputs
        ``(n, n)``, applied to neighbouring inputs.
    weights, outputs
        ``(n, taps)`` and ``(n, m)``: values of the powers at the points.
    scales
        What point k's sums are multiplied by, modulo 2**32.
    shift
        The outputs come out times ``2**shift``.
    """

    taps: int
    inputs: Matrix
    weights: Matrix
    outputs: Matrix
    scales: tuple[int, ...]
    shift: int

    @property
    def points(self) -> int:
        """Give n."""
        return len(self.inputs)

    @property
    def count(self) -> int:
        """Give m."""
        return len(self.outputs[0])


@functools.cache
def transform_of(taps: int, outputs: int) -> Transform:
    """
    Give the transform of a filter; of one tap and one output, the product itself.

    Raises
    ------
    ValueError
        There are not enough points for so many taps.
    """
    count = taps + outputs - 1
    if not 0 < count <= len(_POINTS) + 1:
        raise ValueError(
            f"{taps} taps need {count} points; there are {len(_POINTS) + 1}"
        )
    points = (*_POINTS[: count - 1], _INFINITY)
    rows = _transposed(_inverse(_powers(points, count)))
    wholes = [math.lcm(*[x.denominator for x in row]) for row in rows]
    twos = [(n & -n).bit_length() - 1 for n in wholes]
    most = max(twos)
    scales = [
        pow(n >> e, -1, 1 << 32) * (1 << (most - e)) % (1 << 32)
        for n, e in zip(wholes, twos, strict=True)
    ]
    inputs = tuple(
        tuple(int(x * n) for x in row) for row, n in zip(rows, wholes, strict=True)
    )
    return Transform(
        taps,
        inputs,
        _powers(points, taps),
        _powers(points, outputs),
        tuple(scales),
        most,
    )


@attrs.frozen
class Nested:
    """
    A row of a window, as short filters side by side.

    Attributes
    ----------
    inner, outer
        Of a short filter, and of the filters' runs.
    filters
        How many short filters are left side by side.
    """

    inner: Transform
    outer: Transform
    filters: int

    @classmethod
    def of(cls, taps: int, runs: int, filters: int = 1) -> Nested:
        """Give short filters of some taps, of which runs of one, two or three are joined."""
        outer = transform_of(runs, 2 if runs > 1 else 1)
        return cls(transform_of(taps, 4), outer, filters)

    @property
    def points(self) -> int:
        """Give the products for one group of outputs, channel and filter that is left."""
        return self.inner.points * self.outer.points

    @property
    def outputs(self) -> int:
        """Give the neighbours that are made at once."""
        return self.inner.count * self.outer.count

    @property
    def shift(self) -> int:
        """Give the power of two that the outputs come out with."""
        return self.inner.shift + self.outer.shift

    def headroom(self) -> tuple[int, int]:
        """Give the largest transformed input and weight, of which int16 holds 32767."""
        sizes = [
            max(sum(map(abs, row)) for row in one)
            * max(sum(map(abs, row)) for row in other)
            for one, other in (
                (self.inner.inputs, self.outer.inputs),
                (self.inner.weights, self.outer.weights),
            )
        ]
        return LARGEST * sizes[0], LARGEST * sizes[1]


@functools.cache
def nested(taps: int) -> Nested:
    """Give how a row of at least three taps is cut."""
    inner = taps if 3 <= taps <= 5 else 4
    filters = -(-taps // inner)
    return (
        Nested.of(inner, filters) if filters in (2, 3) else Nested.of(inner, 1, filters)
    )


def _powers(points: tuple[tuple[int, int], ...], count: int) -> Matrix:
    return tuple(
        tuple(p**i * q ** (count - 1 - i) for i in range(count)) for p, q in points
    )


def _transposed(rows: list[list[Fraction]]) -> list[list[Fraction]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _inverse(matrix: Matrix) -> list[list[Fraction]]:
    """Invert by Gauss and Jordan, in fractions."""
    size = len(matrix)
    rows = [
        [Fraction(x) for x in row] + [Fraction(i == j) for j in range(size)]
        for i, row in enumerate(matrix)
    ]
    for i in range(size):
        pivot = next(j for j in range(i, size) if rows[j][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(size):
            if j != i and rows[j][i]:
                rows[j] = [
                    a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)
                ]
    return [row[size:] for row in rows]
