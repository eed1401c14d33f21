"""
Strided parts of tensors, and the work that copies one to another.

Most operators that move data are such copies: parts of Concat, Split and Slice, Expand,
Tile, permutations of axes. Axes that both sides step through alike are joined; what is
left is one copy of the driver, a kernel that moves squares through shared memory, or one
that moves elements, of up to 8 bytes where neighbours lie together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from seamline.axes import strides_of
from seamline.provider import View
from seamline_cuda.broadcasting import Layout
from seamline_cuda.limits import LIMIT, bytes_of
from seamline_cuda.move_text import EDGE, THREADS, move, transposed
from seamline_cuda.works import CopyWork, KernelWork, Work

__all__ = ["Region", "moved"]

_SQUARE = 16  # of shorter axes a square would be empty for the most part


@attrs.frozen
class Region:
    """
    Elements of a tensor that are stepped through.

    Attributes
    ----------
    address
        Of the first element.
    width
        Bytes of an element.
    sizes, steps
        Along each axis; steps are in elements, may be 0 and may be negative.
    """

    address: int
    width: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]

    @classmethod
    def of(cls, view: View, sizes: Sequence[int] | None = None) -> Region:
        """Take the whole of a view, under another shape where one is given."""
        shape = tuple(view.shape if sizes is None else sizes)
        return cls(view.address, bytes_of(view.kind.dtype), shape, strides_of(shape))

    def cut(self, *parts: slice) -> Region:
        """Take slices of the first axes, within their bounds."""
        address, sizes, steps = self.address, list(self.sizes), list(self.steps)
        for axis, part in enumerate(parts):
            start, _, step = part.indices(self.sizes[axis])
            sizes[axis] = len(range(self.sizes[axis])[part])
            address += start * self.steps[axis] * self.width if sizes[axis] else 0
            steps[axis] = step * self.steps[axis]
        return Region(address, self.width, tuple(sizes), tuple(steps))

    def along(self, axis: int, start: int, stop: int) -> Region:
        """Take what lies between two places of one axis."""
        return self.cut(*[slice(None)] * axis, slice(start, stop))

    def permuted(self, order: Sequence[int]) -> Region:
        """Take its axes in another order."""
        return attrs.evolve(
            self,
            sizes=tuple(self.sizes[axis] for axis in order),
            steps=tuple(self.steps[axis] for axis in order),
        )

    def repeated(self, sizes: Sequence[int]) -> Region:
        """Broadcast to sizes, by ONNX's rules."""
        more = len(sizes) - len(self.sizes)
        steps = [0] * more + [
            0 if size == 1 else step
            for size, step in zip(self.sizes, self.steps, strict=True)
        ]
        for size, wanted in zip(self.sizes, sizes[more:], strict=True):
            if size not in (1, wanted):
                raise ValueError(f"{list(self.sizes)} does not spread to {list(sizes)}")
        return attrs.evolve(self, sizes=tuple(sizes), steps=tuple(steps))


def moved(source: Region, target: Region) -> list[Work]:
    """
    Give the work that copies a region to another of one shape, apart from it.

    Raises
    ------
    ValueError
        The shapes differ: the node's values are not those that it was planned with.
    """
    if source.sizes != target.sizes:
        raise ValueError(
            f"gives {list(source.sizes)}, the plan says {list(target.sizes)}"
        )
    count = math.prod(target.sizes)
    if not count:
        return []
    if count * max(target.width // 8, 1) >= LIMIT:
        raise ValueError(f"{count} elements of {target.width} bytes are too many")
    layout, width = _widest(source, target)
    if not layout.sizes or (layout.sizes, layout.strides) == (
        layout.sizes[:1],
        ((1,), (1,)),
    ):
        return [CopyWork(target.address, source.address, count * target.width)]
    return [
        _in_squares(source, target, layout, width)
        or _by_elements(source, target, layout, width)
    ]


def _widest(source: Region, target: Region) -> tuple[Layout, int]:
    """Join axes, and take as many neighbours for one element as lie together."""
    sizes, steps, width = target.sizes, [source.steps, target.steps], target.width
    if width > 8:  # a complex number moves as its halves
        parts, width = width // 8, 8
        sizes = (*sizes, parts)
        steps = [(*(step * parts for step in one), 1) for one in steps]
    layout = Layout.joined(sizes, steps)
    if not layout.sizes or any(one[-1] != 1 for one in layout.strides):
        return layout, width
    run = layout.sizes[-1] * width
    apart = [source.address, target.address, run]
    apart += [step * width for one in layout.strides for step in one[:-1]]
    wide = next(w for w in (8, 4, 2, 1) if w >= width and not any(n % w for n in apart))
    if wide == width or len(layout.sizes) == 1:
        return layout, width
    times = wide // width
    return Layout.joined(
        (*layout.sizes[:-1], layout.sizes[-1] // times),
        [(*(step // times for step in one[:-1]), 1) for one in layout.strides],
    ), wide


def _by_elements(
    source: Region, target: Region, layout: Layout, width: int
) -> KernelWork:
    flat = (layout.form(0) == "flat", layout.form(1) == "flat")
    numbers: list[int] = []
    if not all(flat):
        numbers += layout.sizes[1:]
    for lies, steps in zip(flat, layout.strides, strict=True):
        numbers += () if lies else steps
    kernel = move(width, len(layout.sizes), flat)
    arguments = (source.address, target.address, layout.count, *numbers)
    return KernelWork(kernel, arguments, layout.count)


def _in_squares(
    source: Region, target: Region, layout: Layout, width: int
) -> KernelWork | None:
    """Give the work by squares, where the last axis of one side is not that of the other."""
    down, across = layout.strides
    last = len(layout.sizes) - 1
    if across[last] != 1 or down[last] == 1 or 1 not in down:
        return None
    other = down.index(1)
    na, nb = layout.sizes[other], layout.sizes[last]
    if min(na, nb) < _SQUARE:
        return None
    kept = [axis for axis in range(last) if axis != other]
    squares = [-(-size // EDGE[width]) for size in (na, nb)]
    blocks = math.prod(squares) * math.prod(layout.sizes[axis] for axis in kept)
    arguments = (
        source.address, target.address, *squares, na, nb, down[last], across[other],
        *[layout.sizes[axis] for axis in kept[1:]],
        *[steps[axis] for steps in layout.strides for axis in kept],
    )  # fmt: skip
    kernel = transposed(width, len(kept))
    return KernelWork(kernel, arguments, blocks * THREADS, THREADS, blocks)
