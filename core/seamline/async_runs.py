"""Runs in threads of their own, for ``run_async``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["AsyncRuns", "Callback"]

#: Called as ``callback(outputs, user_data, error)``; ``error`` is empty, or says why not.
Callback: TypeAlias = Callable[[list[Any], Any, str], None]


class AsyncRuns:
    """
    The runs of one session that nobody waits for.

    Examples
    --------
    >>> runs = AsyncRuns()
    >>> runs.start(lambda: [1, 2], lambda *said: print(said), "tag")
    ([1, 2], 'tag', '')
    >>> runs.join()
    """

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()

    def start(
        self, run: Callable[[], list[Any]], callback: Callback, user_data: Any
    ) -> None:
        """Run in a thread, then call back in it; what the callback raises, threading shows."""

        def work() -> None:
            outputs: list[Any] = []
            failure = ""
            try:
                outputs = run()
            except Exception as error:  # it has nowhere to be raised
                failure = f"{type(error).__name__}: {error}"
            try:
                callback(outputs, user_data, failure)
            finally:
                self._threads.discard(thread)

        thread = threading.Thread(target=work, name="seamline-run-async")
        self._threads.add(thread)
        thread.start()

    def join(self) -> None:
        """Wait for every run but one that this very thread carries out."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join()
