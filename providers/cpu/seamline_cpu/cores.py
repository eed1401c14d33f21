"""
On which cores worker threads run, where the system lets a thread be kept to one.

Linux may wake a worker on the core of the thread that wakes it and is about to compute:
measured on two cores, both then shared one for two milliseconds while the other core
idled. So by default a worker keeps to a core of its own, and gives it up when the system
moves the caller there. Elsewhere than on Linux all of this does nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import cast

import attrs

__all__ = ["Pinning", "current_core", "read_pinning", "usable"]


@attrs.frozen
class Pinning:
    """
    A rule for where workers run.

    Attributes
    ----------
    kind
        ``auto``: each on a core of its own, off the caller's. ``none``: wherever the
        system puts them. ``fixed``: worker i on ``cores[i - 1]``, around again after the
        last.
    """

    kind: str = "auto"
    cores: tuple[int, ...] = ()

    def __str__(self) -> str:
        return "+".join(map(str, self.cores)) if self.kind == "fixed" else self.kind

    @property
    def chosen(self) -> bool:
        """Tell whether it is other than what is done unasked."""
        return self.kind != "auto"

    @property
    def moves(self) -> bool:
        """Tell whether workers make way for the caller."""
        return self.kind == "auto" and _current_core is not None

    def apply(self, number: int, thread: int, before: int) -> int:
        """Keep a thread to worker ``number``'s core; give the core, or -1 for any."""
        if _current_core is None:
            return -1
        if self.kind == "none":
            return _keep(thread, set(_CORES), -1, before) if before >= 0 else -1
        if self.kind == "fixed":
            core = self.cores[(number - 1) % len(self.cores)]
        else:
            here = _current_core()
            if here not in _CORES:
                return before
            core = _CORES[(_CORES.index(here) + number) % len(_CORES)]
        return before if core == before else _keep(thread, {core}, core, before)


def _keep(thread: int, cores: set[int], core: int, before: int) -> int:
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.sched_setaffinity(thread, cores)
        return core
    return before


def read_pinning(text: str) -> Pinning:
    """
    Read ``auto``, ``none``, or numbers of cores joined by ``+``.

    Raises
    ------
    ValueError
        It is none of these, or the process may not use such a core.

    Examples
    --------
    >>> str(read_pinning("none"))
    'none'
    """
    if text in ("auto", "none"):
        return Pinning(text)
    numbers = text.split("+")
    if not all(number.strip().isdecimal() for number in numbers):
        raise ValueError(
            f"pinning is {text!r}; it must be auto, none, or cores such as 0+2"
        )
    cores = tuple([int(number) for number in numbers])
    if _current_core is None:
        raise ValueError(
            f"pinning is {text!r}, and this system keeps no thread to a core"
        )
    wrong = [core for core in cores if core not in _CORES]
    if wrong:
        raise ValueError(
            f"pinning names core {wrong[0]}; this process may use {', '.join(map(str, _CORES))}"
        )
    return Pinning("fixed", cores)


def usable() -> int:
    """Count the cores that this process may run on, which a container may have cut."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def current_core() -> int:
    """Give the core that the calling thread runs on, or -1 where nobody can say."""
    return -1 if _current_core is None else _current_core()


def _core_asker() -> Callable[[], int] | None:
    if not hasattr(os, "sched_setaffinity"):
        return None
    ask = getattr(ctypes.CDLL(None), "sched_getcpu", None)  # glibc and musl have it
    return cast("Callable[[], int] | None", ask)


_current_core = _core_asker()
_CORES = sorted(os.sched_getaffinity(0)) if _current_core is not None else []
