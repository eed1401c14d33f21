"""Whether heads, caches, masks and rotary tables of attention fit one another."""

from __future__ import annotations

from seamline.fitting import Check, dims, unlike
from seamline.provider import NodeView
from seamline.tensors import Dim

__all__ = ["unfit_attention", "unfit_group_query", "unfit_projected", "unfit_rotary"]


def _split(size: Dim, heads: int) -> Dim:
    return size // heads if isinstance(size, int) and heads > 0 else None


def _plus(one: Dim, other: Dim) -> Dim:
    return one + other if isinstance(one, int) and isinstance(other, int) else None


def unfit_attention(view: NodeView) -> str | None:
    """Refuse keys, values, caches or a mask of other sizes than the queries'."""
    shapes = [dims(view, index) for index in range(3)]
    if any(shape is None for shape in shapes):
        return None
    q, k, v = (shape for shape in shapes if shape is not None)
    if {len(q), len(k), len(v)} not in ({3}, {4}):
        return f"Q, K and V have {len(q)}, {len(k)} and {len(v)} axes"
    heads, kv = (view.attributes.get(f"{n}_num_heads", 0) for n in ("q", "kv"))
    if len(q) == 3:
        for shape, count in ((q, heads), (k, kv), (v, kv)):
            if count < 1 or (isinstance(shape[2], int) and shape[2] % count):
                return f"{shape[2]} values do not divide into {count} heads"
        q, k, v = (
            (shape[0], count, shape[1], _split(shape[2], count))
            for shape, count in ((q, heads), (k, kv), (v, kv))
        )
    if isinstance(q[1], int) and isinstance(k[1], int) and (not k[1] or q[1] % k[1]):
        return f"{q[1]} heads of queries do not divide among {k[1]} of keys"
    return _unfit_keys(view, q, k, v) or _unfit_rest(view, q, k, v)


def _unfit_keys(
    view: NodeView, q: tuple[Dim, ...], k: tuple[Dim, ...], v: tuple[Dim, ...]
) -> str | None:
    for name, mine, wanted in (
        ("K", k, (q[0], None, None, q[3])),
        ("V", v, (q[0], k[1], k[2], None)),
    ):
        for one, other in zip(mine, wanted, strict=True):
            if isinstance(one, int) and isinstance(other, int) and one != other:
                return f"its {name} is {list(mine)} by head, not {list(wanted)}"
    return None


def _unfit_rest(
    view: NodeView, q: tuple[Dim, ...], k: tuple[Dim, ...], v: tuple[Dim, ...]
) -> str | None:
    past = dims(view, 4)
    before: Dim = 0
    if view.has_input(4):
        before = None if past is None or len(past) != 4 else past[2]
    mask, keys = dims(view, 3), _plus(before, k[2])
    reason = (
        unlike(view, 4, "past_key", (q[0], k[1], before, k[3]))
        or unlike(view, 5, "past_value", (q[0], k[1], before, v[3]))
        or unlike(view, 6, "nonpad_kv_seqlen", (q[0],))
    )
    if reason or mask is None:
        return reason
    whole = (q[0], q[1], q[2])[4 - len(mask) :] if 0 < len(mask) < 5 else None
    if whole is None or any(
        isinstance(a, int) and isinstance(b, int) and a not in (1, b)
        for a, b in zip(mask[:-1], whole, strict=True)
    ):
        return f"its mask is {list(mask)}, and the scores are {[*q[:3], keys]}"
    last = mask[-1]
    if isinstance(last, int) and isinstance(keys, int) and not 0 < last <= keys:
        return f"its mask spans {last} keys of {keys}"  # a shorter one hides the rest
    return None


def unfit_projected(view: NodeView) -> str | None:
    """Refuse sizes of onnxruntime's attentions, by themselves or with a projection."""
    heads = view.attributes.get("num_heads", 0)
    x = dims(view, 0)
    if heads < 1:
        return f"its num_heads is {heads}"
    if x is None:
        return None
    if len(x) != 3:
        return f"its input has {len(x)} axes, not 3"
    if view.op_type == "MultiHeadAttention":
        return _unfit_multi_head(view, x, heads)
    weights = dims(view, 1)
    wide = weights[1] if weights is not None and len(weights) == 2 else None
    return unlike(view, 1, "weights", (x[2], None)) or unlike(view, 2, "bias", (wide,))


def _unfit_multi_head(view: NodeView, q: tuple[Dim, ...], heads: int) -> str | None:
    k, v = dims(view, 1), dims(view, 2)
    size = _split(q[2], heads)
    if isinstance(q[2], int) and q[2] % heads:
        return f"{q[2]} values do not divide into {heads} heads"
    reason = unlike(
        view, 1, "key", (q[0], None, q[2]), (q[0], heads, None, size)
    ) or unlike(view, 2, "value", (q[0], None, None), (q[0], heads, None, None))
    if reason or k is None or v is None:
        return reason
    keys, values = (s[1] if len(s) == 3 else s[2] for s in (k, v))
    if isinstance(keys, int) and isinstance(values, int) and keys != values:
        return f"it has {keys} keys and {values} values"
    wide = v[2] if len(v) == 3 else None
    total = _plus(_plus(q[2], q[2]), wide)
    return unlike(view, 3, "bias", (total,))


def unfit_group_query(view: NodeView) -> str | None:
    """Refuse caches, lengths and tables that do not fit the queries and their heads."""
    query = dims(view, 0)
    heads, kv = (view.attributes.get(n, 0) for n in ("num_heads", "kv_num_heads"))
    if query is None or len(query) != 3 or heads < 1 or kv < 1:
        return None
    packed = not view.has_input(1)
    size = _split(query[2], heads + 2 * kv if packed else heads)
    value = dims(view, 2)
    wide = size if packed else None
    if value is not None and len(value) == 3:
        wide = _split(value[2], kv)
    past = dims(view, 3)
    before = past[2] if past is not None and len(past) == 4 else None
    batch = query[0]
    total = view.constant(6)
    most = _plus(before if view.has_input(3) else 0, query[1])
    if total is not None and total.size == 1 and isinstance(most, int):
        asked = int(total.reshape(-1)[0])
        if asked > most:
            return (
                f"its total_sequence_length is {asked}, and {most} tokens are the most that "
                f"{before or 0} cached rows and {query[1]} new ones can be"
            )
    return (
        unlike(view, 1, "key", (*query[:2], None))
        or unlike(view, 2, "value", (*query[:2], None))
        or unlike(view, 3, "past_key", (batch, kv, before, size))
        or unlike(view, 4, "past_value", (batch, kv, before, wide))
        or unlike(view, 6, "total_sequence_length", (), (1,))
        or unlike(view, 8, "sin_cache", dims(view, 7))
        or unlike(view, 14, "q_norm_weight", (size,))
        or unlike(view, 15, "k_norm_weight", (size,))
    )


def unfit_rotary(cos: int, sin: int, positions: int) -> Check:
    """Give the check of rotary tables, of one shape, and of a position for each row."""

    def check(view: NodeView) -> str | None:
        x, table = dims(view, 0), dims(view, cos)
        if x is None or len(x) not in (3, 4):
            return None if x is None else f"its input has {len(x)} axes, not 3 or 4"
        rows = (x[0], x[1] if len(x) == 3 else x[2])
        if not view.has_input(positions):
            half = None if table is None else table[-1:]
            form = (*rows, None) if not half else (*rows, *half)
            return unlike(view, cos, "cos_cache", form) or unlike(
                view, sin, "sin_cache", form
            )
        start = ((1,),) if view.domain else ()
        return (
            unlike(view, cos, "cos_cache", (None, None))
            or unlike(view, sin, "sin_cache", table)
            or unlike(view, positions, "position_ids", rows, *start)
        )

    return check
