"""
Compiled commands: ``void(arguments, share, shares)``, run by threads without Python.

A command's arguments are 64-bit integers in memory: addresses and sizes. Workers spin for
a moment after each command, in compiled code that holds no interpreter lock, and then
sleep; waking a sleeping core takes some 50 us, longer than many commands. Shares are
claimed by compare-and-swap on one word that holds the command's number too, so the caller
takes whatever a late worker has not, and a worker that comes too late finds nothing. A
caller that finds the workers busy with another thread's command runs its shares alone.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import attrs
import numpy as np
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock

from seamline_cpu.atomics import WORDS, launch, run_alone, run_list, serve
from seamline_cpu.ir import types
from seamline_cpu.jit_cache import attach

__all__ = [
    "Command",
    "Native",
    "bind",
    "checked",
    "close",
    "command",
    "in_list",
    "joined",
]

_ARGUMENTS = (types.CPointer(types.int64), types.int64, types.int64)
_SPINS = 4000  # pauses of some 15-40 ns each: about 100 us, twice what waking takes


@attrs.define(eq=False)
class Command:
    """A function that becomes a C function when its address is first asked for."""

    function: Callable[..., None]
    _compiled: Any = attrs.field(default=None, init=False)

    @property
    def address(self) -> int:
        """Give the C function's address, compiled or loaded from the cache."""
        with global_compiler_lock:
            if self._compiled is None:
                options = {"error_model": "numpy"}
                made = CFunc(self.function, (_ARGUMENTS, types.void), {}, options)
                attach(made, self.function)
                made.compile()
                self._compiled = made
        return int(self._compiled.address)


def command(function: Callable[..., None]) -> Command:
    """
    Make a command of ``function(arguments, share, shares)``, compiled when first bound.

    ``arguments`` is a C array of int64; ``floats(arguments[i])`` and its like of
    :mod:`seamline_cpu.atomics` take an address for an array. It must not raise.
    """
    return Command(function)


def bind(
    what: Command,
    arguments: Sequence[int] | np.ndarray[Any, Any],
    shares: int,
    *,
    keep: object = None,
) -> Native:
    """
    Give the function that runs a command over fixed arguments.

    Parameters
    ----------
    arguments
        An int64 array is used as it is, so that its owner may change an argument.
    shares
        Into how many parts the work falls, and the most threads that work on it.
    keep
        What must live as long as the function, such as packed weights.
    """
    values = np.asarray(arguments, np.int64)
    target, where = what.address, values.ctypes.data
    rows = ((target, where, max(shares, 1)),)
    kept = (values, keep)
    if shares <= 1:
        return Native(run_alone, target, where, 1).over(rows, kept)

    def run() -> None:
        crew = _crew
        crew.ready(shares - 1)
        launch(crew.control, target, where, shares)

    return Native(run).over(rows, kept)


class Native(functools.partial[None]):
    """
    A run that is made of commands only, so that a list of commands can do its work.

    Attributes
    ----------
    rows
        Function, arguments and shares of each command.
    kept
        What must live as long as it.
    checks
        What it calls after its commands, to raise what compiled code cannot.
    """

    rows: tuple[tuple[int, int, int], ...] = ()
    kept: object = None
    checks: tuple[Callable[[], None], ...] = ()

    def over(self, rows: tuple[tuple[int, int, int], ...], kept: object) -> Native:
        """Set the attributes, and give itself."""
        self.rows, self.kept = rows, kept
        return self


def in_list(rows: Sequence[tuple[int, int, int]], keep: object = None) -> Native:
    """Give a run of several commands in step, by one call into compiled code."""
    table = np.array(rows, np.int64).reshape(len(rows), 3)
    where, count = table.ctypes.data, len(rows)
    most, kept = max(shares for _, _, shares in rows), (table, keep)
    if most <= 1:
        return Native(run_list, 0, where, count).over(tuple(rows), kept)

    def run() -> None:
        crew = _crew
        crew.ready(most - 1)
        run_list(crew.control, where, count)

    return Native(run).over(tuple(rows), kept)


def checked(native: Native, *checks: Callable[[], None]) -> Native:
    """Give a run that calls ``checks`` after its commands; they raise what went wrong."""

    def run() -> None:
        native()
        for check in checks:
            check()

    made = Native(run).over(native.rows, native.kept)
    made.checks = checks
    return made


def joined(runs: Sequence[Callable[[], object]]) -> Native | None:
    """Give runs as one list of commands, or None where one of them is no command."""
    rows: list[tuple[int, int, int]] = []
    checks: tuple[Callable[[], None], ...] = ()
    for run in runs:
        if not isinstance(run, Native):
            return None
        rows += run.rows
        checks += run.checks
    if not rows:
        return None
    whole = in_list(rows, tuple(runs))
    return checked(whole, *checks) if checks else whole


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

    def __init__(self) -> None:
        self._block = np.zeros(WORDS + 8, np.int64)
        start = self._block.ctypes.data
        self.control = start + -start % 64
        self.workers: list[_Worker] = []
        self.asleep = 0
        self.cores: set[int] = set()
        self._lock = threading.Lock()

    def ready(self, size: int) -> None:
        """Have workers awake, and none on the core that the caller was moved to."""
        if self.asleep or len(self.workers) < size:
            self.rouse(size)
        elif _current_core is not None and _current_core() in self.cores:
            with self._lock:
                for worker in self.workers:
                    _part_from_caller(worker)
                self.cores = {worker.core for worker in self.workers}

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
            self._wake()
            self.cores = {worker.core for worker in self.workers}

    def _wake(self) -> None:
        for worker in self.workers:
            if worker.asleep:
                _part_from_caller(worker)
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


def _part_from_caller(worker: _Worker) -> None:
    """
    Keep a worker off the core of the thread that wakes it, which is about to compute.

    Linux may wake it there all the same: measured on two cores, both then shared one for
    two milliseconds while the other core idled. Elsewhere than on Linux this does nothing.
    """
    if _current_core is None or worker.thread is None:
        return
    cores = _CORES
    here = _current_core()
    if here not in cores:
        return
    core = cores[(cores.index(here) + worker.number) % len(cores)]
    if core != worker.core:
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.sched_setaffinity(worker.thread.native_id or 0, {core})
            worker.core = core


def _core_asker() -> Callable[[], int] | None:
    if not hasattr(os, "sched_setaffinity"):
        return None
    ask = getattr(ctypes.CDLL(None), "sched_getcpu", None)  # glibc and musl have it
    return cast("Callable[[], int] | None", ask)


_current_core = _core_asker()
_CORES = sorted(os.sched_getaffinity(0)) if _current_core is not None else []
_crew = _Crew()


def close() -> None:
    """End the workers; the next command starts new ones."""
    _crew.close()


def _forget() -> None:
    global _crew
    _crew = _Crew()


os.register_at_fork(after_in_child=_forget)
atexit.register(close)
