"""What a session keeps of its plans for those of other sizes; see :mod:`seamline.earlier`."""

from __future__ import annotations

import attrs

from seamline.earlier import Earlier, Typed
from seamline.placement import Choice

__all__ = ["EarlierPlans"]


@attrs.define(eq=False)
class EarlierPlans:
    """
    Types and choices by node, of one set of constants, for nodes of the main graph.

    What a body or a rest knows from outside is not looked at.
    """

    types: Earlier[Typed] = attrs.field(factory=Earlier)
    choices: Earlier[Choice] = attrs.field(factory=Earlier)
