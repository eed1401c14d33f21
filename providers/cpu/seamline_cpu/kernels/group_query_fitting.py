"""The inputs of onnxruntime's GroupQueryAttention by head."""

from __future__ import annotations

import attrs

from seamline.kernels import Call
from seamline.provider import Array

__all__ = ["Heads", "heads_of"]


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
