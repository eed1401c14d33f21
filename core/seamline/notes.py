"""What was done another way than asked for, kept for ``explain`` and told where wanted."""

from __future__ import annotations

import warnings

import attrs

from seamline.caller import caller_level

__all__ = ["Notes", "SeamlineWarning"]


class SeamlineWarning(UserWarning):
    """Something was done another way than asked for, and says why."""


@attrs.define(eq=False)
class Notes:
    """
    Notes of one pipeline, in the order in which things happened.

    Attributes
    ----------
    aloud
        Each is a :class:`SeamlineWarning` too, which names the caller's line.
    """

    aloud: bool
    texts: list[str] = attrs.field(factory=list)

    def add(self, *texts: str) -> None:
        """Keep notes, and warn of each if that was asked for."""
        self.texts.extend(texts)
        for text in texts if self.aloud else ():
            warnings.warn(text, SeamlineWarning, stacklevel=caller_level())
