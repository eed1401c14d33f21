"""
Compiled commands: ``void(arguments, share, shares)``, run by threads without Python.

A command's arguments are 64-bit integers in memory: addresses and sizes. Its shares are
claimed by compare-and-swap on one word that holds the command's number too, so the caller
takes whatever a late worker has not, and a worker that comes too late finds nothing. A
caller that finds the workers busy with another thread's command runs its shares alone.
The workers are in :mod:`seamline_cpu.crew`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock

from seamline_cpu.atomics import launch, run_alone, run_list
from seamline_cpu.crew import close, crew
from seamline_cpu.ir import types
from seamline_cpu.jit_cache import attach, named

__all__ = [
    "Command",
    "Native",
    "all_commands",
    "bind",
    "checked",
    "close",
    "command",
    "in_list",
    "joined",
    "putting_off",
]

_ARGUMENTS = (types.CPointer(types.int64), types.int64, types.int64)


_made: list[Command] = []
_put_off: list[Command] | None = None


@attrs.define(eq=False)
class Command:
    """A function that becomes a C function when its address is first asked for."""

    function: Callable[..., None]
    _compiled: Any = attrs.field(default=None, init=False)

    @property
    def address(self) -> int:
        """Give the C function's address, compiled or loaded from the cache."""
        with global_compiler_lock:
            if self._compiled is None and _put_off is not None:
                _put_off.append(self)
                return 0
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
    made = Command(named(function))
    _made.append(made)
    return made


def all_commands() -> Sequence[Command]:
    """Give every command that was made so far."""
    return tuple(_made)


@contextlib.contextmanager
def putting_off() -> Iterator[list[Command]]:
    """
    Compile nothing meanwhile, and give the commands that would have been.

    What is bound meanwhile has no code to jump to: running it is an error.
    """
    global _put_off
    with global_compiler_lock:
        found: list[Command] = []
        _put_off = found
        try:
            yield found
        finally:
            _put_off = None


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
    if not target:
        return Native(_nowhere).over(rows, kept)
    if shares <= 1:
        return Native(run_alone, target, where, 1).over(rows, kept)

    def run() -> None:
        workers = crew()
        workers.ready(shares - 1)
        launch(workers.control, target, where, shares)

    return Native(run).over(rows, kept)


def _nowhere() -> None:
    raise RuntimeError("the command was bound while compiling was put off")


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
    flat
        Where its one command goes through flat arrays element by element, how; see
        :mod:`seamline_cpu.chains`.
    """

    rows: tuple[tuple[int, int, int], ...] = ()
    kept: object = None
    checks: tuple[Callable[[], None], ...] = ()
    flat: object = None

    def arguments(self) -> np.ndarray[Any, Any]:
        """Give the arguments of its only command."""
        values: np.ndarray[Any, Any] = self.kept[0]  # type: ignore[index]
        return values

    def stepping(self, flat: object) -> Native:
        """Set how it goes through flat arrays, and give itself."""
        self.flat = flat
        return self

    def over(self, rows: tuple[tuple[int, int, int], ...], kept: object) -> Native:
        """Set the attributes, and give itself."""
        self.rows, self.kept = rows, kept
        return self


def in_list(rows: Sequence[tuple[int, int, int]], keep: object = None) -> Native:
    """Give a run of several commands in step, by one call into compiled code."""
    table = np.array(rows, np.int64).reshape(len(rows), 3)
    where, count = table.ctypes.data, len(rows)
    most, kept = max(shares for _, _, shares in rows), (table, keep)
    if not table[:, 0].all():
        return Native(_nowhere).over(tuple(rows), kept)
    if most <= 1:
        return Native(run_list, 0, where, count).over(tuple(rows), kept)

    def run() -> None:
        workers = crew()
        workers.ready(most - 1)
        run_list(workers.control, where, count)

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
