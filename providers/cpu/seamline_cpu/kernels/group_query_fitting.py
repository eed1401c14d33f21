"""What of onnxruntime's GroupQueryAttention is not implemented, and inputs by head."""

from __future__ import annotations

from typing import Any

import attrs

from seamline.kernels import Call
from seamline.provider import Array, NodeView

__all__ = ["Heads", "heads_of", "not_implemented"]

_REFUSED_INPUTS = {12: "k_scale (a quantised cache)", 13: "v_scale (a quantised cache)"}
_REFUSED_ATTRIBUTES: dict[str, tuple[Any, str]] = {
    "causal": (1, "attention that is not causal"),
    "sliding_window_cache": (0, "a cache of only the window's rows"),
    "qk_output": (0, "giving the scores out"),
    "k_quant_type": ("NONE", "a quantised cache"),
    "v_quant_type": ("NONE", "a quantised cache"),
}


def not_implemented(view: NodeView) -> str | None:
    """Say what of a node is not implemented, or None."""
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


@attrs.frozen(eq=False)
class Heads:
    """The new rows by head, (batch, rows, heads, size), and how heads share keys."""

    query: Array
    key: Array
    value: Array


def heads_of(call: Call) -> Heads:
    """View the inputs by head; a packed query holds its own heads, keys' and values'."""
    heads, kv = int(call.attr("num_heads")), int(call.attr("kv_num_heads"))
    if kv <= 0 or heads <= 0 or heads % kv:
        raise ValueError(f"num_heads {heads} do not divide among kv_num_heads {kv}")
    query, key, value = (call.input(i) for i in range(3))
    if key is None:
        every = _by_head(query, heads + 2 * kv, "packed query")
        return Heads(every[:, :, :heads], every[:, :, heads:-kv], every[:, :, -kv:])
    for x, name in ((key, "key"), (value, "value")):
        if x.shape[:2] != query.shape[:2]:
            raise ValueError(
                f"{name} is {list(x.shape)}: it has the query's batch and length, "
                f"{list(query.shape[:2])}"
            )
    made = (
        _by_head(query, heads, "query"),
        _by_head(key, kv, "key"),
        _by_head(value, kv, "value"),
    )
    if made[0].shape[3] != made[1].shape[3]:
        raise ValueError(
            f"a head of the query has {made[0].shape[3]} values, one of the key "
            f"{made[1].shape[3]}"
        )
    return Heads(*made)


def _by_head(x: Array, heads: int, name: str) -> Array:
    if x.shape[2] % heads:
        raise ValueError(
            f"{name} of {x.shape[2]} values does not divide into {heads} heads"
        )
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads)
