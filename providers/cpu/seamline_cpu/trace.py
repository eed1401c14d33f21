"""
Lists of commands that note when each share began and ended, for a profile.

Each command is wrapped in one that reads the clock before and after it, on whichever
thread takes the share. The lists that replays run are not touched, so a session that is
not profiled pays nothing. The clock is ``CLOCK_MONOTONIC``, read by ``clock_gettime``
without a system call in some 25 ns; on Linux ``time.perf_counter_ns`` is the same clock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from seamline_cpu.atomics import call_at, longs
from seamline_cpu.commands import Native, command, in_list
from seamline_cpu.ir import cgutils, ir, types
from seamline_cpu.jit import native

__all__ = ["Share", "TracedList", "clock_ns", "facts_of", "is_traced_here"]

_MONOTONIC = 1  # on Linux


def is_traced_here() -> bool:
    """Tell whether compiled code can read the clock that Python reads."""
    return sys.platform == "linux"


@native
def clock_ns(context: Any) -> Any:
    """Give the nanoseconds of ``CLOCK_MONOTONIC``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, pair = ir.IntType(64), ir.ArrayType(ir.IntType(64), 2)
        place = cgutils.alloca_once(builder, pair)
        number = ir.IntType(32)
        kind = ir.FunctionType(number, [number, pair.as_pointer()])
        read = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        builder.call(read, [ir.Constant(number, _MONOTONIC), place])
        both = builder.load(place)
        seconds, rest = (builder.extract_value(both, i) for i in range(2))
        return builder.add(builder.mul(seconds, ir.Constant(word, 10**9)), rest)

    return types.int64(), generate


@command
def _timed(a: Any, share: int, shares: int) -> None:
    """Arguments: a command's function, its arguments, and where to put two times a share."""
    times = longs(a[2] + 16 * share)
    times[0] = clock_ns()
    call_at(a[0], a[1], share, shares)
    times[1] = clock_ns()


@attrs.frozen
class Share:
    """When one share of a command ran, in nanoseconds."""

    start: int
    end: int


@attrs.define(eq=False)
class TracedList:
    """
    The commands of several runs in step, as a recording has them, and what each took.

    Attributes
    ----------
    runs
        What is in it; each is one node's.
    """

    runs: Sequence[Native]
    _times: list[np.ndarray[Any, Any]] = attrs.field(factory=list, init=False)
    _run: Callable[[], None] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        rows, kept = [], []
        for run in self.runs:
            for function, arguments, shares in run.rows:
                times = np.zeros((shares, 2), np.int64)
                block = np.array([function, arguments, times.ctypes.data], np.int64)
                self._times.append(times)
                kept.append(block)
                rows.append((_timed.address, block.ctypes.data, shares))
        self._run = in_list(rows, (kept, self.runs))

    def __call__(self) -> None:
        """Run the list; the checks of its runs are for the caller to make."""
        self._run()

    def shares(self) -> list[list[list[Share]]]:
        """Give for each run, for each of its commands, what each share took last time."""
        times, found = iter(self._times), []
        for run in self.runs:
            mine = [next(times) for _ in run.rows]
            found.append([[Share(int(a), int(b)) for a, b in one] for one in mine])
        return found


def facts_of(commands: Sequence[Sequence[Share]], after: int) -> Mapping[str, object]:
    """
    Say how a node's time was spent.

    Parameters
    ----------
    commands
        Its commands' shares, in order.
    after
        When the next command began, or the list ended.

    Returns
    -------
    dict
        ``kernel_us``: from each command's first share to its last, added up.
        ``barrier_us``: between a command's last share and the next command's first.
        ``imbalance``: how much longer the slowest share took than the mean, as a part of
        the mean; of the command for which it is greatest. ``shares``: the most of one.
    """
    starts = [min(share.start for share in one) for one in commands]
    ends = [max(share.end for share in one) for one in commands]
    took = [[share.end - share.start for share in one] for one in commands]
    uneven = [max(one) * len(one) / max(sum(one), 1) - 1 for one in took]
    kernel = sum(ends) - sum(starts)
    gaps = [b - a for a, b in zip(ends, [*starts[1:], after], strict=True)]
    return {
        "kernel_us": kernel / 1000,
        "barrier_us": sum(max(gap, 0) for gap in gaps) / 1000,
        "imbalance": round(max(uneven), 4),
        "shares": max(len(one) for one in commands),
        "commands": len(commands),
    }
