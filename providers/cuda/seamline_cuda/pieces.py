"""Which granules of a range have pages: pieces that were mapped whole, sorted and apart."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import attrs

__all__ = ["Piece", "Pieces"]


@attrs.define(eq=False)
class Piece:
    """
    Granules that were given pages together.

    Attributes
    ----------
    users
        Values that lie on them.
    """

    start: int
    nbytes: int
    handle: int
    users: int = 0

    @property
    def end(self) -> int:
        """Give the address past the last byte."""
        return self.start + self.nbytes


@attrs.define(eq=False)
class Pieces:
    """
    The mapped pieces of a range.

    Examples
    --------
    >>> pieces = Pieces()
    >>> for start in (30, 0, 10): pieces.add(Piece(start, 10, handle=start))
    >>> list(pieces.runs()), [piece.start for piece in pieces.on(5, 10)]
    ([(0, 20), (30, 40)], [0, 10])
    """

    kept: list[Piece] = attrs.field(factory=list)

    def add(self, piece: Piece) -> None:
        """Note that a piece is mapped."""
        bisect.insort(self.kept, piece, key=lambda p: p.start)

    def remove(self, piece: Piece) -> None:
        """Note that a piece is not, or is about not to be."""
        self.kept.remove(piece)

    def on(self, start: int, nbytes: int) -> list[Piece]:
        """Give the pieces that a part of the range lies on, in order."""
        first = bisect.bisect_right(self.kept, start, key=lambda p: p.end)
        last = bisect.bisect_left(self.kept, start + nbytes, key=lambda p: p.start)
        return self.kept[first:last]

    def runs(self) -> Iterator[tuple[int, int]]:
        """Give stretches that have pages, over the pieces that touch."""
        start = end = -1
        for piece in self.kept:
            if piece.start != end:
                if end > start:
                    yield start, end
                start = piece.start
            end = piece.end
        if end > start:
            yield start, end
