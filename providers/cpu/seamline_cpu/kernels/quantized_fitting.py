"""Whether packed weights and tables fit their scales and zero points."""

from __future__ import annotations

from seamline.fitting import dims, unlike
from seamline.provider import NodeView
from seamline.scale_fitting import blocks_of

__all__ = ["unfit_blocks", "unfit_table"]


def unfit_blocks(view: NodeView) -> str | None:
    """Refuse weights, scales or zero points that are not those of N rows of K codes."""
    given = view.attributes
    k, n, block, bits = (
        given.get(name, 4) for name in ("K", "N", "block_size", "bits")
    )
    if min(k, n) < 0 or block < 1 or block * bits % 8:
        return (
            f"its weights are {n} rows of {k} codes of {bits} bits in blocks of {block}"
        )
    a, weights = dims(view, 0), dims(view, 1)
    if a is not None and (not a or (isinstance(a[-1], int) and a[-1] != k)):
        return f"its input is {list(a)}, and K is {k}"
    if weights is not None and 0 in weights:  # an omitted projection
        return unlike(view, 5, "bias", (n,))
    blocks = -(-k // block)
    points = view.tensor(3)
    packed = points is not None and points.dtype == "uint8"
    each = -(-blocks * bits // 8) if packed else blocks
    return (
        unlike(view, 1, "weights", (n, blocks, block * bits // 8))
        or unlike(view, 2, "scales", (n, blocks), (n * blocks,))
        or unlike(view, 3, "zero points", (n, each), (n * each,))
        or unlike(view, 5, "bias", (n,))
    )


def unfit_table(view: NodeView) -> str | None:
    """Refuse scales or zero points that are not one for each block of a table."""
    kind, block = view.tensor(0), view.attributes.get("block_size", 128)
    floats = kind is not None and kind.dtype.startswith("float")
    if block < (0 if floats else 1):
        return f"its block_size is {block}"
    if kind is None or not kind.shape:
        return None
    axis = view.attributes.get("quantize_axis", 1)
    if not -len(kind.shape) <= axis < len(kind.shape):
        return f"its quantize_axis is {axis}, and its table has {len(kind.shape)} axes"
    axis, sizes = axis % len(kind.shape), list(kind.shape)
    each = 8 // view.attributes.get("bits", 4) if kind.dtype == "uint8" else 1
    size = sizes[axis]
    if block:
        sizes[axis] = blocks_of(size * each, block) if isinstance(size, int) else None
    else:
        sizes[axis] = 1
    points = list(sizes)
    count = sizes[axis]
    points[axis] = blocks_of(count, each) if isinstance(count, int) else None
    scales = dims(view, 2)
    if floats and scales is not None and len(scales) == len(sizes):
        # Of floats, a scale may serve a whole axis but the one in blocks.
        pairs = enumerate(zip(scales, sizes, strict=True))
        sizes = [1 if a == 1 and i != axis else b for i, (a, b) in pairs]
    return unlike(view, 2, "scales", tuple(sizes)) or unlike(
        view, 3, "zero points", tuple(points)
    )
