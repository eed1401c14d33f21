"""Offsets for values that are not alive together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seamline.liveness import Interval, pack

INTERVALS = st.lists(
    st.builds(
        lambda first, length, size: Interval(first, first + length, size),
        st.integers(0, 12),
        st.integers(0, 5),
        st.integers(0, 300),
    ),
    max_size=14,
)


def _up(size):
    return -(-size // 64) * 64


@given(INTERVALS)
def test_no_two_values_alive_together_share_a_byte(intervals):
    packing = pack(intervals)
    placed = list(zip(intervals, packing.offsets, strict=True))
    for index, (one, at) in enumerate(placed):
        for other, there in placed[:index]:
            together = one.first <= other.last and other.first <= one.last
            if together and one.nbytes and other.nbytes:
                assert at + one.nbytes <= there or there + other.nbytes <= at


@given(INTERVALS)
def test_the_peak_is_the_bytes_alive_at_the_worst_moment_and_no_packing_is_smaller(
    intervals,
):
    packing = pack(intervals)
    alive = [
        sum(_up(i.nbytes) for i in intervals if i.first <= moment <= i.last)
        for moment in range(20)
    ]
    assert packing.peak == max(alive, default=0)
    assert packing.nbytes >= packing.peak


@given(INTERVALS)
def test_offsets_are_aligned_and_inside(intervals):
    packing = pack(intervals)
    for interval, offset in zip(intervals, packing.offsets, strict=True):
        assert offset % 64 == 0
        assert 0 <= offset <= max(packing.nbytes - interval.nbytes, 0)


@given(INTERVALS)
def test_packing_again_gives_the_same(intervals):
    assert pack(intervals) == pack(list(intervals))


def test_a_chain_of_equal_values_needs_two_of_them():
    chain = [Interval(i, i + 1, 1000) for i in range(50)]
    assert pack(chain).nbytes == 2 * _up(1000)


def test_a_freed_hole_is_used_by_the_value_that_fits_it_best():
    values = [
        Interval(0, 0, 256),
        Interval(0, 9, 64),
        Interval(0, 0, 128),
        Interval(0, 9, 64),
        Interval(1, 2, 128),
    ]
    offsets = pack(values).offsets
    assert offsets[4] == offsets[2]


def test_neighbouring_holes_become_one():
    values = [
        Interval(0, 0, 64),
        Interval(0, 0, 64),
        Interval(0, 9, 64),
        Interval(1, 2, 128),
    ]
    assert pack(values).nbytes == 192


def test_no_values_take_no_bytes():
    assert pack([]).nbytes == pack([]).peak == 0


def test_a_value_of_no_bytes_takes_none():
    assert pack([Interval(0, 5, 0), Interval(0, 5, 0)]).nbytes == 0
