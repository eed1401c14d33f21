"""Adagrad, Adam and Momentum, against their formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.test_machine_learning import refused, run

DOMAIN = "ai.onnx.preview.training"
RATE = np.array(0.1, np.float32)


def tensors(count, seed=0):
    """Give values of two tensors, then their gradients, then their states, all positive."""
    spread = np.random.default_rng(seed)
    shapes = ((3,), (2, 2))
    return [spread.uniform(0.5, 2, s).astype("f") for _ in range(count) for s in shapes]


def step(op, count, given, **attributes):
    states = len(given) // 2 - 1
    return run(
        op, RATE, np.array(count), *given, outputs=2 * states, opset=1, domain=DOMAIN,
        **attributes,
    )  # fmt: skip


def wide(given):
    return [x.astype(np.float64) for x in given]


def near(got, want):
    for ours, right in zip(got, want, strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, right, rtol=2e-6)


@pytest.mark.parametrize("count", [0, 7])
def test_adagrad(count):
    given = tensors(3)
    settings = {"norm_coefficient": 0.25, "decay_factor": 0.5, "epsilon": 0.125}
    x0, x1, g0, g1, h0, h1 = wide(given)
    want_x, want_h = [], []
    for x, g, h in ((x0, g0, h0), (x1, g1, h1)):
        regular = 0.25 * x + g
        want_h.append(h + regular**2)
        rate = 0.1 / (1 + count * 0.5)
        want_x.append(x - rate * regular / (np.sqrt(want_h[-1]) + 0.125))
    near(step("Adagrad", count, given, **settings), want_x + want_h)


@pytest.mark.parametrize("count", [0, 7])
def test_adam(count):
    given = tensors(4)
    settings = {
        "alpha": 0.75, "beta": 0.5, "norm_coefficient": 0.25,
        "norm_coefficient_post": 0.125, "epsilon": 0.125,
    }  # fmt: skip
    x, _, g, _, v, _, h, _ = wide(given)
    regular = 0.25 * x + g
    v = 0.75 * v + 0.25 * regular
    h = 0.5 * h + 0.5 * regular**2
    rate = 0.1 * np.sqrt(1 - 0.5**count) / (1 - 0.75**count) if count else 0.1
    new = (x - rate * v / (np.sqrt(h) + 0.125)) * (1 - 0.125)
    near(step("Adam", count, given, **settings)[::2], [new, v, h])


@pytest.mark.parametrize("mode", ["standard", "nesterov"])
@pytest.mark.parametrize("count", [0, 7])
def test_momentum_takes_the_first_gradient_whole(mode, count):
    given = tensors(3)
    settings = {"alpha": 0.75, "beta": 0.5, "norm_coefficient": 0.25, "mode": mode}
    x, _, g, _, v, _ = wide(given)
    regular = 0.25 * x + g
    v = 0.75 * v + (0.5 if count else 1) * regular
    new = x - 0.1 * (regular + 0.75 * v if mode == "nesterov" else v)
    near(step("Momentum", count, given, **settings)[::2], [new, v])


def test_an_unknown_mode_is_refused():
    said = refused(
        "Momentum", RATE, np.array(1), *tensors(3), outputs=4, opset=1, domain=DOMAIN,
        alpha=0.5, beta=0.5, norm_coefficient=0.0, mode="other",
    )  # fmt: skip
    assert "mode is 'other'" in said
