"""
What a file declares of a value beside what inference finds.

A declaration is a hint: it fills in what inference leaves open, and may be of another
input size. Its element type is none: a value that is declared as another type than its
node gives is refused, since whoever reads the declaration would be misled.
"""

from __future__ import annotations

from seamline.errors import PlanError
from seamline.graph import Node
from seamline.tensors import TensorType, ValueType, unheld

__all__ = ["held", "is_open", "is_sized", "merged"]


def held(
    node: Node, name: str, found: ValueType | None, declared: ValueType | None
) -> ValueType | None:
    """
    Give an output's type, if it is as declared and there can be an array of it.

    Raises
    ------
    PlanError
        Names the node and the output.
    """
    if _unlike(found, declared):
        raise PlanError(
            f"node {node.name!r} ({node.qualified_op}): its output {name!r} is declared as "
            f"{declared}, and it gives {found}"
        )
    kind = merged(found, declared)
    if reason := unheld(kind):
        raise PlanError(
            f"node {node.name!r} ({node.qualified_op}): its output {name!r} comes to "
            f"{kind}: {reason}"
        )
    return kind


def merged(found: ValueType | None, declared: ValueType | None) -> ValueType | None:
    """Fill from the file's declaration what inference left open: type and rank."""
    if found is None:
        if isinstance(declared, TensorType) and declared.shape is not None:
            # A declared size may be a leftover of another input size; a type is not.
            return TensorType(declared.dtype, (None,) * len(declared.shape))
        return declared
    if (
        isinstance(found, TensorType)
        and found.shape is None
        and isinstance(declared, TensorType)
        and declared.shape is not None
    ):
        return TensorType(found.dtype, (None,) * len(declared.shape))
    return found


def is_sized(kind: ValueType | None) -> bool:
    """Tell whether a type is a tensor's, with every size known."""
    return isinstance(kind, TensorType) and kind.is_sized


def is_open(kind: ValueType | None) -> bool:
    """Tell whether a type is a tensor's, with a size that is not known."""
    return isinstance(kind, TensorType) and not kind.is_sized


def _unlike(found: ValueType | None, declared: ValueType | None) -> bool:
    """Tell whether a value is declared as another element type than its node gives."""
    if not isinstance(found, TensorType) or not isinstance(declared, TensorType):
        return False
    return found.dtype != declared.dtype
