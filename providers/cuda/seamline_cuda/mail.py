"""
What one recorded chain shares with the host: words, staged values, and who waits for whom.

The memory is pinned and mapped, so that kernels reach it at the address that the host has
for it. Both forms are served alike: the device asks for a turn, by a kernel that raises a
word or by a function of the host that the driver calls, and goes on once that turn is
answered. What the driver calls works on nothing itself; it hands the question to the thread
that replays and waits, so that it can give up, and the stream with it go on.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np

from seamline.errors import KernelError
from seamline.provider import Buffer
from seamline.serving import KEPT, SPINS, waited
from seamline.tensors import TensorType, nbytes_of
from seamline_cuda.driver import call
from seamline_cuda.errors import CudaError
from seamline_cuda.mailbox import ABORTED, ANSWERED, ASKED, LATE
from seamline_cuda.memory import CudaMemory

__all__ = ["CudaMail"]

_MAPPED = 2  #: CU_MEMHOSTALLOC_DEVICEMAP
_LINE = 128  # bytes; what two sides write does not share one
_WORDS = 4 * 96
_OWN = 16  # bytes before the stamps
_CHECK = 2e-3  # seconds between two questions whether the device still works
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@attrs.define(eq=False)
class CudaMail:
    """
    Implements :class:`~seamline.serving.Mail` over memory that a GPU and the host share.

    Attributes
    ----------
    patience
        Seconds that the device waits for an answer.
    shared
        Address of the shared words.
    own
        Two words of the device.
    times, ring
        Two nanosecond stamps of the device for each of so many turns.
    first
        The turn of the present replay's first excursion.
    """

    memory: CudaMemory
    name: str
    patience: float
    shared: int = 0
    own: Any = None
    times: Any = None
    ring: int = 0
    first: int = 1
    is_open: bool = True
    _buffer: Buffer | None = None
    _used: int = 0
    _room: int = 0
    _asked: Any = None
    _answered: Any = None
    _late: Any = None
    _rung: int = 0
    _said: int = 0
    _given_up: bool = False
    _called: set[int] = attrs.field(factory=set, init=False)
    _bell: threading.Condition = attrs.field(factory=threading.Condition, init=False)
    _kept: list[Any] = attrs.field(factory=list, init=False)
    _took: dict[int, deque[float]] = attrs.field(factory=dict, init=False)

    @classmethod
    def open(
        cls, memory: CudaMemory, name: str, kinds: list[TensorType], count: int, patience: float
    ) -> CudaMail:  # fmt: skip
        """
        Take shared memory for a number of excursions and for values of these types.

        Raises
        ------
        CudaError, VirtualMemoryError
            There is none. Nothing is kept of what was taken before.
        """
        made = cls(memory, name, patience)
        staged = sum(_rounded(nbytes_of(kind)) for kind in kinds)
        made._room = _rounded(_WORDS) + staged
        made.ring = count * -(-KEPT // count)
        with ExitStack() as stack:
            with memory.gpu.here():
                made.shared = int(call("cuMemHostAlloc", made._room, _MAPPED))
            stack.callback(made._give_back)
            made._buffer = memory.allocate(_OWN + 16 * made.ring)
            stack.callback(made._buffer.close)
            made.own = memory.view(made._buffer, 0, TensorType("uint32", (2,)))
            stamps = TensorType("int64", (made.ring, 2))
            made.times = memory.view(made._buffer, _OWN, stamps)
            memory.write(made.times, np.zeros(stamps.sizes, np.int64))
            ctypes.memset(made.shared, 0, made._room)
            made._used = _rounded(_WORDS)
            made._asked, made._answered, made._late = (
                ctypes.c_uint32.from_address(made.shared + 4 * word)
                for word in (ASKED, ANSWERED, LATE)
            )
            made.reset()
            stack.pop_all()
        return made

    def room(self, nbytes: int) -> int:
        """Give the address of room for a value."""
        address = self.shared + self._used
        self._used += _rounded(nbytes)
        return address

    def took(self, count: int) -> list[list[float]]:
        """
        Give what each of a replay's excursions took lately, in microseconds.

        Of one that the driver calls for, copies before and after are not in it.

        Raises
        ------
        CudaError, KernelError
            The stamps cannot be read, since work before it failed.
        """
        stamps = np.empty((self.ring, 2), np.int64)
        self.memory.read(self.times, stamps)
        spent = (stamps[:, 1] - stamps[:, 0]).reshape(-1, count) / 1000
        return [
            list(self._took.get(index, spent[spent[:, index] > 0, index]))
            for index in range(count)
        ]

    # -- the host's side -----------------------------------------------------------------

    def wait(self, turn: int) -> None:
        """Wait until a kernel, or the driver, asks for a turn."""
        self._check_open()
        if self._called and turn - self.first in self._called:
            with self._bell:  # the driver's thread needs the interpreter to ask
                while not self._bell.wait_for(lambda: self._rung == turn, _CHECK):
                    self._check()
            return
        asked = self._asked
        for _ in range(SPINS):
            if asked.value == turn:
                return
        waited(lambda: asked.value == turn, self._check)

    def answer(self, turn: int) -> None:
        """Let the device go on."""
        self._answered.value = turn
        if not self._called:
            return  # only kernels ask
        with self._bell:
            self._said = turn
            self._bell.notify_all()

    def abort(self) -> None:
        """
        Let the device skip what is left, and wait until it is idle.

        Raises
        ------
        DeadlineError
            It had given up by itself before.
        """
        self._answered.value = ABORTED
        with self._bell:
            self._given_up = True
            self._bell.notify_all()
        self.memory.gpu.drain()
        if not self.memory.gpu.lost:
            self.reset()
        self.memory.complaints.check()

    def reset(self) -> None:
        """Begin anew at the first turn; the device is idle."""
        self.first, self._rung, self._said, self._given_up = 1, 0, 0, False
        self._asked.value = self._answered.value = self._late.value = 0
        self.memory.write(self.own, np.array([1, 0], np.uint32))

    @property
    def is_late(self) -> bool:
        """Tell whether a kernel has given up waiting, after the last answer."""
        return bool(self._late.value) or self._given_up

    def _check_open(self) -> None:
        if not self.is_open:
            raise KernelError(
                "its recording was closed while it was replayed",
                provider="cuda",
                segment=self.name,
            )

    def _check(self) -> None:
        self._check_open()
        gpu = self.memory.gpu
        try:
            with gpu.here():
                is_idle = gpu.compute.is_idle()
        except CudaError as error:
            gpu.noticed(error)
            raise KernelError(
                f"a replay: {error}", provider="cuda", segment=self.name
            ) from error
        if is_idle:
            self.memory.complaints.check()
            raise KernelError(
                "the device ended a replay without asking the host",
                provider="cuda",
                segment=self.name,
            )

    # -- what the driver calls -----------------------------------------------------------

    def function(self, index: int, late: Callable[[], object]) -> int:
        """
        Give the address of a function that asks for an excursion and waits.

        Parameters
        ----------
        late
            Called where the host did not answer in time.
        """

        def ask(_: object) -> None:
            turn, begun = self.first + index, time.perf_counter()
            with self._bell:
                if self._given_up:
                    return
                self._rung = turn
                self._bell.notify_all()
                if self._bell.wait_for(lambda: self._is_over(turn), self.patience):
                    took.append((time.perf_counter() - begun) * 1e6)
                    return
                self._given_up = True
            late()

        took = self._took[index] = deque(maxlen=KEPT)
        self._called.add(index)
        kept = _CALLBACK(ask)
        self._kept.append(kept)
        return int(ctypes.cast(kept, ctypes.c_void_p).value or 0)

    def _is_over(self, turn: int) -> bool:
        return self._given_up or self._said == turn

    # -- the end -------------------------------------------------------------------------

    def close(self) -> None:
        """Give the memory back; the device is idle. A second call does nothing."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            try:
                buffer.close()
            finally:
                self._give_back()

    def _give_back(self) -> None:
        with self.memory.gpu.here():
            call("cuMemFreeHost", self.shared)


def _rounded(nbytes: int) -> int:
    return -(-max(nbytes, 1) // _LINE) * _LINE
