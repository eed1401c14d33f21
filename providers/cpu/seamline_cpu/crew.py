"""
The worker threads that help with compiled commands: one set for the process.

Made on first use, made anew in a forked child (where the parent's threads do not exist),
ended at exit. Workers spin for a moment after each command, in compiled code that holds no
interpreter lock, and then sleep on a lock; waking a sleeping core takes some 50 us, longer
than many commands.
"""

from __future__ import annotations

import atexit
import os
import threading

import attrs
import numpy as np

from seamline_cpu.atomics import WORDS, serve
from seamline_cpu.cores import Pinning, current_core

__all__ = ["close", "crew", "pin", "unpin"]

_SPINS = 4000  # pauses of some 15-40 ns each: about 100 us, twice what waking takes


@attrs.define(eq=False)
class _Worker:
    """One thread; ``bell`` is held while it is awake."""

    number: int
    bell: threading.Lock = attrs.field(factory=threading.Lock)
    asleep: bool = False
    core: int = -1
    thread: threading.Thread | None = None


class _Crew:
    """The workers of this process and their control block."""

    def __init__(self, pinning: Pinning) -> None:
        self._block = np.zeros(WORDS + 8, np.int64)
        start = self._block.ctypes.data
        self.control = start + -start % 64
        self.workers: list[_Worker] = []
        self.asleep = 0
        #: Cores of workers that are to keep off the caller's; empty where none is moved.
        self.cores: set[int] = set()
        self.pinning = pinning
        self._lock = threading.Lock()

    def ready(self, size: int) -> None:
        """Have workers awake, and none on the core that the caller was moved to."""
        if self.asleep or len(self.workers) < size:
            self.rouse(size)
        elif self.cores and current_core() in self.cores:
            with self._lock:
                self._place()

    def rouse(self, size: int) -> None:
        """Have ``size`` workers, or as many as can be started, and wake all."""
        with self._lock:
            while len(self.workers) < size:
                worker = _Worker(len(self.workers) + 1)
                worker.bell.acquire()
                worker.thread = threading.Thread(
                    target=self._work,
                    args=(worker,),
                    name=f"seamline-cpu-native-{len(self.workers) + 1}",
                    daemon=True,
                )
                try:
                    worker.thread.start()
                except RuntimeError:  # at exit, or at the system's limit: fewer help
                    return
                self.workers.append(worker)
            self._place()
            self._wake()

    def place(self, pinning: Pinning) -> None:
        """Move the workers to where they are to be from now on."""
        with self._lock:
            self.pinning = pinning
            self._place()

    def _place(self) -> None:
        for worker in self.workers:
            if worker.thread is not None:
                thread = worker.thread.native_id or 0
                worker.core = self.pinning.apply(worker.number, thread, worker.core)
        moves = self.pinning.moves
        self.cores = {worker.core for worker in self.workers} - {-1} if moves else set()

    def _wake(self) -> None:
        for worker in self.workers:
            if worker.asleep:
                worker.asleep = False
                self.asleep -= 1
                worker.bell.release()

    def _work(self, worker: _Worker) -> None:
        seen = 0
        while (seen := serve(self.control, seen, _SPINS)) >= 0:
            with self._lock:
                worker.asleep = True
                self.asleep += 1
            worker.bell.acquire()

    def close(self) -> None:
        """End the workers and wait for them."""
        stop = self._block[(self.control - self._block.ctypes.data) // 8 + 32 :]
        with self._lock:
            stop[0] = 1
            self._wake()
            workers, self.workers = self.workers, []
            self.cores = set()
        for worker in workers:
            # One that was about to fall asleep while we rang does so now.
            while worker.thread is not None and worker.thread.is_alive():
                with self._lock:
                    if worker.asleep:
                        worker.asleep = False
                        worker.bell.release()
                worker.thread.join(0.01)
        self.asleep = 0
        stop[0] = 0


_crew = _Crew(Pinning())
_held: list[Pinning] = []  # what open providers asked for, one for each


def crew() -> _Crew:
    """Give this process's workers."""
    return _crew


def pin(pinning: Pinning) -> None:
    """
    Place the workers for as long as a provider is open; see :func:`unpin`.

    Raises
    ------
    ValueError
        An open provider has placed them elsewhere: they are shared by the process.
    """
    if not pinning.chosen:
        return
    if _held and _held[0] != pinning:
        raise ValueError(
            f"pinning is {pinning}, and a session that is open has it at {_held[0]}; the "
            "workers are shared by the process: close that session, or ask for the same"
        )
    _held.append(pinning)
    _crew.place(pinning)


def unpin(pinning: Pinning) -> None:
    """Take back one :func:`pin`; after the last, workers only keep off the caller."""
    if pinning in _held:
        _held.remove(pinning)
        if not _held:
            _crew.place(Pinning())


def close() -> None:
    """End the workers; the next command starts new ones."""
    _crew.close()


def _forget() -> None:
    global _crew
    _crew = _Crew(_crew.pinning)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
atexit.register(close)
