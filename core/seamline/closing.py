"""Closing several things, all of them even where one fails."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Protocol

__all__ = ["close_all"]


class _Closes(Protocol):
    def close(self) -> object: ...


def close_all(things: Iterable[_Closes]) -> None:
    """
    Close things, the last first; a failure is raised once all have been tried.

    Raises
    ------
    Exception
        What the last to fail raised; those before it are its context.
    """
    with ExitStack() as stack:
        for thing in things:
            stack.callback(thing.close)
