"""Scaled dot-product attention over heads, shared by every operator that is one."""

from __future__ import annotations

import math

import numpy as np

from seamline.provider import Array
from seamline_cpu.kernels.softmax import softmax_rows

__all__ = ["attend", "heads_first", "softmax_last", "visible"]


def heads_first(x: Array, heads: int) -> Array:
    """View (B, S, heads * size) as (B, heads, S, size); four axes are left alone."""
    if x.ndim == 4:
        return x
    if x.shape[2] % heads:
        raise ValueError(f"hidden size {x.shape[2]} does not divide into {heads} heads")
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def visible(
    queries: int, keys: int, offset: Array | int, *,
    causal: bool = False, left: int = -1, right: int = -1,
) -> Array:  # fmt: skip
    """
    Tell which keys each query may see, by position.

    Query ``i`` stands at ``offset + i``; causal hides the keys after it, ``left`` and
    ``right`` bound the window (-1: not at all).

    Returns
    -------
    bool, (queries, keys); (batch, 1, queries, keys) for one offset for each batch entry.
    """
    at = np.arange(queries)[:, None] + np.asarray(offset).reshape(-1, 1, 1, 1)
    ahead = np.arange(keys) - at
    seen = np.ones(ahead.shape, bool)
    if causal:
        seen &= ahead <= 0
    if left >= 0:
        seen &= ahead >= -left
    if right >= 0:
        seen &= ahead <= right
    return seen if np.ndim(offset) else seen[0, 0]


def softmax_last(x: Array, threads: int) -> None:
    """Turn scores into probabilities along the last axis, in place."""
    if x.size == 0:
        return
    if x.dtype == np.float32 and x.flags.c_contiguous:
        rows = x.reshape(-1, x.shape[-1])
        softmax_rows(rows, rows, threads)()
        return
    x -= x.max(axis=-1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(axis=-1, keepdims=True)


def attend(
    q: Array, k: Array, v: Array, *, scale: float | None = None, softcap: float = 0.0,
    bias: Array | None = None, threads: int = 1, qk_mode: int = -1,
) -> tuple[Array, Array | None]:  # fmt: skip
    """
    Attend with heads first; query heads share key heads in runs of equal length.

    Parameters
    ----------
    q, k, v
        (B, Hq, S, D), (B, Hk, T, D), (B, Hk, T, Dv), all float32 or all float64.
    scale
        One over the root of the head size where None.
    bias
        Added to the scores, broadcast to (B, Hq, S, T). A row of minus infinity alone
        sees no key, and gives zeros.
    qk_mode
        Which scores to give back: 0 raw, 1 after the cap, 2 with the bias, 3 after
        softmax, none for -1.

    Returns
    -------
    (B, Hq, S, Dv), and the scores asked for.
    """
    batch, q_heads, s, d = q.shape
    heads, t = k.shape[1:3]
    if heads == 0 or q_heads % heads:
        raise ValueError(f"{q_heads} query heads do not divide among {heads} key heads")
    factor = 1.0 / math.sqrt(d) if scale is None else scale
    grouped = np.ascontiguousarray(q).reshape(batch, heads, q_heads // heads * s, d)
    scores = np.matmul(grouped * q.dtype.type(factor), k.swapaxes(-1, -2))
    scores = scores.reshape(batch, q_heads, s, t)
    kept = scores.copy() if qk_mode == 0 else None
    if softcap > 0:
        scores = np.tanh(scores / q.dtype.type(softcap)) * q.dtype.type(softcap)
    kept = scores.copy() if qk_mode == 1 else kept
    blind = None
    if bias is not None:
        scores += bias
        if bias.size:
            blind = np.isneginf(bias.max(axis=-1, keepdims=True))
    kept = scores.copy() if qk_mode == 2 else kept
    softmax_last(scores, threads)
    if blind is not None and blind.any():
        scores = np.where(blind, q.dtype.type(0), scores)
    kept = scores if qk_mode == 3 else kept
    out = np.matmul(scores.reshape(batch, heads, -1, t), v)
    return out.reshape(batch, q_heads, s, v.shape[-1]), kept
