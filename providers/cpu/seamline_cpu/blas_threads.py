"""
How many threads NumPy's BLAS may use while a segment runs.

OpenBLAS starts as many threads as there are cores, whatever the provider was told. Its
number belongs to the process, so a limit is put in place before each run and stays: reading
the number takes some 0.15 us, setting it over 1 us, which only a run after another limit's
pays. The last limit to close puts back what stood there before the first was put in place.
Two runs at the same moment share one number, the one put in place last.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, cast

from threadpoolctl import ThreadpoolController

__all__ = ["BlasThreads"]

_Get = Callable[[], int]
_Put = Callable[[int], object]


class _Libraries:
    """The BLAS libraries of this process, and what they were set to outside of limits."""

    def __init__(self) -> None:
        # Re-entrant: the collector may drop a limit while another one is put in place.
        self.lock = threading.RLock()
        self.holders = 0
        self.outside: list[int] = []
        self._found: list[tuple[_Get, _Put]] | None = None

    def found(self) -> list[tuple[_Get, _Put]]:
        """Give those that are loaded, looked up once: that takes milliseconds."""
        with self.lock:
            if self._found is None:
                controllers = ThreadpoolController().lib_controllers
                self._found = [
                    (_getter(c), _setter(c))
                    for c in controllers
                    if c.user_api == "blas"
                ]
            return self._found


def _getter(controller: Any) -> _Get:
    """Give OpenBLAS' own function, which is eight times faster than threadpoolctl's."""
    if controller.internal_api == "openblas":
        # Called with the interpreter's lock held, for it only reads a number.
        library = ctypes.PyDLL(controller.filepath)
        for prefix in ("", "scipy_"):
            for suffix in ("", "64_", "_64"):
                name = f"{prefix}openblas_get_num_threads{suffix}"
                function = getattr(library, name, None)
                if function is not None:
                    function.argtypes, function.restype = [], ctypes.c_int
                    return cast("_Get", function)
    return cast("_Get", controller.get_num_threads)


def _setter(controller: Any) -> _Put:
    # threadpoolctl lets only the first thread set OpenBLAS, and ignores the others; our
    # limits say who they are, so any thread may set it.
    ignoring = controller.set_num_threads
    return cast("_Put", getattr(controller, "_real_set_num_threads", ignoring))


_libraries = _Libraries()


class BlasThreads:
    """
    A limit that is made once, put in place before every run, and closed.

    Parameters
    ----------
    count
        Threads that BLAS may use; at least 1.

    Examples
    --------
    >>> limit = BlasThreads(1)
    >>> limit.apply()
    >>> limit.close()
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"BLAS needs at least 1 thread, not {count}")
        self.count = count
        self._found = _libraries.found()
        self._holds = False

    def apply(self) -> None:
        """Have BLAS use this many threads from now on."""
        for get, _ in self._found:
            if get() != self.count:
                self._put()
                return

    def _put(self) -> None:
        with _libraries.lock:
            if not self._holds:
                if _libraries.holders == 0:
                    _libraries.outside = [get() for get, _ in self._found]
                _libraries.holders += 1
                self._holds = True
            for _, put in self._found:
                put(self.count)

    def close(self) -> None:
        """Put the process's own number back if no other limit is left; once is enough."""
        with _libraries.lock:
            if not self._holds:
                return
            self._holds = False
            _libraries.holders -= 1
            if _libraries.holders == 0:
                for (_, put), number in zip(
                    self._found, _libraries.outside, strict=True
                ):
                    put(number)

    def __del__(self) -> None:
        """Put it back for a session that was dropped and not closed."""
        if hasattr(self, "_holds"):
            self.close()
