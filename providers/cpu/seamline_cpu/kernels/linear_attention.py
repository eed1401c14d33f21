"""Recurrences of linear attention, the short convolution before them, and SwiGLU."""

from __future__ import annotations

import numpy as np

from seamline.provider import Array, NodeView
from seamline.tensors import FLOATS
from seamline_cpu.table import TABLE

__all__: list[str] = []


def _wide(x: Array) -> Array:
    return x if x.dtype == np.float64 else x.astype(np.float32)


def _silu(x: Array, alpha: float = 1.0) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(x / (1 + np.exp(-x.dtype.type(alpha) * x)))


@TABLE.simple("SwiGLU", dtypes=FLOATS)
def swiglu(gate: Array, value: Array, *, alpha: float = 1.0) -> Array:
    """Give ``Swish(gate) * value``."""
    return (_silu(_wide(gate), alpha) * _wide(value)).astype(gate.dtype)


def _unknown_activation(node: NodeView) -> str | None:
    name = node.attributes.get("activation", "none")
    return None if name in {"none", "silu", "swish"} else f"activation {name!r}"


@TABLE.simple("CausalConvWithState", dtypes=FLOATS, when=_unknown_activation)
def causal_conv_with_state(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    past: Array | None = None,
    *,
    activation: str = "none",
) -> tuple[Array, Array]:
    """
    Convolve each channel with its kernel over the present and what came before.

    Parameters
    ----------
    x
        ``[batch, channels, length]``.
    weight
        ``[channels, 1, k]``.
    past
        The k - 1 positions before; zeros where left out.

    Returns
    -------
    tuple
        The output, of the shape of ``x``, and the last k - 1 positions.
    """
    taps, length = weight.shape[2], x.shape[2]
    if past is None:
        past = np.zeros((*x.shape[:2], taps - 1), x.dtype)
    whole = np.concatenate([past, x], 2)
    source, kernel = _wide(whole), _wide(weight)
    out = np.zeros(x.shape, source.dtype)
    for tap in range(taps):
        out += source[:, :, tap : tap + length] * kernel[:, :, tap]
    if bias is not None:
        out += _wide(bias)[:, None]
    if activation != "none":
        out = _silu(out)
    return out.astype(x.dtype), whole[:, :, whole.shape[2] - (taps - 1) :]


def _unfit(node: NodeView) -> str | None:
    """Refuse a rule whose inputs are missing, or given though it has no use for them."""
    rule = node.attributes.get("update_rule", "gated_delta")
    if rule not in {"linear", "gated", "delta", "gated_delta"}:
        return f"update_rule {rule!r} is not known"
    for index, name, part in ((4, "decay", "gated"), (5, "beta", "delta")):
        if node.has_input(index) != (part in rule):
            verb = "needs" if part in rule else "has no use for"
            return f"update_rule {rule!r} {verb} {name}"
    queries, keys = node.attributes["q_num_heads"], node.attributes["kv_num_heads"]
    if keys <= 0 or queries <= 0 or queries % keys:
        return f"{queries} query heads are no multiple of {keys} key heads"
    return None


def _heads(x: Array, heads: int) -> Array:
    """Turn ``[batch, time, heads * size]`` to ``[time, batch, heads, size]``."""
    if x.shape[2] % heads:
        raise ValueError(
            f"an input of {list(x.shape)} does not split into {heads} heads"
        )
    return _wide(x).reshape(*x.shape[:2], heads, -1).swapaxes(0, 1)


@TABLE.simple("LinearAttention", dtypes={0: FLOATS, 3: FLOATS}, when=_unfit)
def linear_attention(
    query: Array,
    key: Array,
    value: Array,
    past: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    kv_num_heads: int,
    q_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """
    Update a state of ``[batch, heads, key size, value size]`` token by token, and read it.

    Source: https://onnx.ai/onnx/operators/onnx__LinearAttention.html; ``chunk_size`` is a
    hint that changes no result.
    """
    q, k, v = _heads(query, q_num_heads), _heads(key, kv_num_heads), _heads(value, kv_num_heads)  # fmt: skip
    batch, tokens = query.shape[:2]
    kept = np.exp(_heads(decay, kv_num_heads)) if decay is not None else None
    rate = _wide(beta).swapaxes(0, 1)[..., None] if beta is not None else None
    shape = (batch, kv_num_heads, k.shape[3], v.shape[3])
    state = np.zeros(shape, q.dtype) if past is None else _wide(past).astype(q.dtype)
    factor = q.dtype.type(scale or 1 / np.sqrt(q.shape[3]))
    shared = q.reshape(tokens, batch, kv_num_heads, -1, q.shape[3])
    out = np.empty((tokens, batch, kv_num_heads, shared.shape[3], v.shape[3]), q.dtype)
    for t in range(tokens):
        if kept is not None:
            state = state * kept[t][..., None]
        update = v[t]
        if rate is not None:
            update = rate[t] * (update - np.einsum("bhkv,bhk->bhv", state, k[t]))
        state = state + k[t][..., None] * update[..., None, :]
        out[t] = shared[t] @ state * factor
    result = out.reshape(tokens, batch, -1).swapaxes(0, 1)
    return result.astype(query.dtype), state.astype(
        query.dtype if past is None else past.dtype
    )
