"""Whether scales and zero points fit the tensor that they are for, for any provider."""

from __future__ import annotations

from seamline.fitting import dims, unlike
from seamline.provider import NodeView
from seamline.tensors import Dim

__all__ = ["blocks_of", "scale_axis", "unfit_scales"]


def scale_axis(view: NodeView, rank: int) -> int:
    """Give the axis, from the front, that scales of QuantizeLinear and its inverse lie along."""
    axis = int(view.attributes.get("axis", 1))
    # The default lies outside of a vector.
    return 0 if rank == 1 and axis == 1 else axis % max(rank, 1)


def unfit_scales(view: NodeView) -> str | None:
    """Refuse scales that are neither one, nor one a place of the axis, nor one a block."""
    x, scale = dims(view, 0), dims(view, 1)
    block = view.attributes.get("block_size", 0)
    if block < 0:
        return f"its block_size is {block}"
    if x is None or scale is None:
        return None
    single = scale in ((), (1,))
    if view.has_input(2) and (
        reason := unlike(view, 2, "zero point", *(((), (1,)) if single else (scale,)))
    ):
        return reason
    if single and not block:
        return None
    axis = view.attributes.get("axis", 1)
    axis = 0 if len(x) == 1 and axis == 1 else axis  # the default lies outside a vector
    if not -len(x) <= axis < len(x):
        return f"axis {axis} is outside of an input of {len(x)} axes"
    if not block and len(scale) > 1:
        return f"its scale is {list(scale)}, which needs a block_size"
    if not block:
        reason = unlike(view, 1, "scale", (x[axis],), *(((), (1,)) if single else ()))
        return f"{reason} along axis {axis}" if reason else None
    blocks = [blocks_of(n, block) if i == axis % len(x) else n for i, n in enumerate(x)]
    return unlike(view, 1, "scale", tuple(blocks))


def blocks_of(size: Dim, block: int) -> Dim:
    """Give how many blocks cover a size; None where that is not known."""
    return -(-size // block) if isinstance(size, int) else None
