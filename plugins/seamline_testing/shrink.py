"""
Smaller inputs on which two lists of providers still part ways.

First shapes, then values. Axes of one size often belong together (what MatMul sums over,
a batch), so all axes of a size are cut at once, and then each by itself; a cut that the
operator does not take, or after which both agree, is undone. Values become zero, one or
whole where that keeps the difference. Every step is tried by running it, so the result
depends on nothing that is assumed about the operator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from seamline.errors import SeamlineError
from seamline.provider import Array
from seamline_testing.excerpts import Excerpt
from seamline_testing.values import widened

__all__ = ["Shrunk", "shrink"]

Axis = tuple[str, int]  #: a value's name, and one of its axes


@attrs.frozen(eq=False)
class Shrunk:
    """
    The smallest excerpt found.

    Attributes
    ----------
    tries
        How many smaller ones were run.
    finished
        False where time ran out first.
    """

    excerpt: Excerpt
    tries: int
    finished: bool


@attrs.define(eq=False)
class _Search:
    """The best so far, and the means to better it."""

    best: Excerpt
    diverges: Callable[[Excerpt], bool]
    until: float
    tries: int = 0

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until

    def take(self, candidate: Excerpt) -> bool:
        """Keep a candidate if both lists run it and still differ."""
        if self.over:
            return False
        self.tries += 1
        try:
            found = self.diverges(candidate)
        except SeamlineError:  # the operator does not take it
            return False
        if found:
            self.best = candidate
        return found


def shrink(
    excerpt: Excerpt, diverges: Callable[[Excerpt], bool], seconds: float = 20.0
) -> Shrunk:
    """
    Shrink an excerpt as far as the difference stays.

    Parameters
    ----------
    diverges
        Runs both lists and tells whether they differ; an error of seamline's means that
        the excerpt cannot be run.
    seconds
        After which the best so far is given.
    """
    search = _Search(excerpt, diverges, time.monotonic() + seconds)
    changed = True
    while changed and not search.over:
        changed = any([_cut_together(search), _cut_apart(search)])
    for name in (*search.best.fed, *search.best.constants):
        _simplify(search, name)
    return Shrunk(search.best, search.tries, not search.over)


# --- shapes ---------------------------------------------------------------------------


def _cut_together(search: _Search) -> bool:
    """Cut all axes of one size, the largest size first."""
    changed = False
    sizes = sorted({size for _, size in _axes(search.best)}, reverse=True)
    for size in sizes:
        while size > 1:
            axes = [axis for axis, found in _axes(search.best) if found == size]
            left = _cut(search, axes, size)
            changed |= left < size
            if left == size:
                break
            size = left
    return changed


def _cut_apart(search: _Search) -> bool:
    """Cut each axis by itself: one that is a batch, or is broadcast."""
    changed = False
    for axis, size in list(_axes(search.best)):
        while size > 1:
            left = _cut(search, [axis], size)
            changed |= left < size
            if left == size:
                break
            size = left
    return changed


def _cut(search: _Search, axes: list[Axis], size: int) -> int:
    """Try to keep a part of some axes; give the size that is left."""
    for part in _parts(size):
        if search.take(_with_part(search.best, axes, part)):
            return int(part.stop - part.start)
    return size


def _parts(size: int) -> Iterator[slice]:
    """Give what may be kept of an axis, the smallest first."""
    half = size // 2
    kept = [(0, 1), (size - 1, size), (0, half), (size - half, size)]
    kept += [(0, size - 1), (1, size)]
    yield from (slice(*ends) for ends in dict.fromkeys(kept))


def _axes(excerpt: Excerpt) -> Iterator[tuple[Axis, int]]:
    for name, value in _arrays(excerpt):
        yield from (((name, axis), size) for axis, size in enumerate(value.shape))


def _arrays(excerpt: Excerpt) -> Iterator[tuple[str, Array]]:
    for name, value in (*excerpt.fed.items(), *excerpt.constants.items()):
        if not isinstance(value, list):  # elements of a sequence stay as they are
            yield name, value


def _with_part(excerpt: Excerpt, axes: list[Axis], part: slice) -> Excerpt:
    whole = dict(_arrays(excerpt))
    cut = {name: whole[name] for name, _ in axes}
    for name, axis in axes:
        cut[name] = cut[name][(slice(None),) * axis + (part,)]
    return _with(excerpt, {name: value.copy() for name, value in cut.items()})


def _with(excerpt: Excerpt, values: Mapping[str, Array]) -> Excerpt:
    def changed(old: Mapping[str, Any]) -> dict[str, Any]:
        return {name: values.get(name, value) for name, value in old.items()}

    return attrs.evolve(
        excerpt, fed=changed(excerpt.fed), constants=changed(excerpt.constants)
    )


# --- values ---------------------------------------------------------------------------


def _simplify(search: _Search, name: str) -> None:
    """Make a value's elements simple: all at once, then by halves."""
    value = dict(_arrays(search.best)).get(name)
    if value is None or value.dtype.kind in "bO" or not value.size:
        return
    for simple in _simpler(value):
        if np.array_equal(simple, value):
            return
        if search.take(_with(search.best, {name: simple})):
            return
    _zero_parts(search, name, 0, value.size)


def _simpler(value: Array) -> Iterator[Array]:
    """Give simpler values of the same type, the simplest first."""
    yield np.zeros_like(value)
    yield np.ones_like(value)
    if value.dtype.kind not in "iu":
        yield np.rint(widened(value)).astype(value.dtype)


def _zero_parts(search: _Search, name: str, start: int, stop: int) -> None:
    """Set a range of elements to zero, or each half of it where the whole may not be."""
    stack = [(start, stop)]
    while stack and not search.over:
        start, stop = stack.pop()
        flat = dict(_arrays(search.best))[name].copy()
        flat.reshape(-1)[start:stop] = 0
        if search.take(_with(search.best, {name: flat})) or stop - start <= 1:
            continue
        middle = (start + stop) // 2
        stack += [(start, middle), (middle, stop)]
