"""
How many threads NumPy's BLAS may use while a segment runs.

OpenBLAS starts as many threads as there are cores, whatever the provider was told. Its
limit belongs to the process, so it is counted: the first to enter sets it, the last to
leave puts back what stood there, and whoever enters in between with another number has
it until then. Entering costs about two microseconds, for the libraries were looked up
when the limit was made.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["BlasThreads"]


class _Libraries:
    """The BLAS libraries of this process, and what they were set to outside of runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.before: list[int] = []
        self.set_to = 0
        self.found: list[Any] | None = None

    def look(self) -> None:
        """Find the libraries that are loaded by now."""
        with self.lock:
            if self.found is None:
                controllers = ThreadpoolController().lib_controllers
                self.found = [c for c in controllers if c.user_api == "blas"]

    def enter(self, count: int) -> None:
        with self.lock:
            found = self.found or []
            if self.inside == 0:
                self.before = [library.get_num_threads() for library in found]
            self.inside += 1
            now = self.before if self.inside == 1 else [self.set_to] * len(found)
            self.set_to = count
            for library, threads in zip(found, now, strict=True):
                if threads != count:
                    library.set_num_threads(count)

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside:
                return
            for library, threads in zip(self.found or [], self.before, strict=True):
                if threads != self.set_to:
                    library.set_num_threads(threads)


_libraries = _Libraries()


class BlasThreads:
    """
    A limit that is made once and entered around every run.

    Parameters
    ----------
    count
        Threads that BLAS may use; at least 1.

    Examples
    --------
    >>> limit = BlasThreads(1)
    >>> with limit:
    ...     pass
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"BLAS needs at least 1 thread, not {count}")
        self.count = count
        _libraries.look()

    def __enter__(self) -> BlasThreads:
        _libraries.enter(self.count)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _libraries.leave()
