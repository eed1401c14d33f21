"""
Worker threads that share one kernel's work.

Kernels that release the interpreter lock (Numba's ``nogil``, NumPy's inner loops) are
given to several threads as numbered shares. The caller takes shares like any worker, so
a worker that wakes late costs nothing but its help: nothing waits for a share that has
not begun. Hence several threads may call at once, and a share may call again. One set of
workers serves the process: made on first use, made anew in a forked child (where the
parent's threads do not exist), and stopped at exit.

For compiled work of less than about a millisecond see :mod:`seamline_cpu.commands`, whose
workers need no interpreter lock.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from itertools import count
from queue import SimpleQueue

import attrs
import numpy as np

__all__ = ["close", "run_shares"]


def run_shares(function: Callable[[int, int], object], threads: int) -> None:
    """
    Call ``function(share, threads)`` for every share, on as many threads.

    Shares must not wait for each other. Returns when all are done, whatever any of them
    raised; then the error of the lowest share is raised. Workers ignore floating-point
    warnings, as runs do.
    """
    if threads <= 1:
        function(0, 1)
        return
    job = _Job(function, threads)
    crew = _crew
    crew.grow(threads - 1)
    for _ in range(min(threads - 1, len(crew.threads))):
        crew.jobs.put(job)
    job.help()
    job.wait()


@attrs.define(eq=False)
class _Job:
    """Shares that anyone may take; ``next`` on a counter is atomic."""

    function: Callable[[int, int], object]
    shares: int
    _taken: Iterator[int] = attrs.field(factory=count)
    _ended: Iterator[int] = attrs.field(factory=lambda: count(1))
    _errors: dict[int, BaseException] = attrs.field(factory=dict)
    _all_done: threading.Lock = attrs.field(factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        self._all_done.acquire()

    def help(self) -> None:
        """Take shares until none is left."""
        for share in self._taken:
            if share >= self.shares:
                return
            try:
                self.function(share, self.shares)
            except BaseException as error:  # raised again by ``wait`` in the caller
                self._errors[share] = error
            if next(self._ended) == self.shares:
                self._all_done.release()

    def wait(self) -> None:
        """Wait for the shares that others took, and raise what went wrong."""
        interrupt: BaseException | None = None
        while True:
            try:
                self._all_done.acquire()
                break
            except KeyboardInterrupt as error:  # shares still write to the arrays
                interrupt = error
        if interrupt is not None:
            raise interrupt
        if self._errors:
            raise self._errors[min(self._errors)]


@attrs.define(eq=False)
class _Crew:
    """The workers of this process, and the jobs that they may help with."""

    jobs: SimpleQueue[_Job | None] = attrs.field(factory=SimpleQueue)
    threads: list[threading.Thread] = attrs.field(factory=list)
    _growing: threading.Lock = attrs.field(factory=threading.Lock)

    def grow(self, size: int) -> None:
        """Have at least ``size`` workers; fewer where no more threads can be started."""
        if len(self.threads) >= size:
            return
        with self._growing:
            while len(self.threads) < size:
                number = len(self.threads) + 1
                thread = threading.Thread(
                    target=self._serve,
                    name=f"seamline-cpu-{number}",
                    daemon=True,
                )
                try:
                    thread.start()
                except RuntimeError:  # at exit, or at the system's limit: fewer help
                    return
                self.threads.append(thread)

    def _serve(self) -> None:
        with np.errstate(all="ignore"):
            while (job := self.jobs.get()) is not None:
                job.help()

    def close(self) -> None:
        with self._growing:
            for _ in self.threads:
                self.jobs.put(None)
            for thread in self.threads:
                thread.join()
            self.threads.clear()


_crew = _Crew()


def close() -> None:
    """Stop the workers and wait until they have ended; the next use starts new ones."""
    _crew.close()


def _forget() -> None:
    global _crew
    _crew = _Crew()


os.register_at_fork(after_in_child=_forget)
atexit.register(close)
