"""A capture under way: work is written down instead of done, and nothing else may happen."""

from __future__ import annotations

import threading

import attrs

from seamline.errors import RecordingError
from seamline_testing.twin.streams import Operation

__all__ = ["Capture"]


@attrs.define(eq=False)
class Capture:
    """
    What is being recorded, by whom, and at which node.

    Attributes
    ----------
    node
        The node whose work is being recorded; errors name it.
    operations
        What was recorded so far.
    """

    provider: str
    segment: str
    node: str = ""
    operations: list[Operation] = attrs.field(factory=list)
    _owner: int = attrs.field(factory=threading.get_ident, init=False)

    def is_mine(self) -> bool:
        """Tell whether the calling thread records."""
        return threading.get_ident() == self._owner

    def refuse(self, what: str) -> None:
        """
        Refuse what cannot be recorded.

        Raises
        ------
        RecordingError
            Names the node.
        """
        raise RecordingError(
            f"it {what}, which cannot be recorded",
            provider=self.provider,
            segment=self.segment,
            node=self.node,
        )
