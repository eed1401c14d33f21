"""What ``ai.onnx.ml`` calls ``post_transform``: scores turned into probabilities."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from seamline.provider import Array, NodeView

__all__ = ["TRANSFORMS", "refuse_transform", "transformed"]

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def refuse_transform(node: NodeView) -> str | None:
    """Say that a node's ``post_transform`` does not exist, or nothing."""
    given = node.attributes.get("post_transform", "NONE")
    if given in TRANSFORMS or given in range(len(TRANSFORMS)):
        return None
    return f"post_transform is {given!r}, not one of {', '.join(TRANSFORMS)}"


def transformed(scores: Array, transform: str | int) -> Array:
    """
    Apply a transform to rows of scores.

    Parameters
    ----------
    scores
        float64, ``(rows, targets)``.
    transform
        A name, or its place in ``TRANSFORMS`` as TreeEnsemble 5 says it.
    """
    name = TRANSFORMS[transform] if isinstance(transform, int) else transform
    if name == "SOFTMAX":
        return _softmax(scores, np.ones(scores.shape, bool))
    if name == "SOFTMAX_ZERO":  # a score of zero stays zero, and takes no part
        return _softmax(scores, scores != 0)
    if name == "LOGISTIC":
        return np.asarray(1 / (1 + np.exp(-scores)))
    if name == "PROBIT":
        return _probit(scores)
    return scores


def _softmax(scores: Array, counted: Array) -> Array:
    top = scores.max(axis=1, keepdims=True, initial=-np.inf, where=counted)
    raised = np.where(counted, np.exp(scores - np.where(counted, top, 0)), 0)
    total = raised.sum(axis=1, keepdims=True)
    return np.asarray(raised / np.where(total == 0, 1, total))


def _probit(scores: Array) -> Array:
    """Give the normal distribution's quantiles; infinite at 0 and 1, NaN outside."""
    quantile = NormalDist().inv_cdf
    ends = np.where(scores == 1, np.inf, np.where(scores == 0, -np.inf, np.nan))
    found = [
        quantile(p) if 0 < p < 1 else end
        for p, end in zip(scores.ravel().tolist(), ends.ravel().tolist(), strict=True)
    ]
    return np.array(found, np.float64).reshape(scores.shape)
