"""
Axes, cuts and steps as ONNX counts them, in plain integers, for any provider.

Negative axes count from the back, a Slice's ends may lie anywhere, a Split's parts need not
be equal. What a node says about them becomes non-negative numbers here, once.
"""

from __future__ import annotations

from collections.abc import Sequence

from seamline.provider import Array

__all__ = [
    "axes_of",
    "axis_of",
    "equal_parts",
    "integers",
    "pads_of",
    "slices",
    "strides_of",
]


def axis_of(axis: int, rank: int) -> int:
    """
    Count an axis from the front.

    Raises
    ------
    ValueError
        The axis lies outside ``[-rank, rank - 1]``.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is outside a tensor of {rank} dimensions")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Count axes from the front; an axis given twice is an error."""
    found = tuple([axis_of(int(axis), rank) for axis in axes])
    if len(set(found)) != len(found):
        raise ValueError(f"axes {list(axes)} name one axis twice")
    return found


def integers(values: Array | None) -> tuple[int, ...] | None:
    """Give a host array's elements as Python integers; None stays None."""
    return None if values is None else tuple([int(v) for v in values.ravel()])


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """
    Give the distances, in elements, between neighbours along each axis.

    Examples
    --------
    >>> strides_of((2, 3, 4))
    (12, 4, 1)
    """
    found = [1]
    for size in reversed(shape[1:]):
        found.append(found[-1] * size)
    return tuple(reversed(found))[: len(shape)]


def slices(
    sizes: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> tuple[slice, ...]:
    """
    Give Python's slices for ONNX's.

    Examples
    --------
    >>> slices((6,), [-1], [-(2**63)], None, [-2])
    (slice(5, None, -2),)
    """
    found = [slice(None)] * len(sizes)
    places = range(len(starts)) if axes is None else axes_of(axes, len(sizes))
    strides = steps or (1,) * len(starts)
    for axis, start, end, step in zip(places, starts, ends, strides, strict=True):
        found[axis] = _walk(sizes[axis], start, end, step)
    return tuple(found)


def _walk(size: int, start: int, end: int, step: int) -> slice:
    if step == 0:
        raise ValueError("a step of 0 leads nowhere")
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first = min(max(start + size if start < 0 else start, max(low, 0)), high)
    last = min(max(end + size if end < 0 else end, low), high)
    if (last - first) * step <= 0:
        return slice(0, 0)
    return slice(first, None if last < 0 else last, step)


def equal_parts(size: int, count: int, *, uneven: bool) -> tuple[int, ...]:
    """
    Give the sizes of parts: the size over the count, rounded up, and the last the rest.

    Raises
    ------
    ValueError
        The rest is negative, or the parts must be equal and are not.

    Examples
    --------
    >>> equal_parts(10, 3, uneven=True)
    (4, 4, 2)
    """
    part = -(-size // count)
    rest = size - part * (count - 1)
    if rest < 0 or (rest != part and not uneven):
        raise ValueError(f"{size} elements do not make {count} parts of {part}")
    return (*[part] * (count - 1), rest)


def pads_of(
    pads: Sequence[int], axes: Sequence[int] | None, rank: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """
    Give what Pad adds before and after every axis; a negative number crops.

    Examples
    --------
    >>> pads_of([1, 2], [-1], 3)
    ((0, 0, 1), (0, 0, 2))
    """
    places = range(rank) if axes is None else axes_of(axes, rank)
    if len(pads) != 2 * len(places):
        raise ValueError(f"{len(pads)} pads for {len(places)} axes")
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(places):
        before[axis], after[axis] = pads[place], pads[len(places) + place]
    return tuple(before), tuple(after)
