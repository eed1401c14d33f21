"""Who declines what, over the conformance kit's random models."""

from __future__ import annotations

from hypothesis import strategies as st

from seamline_testing.random_graphs import Case, cases, evaluate

__all__ = ["Case", "cases", "evaluate", "masks"]

_SOME_DECLINE = [(), ("a",), ("b",), ("far",), ("a", "b"), ("a", "far"), ("b", "far")]


@st.composite
def masks(draw, names):
    """Draw for each node who declines it; at least one of the three does not."""
    declined = {"a": set(), "b": set(), "far": set()}
    for name in names:
        for who in draw(st.sampled_from(_SOME_DECLINE)):
            declined[who].add(name)
    return declined
