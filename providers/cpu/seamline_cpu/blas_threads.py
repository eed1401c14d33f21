"""
How many threads NumPy's BLAS may use while a segment runs.

OpenBLAS starts as many threads as there are cores, whatever the provider was told. Its
limit belongs to the process, so it is counted: the last to leave puts back what stood
there when nobody was inside, and whoever enters in between with another number has it
until then. Entering costs microseconds, for the libraries were looked up when the limit
was made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, cast

from threadpoolctl import ThreadpoolController

__all__ = ["BlasThreads"]


class _Libraries:
    """The BLAS libraries of this process, and what they were set to outside of runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.outside: list[int] = []
        self.found: list[tuple[Callable[[], int], Callable[[int], object]]] | None = (
            None
        )

    def look(self) -> None:
        """Find the libraries that are loaded by now."""
        with self.lock:
            if self.found is None:
                controllers = ThreadpoolController().lib_controllers
                self.found = [
                    (c.get_num_threads, _setter(c))
                    for c in controllers
                    if c.user_api == "blas"
                ]

    def enter(self, count: int) -> None:
        with self.lock:
            seen = [get() for get, _ in self.found or []]
            if self.inside == 0:
                self.outside = seen
            self.inside += 1
            self._set([count] * len(seen), seen)

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self._set(self.outside, [get() for get, _ in self.found or []])

    def _set(self, wanted: list[int], seen: list[int]) -> None:
        for (_, put), new, old in zip(self.found or [], wanted, seen, strict=True):
            if new != old:
                put(new)


def _setter(controller: Any) -> Callable[[int], object]:
    # threadpoolctl lets only the first thread set OpenBLAS, and ignores the others; we
    # count who is inside, so we may set it from any.
    ignoring = controller.set_num_threads
    return cast(
        "Callable[[int], object]",
        getattr(controller, "_real_set_num_threads", ignoring),
    )


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
