"""
Cut coloured nodes into segments: convex, orderable, and no two left that could be one.

A segment holds nodes of one colour (one provider). Two rules make a set of segments
legal: no path between two nodes of a segment leaves it, and the segments can be put in an
order. Both hold whenever every segment is a run of one topological order, so the cut is
made by writing such an order down: take every node of one colour that is ready, and what
becomes ready by that, then turn to another colour. That is linear in nodes and edges.

One such order may still keep two segments apart that could be joined: ``a`` taken early
though only a later segment of its colour needs company. So segments are joined afterwards:
two of one colour may be joined exactly if no path runs between them through a third. Paths
are sets of segments held as the bits of Python integers, which keeps a chain of 20,000
alternating nodes within a second. Joining stops after a budget of work, which small plans
never reach; the plan says whether it did.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence

import attrs

__all__ = ["Cut", "cut"]

_JOIN_BUDGET = 50_000_000  # segments times joins times segments; about a second


@attrs.frozen
class Cut:
    """
    Segments as tuples of node positions, in an order that may be run.

    Attributes
    ----------
    complete
        No two segments could be joined; False only where the budget ran out.
    """

    segments: tuple[tuple[int, ...], ...]
    complete: bool = True


def cut(colours: Sequence[Hashable], before: Sequence[Sequence[int]]) -> Cut:
    """
    Cut nodes, given in a topological order, into segments.

    Parameters
    ----------
    colours
        One for each node; None: a segment of its own.
    before
        For each node the positions of nodes that it depends on.

    Examples
    --------
    >>> cut("ABA", [[], [], [1]]).segments
    ((1,), (0, 2))
    """
    groups = _greedy(colours, before)
    return _join(groups, colours, before)


def _greedy(
    colours: Sequence[Hashable], before: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Write down a topological order in runs of one colour."""
    waiting = [len(set(deps)) for deps in before]
    after: list[list[int]] = [[] for _ in colours]
    for node, deps in enumerate(before):
        for dep in set(deps):
            after[dep].append(node)
    ready: dict[Hashable, list[int]] = {}
    keys = [
        (node,) if colour is None else colour for node, colour in enumerate(colours)
    ]
    heads: list[int] = []  # candidates for the next run's first node
    for node, count in enumerate(waiting):
        if not count:
            heapq.heappush(ready.setdefault(keys[node], []), node)
            heapq.heappush(heads, node)
    groups: list[list[int]] = []
    taken = [False] * len(colours)
    while heads:
        first = heapq.heappop(heads)
        if taken[first]:
            continue
        queue, group = ready[keys[first]], []
        while queue:
            node = heapq.heappop(queue)
            taken[node] = True
            group.append(node)
            for later in after[node]:
                waiting[later] -= 1
                if not waiting[later]:
                    heapq.heappush(ready.setdefault(keys[later], []), later)
                    heapq.heappush(heads, later)
        groups.append(sorted(group))
    return groups


def _join(
    groups: list[list[int]],
    colours: Sequence[Hashable],
    before: Sequence[Sequence[int]],
) -> Cut:
    spent = 0
    while True:
        pair = _joinable(groups, colours, before)
        if pair is None:
            return Cut(tuple(tuple(group) for group in groups))
        spent += len(groups) * len(groups)
        if spent > _JOIN_BUDGET:
            return Cut(tuple(tuple(group) for group in groups), complete=False)
        first, second = pair
        groups[second] = sorted(groups[first] + groups[second])
        groups[first] = []
        groups = _ordered([group for group in groups if group], before)


def _joinable(
    groups: list[list[int]],
    colours: Sequence[Hashable],
    before: Sequence[Sequence[int]],
) -> tuple[int, int] | None:
    """Give two segments that may be joined, the first such pair in order."""
    seen: dict[Hashable, int] = {}
    if not any(_repeats(seen, colours[group[0]]) for group in groups):
        return None
    parents = _parents(groups, before)
    above: list[int] = []  # segments that a segment depends on, through any path
    below = [0] * len(groups)
    for deps in parents:
        bits = 0
        for dep in deps:
            bits |= above[dep] | (1 << dep)
        above.append(bits)
    for index in range(len(groups) - 1, -1, -1):
        for dep in parents[index]:
            below[dep] |= below[index] | (1 << index)
    of_colour: dict[Hashable, int] = {}
    for index, group in enumerate(groups):
        colour = colours[group[0]]
        if colour is None:
            continue
        earlier = of_colour.get(colour, 0)
        free = earlier & ~above[index]
        if free:
            return (free & -free).bit_length() - 1, index
        for dep in sorted(parents[index]):
            if earlier >> dep & 1 and not below[dep] & above[index]:
                return dep, index
        of_colour[colour] = earlier | (1 << index)
    return None


def _repeats(seen: dict[Hashable, int], colour: Hashable) -> bool:
    if colour is None:
        return False
    seen[colour] = seen.get(colour, 0) + 1
    return seen[colour] > 1


def _parents(
    groups: list[list[int]], before: Sequence[Sequence[int]]
) -> list[set[int]]:
    home = {node: index for index, group in enumerate(groups) for node in group}
    parents: list[set[int]] = []
    for index, group in enumerate(groups):
        deps = {home[dep] for node in group for dep in before[node]}
        deps.discard(index)
        parents.append(deps)
    return parents


def _ordered(
    groups: list[list[int]], before: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Sort segments topologically, by first node where the order is free."""
    parents = _parents(groups, before)
    waiting = [len(deps) for deps in parents]
    after: list[list[int]] = [[] for _ in groups]
    for index, deps in enumerate(parents):
        for dep in deps:
            after[dep].append(index)
    ready = [(groups[i][0], i) for i, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(groups[index])
        for later in after[index]:
            waiting[later] -= 1
            if not waiting[later]:
                heapq.heappush(ready, (groups[later][0], later))
    return order
