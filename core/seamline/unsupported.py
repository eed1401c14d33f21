"""
What an interface offers elsewhere and not here: said aloud, never passed over.

A call that cannot be honoured raises :class:`UnsupportedError`. An option that changes
nothing is accepted, so that a program written for ONNX Runtime starts, and is named in
one :class:`UnusedOptionWarning`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from seamline.caller import caller_level
from seamline.errors import SeamlineError

__all__ = [
    "UnsupportedAttributeError",
    "UnsupportedError",
    "UnusedOptionWarning",
    "warn_unused",
]


class UnsupportedError(SeamlineError, NotImplementedError):
    """
    Something that ONNX Runtime has and seamline does not.

    Attributes
    ----------
    what
        The call or the option, as the caller wrote it.
    instead
        What to do.
    """

    def __init__(self, what: str, instead: str) -> None:
        self.what = what
        self.instead = instead
        super().__init__(f"{what} is not supported: {instead}")


class UnsupportedAttributeError(UnsupportedError, AttributeError):
    """The same for a method that is not there, so that ``hasattr`` says no."""


class UnusedOptionWarning(UserWarning):
    """Options were set that change nothing here; the message names them."""


def warn_unused(where: str, names: Iterable[str]) -> None:
    """Name options that were set and change nothing, in one warning; none, no warning."""
    given = list(names)
    if given:
        warnings.warn(
            f"{where}: no effect in seamline: {', '.join(given)}",
            UnusedOptionWarning,
            stacklevel=caller_level(),
        )
