"""
What draws are held to: their values are some generator's, their properties are not.

The suite's stored draws are those of NumPy's generator, which no standard asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from seamline.tensors import dtype_name

__all__ = ["PROPERTIES", "Property"]

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


#: Operator -> what its cases are held to.
PROPERTIES: Mapping[str, Property] = {"Bernoulli": _bernoulli}
