"""
Matrices of :mod:`seamline_cpu.winograd`, applied to vectors in registers.

Rows of a point and of its opposite differ in signs alone, so that both are one sum and one
difference. A vector of eight lanes is two halves that never mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from seamline_cpu.vectors import Vectors
from seamline_cpu.winograd import Method

__all__ = ["from_points", "to_points", "transposed"]


def _halves(lanes: Sequence[int]) -> list[int]:
    """Give a mask of both halves from the first's; from 4 on it is the other vector."""
    low = [n if n < 4 else n + 4 for n in lanes]
    return [*low, *[n + 4 for n in low]]


# A matrix of four vectors by four lanes is transposed by two turns of these.
_LOW, _HIGH = _halves((0, 4, 1, 5)), _halves((2, 6, 3, 7))
_FIRST, _SECOND = _halves((0, 1, 4, 5)), _halves((2, 3, 6, 7))


def transposed(v: Vectors, rows: Sequence[Any]) -> list[Any]:
    """Give the columns of four vectors' halves, each as a vector."""
    a, b, c, d = rows
    found: list[Any] = []
    for mask in (_LOW, _HIGH):
        p, q = v.shuffle(a, mask, b), v.shuffle(c, mask, d)
        found += [v.shuffle(p, pick, q) for pick in (_FIRST, _SECOND)]
    return found


def _sum(v: Vectors, values: Sequence[Any], factors: Sequence[Fraction]) -> Any:
    """Give a sum of vectors times constants, of which ones need no product."""
    total: Any = None
    terms = [(x, f) for x, f in zip(values, factors, strict=True) if f]
    for value, factor in sorted(terms, key=lambda term: term[1] != 1):
        if factor == 1:
            total = value if total is None else v.builder.fadd(total, value)
            continue
        times = v.constant(value.type, float(factor))
        if total is None:
            total = v.builder.fmul(value, times)
        else:
            total = v.multiply_add(value, times, total)
    return total


def to_points(v: Vectors, method: Method | None, inputs: Sequence[Any]) -> list[Any]:
    """Apply B': the rows of a point and of its opposite differ in odd columns' signs."""
    if method is None:
        return list(inputs)
    matrix = method.inputs
    found = [_sum(v, inputs, matrix[0])]
    for k in range(1, method.points - 1, 2):
        even, odd = (_sum(v, inputs[i::2], matrix[k][i::2]) for i in range(2))
        found += [v.builder.fadd(even, odd), v.builder.fsub(even, odd)]
    return [*found, _sum(v, inputs, matrix[-1])]


def from_points(v: Vectors, method: Method | None, points: Sequence[Any]) -> list[Any]:
    """Apply A', whose columns of opposite points differ in odd rows' signs."""
    if method is None:
        return list(points)
    first, *pairs, last = points
    sums = [v.builder.fadd(*pairs[i : i + 2]) for i in range(0, len(pairs), 2)]
    apart = [v.builder.fsub(*pairs[i : i + 2]) for i in range(0, len(pairs), 2)]
    found = []
    for i, row in enumerate(method.outputs):
        mixed = apart if i % 2 else sums
        found.append(_sum(v, [first, *mixed, last], [row[0], *row[1:-1:2], row[-1]]))
    return found
