"""How many copies were made each way, of how many bytes: by calls and inside recordings."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping

import attrs

__all__ = ["CopyCounts"]


@attrs.define(eq=False)
class CopyCounts:
    """
    Counts by name.

    A recording counts its replays only, so that a replay costs no lock; what it copied by
    them is asked of it.
    """

    _counts: Counter[str] = attrs.field(factory=Counter, init=False)
    _recorded: list[Callable[[], Mapping[str, int]]] = attrs.field(
        factory=list, init=False
    )
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def add(self, what: str, more: float) -> None:
        """Count so much more."""
        with self._lock:
            self._counts[what] += more  # type: ignore[assignment]

    def follow(self, copied: Callable[[], Mapping[str, int]]) -> None:
        """Ask a recording for its copies from now on, until :meth:`keep`."""
        with self._lock:
            self._recorded.append(copied)

    def keep(self, copied: Callable[[], Mapping[str, int]]) -> None:
        """Keep what a recording counted that is being closed."""
        with self._lock:
            self._recorded.remove(copied)
            self._counts.update(copied())

    def all(self) -> dict[str, float]:
        """Give the counts."""
        with self._lock:
            found = Counter(self._counts)
            for copied in self._recorded:
                found.update(copied())
            return dict(found)
