"""What claims of row operators ask of types and sizes."""

from __future__ import annotations

from seamline.provider import NodeView
from seamline.tensors import TensorType
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.limits import rank_of, unfit

__all__ = ["elements_fit", "rows_fit", "sizes_of"]


def sizes_of(node: NodeView, index: int) -> tuple[int, ...] | None:
    """Give an input's sizes, or None where one of them is not known yet."""
    kind = node.tensor(index)
    return kind.sizes if kind is not None and kind.is_sized else None


def elements_fit(node: NodeView) -> str | None:
    """Refuse what has no element type here, or too many elements."""
    if reason := unfit(node):
        return reason
    for kind in (*node.inputs, *node.outputs):
        if isinstance(kind, TensorType) and kind.dtype not in ELEMENTS:
            return f"it makes or reads {kind.dtype}, which the device has not"
    return None


def rows_fit(node: NodeView) -> str | None:
    """Refuse what has no element type here, an unknown rank, or too many elements."""
    reason = elements_fit(node)
    if reason is None and rank_of(node) is None:
        return "its input's rank is not known; a declared one would be accepted"
    return reason
