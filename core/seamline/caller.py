"""Where a warning is shown: at the caller's own line, however deep in here it arose."""

from __future__ import annotations

import sys

__all__ = ["caller_level"]


def caller_level() -> int:
    """
    Give the ``stacklevel`` of the first caller outside this package.

    The same warning arises under a session, a pipeline or a command, at other depths.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    return level


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "seamline"
