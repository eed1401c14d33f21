"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, against their definition."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.movement import give, gives

from seamline.errors import KernelError

R = np.random.default_rng(12)


def loss(low, target, weight, reduction, ignore):
    """Give the loss sample by sample."""
    each, used = np.zeros(target.shape), np.zeros(target.shape)
    for at in np.ndindex(target.shape):
        c = target[at]
        if c == ignore:
            continue
        used[at] = 1 if weight is None else weight[c]
        each[at] = -low[(at[0], c, *at[1:])] * used[at]
    if reduction == "none":
        return each
    return each.sum() if reduction == "sum" else each.sum() / used.sum()


def log_softmax(x):
    low = x - x.max(1, keepdims=True)
    return low - np.log(np.exp(low).sum(1, keepdims=True))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("rest", [(), (3,), (2, 3)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore", [None, -1, 2, 9])
def test_losses_are_the_sums_of_their_samples(reduction, rest, weighted, ignore):
    x = R.standard_normal((4, 5, *rest)).astype(np.float32)
    target = R.integers(0, 5, (4, *rest))
    if ignore is not None:
        target.flat[1] = ignore
    weight = R.uniform(0.5, 2, 5).astype(np.float32) if weighted else None
    inputs = [x, target] + ([weight] if weighted else [])
    form = {"reduction": reduction, "rtol": 1e-5, "atol": 1e-6, "opset": 13}
    form |= {} if ignore is None else {"ignore_index": ignore}
    want = np.asarray(loss(x, target, weight, reduction, ignore), np.float32)
    gives("NegativeLogLikelihoodLoss", inputs, want, **form)
    low = log_softmax(x.astype(np.float64))
    want = [
        np.asarray(loss(low, target, weight, reduction, ignore), np.float32),
        low.astype(np.float32),
    ]
    gives("SoftmaxCrossEntropyLoss", inputs, want, **form)
    gives("SoftmaxCrossEntropyLoss", inputs, want[:1], **form)


def test_a_class_outside_the_range_is_named_with_its_place():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(KernelError, match=r"class 3 at \[1\] is outside \[0, 3\)"):
        give(
            "NegativeLogLikelihoodLoss",
            [x, np.array([0, 3])],
            np.zeros(2, np.float32),
            reduction="none",
        )
