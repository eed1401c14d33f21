"""Hold Python's cyclic collector off while a stage makes many objects and no garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]


@contextmanager
def collector_paused() -> Iterator[None]:
    """
    Hold the cyclic collector off.

    A stage makes hundreds of thousands of objects and no garbage; looking through them
    again and again takes longer than making them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
