"""Attention, rotation and grouped-query attention by their definitions, in float64."""

from __future__ import annotations

import numpy as np

HEADS, KV, SIZE = 6, 2, 32
NONE = [None] * 17


def attend(q, k, v, bias=0.0, scale=None, softcap=0.0):
    """Give the output and the four stages of the scores, in float64, head by head."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    raw = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    capped = softcap * np.tanh(raw / softcap) if softcap else raw
    total = capped + bias
    with np.errstate(invalid="ignore"):
        e = np.exp(total - total.max(-1, keepdims=True))
        p = np.nan_to_num(e / e.sum(-1, keepdims=True))
    return p @ v, (raw, capped, total, p)


def hide(keep):
    return np.where(keep, 0.0, -np.inf)


def rotated(x, cos, sin, interleaved):
    """Rotate (B, S, heads, size) pair by pair."""
    y, half = x.astype(np.float64), cos.shape[-1]
    c, s = cos[:, :, None], sin[:, :, None]
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + half) for i in range(half)]
    for i, (a, b) in enumerate(pairs):
        y[..., a] = x[..., a] * c[..., i] - x[..., b] * s[..., i]
        y[..., b] = x[..., a] * s[..., i] + x[..., b] * c[..., i]
    return y.astype(np.float32)


def tables(rows, half):
    angles = np.outer(np.arange(rows), 100.0 ** -(np.arange(half) / half))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def by_head(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).astype(np.float64)


def _turned(x, positions, cos, sin, interleaved):
    """Rotate each pair as a complex number; the rest of the head passes."""
    half, out = cos.shape[1], x.copy()
    for row, position in enumerate(positions):
        turn = cos[position].astype(float) + 1j * sin[position].astype(float)
        for i in range(half):
            a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
            pair = (x[row, :, a] + 1j * x[row, :, b]) * turn[i]
            out[row, :, a], out[row, :, b] = pair.real, pair.imag
    return out


def grouped(inputs, sizes=(HEADS, KV, SIZE), **attributes):
    """Give output, keys and values by the operator's text, one row and head at a time."""
    heads, kv, size = sizes
    x = [*inputs, *NONE][:17]
    if x[1] is None:
        x[0], x[1], x[2] = np.split(x[0], [heads * size, (heads + kv) * size], axis=2)
    q, k, v = by_head(x[0], heads), by_head(x[1], kv), by_head(x[2], kv)
    batch, rows = q.shape[:2]
    before = 0 if x[3] is None else x[3].shape[2]
    present = np.zeros((2, batch, kv, max(before, int(x[6])), size))
    y = np.zeros(q.shape)
    for b, last in enumerate(x[5].reshape(-1)):
        count = min(rows, last + 1) if x[16] is None else x[16][b]
        past = last + 1 - count
        for i in range(2):
            if past:
                present[i, b, :, :past] = x[3 + i][b, :, :past]
        at = past + np.arange(count) if x[9] is None else x[9][b, :count]
        pair = [q[b, :count], k[b, :count]]
        if attributes.get("do_rotary"):
            inter = attributes.get("rotary_interleaved", 0)
            pair = [_turned(part, at, x[7], x[8], inter) for part in pair]
        present[0, b, :, past : last + 1] = pair[1].swapaxes(0, 1)
        present[1, b, :, past : last + 1] = v[b, :count].swapaxes(0, 1)
        for row in range(count):
            for head in range(heads):
                y[b, row, head] = _one_row(x, present[:, b], pair[0][row, head], b, row,
                                          past + row, head, attributes, heads // kv)  # fmt: skip
    return [y.reshape(batch, rows, -1), *present]


def _one_row(x, present, query, b, row, position, head, attributes, group):
    keys, values = present[:, head // (group)]
    scores = keys @ query * (attributes.get("scale") or len(query) ** -0.5)
    if cap := attributes.get("softcap", 0):
        scores = cap * np.tanh(scores / cap)
    if x[10] is not None:
        bias = x[10][b % len(x[10]), head % x[10].shape[1], row]
        scores[: len(bias)] += bias
    window = attributes.get("local_window_size", -1)
    first = max(0, position - window + 1) if window > 0 else 0
    weights = np.exp(scores[first : position + 1])
    spare = 0.0
    if x[11] is not None:
        spare = np.exp(float(x[11][head]))
    elif attributes.get("smooth_softmax"):
        spare = 1.0
    return weights / (weights.sum() + spare) @ values[first : position + 1]
