"""
Which forms of the attentions are implemented: what a node carries, not how large it is.

Providers claim by these; sizes are compared in :mod:`seamline.attention_fitting`.
"""

from __future__ import annotations

from typing import Any

from seamline.provider import NodeView

__all__ = [
    "refused_attention",
    "refused_group_query",
    "refused_multi_head",
    "refused_projected",
    "refused_rotary",
    "refused_rotary_contrib",
]

_REFUSED_INPUTS = {12: "k_scale (a quantised cache)", 13: "v_scale (a quantised cache)"}
_REFUSED_ATTRIBUTES: dict[str, tuple[Any, str]] = {
    "causal": (1, "attention that is not causal"),
    "sliding_window_cache": (0, "a cache of only the window's rows"),
    "qk_output": (0, "giving the scores out"),
    "k_quant_type": ("NONE", "a quantised cache"),
    "v_quant_type": ("NONE", "a quantised cache"),
}


def refused_group_query(view: NodeView) -> str | None:
    """Say what of a GroupQueryAttention is not implemented, or None."""
    for index, what in _REFUSED_INPUTS.items():
        if view.has_input(index):
            return f"{what} is not implemented"
    for name, (accepted, what) in _REFUSED_ATTRIBUTES.items():
        if view.attributes.get(name, accepted) != accepted:
            return f"{name}={view.attributes[name]}: {what} is not implemented"
    if view.has_output(3):
        return "output 3 (the scores) is not implemented"
    return _refused_together(view) or _refused_types(view)


def _refused_together(view: NodeView) -> str | None:
    for first, second, names in (
        (1, 2, "key and value"),
        (3, 4, "past_key and past_value"),
        (7, 8, "cos_cache and sin_cache"),
        (14, 15, "q_norm_weight and k_norm_weight"),
    ):
        if view.has_input(first) != view.has_input(second):
            return f"{names} come together or not at all"
    if view.attributes.get("do_rotary", 0) and not view.has_input(7):
        return "do_rotary is set, and cos_cache and sin_cache are not given"
    return None


def _refused_types(view: NodeView) -> str | None:
    query, lengths = view.tensor(0), view.tensor(5)
    if lengths is None:
        return "seqlens_k is not given"
    if lengths.shape == ():
        return "seqlens_k is a scalar, not one length for each entry of the batch"
    if query is not None and query.shape is not None and len(query.shape) != 3:
        return f"the query has rank {len(query.shape)}, not 3"
    for index in (1, 2, 3, 4, 7, 8, 10, 11, 14, 15):
        other = view.tensor(index)
        if query is not None and other is not None and other.dtype != query.dtype:
            return f"input {index} is {other.dtype}, and the query {query.dtype}"
    return None


def refused_attention(view: NodeView) -> str | None:
    """Refuse ONNX's Attention whose inputs contradict one another."""
    past = view.has_input(4), view.has_input(5)
    if past[0] != past[1]:
        return "past_key and past_value come together or not at all"
    if past[0] and view.has_input(6):
        return "nonpad_kv_seqlen is for a cache kept outside, and past_key is given too"
    q = view.tensor(0)
    rank = None if q is None or q.shape is None else len(q.shape)
    if rank not in (None, 3, 4):
        return f"Q has rank {rank}, not 3 or 4"
    named = {"q_num_heads", "kv_num_heads"} <= set(view.attributes)
    if rank == 3 and not named:
        return "Q has rank 3, and q_num_heads and kv_num_heads are not both given"
    return None


def _rank(view: NodeView, index: int) -> int | None:
    kind = view.tensor(index)
    return None if kind is None or kind.shape is None else len(kind.shape)


def refused_multi_head(view: NodeView) -> str | None:
    """Say what of a MultiHeadAttention is not implemented, or None."""
    if _rank(view, 0) == 5 or _rank(view, 1) == 5:
        return "packed QKV or KV of rank 5 is not implemented"
    if not (view.has_input(1) and view.has_input(2)):
        return "a query without key and value (packed QKV) is not implemented"
    if view.has_input(8) or view.has_input(9):
        return "a shared cache buffer (past_sequence_length, cache_indirection) is not implemented"
    if view.has_input(6) != view.has_input(7):
        return "past_key and past_value come together or not at all"
    return None


def refused_projected(view: NodeView) -> str | None:
    """Say what of onnxruntime's Attention is not implemented, or None."""
    if view.attributes.get("do_rotary", 0):
        return "do_rotary is not implemented; rotate in RotaryEmbedding nodes"
    if view.attributes.get("past_present_share_buffer", 0) or view.has_input(6):
        return "a shared buffer for past and present is not implemented"
    if _rank(view, 3) == 4:
        return "a mask of rank 4 is not implemented"
    return None


def refused_rotary(view: NodeView) -> str | None:
    """Refuse RotaryEmbedding-23 of rank 3 that does not say its heads."""
    x = view.tensor(0)
    rank = None if x is None or x.shape is None else len(x.shape)
    if rank == 3 and not view.attributes.get("num_heads", 0):
        return "the input has rank 3, and num_heads is not given"
    return None


def refused_rotary_contrib(view: NodeView) -> str | None:
    """Say what of onnxruntime's RotaryEmbedding is not implemented, or None."""
    if view.attributes.get("is_packed_batching", 0):
        return "is_packed_batching (ragged batches) is not implemented"
    if view.attributes.get("scale", 1.0) != 1.0:
        return "a scale other than 1 is not implemented"
    return None
