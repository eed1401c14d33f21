"""
The quickest of cuBLASLt's algorithms for a product, measured on the device it is for.

The library's heuristic names several, the one it thinks best first. For matrices that keep
a device busy it is right; for small ones, such as those of a few sentences or tokens, others
may take half the time. Each is recorded as a graph of several products over memory, a workspace
and a stream of its own, so that what is measured is the device's time, and what other
threads submit meanwhile is neither recorded nor touched. Another than the first is taken
where it is clearly quicker.

What was found for sizes, types, and how matrices lie holds for the process, so that all its
sessions compute the same bits.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from typing import TypeAlias

import attrs

from seamline.provider import VirtualMemoryError
from seamline_cuda.errors import CudaError
from seamline_cuda.memory import CudaMemory
from seamline_cuda.product_descriptors import addresses_of, alignment_of, width_of
from seamline_cuda.streams import CudaGraph, Event, Stream
from seamline_cuda.works import Matrix, ProductWork

__all__ = ["Places", "key_of", "quickest", "searched"]

_MOST = 64 << 20  #: bytes of all matrices; larger products keep a device busy
_TIMES = 10  #: products of a graph
_ROUNDS = 3
_CLEARLY = 0.95  #: share of the first one's time
_EVEN = 256

#: Addresses of a, b, addend, target and workspace.
Places: TypeAlias = tuple[int, int, int, int, int]
Submit: TypeAlias = Callable[[int, Places, Stream], None]

_known: dict[Hashable, int] = {}
_lock = threading.Lock()


def key_of(work: ProductWork, device: str) -> Hashable:
    """Give what a choice is for: everything of a product but its addresses and numbers."""
    plain = Matrix(0, 0)
    evens = tuple(alignment_of(address) for _, address in addresses_of(work))
    matrices = tuple(
        (m.leading, m.swapped, m.stride) for m in (work.a, work.b, work.target, work.addend or plain)
    )  # fmt: skip
    sizes = attrs.evolve(
        work, a=plain, b=plain, target=plain, addend=None, bias=int(bool(work.bias)),
        alpha=1.0, beta=float(bool(work.beta)),
    )  # fmt: skip
    return device, sizes, matrices, evens


def searched(
    memory: CudaMemory, work: ProductWork, count: int, workspace: int, submit: Submit
) -> int:
    """
    Give the number of the algorithm to take; the calling thread has the device.

    Parameters
    ----------
    count
        Algorithms that there are.
    workspace
        Bytes that they use.
    submit
        Submits the product by one of them, over other places and to another stream.
    """
    key = key_of(work, f"{memory.gpu.name} {memory.device}")
    with _lock:
        if key not in _known:
            _known[key] = _measured(memory, work, count, workspace, submit)
        return _known[key]


def quickest(times: Sequence[float]) -> int:
    """Give the number of the least time, but the first where none is clearly less."""
    best = min(range(len(times)), key=times.__getitem__)
    return best if times[best] < _CLEARLY * times[0] else 0


def _measured(
    memory: CudaMemory, work: ProductWork, count: int, workspace: int, submit: Submit
) -> int:
    sizes = [*_extents(work), workspace]
    if sum(sizes) - workspace > _MOST:
        return 0
    try:
        room = memory.allocate(sum(sizes))
    except VirtualMemoryError:
        return 0
    with ExitStack() as stack:
        stack.callback(room.close)
        a, b, c, d, e = (room.address + sum(sizes[:index]) for index in range(5))
        stream = Stream.open("a search")
        stack.callback(stream.close)
        events = []
        for _ in range(2):
            events.append(Event.open(timed=True))
            stack.callback(events[-1].close)
        graphs: list[CudaGraph | None] = []
        for which in range(count):
            made = _recorded(memory, stream, submit, which, (a, b, c, d, e))
            graphs.append(made)
            if made is not None:
                stack.callback(made.close)
        stack.callback(stream.synchronize)
        return quickest(_times(memory, stream, graphs, events))


def _recorded(
    memory: CudaMemory, stream: Stream, submit: Submit, which: int, places: Places
) -> CudaGraph | None:
    """Record one algorithm several times; None where the library refuses it."""
    try:
        with memory.gate.capture("a search"), stream.captured() as made:
            for _ in range(_TIMES):
                submit(which, places, stream)
    except CudaError:
        return None
    return made[0]


def _times(
    memory: CudaMemory, stream: Stream, graphs: Sequence[CudaGraph | None],
    events: Sequence[Event],
) -> list[float]:  # fmt: skip
    """Give the least seconds of each; one that was refused takes for ever."""
    begun, done = events
    times = [math.inf] * len(graphs)
    for again in range(_ROUNDS + 1):  # the first warms up
        for which, graph in enumerate(graphs):
            if graph is None:
                continue
            stream.record(begun)
            graph.launch(stream)
            stream.record(done)
            memory.gpu.waited(done.synchronize)
            if again:
                times[which] = min(times[which], done.since(begun))
    return times


def _extents(work: ProductWork) -> list[int]:
    """Give the bytes of a, b, addend and target."""
    result = width_of(work.result or work.dtype)
    width = width_of(work.dtype)
    addend = work.addend or work.target
    found = []
    for matrix, rows, columns, item in (
        (work.a, work.rows, work.depth, width), (work.b, work.depth, work.columns, width),
        (addend, work.rows, work.columns, result),
        (work.target, work.rows, work.columns, result),
    ):  # fmt: skip
        stored = columns if matrix.swapped else rows
        elements = (work.batch - 1) * matrix.stride + stored * matrix.leading
        found.append(-(-elements * item // _EVEN) * _EVEN)
    return found
