"""Cutting coloured nodes: legal cuts, and none that could be coarser."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from seamline.segmentation import cut


def _paths(before):
    """Give for each node all nodes that it depends on."""
    above = []
    for deps in before:
        found = set(deps)
        for dep in deps:
            found |= above[dep]
        above.append(found)
    return above


def _legal(segments, before):
    """Decide by the definition: convex, and in an order in which nothing reads ahead."""
    above = _paths(before)
    for segment in segments:
        inside = set(segment)
        for first, last in itertools.permutations(segment, 2):
            between = {n for n in range(len(before)) if first in above[n]} & above[last]
            if between - inside:
                return False
    done = set()
    left = [set(segment) for segment in segments]
    while left:
        ready = [s for s in left if all(set(before[n]) <= done | s for n in s)]
        if not ready:
            return False
        done |= ready[0]
        left.remove(ready[0])
    return True


def _in_order(segments, before):
    done = set()
    for segment in segments:
        for node in segment:
            assert set(before[node]) <= done
            done.add(node)


def _hold(colours, before):
    found = cut(colours, before)
    segments = found.segments
    assert found.complete
    assert sorted(n for s in segments for n in s) == list(range(len(colours)))
    _in_order(segments, before)
    assert _legal(segments, before)
    for segment in segments:
        assert len({colours[n] for n in segment}) == 1
        assert len(segment) == 1 or colours[segment[0]] is not None
    for one, other in itertools.combinations(segments, 2):
        if colours[one[0]] is not None and colours[one[0]] == colours[other[0]]:
            joined = [s for s in segments if s not in (one, other)] + [one + other]
            assert not _legal(joined, before), f"{one} and {other} could be one"


def _all_graphs(count):
    pairs = [(a, b) for b in range(count) for a in range(b)]
    for chosen in itertools.product((False, True), repeat=len(pairs)):
        before = [[] for _ in range(count)]
        for (a, b), is_edge in zip(pairs, chosen, strict=True):
            if is_edge:
                before[b].append(a)
        yield before


def test_every_graph_of_four_nodes_in_two_colours_is_cut_legally_and_maximally():
    for before in _all_graphs(4):
        for colours in itertools.product("AB", repeat=4):
            _hold(colours, before)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_larger_graphs_in_three_colours_are_cut_legally_and_maximally(data):
    count = data.draw(st.integers(1, 10))
    before = [
        data.draw(st.lists(st.integers(0, n - 1), max_size=3)) if n else []
        for n in range(count)
    ]
    _hold(
        data.draw(st.lists(st.sampled_from("ABC"), min_size=count, max_size=count)),
        before,
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_nodes_without_a_colour_stay_alone(data):
    count = data.draw(st.integers(1, 8))
    before = [
        data.draw(st.lists(st.integers(0, n - 1), max_size=2)) if n else []
        for n in range(count)
    ]
    colours = data.draw(
        st.lists(st.sampled_from(["A", "B", None]), min_size=count, max_size=count)
    )
    _hold(colours, before)


def test_nothing_is_cut_into_nothing():
    assert cut([], []).segments == ()


def test_groups_that_feed_each_other_are_split():
    # p -> q over two chains that share no path: {0, 3} and {1, 2} would wait on each other.
    segments = cut("ABAB", [[], [], [1], [0]]).segments
    assert _legal(segments, [[], [], [1], [0]])
    assert len(segments) == 3


def test_a_chain_of_thousands_in_turn_is_cut_into_as_many_segments():
    count = 3000
    before = [[n - 1] if n else [] for n in range(count)]
    found = cut("AB" * (count // 2), before)
    assert len(found.segments) == count
    assert found.complete


def test_the_cut_does_not_depend_on_names_of_colours():
    before = [[], [0], [0], [1, 2], [3]]
    first = cut("ABABA", before).segments
    assert cut("BABAB", before).segments == first
    assert (
        cut([("x", True), "y", ("x", True), "y", ("x", True)], before).segments == first
    )


def test_where_the_budget_runs_out_the_cut_is_legal_and_says_that_it_may_be_coarser(
    monkeypatch,
):
    monkeypatch.setattr("seamline.segmentation._JOIN_BUDGET", -1)
    graphs = itertools.product(_all_graphs(4), itertools.product("AB", repeat=4))
    stopped = 0
    for before, colours in graphs:
        found = cut(colours, before)
        _in_order(found.segments, before)
        stopped += not found.complete
    assert stopped
