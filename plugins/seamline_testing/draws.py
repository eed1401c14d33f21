"""
What draws are held to: their values are some generator's, their properties are not.

The suite's stored draws are those of NumPy's generator, which no standard asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from seamline.tensors import dtype_name
from seamline_testing.comparing import differences
from seamline_testing.values import widened

__all__ = ["PROPERTIES", "Property", "property_of"]

#: Takes the inputs in order, what was given and what is stored; says what is wrong.
Property = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], str]


def _bernoulli(inputs: Sequence[Any], got: Sequence[Any], stored: Sequence[Any]) -> str:
    """Hold draws to 0 and 1, of the type asked for, never 1 where p is 0."""
    (p,), (draw,), (like,) = inputs, got, stored
    if dtype_name(draw.dtype) != dtype_name(like.dtype) or draw.shape != like.shape:
        return f"{draw.dtype}{list(draw.shape)}, want {like.dtype}{list(like.shape)}"
    if not np.isin(draw, (0, 1)).all():
        return f"draws {np.unique(draw)}, want 0 and 1"
    return "it draws 1 where p is 0" if draw[p == 0].any() else ""


# Of fewer that are expected, none at all would be no surprise: e^-15 is 3e-7.
_SURELY_SOME = 15


def _dropout(inputs: Sequence[Any], got: Sequence[Any], stored: Sequence[Any]) -> str:
    """Hold each element to 0 or x / (1 - ratio), and to what the mask says of it."""
    x, ratio, out = inputs[0], float(inputs[1]), got[0]
    for value, like in zip(got, stored, strict=True):
        if dtype_name(value.dtype) != dtype_name(like.dtype) or value.shape != x.shape:
            return f"{value.dtype}{list(value.shape)}, want {like.dtype}{list(x.shape)}"
    kept = got[1] if len(got) > 1 else (widened(out) != 0) | (widened(x) == 0)
    scaled = widened(x) / (1 - ratio) if ratio < 1 else np.zeros(x.shape)
    wanted = np.where(kept, scaled, 0).astype(out.dtype)
    wrong = differences([out], [wanted], "rounded")
    if wrong:
        return f"neither 0 nor x / (1 - ratio), or not as the mask says: {wrong}"
    count = int(np.count_nonzero(kept))
    if not count and x.size * (1 - ratio) >= _SURELY_SOME:
        return f"it drops all of {x.size} elements at the ratio {ratio}"
    if count == x.size and x.size * ratio >= _SURELY_SOME:
        return f"it drops none of {x.size} elements at the ratio {ratio}"
    return ""


#: Operators that always draw -> what their cases are held to.
PROPERTIES: Mapping[str, Property] = {"Bernoulli": _bernoulli}


def property_of(operator: str, inputs: Sequence[Any]) -> Property | None:
    """Give what a draw is held to; None where the inputs ask for none."""
    if operator == "Dropout":
        training = len(inputs) > 2 and inputs[2] is not None and bool(inputs[2])
        return _dropout if training else None
    return PROPERTIES.get(operator)
