"""
onnxruntime's GroupQueryAttention: causal attention over a cache that it keeps itself.

A cache is either as long as all tokens may become, and then given back in that length, or
as long as the past, and then given back longer by the new rows. Both are one rule: the
present has ``max(past rows, total_sequence_length)`` rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import INDICES
from seamline_cpu.kernels.attention_fitting import unfit_group_query
from seamline_cpu.kernels.attention_math import softmax_last, visible
from seamline_cpu.kernels.fitting import all_of
from seamline_cpu.kernels.group_query_cache import (
    Span,
    keep_past,
    normalized,
    rotated,
    spans,
)
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

_DTYPES = ("float32", "float16", "bfloat16")
_SCORES = 1 << 22  # scores made at a time: 16 MiB; smaller pieces measured slower

_REFUSED_INPUTS = {12: "k_scale (a quantised cache)", 13: "v_scale (a quantised cache)"}
_REFUSED_ATTRIBUTES: dict[str, tuple[Any, str]] = {
    "causal": (1, "attention that is not causal"),
    "sliding_window_cache": (0, "a cache of only the window's rows"),
    "qk_output": (0, "giving the scores out"),
    "k_quant_type": ("NONE", "a quantised cache"),
    "v_quant_type": ("NONE", "a quantised cache"),
}


def _refused(view: NodeView) -> str | None:
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
class _Heads:
    """The new rows by head, (batch, rows, heads, size), and how heads share keys."""

    query: Array
    key: Array
    value: Array

    @property
    def kv_heads(self) -> int:
        return int(self.key.shape[2])


def _heads_of(call: Call) -> _Heads:
    """View the inputs by head; a packed query holds its own heads, keys' and values'."""
    heads, kv = int(call.attr("num_heads")), int(call.attr("kv_num_heads"))
    if kv <= 0 or heads <= 0 or heads % kv:
        raise ValueError(f"num_heads {heads} do not divide among kv_num_heads {kv}")
    query, key, value = (call.input(i) for i in range(3))
    if key is None:
        every = _by_head(query, heads + 2 * kv, "packed query")
        return _Heads(every[:, :, :heads], every[:, :, heads:-kv], every[:, :, -kv:])
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
    return _Heads(*made)


def _by_head(x: Array, heads: int, name: str) -> Array:
    if x.shape[2] % heads:
        raise ValueError(
            f"{name} of {x.shape[2]} values does not divide into {heads} heads"
        )
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads)


def _preparation(call: Call) -> Callable[[Array, int, Array], Array]:
    """Give what is done to a head's new rows: normalise, then rotate; in float32."""
    cos, sin = call.input(7), call.input(8)
    turns = bool(call.attr("do_rotary", 0))
    interleaved = bool(call.attr("rotary_interleaved", 0))
    both = call.attr("qk_norm_epsilon", 1e-6)
    epsilons = (call.attr("q_norm_epsilon", both), call.attr("k_norm_epsilon", both))

    def prepare(x: Array, which: int, positions: Array) -> Array:
        wide = normalized(x, call.input(14 + which), epsilons[which])
        return rotated(wide, positions, cos, sin, interleaved) if turns else wide

    return prepare


def _positions(call: Call, span: Span, rows: int) -> Array:
    """Give the rotary positions of an entry's new rows."""
    given = call.input(9)
    if given is None:
        return np.arange(span.past, span.total)
    total = call.input(6)
    if call.input(16) is None and total is not None and total.reshape(-1)[0] == rows:
        start = int(given.reshape(-1)[0])  # a first prompt has one start
        return np.arange(start, start + span.new)
    return np.asarray(given.reshape(-1, rows)[span.entry, : span.new])


def _softmax(scores: Array, sink: Array | None, threads: int) -> Array:
    """Turn scores (kv heads, group, rows, keys) into weights; a sink takes its share."""
    if sink is None:
        softmax_last(scores, threads)
        return scores
    top = np.maximum(scores.max(axis=-1, keepdims=True), sink)
    np.exp(np.subtract(scores, top, out=scores), out=scores)
    scores /= scores.sum(axis=-1, keepdims=True) + np.exp(sink - top)
    return scores


@attrs.frozen(eq=False)
class _Scoring:
    """How scores become weights: the factor, the cap, the window, bias and sink."""

    scale: float
    softcap: float
    window: int
    bias: Array | None
    sink: Array | None
    threads: int

    def attend(
        self, q: Array, keys: Array, values: Array, span: Span, y: Array
    ) -> None:
        """
        Write one entry's new rows.

        ``q`` (heads, new, size) is float32; ``keys`` and ``values`` (kv heads, capacity,
        size) hold the span's tokens; ``y`` is (new, heads, value size).
        """
        heads, new, size = q.shape
        step = max(1, _SCORES // max(1, heads * span.total))
        for row in range(0, new, step):
            end = min(new, row + step)
            last = span.past + end
            first = 0 if self.window <= 0 else max(0, span.past + row - self.window + 1)
            part = q[:, row:end].reshape(len(keys), -1, size)
            k, v = (
                x[:, first:last].astype(np.float32, copy=False) for x in (keys, values)
            )
            scores = np.matmul(part * np.float32(self.scale), k.swapaxes(1, 2))
            scores = scores.reshape(len(keys), -1, end - row, last - first)
            self._shape(scores, span, row, first)
            weights = _softmax(scores, self.sink, self.threads)
            made = np.matmul(weights.reshape(len(keys), -1, last - first), v)
            y[row:end] = made.reshape(heads, end - row, -1).swapaxes(0, 1)

    def _shape(self, scores: Array, span: Span, row: int, first: int) -> None:
        """Cap the scores, add the bias, and hide what a row may not see."""
        rows, keys = scores.shape[2:]
        if self.softcap > 0:
            scores /= np.float32(self.softcap)
            np.tanh(scores, out=scores)
            scores *= np.float32(self.softcap)
        if self.bias is not None:
            bias = self.bias[span.entry % len(self.bias), :, row : row + rows]
            bias = bias[..., first : first + keys].astype(np.float32)
            scores += bias if len(bias) == 1 else bias.reshape(scores.shape)
        if rows > 1:
            at = span.past + row - first
            seen = visible(rows, keys, at, causal=True, left=max(self.window - 1, -1))
            scores += np.where(seen, np.float32(0), np.float32(-np.inf))


def _scoring(call: Call, heads: _Heads) -> _Scoring:
    kv, size = heads.kv_heads, heads.query.shape[3]
    sink = call.input(11)
    if sink is not None:
        sink = sink.astype(np.float32).reshape(kv, -1, 1, 1)
    elif call.attr("smooth_softmax", 0) == 1:
        sink = np.zeros((kv, 1, 1, 1), np.float32)
    return _Scoring(
        float(call.attr("scale", 0.0)) or 1.0 / math.sqrt(size or 1),
        float(call.attr("softcap", 0.0)),
        int(call.attr("local_window_size", -1)),
        call.input(10),
        sink,
        threads_of(call.options),
    )


@TABLE.kernel(
    "GroupQueryAttention", domain="com.microsoft", dtypes={0: _DTYPES, 5: INDICES},
    when=all_of(_refused, unfit_group_query), host_inputs={6}, aliases=((1, 3), (2, 4)),
)  # fmt: skip
def group_query_attention(call: Call) -> Run:
    """
    Bind GroupQueryAttention; scores and sums are made in float32.

    Rows of the output that belong to padding are zero, and so are rows of a present cache
    beyond an entry's tokens, unless it is the past's own memory.
    """
    heads, prepare = _heads_of(call), _preparation(call)
    batch, rows = heads.query.shape[:2]
    lengths, counts = call.input(5), call.input(16)
    for x, name in ((lengths, "seqlens_k"), (counts, "query_seqlens")):
        if x is not None and x.size != batch:
            raise ValueError(
                f"{name} is {list(x.shape)}, the batch has {batch} entries"
            )
    pasts = (call.input(3), call.input(4))
    before = 0 if pasts[0] is None else pasts[0].shape[2]
    y = call.output(0).reshape(batch, rows, heads.query.shape[2], heads.value.shape[3])

    def run() -> None:
        scoring = _scoring(call, heads)
        keys, values = _presents(call, heads, before)
        found = spans(lengths, counts, batch, rows, before, keys.shape[2])
        for span in found:
            b, new = span.entry, span.new
            positions = _positions(call, span, rows)
            for past, present in zip(pasts, (keys, values), strict=True):
                keep_past(past, present, span)
            key = prepare(heads.key[b, :new], 1, positions)
            keys[b, :, span.past : span.total] = key.swapaxes(0, 1)
            values[b, :, span.past : span.total] = heads.value[b, :new].swapaxes(0, 1)
            query = prepare(heads.query[b, :new], 0, positions).swapaxes(0, 1)
            scoring.attend(query, keys[b], values[b], span, y[b])
            y[b, new:] = 0

    return run


def _presents(call: Call, heads: _Heads, before: int) -> tuple[Array, Array]:
    """Give the present caches, made here where they are not asked for."""
    made = []
    for index, x in ((1, heads.key), (2, heads.value)):
        present = call.output(index)
        if present is None:
            rows = max(before, int(call.input(6).reshape(-1)[0]))
            batch, _, kv, size = x.shape
            present = np.empty((batch, kv, rows, size), x.dtype)
        made.append(present)
    return made[0], made[1]
