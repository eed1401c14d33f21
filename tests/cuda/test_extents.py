"""Free parts and mapped pieces of a range, against a plain list of which units are free."""

from __future__ import annotations

import random

import pytest

from seamline_cuda.extents import Extents
from seamline_cuda.pieces import Piece, Pieces

SIZE = 60


def runs(free):
    """Give the stretches of free units."""
    found, start = [], None
    for at, is_free in enumerate([*free, False]):
        if is_free and start is None:
            start = at
        elif not is_free and start is not None:
            found.append((start, at))
            start = None
    return found


def test_any_order_of_taking_and_giving_keeps_the_parts_merged():
    drawn = random.Random(11)
    extents, free, taken = Extents.of(0, SIZE), [True] * SIZE, []
    for _ in range(600):
        want, step = drawn.randint(1, 9), drawn.choice([1, 2, 4])
        place = extents.first_fit(want, step)
        fits = [
            at for at in range(0, SIZE - want + 1, step) if all(free[at : at + want])
        ]
        assert place == (fits[0] if fits else None)
        if place is not None and drawn.random() < 0.6:
            extents.take(place, want)
            free[place : place + want] = [False] * want
            taken.append((place, want))
        elif taken:
            start, count = taken.pop(drawn.randrange(len(taken)))
            extents.give(start, count)
            free[start : start + count] = [True] * count
        assert extents.parts == runs(free)


def test_a_place_within_runs_is_the_first_that_fits_there():
    drawn = random.Random(12)
    for _ in range(300):
        free = [drawn.random() < 0.7 for _ in range(SIZE)]
        mapped = [drawn.random() < 0.7 for _ in range(SIZE)]
        want = drawn.randint(1, 6)
        extents = Extents(runs(free))
        both = [a and b for a, b in zip(free, mapped, strict=True)]
        fits = [at for at in range(SIZE - want + 1) if all(both[at : at + want])]
        found = extents.first_within(runs(mapped), want, 1)
        assert found == (fits[0] if fits else None)


@pytest.mark.parametrize(("start", "count"), [(0, 5), (3, 4), (10, 1), (9, 3), (20, 1)])
def test_what_is_not_all_free_cannot_be_taken(start, count):
    extents = Extents([(1, 4), (8, 10)])
    with pytest.raises(ValueError, match="is not free"):
        extents.take(start, count)
    assert extents.parts == [(1, 4), (8, 10)]


def test_pieces_say_what_they_hold():
    pieces = Pieces()
    for start in (40, 0, 10):
        pieces.add(Piece(start, 10, handle=start))
    assert list(pieces.runs()) == [(0, 20), (40, 50)]
    assert [p.start for p in pieces.on(9, 2)] == [0, 10]
    assert [p.start for p in pieces.on(10, 10)] == [10]
    assert pieces.on(20, 20) == []
    pieces.remove(pieces.kept[1])
    assert list(pieces.runs()) == [(0, 10), (40, 50)]
