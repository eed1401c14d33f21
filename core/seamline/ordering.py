"""
Topological order that keeps the file's order wherever that is legal.

The standard wants nodes sorted; exporters in use write them unsorted all the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from seamline.errors import ModelError
from seamline.graph import Node

__all__ = ["sorted_nodes"]


def sorted_nodes(
    nodes: Sequence[Node], file: str, *, strict: bool = False
) -> tuple[Node, ...]:
    """
    Give the nodes of one graph so that each stands after those that it reads.

    Raises
    ------
    ModelError
        The nodes form a cycle, which is named; or ``strict`` is asked for and a node
        stands before one that it reads.
    """
    producer: dict[str, int] = {}
    for index, node in enumerate(nodes):
        producer.update(dict.fromkeys(node.outputs, index))
    producer.pop("", None)
    get = producer.get
    needs = [
        [i for name in node.reads if (i := get(name)) is not None] for node in nodes
    ]
    late = next((i for i, found in enumerate(needs) if found and max(found) >= i), None)
    if late is None:
        return tuple(nodes)
    order = _stable_order(needs)
    if len(order) < len(nodes):
        raise _cycle(nodes, needs, set(order), file)
    if strict:
        name = next(n for n in nodes[late].reads if get(n, -1) >= late)
        raise ModelError(
            file,
            f"node {nodes[late].name!r}",
            f"it stands before {nodes[producer[name]].name!r}, which gives its input "
            f"{name!r}; the standard wants nodes sorted (strict=True)",
        )
    return tuple(nodes[i] for i in order)


def _stable_order(needs: Sequence[Sequence[int]]) -> list[int]:
    """Give the lowest ready node first; nodes of a cycle, and after one, are left out."""
    waiting = [len(found) for found in needs]
    readers: list[list[int]] = [[] for _ in needs]
    for index, found in enumerate(needs):
        for source in found:
            readers[source].append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    return order


def _cycle(
    nodes: Sequence[Node], needs: Sequence[Sequence[int]], done: set[int], file: str
) -> ModelError:
    """Walk back from any node left over; a place met twice closes the cycle."""
    index = next(i for i in range(len(nodes)) if i not in done)
    met: dict[int, int] = {}
    path: list[int] = []
    while index not in met:
        met[index] = len(path)
        path.append(index)
        index = next(i for i in needs[index] if i not in done)
    ring = [nodes[i].name for i in reversed(path[met[index] :])]
    shown = (
        ring if len(ring) <= 12 else [*ring[:6], f"({len(ring) - 12} more)", *ring[-6:]]
    )
    return ModelError(
        file,
        f"node {ring[0]!r}",
        f"its inputs wait for its own output: {' -> '.join([*shown, ring[0]])}",
    )
