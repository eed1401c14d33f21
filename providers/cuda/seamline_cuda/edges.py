"""
Copies at the edges of a recording: memory that the host shares, and words that say how far.

Each replay has a number. The device counts replays by itself, and writes the number of the
present one into one word when it has read what came from the host, and into another when
everything for the host is there. The host knows how many it has launched, so a look at a
word says whether it has to wait: for a result nearly always, for room nearly never.

Waiting for a result spins for about as long as short work takes, and then leaves it to the
driver, which spins too, but does not hold the interpreter, and raises what failed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

import attrs
import numpy as np

from seamline.errors import KernelError
from seamline.provider import Array, Buffer
from seamline.serving import waited
from seamline.tensors import TensorType, nbytes_of, numpy_dtype
from seamline_cuda.driver import call
from seamline_cuda.edge_kernel import EDGE, GIVEN, TAKEN, edge_arguments
from seamline_cuda.errors import CudaError
from seamline_cuda.loading import Loader
from seamline_cuda.mailbox import MOST, SMALL, threads_for
from seamline_cuda.memory import CudaMemory, CudaView

__all__ = ["EDGE_LIMIT", "CudaEdges", "Placed", "placed"]

EDGE_LIMIT = (
    128 << 10
)  #: bytes of a value; more take longer to copy once more than what surrounds a copy
_MAPPED = 2  #: CU_MEMHOSTALLOC_DEVICEMAP
_LINE = 128  # bytes; what two sides write does not share one
_WORDS = 2 * _LINE
_LOOKS = 600  # at a word before the driver waits: some 40 microseconds
_LAST = 1 << 31  # replays before the count begins anew, long before its word is full

Submit: TypeAlias = Callable[[], object]


@attrs.frozen(eq=False)
class Placed:
    """A value's place on the device and its room on the host, by address, and that as an array."""

    device: int
    host: int
    nbytes: int
    array: Array

    @property
    def by_words(self) -> bool:
        """Tell whether a kernel of one block copies it as quickly as an engine would."""
        return self.nbytes <= SMALL and not (self.nbytes | self.device) % 4

    def engine(self, stream: Any, *, to_host: bool) -> Submit:
        """Give what has a copy engine move it."""
        if not self.nbytes:
            return lambda: None
        if to_host:
            given = ("cuMemcpyDtoHAsync", self.host, self.device, self.nbytes, stream)
        else:
            given = ("cuMemcpyHtoDAsync", self.device, self.host, self.nbytes, stream)
        return lambda: call(*given)


def placed(view: CudaView, address: int) -> Placed:
    """Show a room for a value as an array of its type."""
    size = nbytes_of(view.kind)
    raw = (ctypes.c_uint8 * max(size, 1)).from_address(address)
    flat = np.ctypeslib.as_array(raw)[:size].view(numpy_dtype(view.kind.dtype))
    return Placed(view.address, address, size, flat.reshape(view.kind.sizes))


def _offsets(views: Sequence[CudaView]) -> Iterator[int]:
    """Give where the words end and each room begins, and then the bytes of all."""
    size = _WORDS
    for view in views:
        yield size
        size += -(-max(view.nbytes, 1) // _LINE) * _LINE
    yield size


@attrs.define(eq=False)
class CudaEdges:
    """
    What one recording shares with the host for the copies at its edges.

    Attributes
    ----------
    inward, outward
        Values that come from the host, and that go to it.
    launched
        Replays since the count began.
    """

    memory: CudaMemory
    name: str
    inward: tuple[Placed, ...] = ()
    outward: tuple[Placed, ...] = ()
    launched: int = 0
    _shared: int = 0
    _buffer: Buffer | None = None
    _own: Any = None
    _taken: Any = None
    _given: Any = None
    _read: int = 0
    _before: int = 0  # replays before the count began

    @classmethod
    def open(
        cls,
        memory: CudaMemory,
        name: str,
        inward: Sequence[CudaView],
        outward: Sequence[CudaView],
    ) -> CudaEdges:
        """
        Take shared memory for these values.

        Raises
        ------
        CudaError, VirtualMemoryError
            There is none. Nothing is kept of what was taken before.
        """
        made = cls(memory, name)
        *offsets, size = _offsets((*inward, *outward))
        with ExitStack() as stack:
            with memory.gpu.here():
                made._shared = int(call("cuMemHostAlloc", size, _MAPPED))
            stack.callback(made._give_back)
            made._buffer = memory.allocate(4)
            stack.callback(made._buffer.close)
            made._own = memory.view(made._buffer, 0, TensorType("uint32", (1,)))
            ctypes.memset(made._shared, 0, size)
            made._taken, made._given = (
                ctypes.c_uint32.from_address(made._shared + 4 * word)
                for word in (TAKEN, GIVEN)
            )
            made._reset()
            stack.pop_all()
        rooms = [made._shared + offset for offset in offsets]
        count = len(inward)
        made.inward = tuple(map(placed, inward, rooms[:count]))
        made.outward = tuple(map(placed, outward, rooms[count:]))
        memory.transfers.made.follow(made.copied)
        return made

    # -- what is recorded ----------------------------------------------------------------

    def first(self, loader: Loader) -> list[Submit]:
        """Give what a recording begins with, in order."""
        if not self.inward:
            return []
        return self._submits(loader, self.inward, to_host=False)

    def last(self, loader: Loader) -> list[Submit]:
        """Give what it ends with."""
        if not self.outward:
            return []
        return self._submits(loader, self.outward, to_host=True)

    def _submits(
        self, loader: Loader, values: Sequence[Placed], *, to_host: bool
    ) -> list[Submit]:
        stream = self.memory.gpu.compute.handle
        small = [one for one in values if one.by_words]
        made = [
            one.engine(stream, to_host=to_host) for one in values if not one.by_words
        ]
        groups = [small[i : i + MOST] for i in range(0, len(small), MOST)] or [[]]
        for index, group in enumerate(groups):
            copies = [
                (one.device, one.host, one.nbytes // 4)
                if to_host
                else (one.host, one.device, one.nbytes // 4)
                for one in group
            ]
            is_last = index == len(groups) - 1
            word = (GIVEN if to_host else TAKEN) if is_last else -1
            given = edge_arguments(
                copies,
                shared=self._shared,
                own=self._own.address,
                word=word,
                bump=is_last and (to_host or not self.outward),
            )
            threads = threads_for(copies)
            made.append(loader.launch(EDGE, given, blocks=1, threads=threads))
        return made

    # -- the host's side -----------------------------------------------------------------

    def copied(self) -> dict[str, int]:
        """Count copies and bytes each way, as transfers do."""
        replays, counts = self._before + self.launched, {}
        for way, values in (("in", self.inward), ("out", self.outward)):
            counts[f"copies_{way}"] = replays * len(values)
            counts[f"bytes_{way}"] = replays * sum(one.nbytes for one in values)
        return counts

    def restart(self) -> None:
        """Have the count begin anew where it is about to be full; before a launch."""
        if self.launched >= _LAST:
            self.memory.synchronize()
            self._reset()

    def taken(self) -> None:
        """
        Return once the last replay has read what came from the host.

        Raises
        ------
        CudaError, KernelError
            It never will.
        """
        word, number = self._taken, self.launched
        if self.inward and word.value != number:
            # Not by waiting for the stream: the rest of the replay may go on.
            waited(lambda: word.value == number, self._check_taken)

    def _check_taken(self) -> None:
        gpu = self.memory.gpu
        gpu.usable()
        with gpu.here():
            if gpu.deadline is not None:
                gpu.waited(gpu.compute.synchronize)
            try:
                is_idle = gpu.compute.is_idle()
            except CudaError as error:
                gpu.noticed(error)
                raise
        if is_idle and self._taken.value != self.launched:
            raise self._untold()

    def given(self) -> None:
        """
        Return once what the last replay gives is on the host.

        Raises
        ------
        KernelError
            A kernel met data that it refuses; names the node.
        CudaError
            Its work failed, or some before it.
        """
        if self._read == self.launched:
            return
        self._wait_given()
        self._read = self.launched
        self.memory.complaints.check()

    def _wait_given(self) -> None:
        word, number = self._given, self.launched
        for _ in range(_LOOKS):
            if word.value == number:
                return
        gpu = self.memory.gpu
        gpu.usable()
        with gpu.here():
            gpu.waited(gpu.compute.synchronize)
        if word.value != number:
            self.memory.complaints.check()
            raise self._untold()

    def _untold(self) -> KernelError:
        why = "the device ended a replay without telling the host"
        return KernelError(why, provider="cuda", segment=self.name)

    def _reset(self) -> None:
        self._before += self.launched
        self.launched = self._read = 0
        self._taken.value = self._given.value = 0
        self.memory.write(self._own, np.ones(1, np.uint32))

    # -- the end -------------------------------------------------------------------------

    def close(self) -> None:
        """Give the memory back; the device is idle. A second call does nothing."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self.memory.transfers.made.keep(self.copied)
            self.inward = self.outward = ()
            try:
                buffer.close()
            finally:
                self._give_back()

    def _give_back(self) -> None:
        with self.memory.gpu.here():
            call("cuMemFreeHost", self._shared)
