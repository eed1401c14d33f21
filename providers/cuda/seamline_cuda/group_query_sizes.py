"""Sizes of GroupQueryAttention: what fits, and what its workspace holds."""

from __future__ import annotations

import math

import attrs

from seamline.provider import NodeView
from seamline_cuda.attention_places import WIDEST, WIDTHS, aligned
from seamline_cuda.attention_works import room_of

__all__ = [
    "GroupedSizes",
    "grouped_rooms",
    "grouped_sizes",
    "grouped_workspace",
    "queries_change",
    "unfit_grouped",
]


@attrs.frozen
class GroupedSizes:
    """Entries, new rows, heads, values of heads, and rows of the past and the present."""

    batch: int
    rows: int
    heads: int
    kv: int
    depth: int
    width: int
    before: int
    capacity: int


def grouped_sizes(node: NodeView) -> GroupedSizes | None:
    """Give the sizes of a node whose types are sized, else None."""
    query, value, past, present = (*(node.tensor(i) for i in (0, 2, 3)), _present(node))
    if query is None or not query.is_sized or len(query.sizes) != 3:
        return None
    for index, kind in ((2, value), (3, past)):
        if node.has_input(index) and (kind is None or not kind.is_sized):
            return None
    heads, kv = (int(node.attributes.get(f"{n}num_heads", 0)) for n in ("", "kv_"))
    if heads < 1 or kv < 1:
        return None
    packed = not node.has_input(1)
    depth = query.sizes[2] // (heads + 2 * kv if packed else heads)
    width = depth if packed or value is None else value.sizes[2] // kv
    before = past.sizes[2] if past is not None else 0
    batch, rows = query.sizes[:2]
    if present is None:
        return None
    return GroupedSizes(batch, rows, heads, kv, depth, width, before, present)


def _present(node: NodeView) -> int | None:
    """Give the rows of the present cache, all there can be where it is not asked for."""
    if node.has_output(1):
        kind = node.outputs[1]
        sized = kind is not None and getattr(kind, "is_sized", False)
        return kind.sizes[2] if sized else None  # type: ignore[union-attr]
    query, past = node.tensor(0), node.tensor(3)
    if query is None or not query.is_sized or (past is not None and not past.is_sized):
        return None
    return query.sizes[1] + (past.sizes[2] if past is not None else 0)


def unfit_grouped(node: NodeView) -> str | None:
    """Give a reason to refuse a node whose form is right."""
    heads, kv = (int(node.attributes.get(f"{n}num_heads", 0)) for n in ("", "kv_"))
    if heads < 1 or kv < 1 or heads % kv:
        return f"num_heads {heads} do not divide among kv_num_heads {kv}"
    sizes = grouped_sizes(node)
    if (why := _unfit_batch(node)) or sizes is None:
        return why
    if not (0 < sizes.depth <= WIDEST and 0 < sizes.width <= WIDEST):
        wide = f"{sizes.depth} and {sizes.width}"
        return f"its heads have {wide} values, and 1 to {WIDEST} are what a tile holds"
    table = node.tensor(7)
    if node.attributes.get("do_rotary", 0) and table is not None and table.is_sized:
        half = table.sizes[1]
        if 2 * half > sizes.depth:
            return f"tables {half} wide rotate no head of {sizes.depth} values"
    return _unfit_bias(node, sizes)


def _unfit_batch(node: NodeView) -> str | None:
    query = node.tensor(0)
    if query is None or not query.is_sized:
        return None
    batch = query.sizes[0]
    for index, name in ((5, "seqlens_k"), (16, "query_seqlens")):
        kind = node.tensor(index) if node.has_input(index) else None
        if kind is not None and kind.is_sized and math.prod(kind.sizes) != batch:
            return f"{name} is {list(kind.sizes)}, the batch has {batch} entries"
    return None


def _unfit_bias(node: NodeView, sizes: GroupedSizes) -> str | None:
    bias = node.tensor(10) if node.has_input(10) else None
    if bias is None or not bias.is_sized:
        return None
    shape, scores = bias.sizes, (sizes.batch, sizes.heads, sizes.rows)
    fits = len(shape) == 4 and shape[2] == sizes.rows
    if not fits or any(
        n not in (1, m) for n, m in zip(shape[:2], scores, strict=False)
    ):
        return f"attention_bias is {list(shape)}, and it is added to scores of {list(scores)} by key"
    return None


def queries_change(node: NodeView) -> bool:
    """Tell whether queries are changed before they are attended with."""
    return bool(node.attributes.get("do_rotary", 0)) or node.has_input(14)


def grouped_rooms(node: NodeView, sizes: GroupedSizes) -> tuple[int, int, int, int]:
    """Give the bytes of changed queries, caches that are not asked for, and parts."""
    kind = node.tensor(0)
    item = WIDTHS[kind.dtype] if kind is not None and kind.dtype in WIDTHS else 4
    queries = 4 * sizes.batch * sizes.rows * sizes.heads * sizes.depth
    rows = sizes.batch * sizes.kv * sizes.capacity * item
    parts = room_of(
        sizes.batch, sizes.kv, sizes.heads // sizes.kv, sizes.rows, sizes.capacity,
        sizes.depth, sizes.width,
    )  # fmt: skip
    return (
        aligned(queries) if queries_change(node) else 0,
        0 if node.has_output(1) else aligned(rows * sizes.depth),
        0 if node.has_output(2) else aligned(rows * sizes.width),
        parts,
    )


def grouped_workspace(node: NodeView) -> int:
    """Give the bytes of workspace of a node whose types are sized, else 0."""
    sizes = grouped_sizes(node)
    return sum(grouped_rooms(node, sizes)) if sizes is not None else 0
