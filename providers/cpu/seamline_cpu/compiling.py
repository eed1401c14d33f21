"""
Commands compiled by several processes at once, for ``seamline warm``.

Numba compiles under one lock, and most of it is Python: threads would not help. A forked
child has every command that its parent has, those too that were made from arguments and
have no name to be found by; it compiles some, which lands in the cache on disk, and ends.
The parent then loads them. A child that fails costs nothing but its work: the parent
compiles what is not there. Children inherit other threads' locks as they were, so this is for
a process that does nothing else meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import struct
import warnings
from collections.abc import Iterator, Sequence

import attrs

from seamline_cpu.commands import Command
from seamline_cpu.jit_cache import counts

__all__ = ["compile_all"]

_NUMBER = struct.Struct("i")
_FEWEST = 2  #: commands from which a second process pays


def compile_all(commands: Sequence[Command], processes: int) -> None:
    """Compile commands, or load them from the cache, by as many processes."""
    wanted = list(dict.fromkeys(commands))
    processes = min(processes, len(wanted))
    apart, found = 0, counts["loaded"]
    if processes >= _FEWEST and hasattr(os, "fork"):
        apart = _by_children(wanted, processes)
    for one in wanted:
        one.address  # noqa: B018 - asking for it compiles
    counts["compiled"] += apart
    # What a child compiled is found here, and was not there before.
    counts["loaded"] = max(found, counts["loaded"] - apart)


def _by_children(commands: Sequence[Command], processes: int) -> int:
    """Have each child take the next command until there is none; count the compiled."""
    ends = _Ends(*os.pipe(), *os.pipe())
    children = [_child(commands, ends) for _ in range(processes)]
    os.close(ends.take)
    os.close(ends.tell)
    with contextlib.suppress(BrokenPipeError):  # every child has ended
        for number in range(len(commands)):
            os.write(ends.give, _NUMBER.pack(number))
    os.close(ends.give)
    compiled = sum(_numbers(ends.hear))
    os.close(ends.hear)
    for child in children:
        os.waitpid(child, 0)
    return compiled


@attrs.frozen
class _Ends:
    """Of a pipe with numbers of commands, and of one with how many were compiled."""

    take: int
    give: int
    hear: int
    tell: int


def _child(commands: Sequence[Command], ends: _Ends) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # BLAS has threads
        child = os.fork()
    if child:
        return child
    try:
        os.close(ends.give)  # or the last number would never be known to be the last
        os.close(ends.hear)
        before = counts["compiled"]
        for number in _numbers(ends.take):
            commands[number].address  # noqa: B018 - asking for it compiles
        os.write(ends.tell, _NUMBER.pack(counts["compiled"] - before))
    finally:
        os._exit(0)


def _numbers(pipe: int) -> Iterator[int]:
    """Read numbers until everyone closed the other end; a read of a few bytes is whole."""
    while len(found := os.read(pipe, _NUMBER.size)) == _NUMBER.size:
        yield _NUMBER.unpack(found)[0]
