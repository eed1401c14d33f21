"""The levels of graph optimization, as ONNX Runtime names and numbers them."""

from __future__ import annotations

import enum

from seamline.errors import near

__all__ = ["GraphOptimizationLevel", "level_of"]


class GraphOptimizationLevel(enum.IntEnum):
    """How much a graph is rewritten before it runs."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


_SHORT = {
    "none": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def level_of(given: GraphOptimizationLevel | int | str) -> GraphOptimizationLevel:
    """
    Read a level: ONNX Runtime's name or number, or ``none``, ``basic``, ... ``all``.

    Raises
    ------
    ValueError
        It is none of them.

    Examples
    --------
    >>> level_of("basic").name, level_of("ORT_DISABLE_ALL").value, level_of(99).name
    ('ORT_ENABLE_BASIC', 0, 'ORT_ENABLE_ALL')
    """
    if isinstance(given, str):
        names = {**_SHORT, **GraphOptimizationLevel.__members__}
        if given in names:
            return names[given]
        raise ValueError(
            f"no level of graph optimization is called {given!r}{near(given, names)} "
            f"(there are: {', '.join(names)})"
        )
    return GraphOptimizationLevel(given)
