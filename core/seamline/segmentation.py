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
from collections.abc import Hashable, Iterator, Sequence

import attrs

__all__ = ["Cut", "cut"]

_JOIN_BUDGET = 500_000_000  # words of bits looked at; about two seconds


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
    """
    Join segments until no two can be.

    Joining two segments only adds paths between the others, so a pair that could not be
    joined can be later only if one of it has grown: each is looked at once, and again
    when it has.
    """
    joining = _Joining(groups, colours, before)
    waiting = joining.repeated()
    heapq.heapify(waiting)
    while waiting:
        index = heapq.heappop(waiting)
        if joining.groups[index]:
            other = joining.partner(index)
            if other is not None:
                joining.join(other, index)
                heapq.heappush(waiting, index)
        if joining.spent > _JOIN_BUDGET:
            break
    kept = [group for group in joining.groups if group]
    if len(kept) < len(groups):
        kept = _ordered(kept, before)
    return Cut(tuple(tuple(group) for group in kept), complete=not waiting)


class _Joining:
    """Segments and the paths between them, as bits; a segment's number is its first one."""

    def __init__(
        self,
        groups: list[list[int]],
        colours: Sequence[Hashable],
        before: Sequence[Sequence[int]],
    ) -> None:
        self.groups = groups
        self.spent = 0
        self.of_colour: dict[Hashable, list[int]] = {}
        for index, group in enumerate(groups):
            if colours[group[0]] is not None:
                self.of_colour.setdefault(colours[group[0]], []).append(index)
        self.colour_of = [colours[group[0]] for group in groups]
        self.alike = {
            colour: sum(1 << index for index in found)
            for colour, found in self.of_colour.items()
        }
        self.parts = [1 << index for index in range(len(groups))]
        if self.repeated():
            self.parents = _parents(groups, before)
            self.above, self.below = _paths(self.parents)

    def repeated(self) -> list[int]:
        """Give the segments that are not alone with their colour."""
        many = [found for found in self.of_colour.values() if len(found) > 1]
        return [index for found in many for index in found]

    def partner(self, index: int) -> int | None:
        """Give the first segment that may be joined with one, if any."""
        alike = self.alike[self.colour_of[index]] & ~self.parts[index]
        free = alike & ~self.above[index] & ~self.below[index]
        if free:
            return _first(free)
        self.spent += len(self.groups) // 16
        return next(self._neighbours(index, alike), None)

    def _neighbours(self, index: int, alike: int) -> Iterator[int]:
        """Give segments alike that a path joins to this one, none through a third."""
        above, below = alike & self.above[index], alike & self.below[index]
        while above:  # the last ones first: an earlier one may lie behind them
            other = above.bit_length() - 1
            above &= ~self.parts[other] & ~self.above[other]
            if not self.below[other] & self.above[index]:
                yield other
        while below:
            other = _first(below)
            below &= ~self.parts[other] & ~self.below[other]
            if not self.above[other] & self.below[index]:
                yield other

    def join(self, gone: int, index: int) -> None:
        """Make one segment of two."""
        self.groups[index] = sorted(self.groups[index] + self.groups[gone])
        self.groups[gone] = []
        parts = self.parts[index] | self.parts[gone]
        above = (self.above[index] | self.above[gone]) & ~parts
        below = (self.below[index] | self.below[gone]) & ~parts
        self.parts[index], self.above[index], self.below[index] = parts, above, below
        self.alike[self.colour_of[index]] &= ~(1 << gone)
        for other, group in enumerate(self.groups):
            if not group or other == index:
                continue
            if above & self.parts[other]:
                self.below[other] |= below | parts
            elif below & self.parts[other]:
                self.above[other] |= above | parts
        self.spent += len(self.groups) * len(self.groups) // 64


def _first(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _paths(parents: Sequence[set[int]]) -> tuple[list[int], list[int]]:
    """Give for each segment, as bits, those it depends on and those that depend on it."""
    above: list[int] = []
    below = [0] * len(parents)
    for deps in parents:
        bits = 0
        for dep in deps:
            bits |= above[dep] | (1 << dep)
        above.append(bits)
    for index in range(len(parents) - 1, -1, -1):
        for dep in parents[index]:
            below[dep] |= below[index] | (1 << index)
    return above, below


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
