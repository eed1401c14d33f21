"""What every claim of a kernel with 32-bit positions tests: tensors, of fewer than 2**31 elements."""

from __future__ import annotations

import math
from collections.abc import Callable

from seamline.provider import NodeView
from seamline.tensors import TensorType, numpy_dtype

__all__ = ["LIMIT", "bytes_of", "rank_of", "unfit", "within_limits"]

LIMIT = 1 << 31  #: elements of a tensor whose places are counted in 32 bits


def unfit(node: NodeView) -> str | None:
    """Give a reason to refuse a node for what its operands are; None where they fit."""
    for kind in (*node.inputs, *node.outputs):
        if kind is None:
            continue
        if not isinstance(kind, TensorType):
            return f"a {kind} is no tensor"
        if kind.is_sized and math.prod(kind.sizes) >= LIMIT:
            return f"{kind} has {LIMIT} elements or more"
    return None


def within_limits(
    more: Callable[[NodeView], str | None],
) -> Callable[[NodeView], str | None]:
    """Join :func:`unfit` with what else a claim tests."""
    return lambda node: unfit(node) or more(node)


def rank_of(node: NodeView, index: int = 0) -> int | None:
    """Give the rank of an input where it is known."""
    kind = node.tensor(index)
    return None if kind is None or kind.shape is None else len(kind.shape)


def bytes_of(dtype: str) -> int:
    """Give the bytes of one element in memory."""
    return numpy_dtype(dtype).itemsize
