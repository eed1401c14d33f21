"""Geometry of what grows: arithmetic held to counting every byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamline.geometry import Geometry, runs_of


@st.composite
def grown(draw):
    """Draw a geometry, lengths for it, and a granule."""
    sizes = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    axis = draw(st.integers(0, len(sizes) - 1))
    made = Geometry(sizes, axis, draw(st.sampled_from([1, 2, 4])))
    count = draw(st.sampled_from([1, made.sequences]))
    lengths = draw(st.lists(st.integers(0, made.room), min_size=count, max_size=count))
    return made, lengths, draw(st.sampled_from([1, 3, 8, 16, 64]))


def live_bytes(made, lengths):
    """Count by hand: whether each byte of the room belongs to a live entry."""
    live = np.zeros((*made.sizes, made.itemsize), bool)
    for index in np.ndindex(made.sizes):
        sequence = index[0] if made.axis else 0
        length = lengths[sequence] if len(lengths) == made.sequences else max(lengths)
        live[index] = index[made.axis] < length
    return live.reshape(-1)


@settings(deadline=None)
@given(grown())
def test_committed_granules_are_those_with_a_live_byte(case):
    made, lengths, granule = case
    live = live_bytes(made, lengths)
    padded = np.zeros(-(-len(live) // granule) * granule, bool)
    padded[: len(live)] = live
    want = padded.reshape(-1, granule).any(axis=1)
    np.testing.assert_array_equal(made.mask(lengths, granule), want)
    assert made.committed(lengths, granule) == want.sum() * granule
    assert made.live(lengths) == live.sum()


@settings(deadline=None)
@given(grown())
def test_spans_are_the_live_bytes_in_order(case):
    made, lengths, _ = case
    found = np.zeros(made.nbytes, bool)
    end = 0
    for first, last in made.spans(lengths):
        assert end <= first < last
        found[first:last], end = True, last
    np.testing.assert_array_equal(found, live_bytes(made, lengths))


@settings(deadline=None)
@given(grown())
def test_no_granule_more_is_needed_up_to_what_is_covered_and_one_past_it(case):
    made, lengths, granule = case
    length = min(lengths)
    upto = made.covered(length, granule)
    held = made.mask(length, granule)
    assert length <= upto <= made.room
    assert not (made.mask(upto, granule) & ~held).any()
    if upto < made.room:
        assert (made.mask(upto + 1, granule) & ~held).any()


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=20))
def test_runs_cover_what_is_true_and_nothing_else(values):
    mask = np.array(values, bool)
    found = np.zeros(len(mask), bool)
    for first, end in runs_of(mask):
        assert not found[max(first - 1, 0) : end].any()
        found[first:end] = True
    np.testing.assert_array_equal(found, mask)


GRANULE = 2 << 20


@pytest.mark.parametrize(
    ("sizes", "axis", "floor", "crossover"),
    [
        ((1, 8, 32768, 128), 2, 8, 8192),  # head-major
        ((1, 8, 32768, 64), 2, 8, 16384),
        ((1, 32768, 8, 128), 1, 1, 1024),  # sequence-major
        ((32768, 2, 48, 8, 128), 0, 1, 11),  # token-major: all layers' keys and values
    ],
)
def test_floors_and_crossovers_of_the_layouts_of_a_decoder(
    sizes, axis, floor, crossover
):
    made = Geometry(sizes, axis, 2)
    assert made.committed(1, GRANULE) == floor * GRANULE
    assert made.crossover(GRANULE) == crossover
    if crossover < made.room:
        # There the first granule of a window is full, and the next entry needs another.
        assert made.committed(crossover + 1, GRANULE) > made.committed(1, GRANULE)
