"""
onnxruntime's MultiHeadAttention and Attention in their common forms.

A key that the mask excludes gets ``mask_filter_value`` (-10000) added to its score, as
onnxruntime does; a key after its query is excluded outright.
"""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from seamline.attention_fitting import unfit_projected
from seamline.attention_forms import refused_multi_head, refused_projected
from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline_cpu.binding import in_order
from seamline_cpu.kernels.attention_inputs import joined_cache, key_mask
from seamline_cpu.kernels.attention_math import attend, heads_first, visible
from seamline_cpu.kernels.attention_native import (
    Bias,
    Form,
    bind_attention,
    entries,
    fits,
)
from seamline_cpu.kernels.broadcast_commands import bind_binary
from seamline_cpu.kernels.epilogues import Epilogue
from seamline_cpu.kernels.matmul import bind_fused
from seamline_cpu.kernels.recorded import OF_FLOAT32, stated
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

CONTRIB = "com.microsoft"
_DTYPES = ("float32", "float16")
_INDEX = ("int32",)


def _mask_bias(
    mask: Array | None, batch: int, queries: int, keys: int, value: float
) -> Array | None:
    """Turn a mask of 0 and 1, or of lengths, into what is added to scores."""
    if mask is None:
        return None
    if mask.ndim == 1:
        ends = mask[:batch].reshape(batch, 1, 1, 1)
        starts = (
            mask[batch : 2 * batch].reshape(-1, 1, 1, 1) if mask.size > batch else 0
        )
        at = np.arange(keys)
        keep = (at < ends) & (at >= starts)
    elif mask.ndim == 2:
        keep = mask[:, None, None, :] != 0
    else:
        keep = mask[:, None] != 0
    if keep.shape[-1] != keys:
        raise ValueError(f"the mask spans {keep.shape[-1]} keys of {keys}")
    return np.where(keep, np.float32(0), np.float32(value))


def _total_bias(
    call: Call, mask: Array | None, extra: Array | None, q: Array, keys: int
) -> Any:
    batch, _, queries, _ = q.shape
    value = float(call.attr("mask_filter_value", -10000.0))
    bias = _mask_bias(mask, batch, queries, keys, value)
    if extra is not None:
        wide = extra.astype(np.float32)
        bias = wide if bias is None else bias + wide
    if call.attr("unidirectional", 0):
        seen = visible(queries, keys, keys - queries, causal=True)
        hidden = np.where(seen, np.float32(0), np.float32(-np.inf))
        bias = hidden if bias is None else bias + hidden
    return bias


def _put(target: Array | None, value: Array) -> None:
    if target is not None:
        target[...] = value


def _split(y: Array, heads: int) -> Array:
    return y.reshape(*y.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _in_python(view: NodeView) -> str | None:
    """Say what of a node has no commands, or None."""
    projected = view.op_type == "Attention"
    if not projected and view.has_output(3):
        return "scores that are given out are made by NumPy"
    kind, extra = view.tensor(0), view.tensor(5)
    if kind is not None and kind.dtype != "float32":
        return f"a projection or a bias of {kind.dtype} is added by NumPy"
    if extra is not None and extra.dtype != "float32":
        return f"an attention_bias of {extra.dtype} is added by NumPy"
    return None


@attrs.frozen(eq=False)
class _Parts:
    """Queries, keys and values with heads first, what comes before them, and the output."""

    q: Array
    k: Array
    v: Array
    past: tuple[Array | None, Array | None]
    present: tuple[Array | None, Array | None]
    y: Array


def _bind(call: Call, parts: _Parts, mask: Array | None, runs: list[Run]) -> Run | None:
    """Bind attention as commands, after ``runs``; None where NumPy has to do it."""
    q, extra = parts.q, call.input(5)
    fed = (q, parts.k, parts.v, *parts.past, *parts.present, parts.y, extra)
    if not all(x is None or (x.size and fits(x)) for x in fed):
        return None
    threads = threads_of(call.options)
    k, v = (
        joined_cache(past, now, present, threads, runs)
        for past, now, present in zip(parts.past, (parts.k, parts.v), parts.present, strict=True)
    )  # fmt: skip
    (batch, _, queries, depth), keys = q.shape, k.shape[2]
    value = float(call.attr("mask_filter_value", -10000.0))
    biases = []
    if mask is not None:
        biases.append(key_mask(mask, batch, queries, keys, value, runs))
    if extra is not None:
        np.broadcast_shapes(extra.shape, (batch, q.shape[1], queries, keys))
        biases.append(Bias(extra))
    scale = call.attr("scale") or 1.0 / math.sqrt(depth)
    form = Form(scale, causal=bool(call.attr("unidirectional", 0)))
    table = entries(batch, queries, keys - queries, keys)
    runs.append(bind_attention(q, k, v, parts.y, form, table, threads, biases))
    return in_order(runs)


def _multi_head_commands(call: Call) -> Run | None:
    """Bind MultiHeadAttention as commands; None where NumPy has to do it."""
    if _in_python(call.view) is not None:
        return None
    heads, bias, runs = int(call.attr("num_heads")), call.input(3), list[Run]()
    given, first = [], 0
    for index in range(3):
        x = call.input(index)
        if bias is not None and x.ndim == 3:
            made, part = np.empty(x.shape, np.float32), bias[first : first + x.shape[2]]
            add = bind_binary("Add", call, x, part, made)
            if add is None:
                return None
            runs.append(add)
            first, x = first + x.shape[2], made
        given.append(heads_first(x, heads))
    past, present = (call.input(6), call.input(7)), (call.output(1), call.output(2))
    q, k, v = given
    parts = _Parts(q, k, v, past, present, _split(call.output(0), heads))
    return _bind(call, parts, call.input(4), runs)


def _projected_commands(call: Call) -> Run | None:
    """Bind Attention as commands: the projection, then its parts where they lie in it."""
    x, weights, bias, mask, past = (call.input(i) for i in range(5))
    if _in_python(call.view) is not None or not x.size:
        return None
    heads = int(call.attr("num_heads"))
    made = np.empty((*x.shape[:2], weights.shape[1]), np.float32)
    runs = [bind_fused(call, x, weights, made, Epilogue(bias=bias))]
    sizes = call.attr("qkv_hidden_sizes") or (weights.shape[1] // 3,) * 3
    cuts = [sizes[0], sizes[0] + sizes[1]]
    q, k, v = (heads_first(p, heads) for p in np.split(made, cuts, axis=2))
    now = call.output(1)
    pair = (None, None) if past is None else (past[0], past[1])
    present = (None, None) if now is None else (now[0], now[1])
    parts = _Parts(q, k, v, pair, present, _split(call.output(0), heads))
    return _bind(call, parts, mask, runs)


@TABLE.kernel(
    "MultiHeadAttention", domain=CONTRIB, dtypes={0: _DTYPES, 4: _INDEX},
    when=all_of(refused_multi_head, unfit_projected),
    not_capturable=all_of(OF_FLOAT32, stated(_in_python)),
)  # fmt: skip
def multi_head_attention(call: Call) -> Run:
    """Bind MultiHeadAttention: separate query, key and value, or key and value cached."""
    if (native := _multi_head_commands(call)) is not None:
        return native
    q, k, v, bias = (call.input(i) for i in range(4))
    heads, threads = int(call.attr("num_heads")), threads_of(call.options)
    out = _split(call.output(0), heads)
    scale = call.attr("scale") or None
    qk = call.output(3)

    def projected(x: Array, first: int) -> Array:
        wide = x.astype(np.float32)
        if bias is not None and x.ndim == 3:
            wide += bias[first : first + x.shape[2]].astype(np.float32)
        return heads_first(wide, heads)

    def run() -> None:
        hidden = q.shape[2]
        query, key = projected(q, 0), projected(k, hidden)
        value = projected(v, 2 * hidden)
        if call.input(6) is not None:
            key = np.concatenate([call.input(6).astype(np.float32), key], axis=2)
            value = np.concatenate([call.input(7).astype(np.float32), value], axis=2)
        _put(call.output(1), key)
        _put(call.output(2), value)
        total = _total_bias(call, call.input(4), call.input(5), query, key.shape[2])
        mode = -1 if qk is None else 0
        got, kept = attend(
            query, key, value, scale=scale, bias=total, threads=threads, qk_mode=mode
        )
        out[...] = got
        if kept is not None:
            _put(qk, kept)

    return run


@TABLE.kernel(
    "Attention",
    domain=CONTRIB,
    dtypes={0: _DTYPES, 3: _INDEX},
    when=all_of(refused_projected, unfit_projected),
    not_capturable=all_of(OF_FLOAT32, stated(_in_python)),
)
def contrib_attention(call: Call) -> Run:
    """Bind Attention with its projection: ``x @ weights + bias``, then heads."""
    if (native := _projected_commands(call)) is not None:
        return native
    x, weights, bias, mask, past = (call.input(i) for i in range(5))
    heads, threads = int(call.attr("num_heads")), threads_of(call.options)
    sizes = call.attr("qkv_hidden_sizes") or (weights.shape[1] // 3,) * 3
    cuts = [sizes[0], sizes[0] + sizes[1]]
    out = _split(call.output(0), heads)
    scale = call.attr("scale") or None

    def run() -> None:
        rows = x.reshape(-1, x.shape[2]).astype(np.float32, copy=False)
        made = np.matmul(rows, weights.astype(np.float32, copy=False))
        if bias is not None:
            made += bias.astype(np.float32, copy=False)
        parts = np.split(made.reshape(*x.shape[:2], -1), cuts, axis=2)
        q, k, v = (heads_first(p, heads) for p in parts)
        if past is not None:
            k, v = (
                np.concatenate([old.astype(np.float32), new], axis=2)
                for old, new in zip(past, (k, v), strict=True)
            )
        if call.output(1) is not None:
            _put(call.output(1)[0], k)
            _put(call.output(1)[1], v)
        total = _total_bias(call, mask, call.input(5), q, k.shape[2])
        out[...] = attend(q, k, v, scale=scale, bias=total, threads=threads)[0]

    return run
