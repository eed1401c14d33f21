"""
Where the elements of each row lie, when some axes of a tensor are folded away.

A *row* is all that goes into one result. Axes that lie next to each other and are treated
alike are joined, and axes of size 1 dropped, so that almost every tensor has one or two
steps for its rows and one for the elements of a row:

>>> Folds.of((2, 3, 4, 5), (2, 3))
Folds(kept=((6, 20),), folded=((20, 1),))
>>> Folds.of((2, 3, 4), (1,))
Folds(kept=((2, 12), (4, 1)), folded=((3, 4),))

Where the innermost axis is kept, neighbouring rows are neighbours in memory, and threads
that run side by side take a row each: :attr:`Folds.side_by_side`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import attrs

__all__ = ["Folds", "axes_within", "taken_apart"]

_Axes = tuple[tuple[int, int], ...]  # of each axis its size and its step, in elements


@attrs.frozen
class Folds:
    """
    A tensor as rows.

    Attributes
    ----------
    kept
        Size and step, in elements, of each axis that rows are counted by, outermost first.
    folded
        The same of each axis inside a row.
    """

    kept: _Axes
    folded: _Axes

    @classmethod
    def of(cls, shape: Sequence[int], axes: Collection[int]) -> Folds:
        """
        Fold axes, each given from the front, of a C-contiguous tensor.

        Parameters
        ----------
        shape
            Its sizes.
        axes
            What is folded away; none leaves rows of one element.
        """
        joined: list[tuple[int, int, bool]] = []
        step = math.prod(shape)
        for axis, size in enumerate(shape):
            step //= max(size, 1)
            inside = axis in axes
            if size == 1:
                continue
            if joined and joined[-1][2] == inside:
                joined[-1] = (joined[-1][0] * size, step, inside)
            else:
                joined.append((size, step, inside))
        return cls(
            tuple((size, step) for size, step, inside in joined if not inside),
            tuple((size, step) for size, step, inside in joined if inside),
        )

    @property
    def rows(self) -> int:
        """Count the rows."""
        return math.prod(size for size, _ in self.kept)

    @property
    def length(self) -> int:
        """Count the elements of a row."""
        return math.prod(size for size, _ in self.folded)

    @property
    def side_by_side(self) -> bool:
        """Tell whether neighbouring rows are neighbours in memory."""
        inner = min((step for _, step in self.folded), default=1)
        return any(step < inner for _, step in self.kept)

    @property
    def ranks(self) -> tuple[int, int]:
        """Give how many axes are kept and folded, which the text of a kernel depends on."""
        return len(self.kept), len(self.folded)

    def numbers(self) -> tuple[int, ...]:
        """Give a kernel's arguments: for both kinds of axes sizes but the first, then steps."""
        found: list[int] = []
        for axes in (self.kept, self.folded):
            found += [size for size, _ in axes[1:]]
            found += [step for _, step in axes]
        return tuple(found)

    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Give name and type of each of :meth:`numbers`."""
        found: list[tuple[str, str]] = []
        for name, rank in zip(("row", "in"), self.ranks, strict=True):
            found += [(f"{name}_size{axis}", "uint32") for axis in range(1, rank)]
            found += [(f"{name}_step{axis}", "int64") for axis in range(rank)]
        return tuple(found)


def taken_apart(
    index: str, name: str, rank: int, result: str, u: str = ""
) -> list[str]:
    """
    Write the lines that make an offset in memory of an index over a few axes.

    Parameters
    ----------
    index
        The name that holds the index, below 2**32.
    name
        What the names of sizes and steps begin with.
    result
        The name to make.
    u
        An ending for names that are made on the way.
    """
    if not rank:
        return [f"{result} = np.int64(0)"]
    lines, left, terms = [], index, []
    for axis in range(rank - 1, 0, -1):
        over = f"{name}_over{axis}{u}"
        divided = f"quotient32(np.uint32({left}), {name}_size{axis})"
        lines.append(f"{over} = np.int64({divided})")
        rest = f"({left} - {over} * np.int64({name}_size{axis}))"
        terms.append(f"{rest} * {name}_step{axis}")
        left = over
    terms.append(f"{left} * {name}_step0")
    return [*lines, f"{result} = {' + '.join(reversed(terms))}"]


def axes_within(given: Sequence[int] | None, rank: int) -> tuple[int, ...] | None:
    """
    Give axes from the front, each once; None where one lies outside of the rank.

    >>> axes_within((-1, 0), 3), axes_within((3,), 3)
    ((0, 2), None)
    """
    if any(not -rank <= axis < rank for axis in given or ()):
        return None
    return tuple(sorted({axis % rank for axis in given or ()}))
