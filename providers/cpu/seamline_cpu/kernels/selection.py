"""Compiled selection of the first k of each row, without sorting the rest."""

from __future__ import annotations

from typing import Any

from seamline_cpu.jit import jit

__all__ = ["select_rows"]


@jit
def _better(a: Any, b: Any, largest: bool) -> bool:
    """Tell whether a value comes strictly before another; NaN counts as the largest."""
    if largest:
        return bool(a > b or (a != a and b == b))
    return bool(a < b or (b != b and a == a))


@jit
def _before(row: Any, i: int, j: int, largest: bool) -> bool:
    """Tell whether place i comes before place j: by value, then by place."""
    a, b = row[i], row[j]
    if a > b:
        return largest
    if a < b:
        return not largest
    if a == b or (a != a and b != b):
        return i < j
    return bool((a != a) == largest)  # one is NaN, the largest


@jit
def _sink(row: Any, heap: Any, size: int, largest: bool) -> None:
    """Let the top of a heap sink to where nothing below comes after it."""
    at = 0
    place = heap[0]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(row, heap[child], heap[child + 1], largest):
            child += 1
        if not _before(row, place, heap[child], largest):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = place


@jit
def _rise(row: Any, heap: Any, at: int, largest: bool) -> None:
    place = heap[at]
    while at > 0 and _before(row, heap[(at - 1) // 2], place, largest):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = place


@jit
def select_rows(rows: Any, found: Any, largest: bool) -> None:
    """
    Find the places of the k largest or smallest of each row, in order.

    A heap holds the best k so far, the worst of them on top. Equal values stand by place,
    so a later one never displaces an earlier one.

    Parameters
    ----------
    rows
        ``(R, n)``, of a type with an order; NaN counts as the largest.
    found
        ``(R, k)`` intp, filled here; k is at most n.
    """
    k = found.shape[1]
    if k == 0:
        return
    for r in range(rows.shape[0]):
        row = rows[r]
        heap = found[r]
        for i in range(k):
            heap[i] = i
            _rise(row, heap, i, largest)
        worst = row[heap[0]]
        for i in range(k, row.shape[0]):
            # The first test passes NaN on, which is on no side of anything.
            kept = row[i] <= worst if largest else row[i] >= worst
            if not kept and _better(row[i], worst, largest):
                heap[0] = i
                _sink(row, heap, k, largest)
                worst = row[heap[0]]
        for size in range(k - 1, 0, -1):
            last = heap[0]
            heap[0] = heap[size]
            heap[size] = last
            _sink(row, heap, size, largest)
