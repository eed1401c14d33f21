"""Mixtures of experts in float64, as onnxruntime's text of QMoE and MoE defines them."""

from __future__ import annotations

import numpy as np

F = np.float64


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def mixed(x, k):
    """Give the sparse mixer's two experts, and what each weighs."""
    left, chosen, weights = x.copy(), [], []
    for _ in range(k):
        best = int(np.argmax(left))
        near = (left[best] - left) <= 0.02 * np.maximum(np.abs(left), left[best])
        chosen.append(best)
        weights.append(1 / np.exp(left[near] - left[best]).sum())
        left[best] = -np.inf
    return chosen, weights


def routed(logits, k, normalize=0, mixer=0, stated=None):
    """Give the experts of one token, and their weights."""
    if mixer:
        chosen, weights = mixed(logits, k)
    else:
        chosen = np.argsort(-logits, kind="stable")[:k]
        weights = softmax(logits)[chosen]
    if stated is not None:
        weights = stated[chosen]
    weights = np.asarray(weights)
    if normalize and not (mixer and stated is None):
        weights = weights / weights.sum() if weights.sum() else weights * 0
    return chosen, weights


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTS = {
    "identity": lambda g: g,
    "relu": lambda g: np.maximum(g, 0),
    "silu": lambda g: g * sigmoid(g),
    "gelu": lambda g: 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3))),
}  # fmt: skip


def activated(g, linear, kind, alpha, beta, limit):
    if kind != "swiglu":
        return ACTS[kind](g) * (1 if linear is None else linear)
    gate = np.minimum(g, limit)
    return gate * sigmoid(alpha * gate) * (np.clip(linear, -limit, limit) + beta)


def mixture(
    x, logits, layers, *, k=1, normalize=0, mixer=0, stated=None, kind="relu", fusion=0,
    alpha=1.0, beta=0.0, limit=np.inf,
):  # fmt: skip
    """
    Give the output for rows ``x``; ``layers`` are (weights (E, N, K), bias (E, N)) by number.
    """
    x, logits = x.astype(F), logits.astype(F)
    out = np.zeros_like(x)
    for t, row in enumerate(x):
        said = None if stated is None else stated[t].astype(F)
        for e, weight in zip(
            *routed(logits[t], k, normalize, mixer, said), strict=True
        ):
            g = layers[1][0][e] @ row + layers[1][1][e]
            linear = None
            if 3 in layers:
                linear = layers[3][0][e] @ row + layers[3][1][e]
            elif kind == "swiglu":
                n = len(g) // 2
                g, linear = (g[::2], g[1::2]) if fusion == 1 else (g[:n], g[n:])
            inner = activated(g, linear, kind, alpha, beta, limit)
            out[t] += weight * (layers[2][0][e] @ inner + layers[2][1][e])
    return out
