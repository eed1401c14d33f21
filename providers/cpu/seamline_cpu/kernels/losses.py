"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

import numpy as np

from seamline.provider import Array
from seamline.tensors import FLOATS
from seamline_cpu.table import TABLE

__all__ = ["likelihood_loss"]


def likelihood_loss(
    log_prob: Array,
    target: Array,
    weight: Array | None,
    reduction: str,
    ignore: int | None,
) -> Array:
    """
    Give the loss of (N, C, ...) log-probabilities for classes (N, ...).

    Raises
    ------
    IndexError
        A class is neither in [0, C) nor the one to ignore.
    ValueError
        The reduction is none of 'none', 'sum', 'mean'.
    """
    kept = np.ones(target.shape, bool) if ignore is None else target != ignore
    count = log_prob.shape[1]
    wrong = kept & ((target < 0) | (target >= count))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise IndexError(
            f"class {target[where]} at {list(where)} is outside [0, {count}) of axis 1"
        )
    classes = np.where(kept, target, 0)
    picked = np.take_along_axis(log_prob, classes[:, None], axis=1)[:, 0]
    factor = kept.astype(log_prob.dtype)
    if weight is not None:
        factor = factor * weight.astype(log_prob.dtype)[classes]
    loss = np.where(kept, -picked * factor, 0).astype(log_prob.dtype)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return np.asarray(loss.sum())
    if reduction == "mean":
        return np.asarray(loss.sum() / factor.sum())
    raise ValueError(f"reduction {reduction!r} is none of 'none', 'sum', 'mean'")


def _wide(x: Array) -> Array:
    return x.astype(np.float64 if x.dtype == np.float64 else np.float32)


@TABLE.simple("NegativeLogLikelihoodLoss", since=12, dtypes=FLOATS)
def negative_log_likelihood_loss(
    x: Array, target: Array, weight: Array | None = None, *,
    reduction: str = "mean", ignore_index: int | None = None,
) -> Array:  # fmt: skip
    """Give the weighted negative log likelihood, ``mean`` over the weights used."""
    loss = likelihood_loss(_wide(x), target, weight, reduction, ignore_index)
    return np.asarray(loss.astype(x.dtype))


@TABLE.simple("SoftmaxCrossEntropyLoss", since=12, dtypes=FLOATS)
def softmax_cross_entropy_loss(
    scores: Array, labels: Array, weights: Array | None = None, *,
    reduction: str = "mean", ignore_index: int | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Give the loss of log-softmax over axis 1, and the log-softmax itself."""
    low = _wide(scores)
    low = low - low.max(axis=1, keepdims=True)
    low -= np.log(np.exp(low).sum(axis=1, keepdims=True))
    loss = likelihood_loss(low, labels, weights, reduction, ignore_index)
    return np.asarray(loss.astype(scores.dtype)), low.astype(scores.dtype)
