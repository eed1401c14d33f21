"""Activations against their definitions in float64, small and large, and in place."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, agrees, gives, node_of

R = np.random.default_rng(5)
NAN, INF = np.nan, np.inf
FLOATS = ("float32", "float64", "float16", "bfloat16")
LARGE = 140_003  # compiled, and in two shares
_erf = np.vectorize(math.erf, otypes=[float])


def of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def gelu(x):
    return 0.5 * x * (1 + _erf(x / np.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ALPHA, GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
CASES = [
    ("Relu", {}, lambda x: np.maximum(x, 0), 14),
    ("Sigmoid", {}, sigmoid, 13),
    ("HardSigmoid", {}, lambda x: np.clip(0.2 * x + 0.5, 0, 1), 22),
    ("HardSigmoid", {"alpha": 0.5, "beta": 0.125}, lambda x: np.clip(0.5 * x + 0.125, 0, 1), 22),
    ("HardSwish", {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1), 22),
    ("LeakyRelu", {}, lambda x: np.where(x < 0, 0.01 * x, x), 16),
    ("LeakyRelu", {"alpha": -2.0}, lambda x: np.where(x < 0, -2 * x, x), 16),
    ("Elu", {"alpha": 1.5}, lambda x: np.where(x < 0, 1.5 * np.expm1(np.minimum(x, 0)), x), 22),
    ("Selu", {}, lambda x: GAMMA * np.where(x <= 0, ALPHA * np.expm1(np.minimum(x, 0)), x), 22),
    ("Celu", {"alpha": 2.0}, lambda x: np.maximum(0, x) + np.minimum(0, 2 * np.expm1(x / 2)), 28),
    ("Softplus", {}, softplus, 22),
    ("Softsign", {}, lambda x: x / (1 + np.abs(x)), 22),
    ("ThresholdedRelu", {"alpha": 0.75}, lambda x: np.where(x > 0.75, x, 0), 22),
    ("Shrink", {"bias": 0.25, "lambd": 1.0}, lambda x: np.where(x < -1, x + 0.25, np.where(x > 1, x - 0.25, 0)), 9),
    ("Mish", {}, lambda x: x * np.tanh(softplus(x)), 22),
    ("Swish", {"alpha": 1.5}, lambda x: x * sigmoid(1.5 * x), 24),
    ("Gelu", {}, gelu, 20),
    ("Gelu", {"approximate": "tanh"}, gelu_tanh, 20),
]  # fmt: skip
NAMES = [case[0] + "".join(str(v) for v in case[1].values()) for case in CASES]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_small_array_follows_the_definition(case, dtype):
    operator, attributes, exact, opset = case
    if operator == "Shrink" and dtype == "bfloat16":
        opset = 9
    x = np.concatenate([R.standard_normal(60) * 3, [0.0, 20, -20]]).astype(of(dtype))
    want = exact(x.astype(np.float64)).astype(of(dtype))
    near = {"float32": 2e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}[
        dtype
    ]
    gives(
        operator,
        [x],
        want,
        opset=opset,
        rtol=near,
        atol=min(near, 1e-3) / 2,
        **attributes,
    )


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "in place"])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_large_array_follows_it_too_in_every_share(case, shared):
    operator, attributes, exact, opset = case
    x = (R.standard_normal(LARGE) * 4).astype(np.float32)
    share = [(0, 0)] if shared else ()
    (y,) = Bound(
        node_of(operator, [x], **attributes), [x], [x], opset, share=share
    ).run()
    some = np.r_[0:500, LARGE // 2 - 300 : LARGE // 2 + 300, LARGE - 500 : LARGE]
    np.testing.assert_allclose(
        y[some], exact(x[some].astype(float)), rtol=4e-6, atol=1e-6
    )


@pytest.mark.parametrize("operator", ["Relu", "Sigmoid", "Gelu", "Softplus"])
def test_a_large_half_is_computed_in_float32(operator):
    exact = {c[0]: c[2] for c in CASES[:-1]}[operator]
    for dtype in ("float16", "bfloat16"):
        x = R.standard_normal(LARGE).astype(of(dtype))
        (y,) = Bound(node_of(operator, [x]), [x], [x], 22).run()
        want = exact(x[-500:].astype(float)).astype(of(dtype)).astype(float)
        np.testing.assert_allclose(y[-500:].astype(float), want, rtol=1e-2, atol=1e-3)


KEEPS_NAN = [
    i for i, c in enumerate(CASES) if c[0] not in ("ThresholdedRelu", "Shrink")
]


@pytest.mark.parametrize(
    "case", [CASES[i] for i in KEEPS_NAN], ids=[NAMES[i] for i in KEEPS_NAN]
)
@pytest.mark.parametrize("size", [9, LARGE])
def test_nan_of_either_sign_survives_and_infinity_goes_to_its_limit(case, size):
    operator, attributes, _, opset = case
    x = np.ones(size, np.float32)
    x[[0, 3, -1]] = [NAN, -NAN, NAN]
    x[[1, 2]] = [INF, -INF]
    (y,) = Bound(node_of(operator, [x], **attributes), [x], [x], opset).run()
    assert np.isnan(y[[0, 3, -1]]).all()
    limits = {
        "Relu": (INF, 0), "Sigmoid": (1, 0), "HardSigmoid": (1, 0), "Softplus": (INF, 0),
        "Elu": (INF, -1.5), "Celu": (INF, -2), "Selu": (INF, -ALPHA * GAMMA),
    }  # fmt: skip
    if operator in limits:
        np.testing.assert_allclose(y[[1, 2]], limits[operator], rtol=1e-6)


def test_what_is_not_above_a_threshold_is_zero_nan_included():
    x = np.array([NAN, 1, 2, -3], np.float32)
    for operator, attributes in (
        ("ThresholdedRelu", {"alpha": 1.0}),
        ("Shrink", {"lambd": 5.0}),
    ):
        want = np.array(
            [0, 0, 2 if operator == "ThresholdedRelu" else 0, 0], np.float32
        )
        bound = Bound(node_of(operator, [x], **attributes), [x], [x], 22)
        np.testing.assert_array_equal(bound.run()[0], want)


def test_shrink_and_relu_take_integers():
    x = np.array([-3, -1, 0, 1, 3], np.int8)
    gives("Relu", [x], np.array([0, 0, 0, 1, 3], np.int8), opset=14)
    gives(
        "Shrink", [x], np.array([-2, 0, 0, 0, 2], np.int8), opset=9, bias=1.0, lambd=1.5
    )
    u = np.array([0, 1, 3], np.uint8)
    gives("Shrink", [u], np.array([0, 0, 2], np.uint8), opset=9, bias=1.0, lambd=1.5)
    wide = np.arange(-50, 50, dtype=np.int64)
    gives("Relu", [wide], np.maximum(wide, 0), opset=14)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,)])
@pytest.mark.parametrize("operator", ["Relu", "Sigmoid", "Gelu", "Elu", "Clip"])
def test_scalars_and_empty_tensors_pass(operator, shape):
    x = np.full(shape, 1.0, np.float32)
    exact = {"Relu": 1, "Sigmoid": sigmoid(1.0), "Gelu": gelu(1.0), "Elu": 1, "Clip": 1}
    gives(
        operator, [x], np.full(shape, exact[operator], np.float32), opset=20, rtol=1e-6
    )


@pytest.mark.parametrize("size", [7, LARGE])
@pytest.mark.parametrize("fixed", [(), (1, 2)])
@pytest.mark.parametrize(
    ("low", "high"),
    [(-1, 1), (2, -2), (None, 0.5), (-0.5, None), (None, None), (NAN, 1)],
)
def test_clip_is_the_minimum_of_the_maximum(low, high, fixed, size):
    x = (R.standard_normal(size) * 3).astype(np.float32)
    x[:3] = [NAN, INF, -INF]
    bounds = [None if b is None else np.float32(b) for b in (low, high)]
    want = x
    if low is not None:
        want = np.maximum(want, bounds[0])
    if high is not None:
        want = np.minimum(want, bounds[1])
    fixed = [i for i in fixed if bounds[i - 1] is not None]
    bound = Bound(
        node_of("Clip", [x, *bounds]), [x, *bounds], [want], 13, constant=fixed
    )
    np.testing.assert_array_equal(bound.run()[0], want)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int32", "int64", "uint64", "float64", "float16"]
)
def test_clip_of_other_types_keeps_them(dtype):
    x = np.array([0, 3, 5, 100]).astype(dtype)
    gives(
        "Clip",
        [x, x.dtype.type(2), x.dtype.type(6)],
        np.array([2, 3, 5, 6]).astype(dtype),
        opset=12,
    )
    gives(
        "Clip",
        [x, None, np.array([6]).astype(dtype)],
        np.array([0, 3, 5, 6]).astype(dtype),
        opset=12,
    )


def test_clip_before_opset_11_has_its_bounds_as_attributes():
    x = np.array([-3, 0.5, 3, NAN], np.float32)
    want = np.array([-1, 0.5, 2, NAN], np.float32)
    gives("Clip", [x], want, opset=7, min=-1.0, max=2.0)
    gives("Clip", [x], x, opset=10)


def test_the_bounds_of_clip_may_change_between_runs():
    x = np.array([-3, 0.5, 3], np.float32)
    bounds = [np.float32(-1), np.float32(1)]
    bound = Bound(node_of("Clip", [x, *bounds]), [x, *bounds], [x], 13)
    np.testing.assert_array_equal(bound.run()[0], [-1, 0.5, 1])
    bound.views["x2"][...] = 2
    np.testing.assert_array_equal(bound.run()[0], [-1, 0.5, 2])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("size", [6, 30_000])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("operator", ["Gelu", "FastGelu", "QuickGelu", "BiasGelu"])
def test_contributed_gelus_follow_their_definitions(operator, biased, size, dtype):
    if (biased and operator in ("Gelu", "QuickGelu")) or (
        not biased and operator == "BiasGelu"
    ):
        biased = not biased
    x = R.standard_normal((5, size)).astype(of(dtype))
    bias = R.standard_normal(size).astype(of(dtype)) if biased else None
    total = x.astype(float) + (0 if bias is None else bias.astype(float))
    exact = {"FastGelu": gelu_tanh, "QuickGelu": lambda v: v * sigmoid(1.702 * v)}.get(
        operator, gelu
    )
    want = exact(total[:, -50:]).astype(of(dtype)).astype(float)
    inputs = [x] if bias is None else [x, bias]
    bound = Bound(node_of(operator, inputs, domain="com.microsoft"), inputs, [x], 20)
    near = 4e-6 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(
        bound.run()[0][:, -50:].astype(float), want, rtol=near, atol=near / 4
    )


@pytest.mark.parametrize("opset", [7, 11, 14, 20])
@pytest.mark.parametrize(
    "operator",
    [
        "Relu",
        "Sigmoid",
        "HardSigmoid",
        "LeakyRelu",
        "Elu",
        "Selu",
        "Softplus",
        "Softsign",
    ],
)
def test_onnxruntime_agrees_at_every_version(operator, opset):
    x = R.standard_normal((3, 5)).astype(np.float32)
    agrees(operator, [x], opset=opset, rtol=1e-5, atol=1e-6)
