"""Attention of ONNX's own domain (23, 24, 25): by commands, or by NumPy for what they lack."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seamline.attention_fitting import unfit_attention
from seamline.attention_forms import refused_attention
from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import FLOATS
from seamline_cpu.binding import in_order
from seamline_cpu.kernels.attention_floats import KINDS
from seamline_cpu.kernels.attention_inputs import joined_cache, lengths_table, widened
from seamline_cpu.kernels.attention_math import attend, heads_first, visible
from seamline_cpu.kernels.attention_native import (
    Bias,
    Form,
    bind_attention,
    entries,
    fits,
)
from seamline_cpu.kernels.recorded import only, stated
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__ = ["attention", "unfit_heads", "unrecorded_heads"]


def _wide_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def _mask_bias(mask: Array, keys: int, wide: np.dtype[Any]) -> Array:
    """Turn a mask into what is added: True is 0, False minus infinity; short is padded."""
    if mask.dtype == bool:
        bias = np.where(mask, wide.type(0), wide.type(-np.inf))
    else:
        bias = mask.astype(wide)
    short = keys - mask.shape[-1] if mask.ndim else 0
    if short > 0:
        widths = [(0, 0)] * (mask.ndim - 1) + [(0, short)]
        bias = np.pad(bias, widths, constant_values=-np.inf)
    return np.asarray(bias)


def _bias(
    call: Call, seen: Array | None, queries: int, keys: int, wide: np.dtype[Any]
) -> Array | None:
    """Add up the mask given, the positions seen, and the padding of the cache."""
    mask, lengths = call.input(3), call.input(6)
    bias = None if mask is None else _mask_bias(mask, keys, wide)
    if lengths is not None:
        counts = lengths.reshape(-1, 1, 1, 1)
        full = np.arange(keys) < counts
        if seen is None and (_positional(call)):
            sides = _sides(call)
            full = full & visible(queries, keys, lengths.reshape(-1) - queries, **sides)
        seen = full if seen is None else seen & full
    if seen is not None:
        hidden = np.where(seen, wide.type(0), wide.type(-np.inf))
        bias = hidden if bias is None else bias + hidden
    return bias


def _sides(call: Call) -> dict[str, Any]:
    return {
        "causal": bool(call.attr("is_causal", 0)),
        "left": call.attr("left_window_size", -1),
        "right": call.attr("right_window_size", -1),
    }


def _positional(call: Call) -> bool:
    sides = _sides(call)
    return bool(sides["causal"]) or sides["left"] >= 0 or sides["right"] >= 0


def _joined(past: Array | None, now: Array, target: Array | None) -> Array:
    """Put what is new behind what is past, in the output where one is asked for."""
    if past is None:
        if target is not None:
            target[...] = now
        return now
    out = np.empty(
        (*now.shape[:2], past.shape[2] + now.shape[2], now.shape[3]), now.dtype
    )
    out = out if target is None else target
    out[:, :, : past.shape[2]] = past
    out[:, :, past.shape[2] :] = now
    return out


def _native(call: Call, q: Array, k: Array, v: Array) -> Run | None:
    """Bind commands; None where NumPy has to do it, see :func:`_in_python`."""
    mask, lengths, y = call.input(3), call.input(6), call.output(0)
    fed = (q, k, v, y, call.input(4), call.input(5))
    if not q.size or not k.size or not v.size or not fits(*fed, call.output(1)):
        return None
    if _in_python(call.view) is not None or k.dtype != v.dtype:
        return None
    threads, runs = threads_of(call.options), list[Run]()
    keys = joined_cache(call.input(4), k, call.output(1), threads, runs)
    values = joined_cache(call.input(5), v, call.output(2), threads, runs)
    queries, seen = q.shape[2], keys.shape[2]
    biases = []
    if mask is not None:
        seen = min(seen, mask.shape[-1])
        biases = [Bias(mask if mask.dtype == bool else widened(mask, threads, runs))]
    if lengths is None:
        before = keys.shape[2] - k.shape[2]
        table = entries(len(q), queries, before, seen)
    else:
        table = lengths_table(lengths, queries, seen, runs)
    sides = _sides(call)
    scale = call.attr("scale")
    scale = 1.0 / math.sqrt(q.shape[3]) if scale is None else scale
    form = Form(scale, float(call.attr("softcap", 0.0)), **sides)
    out = y if y.ndim == 4 else heads_first(y, q.shape[1])
    runs.append(bind_attention(q, keys, values, out, form, table, threads, biases))
    return in_order(runs)


def _in_python(view: NodeView) -> str | None:
    """Say what of a node has no commands, or None."""
    if view.has_output(3):
        return "scores that are given out (qk_matmul_output) are made by NumPy"
    if view.attributes.get("softmax_precision") == 11:
        return "a softmax in float64 is made by NumPy"
    kind, mask = view.tensor(0), view.tensor(3)
    if kind is not None and kind.dtype not in KINDS:
        return f"attention of {kind.dtype} is made by NumPy"
    other = {one.dtype for i in (1, 2, 4, 5) if (one := view.tensor(i)) is not None}
    if len(other) > 1:
        return "keys and values of different types are multiplied by NumPy"
    if mask is not None and (mask.dtype not in ("bool", *KINDS) or mask.shape == ()):
        return f"a mask of {mask} is read by NumPy"
    return None


def _bounded(view: NodeView) -> tuple[int, ...]:
    """Give keys and values where commands read them, as far as the lengths reach."""
    return (1, 2) if view.has_input(6) and _in_python(view) is None else ()


unfit_heads = all_of(refused_attention, unfit_attention)
unrecorded_heads = all_of(only(*KINDS), stated(_in_python))


@TABLE.kernel(
    "Attention",
    since=23,
    dtypes={0: FLOATS, 1: FLOATS, 2: FLOATS},
    when=unfit_heads,
    bounded=_bounded,
    not_capturable=unrecorded_heads,
)
def attention(call: Call) -> Run:
    """
    Bind Attention: grouped heads, masks, windows, caches, cap, and the scores asked for.

    Scores are always made in float32 or float64, at least as precise as any
    ``softmax_precision`` but float64's, which is honoured.
    """
    q, k, v, y = call.input(0), call.input(1), call.input(2), call.output(0)
    q = heads_first(q, call.attr("q_num_heads", 0))
    k, v = (heads_first(x, call.attr("kv_num_heads", 0)) for x in (k, v))
    if (native := _native(call, q, k, v)) is not None:
        return native
    past_k, past_v = call.input(4), call.input(5)
    before = 0 if past_k is None else past_k.shape[2]
    queries, keys = q.shape[2], before + k.shape[2]
    wide = (
        np.dtype(np.float64)
        if call.attr("softmax_precision") == 11
        else _wide_of(q.dtype)
    )
    seen = None
    if call.input(6) is None and _positional(call):
        seen = visible(queries, keys, before, **_sides(call))
    scores = call.output(3)
    out = (
        y.reshape(*y.shape[:2], q.shape[1], -1).transpose(0, 2, 1, 3)
        if y.ndim == 3
        else y
    )
    chosen: dict[str, Any] = {
        "scale": call.attr("scale"),
        "softcap": float(call.attr("softcap", 0.0)),
        "threads": threads_of(call.options),
        "qk_mode": -1 if scores is None else call.attr("qk_matmul_output_mode", 0),
    }

    def run() -> None:
        all_k = _joined(past_k, k, call.output(1))
        all_v = _joined(past_v, v, call.output(2))
        bias = _bias(call, seen, queries, keys, wide)
        wides = [np.asarray(x, wide) for x in (q, all_k, all_v)]
        got, kept = attend(*wides, bias=bias, **chosen)
        out[...] = got
        if scores is not None:
            scores[...] = kept

    return run
