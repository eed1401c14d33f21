"""
Output types of attentions that ONNX does not define: onnxruntime's, and Seamline's own.

A present cache is as long as the past's buffer or as all tokens, whichever is more; the
number of all tokens is a value, often one that follows from the feeds' sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seamline.provider import NodeView
from seamline.tensors import Dim, TensorType, ValueType

__all__ = [
    "ATTENTION_TYPES",
    "attention_types",
    "group_query_types",
    "multi_head_types",
    "projected_types",
]


def _shape_of(node: NodeView, index: int) -> tuple[Dim, ...] | None:
    kind = node.tensor(index)
    return None if kind is None else kind.shape


def _over(total: Dim, parts: int) -> Dim:
    return total // parts if isinstance(total, int) and parts > 0 else None


def _plus(one: Dim, other: Dim) -> Dim:
    if one == 0 or other == 0:
        return other if one == 0 else one
    return one + other if isinstance(one, int) and isinstance(other, int) else None


def _asked(node: NodeView, kinds: Sequence[ValueType | None]) -> list[ValueType | None]:
    return list(kinds[: len(node.node.outputs)])


def attention_types(node: NodeView) -> list[ValueType | None]:
    """Give the queries' rows, as wide as the values, of Attention for older opsets."""
    q, v = node.tensor(0), node.tensor(2)
    if q is None:
        return [None]
    if not q.shape or v is None or v.shape is None or len(v.shape) != len(q.shape):
        return [TensorType(q.dtype, None)]
    width = v.shape[-1]
    heads, kv = (node.attributes.get(f"{n}_num_heads", 0) for n in ("q", "kv"))
    if len(q.shape) == 3:
        width = width // kv * heads if isinstance(width, int) and kv else None
    return [TensorType(q.dtype, (*q.shape[:-1], width))]


def group_query_types(node: NodeView) -> list[ValueType | None]:
    """Give the query's rows, and caches of ``max(past rows, total)`` rows."""
    query, past = node.tensor(0), node.tensor(3)
    if query is None:
        return [None]
    dtype, shape = query.dtype, query.shape
    if shape is None or len(shape) != 3:
        return _asked(node, [TensorType(dtype, None)] * 3)
    heads, kv = (node.attributes.get(n, 0) for n in ("num_heads", "kv_num_heads"))
    key, value = _shape_of(node, 1), _shape_of(node, 2)
    packed = not node.has_input(1)
    size = _over(shape[2], heads + 2 * kv if packed else heads)
    value_size = size if packed or value is None else _over(value[2], kv)
    hidden = heads * value_size if isinstance(value_size, int) else None
    if past is not None and past.shape is not None:
        before: Dim = past.shape[2]
    else:
        before = None if node.has_input(3) else 0
    rows = _capacity(node, before, shape[1])
    batch = shape[0]
    if not isinstance(batch, int) and key is not None and isinstance(key[0], int):
        batch = key[0]
    return _asked(
        node,
        [
            TensorType(dtype, (batch, shape[1], hidden)),
            TensorType(dtype, (batch, kv, rows, size)),
            TensorType(dtype, (batch, kv, rows, value_size)),
        ],
    )


def _capacity(node: NodeView, before: Dim, new: Dim) -> Dim:
    """Give the present's rows, no more than there can be: the kernel says what is wrong."""
    total = node.constant(6)
    if total is None or total.size != 1 or not isinstance(before, int):
        return None
    rows = max(before, int(total.reshape(-1)[0]))
    return min(rows, before + new) if isinstance(new, int) else rows


def multi_head_types(node: NodeView) -> list[ValueType | None]:
    """Give the query's rows as wide as the values, and caches longer by the keys."""
    query, heads = node.tensor(0), node.attributes.get("num_heads", 0)
    shape, key, value = (_shape_of(node, i) for i in range(3))
    if query is None:
        return []
    ranks = [0 if s is None else len(s) for s in (shape, key, value)]
    if shape is None or key is None or value is None or min(ranks) < 3:
        return _asked(node, [TensorType(query.dtype, None)] * 4)
    size = _over(shape[2], heads)
    wide = value[3] if len(value) == 4 else _over(value[2], heads)
    rows = key[2] if len(key) == 4 else key[1]
    past = _shape_of(node, 6)
    if node.has_input(6):
        rows = None if past is None else _plus(past[2], rows)
    hidden = (
        value[2] if len(value) == 3 else heads * wide if isinstance(wide, int) else None
    )
    kinds = [
        (shape[0], shape[1], hidden),
        (shape[0], heads, rows, size),
        (shape[0], heads, rows, wide),
        (shape[0], heads, shape[1], rows),
    ]
    return _asked(node, [TensorType(query.dtype, kind) for kind in kinds])


def projected_types(node: NodeView) -> list[ValueType | None]:
    """Give a third of the projection, or the size named; a cache longer by the rows."""
    x, weights = node.tensor(0), _shape_of(node, 1)
    if x is None:
        return []
    if x.shape is None or len(x.shape) != 3 or weights is None or len(weights) != 2:
        return _asked(node, [TensorType(x.dtype, None)] * 2)
    batch, length = x.shape[:2]
    heads, sizes = (
        node.attributes.get("num_heads", 0),
        node.attributes.get("qkv_hidden_sizes"),
    )
    hidden = sizes[2] if sizes else _over(weights[1], 3)
    past = _shape_of(node, 4)
    rows: Dim = length
    if node.has_input(4):
        rows = None if past is None else _plus(past[3], length)
    present = (2, batch, heads, rows, _over(hidden, heads))
    return _asked(
        node,
        [TensorType(x.dtype, (batch, length, hidden)), TensorType(x.dtype, present)],
    )


#: By operator of ``com.microsoft``.
ATTENTION_TYPES: dict[str, Callable[[NodeView], list[ValueType | None]]] = {
    "Attention": projected_types,
    "GroupQueryAttention": group_query_types,
    "MultiHeadAttention": multi_head_types,
}
