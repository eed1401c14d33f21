"""Functions of one element, against float64 and the ONNX text."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, agrees, gives, node_of
from tests.node_cases import run_node

from seamline.provider import Refusal
from seamline_cpu.kernels import TABLE, activation_loops, float32_math
from seamline_cpu.kernels.rows import fused

R = np.random.default_rng(3)
NAN, INF = np.nan, np.inf
EDGES = np.array([NAN, -NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 1e-30, 3e38, -3e38])
LARGE = 70_001  # above every size from which loops are compiled
FLOATS = ("float32", "float64", "float16", "bfloat16")


def of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


UNARY = {
    "Abs": np.abs, "Neg": np.negative, "Sign": np.sign, "Ceil": np.ceil, "Floor": np.floor,
    "Round": np.rint, "Sqrt": np.sqrt, "Reciprocal": lambda x: 1 / x, "Exp": np.exp,
    "Log": np.log, "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Asin": np.arcsin,
    "Acos": np.arccos, "Atan": np.arctan, "Sinh": np.sinh, "Cosh": np.cosh, "Tanh": np.tanh,
    "Asinh": np.arcsinh, "Acosh": np.arccosh, "Atanh": np.arctanh,
    "Erf": np.vectorize(math.erf, otypes=[float]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("operator", UNARY)
def test_each_function_is_numpys_in_float64_rounded(operator, dtype):
    x = np.concatenate([R.standard_normal(40) * 2, [0.5, 1.5, 2.5, -0.5]]).astype(
        of(dtype)
    )
    with np.errstate(all="ignore"):
        want = np.asarray(UNARY[operator](x.astype(np.float64))).astype(of(dtype))
    near = {"float32": 2e-6, "float64": 1e-14, "float16": 2e-3, "bfloat16": 1.6e-2}[
        dtype
    ]
    gives(operator, [x.astype(of(dtype))], want, opset=23, rtol=near, atol=near / 100)


@pytest.mark.parametrize("operator", UNARY)
def test_nan_and_infinity_do_what_the_function_says(operator):
    x = EDGES.astype(np.float32)
    with np.errstate(all="ignore"):
        want = UNARY[operator](x.astype(np.float64)).astype(np.float32)
    bound = Bound(node_of(operator, [x]), [x], [want], 23)
    np.testing.assert_allclose(bound.run()[0], want, rtol=1e-6)


@pytest.mark.parametrize("operator", ["Abs", "Neg", "Sign"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_signs_of_integers_reach_the_ends(operator, dtype):
    ends = np.iinfo(dtype)
    x = np.array([ends.min + 1, -3, 0, 3, ends.max], dtype)
    gives(operator, [x], UNARY[operator](x.astype(object)).astype(dtype), opset=13)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)])
@pytest.mark.parametrize("operator", ["Erf", "Exp", "Tanh", "Abs", "Log"])
def test_scalars_and_empty_tensors_pass(operator, shape):
    x = np.full(shape, 0.5, np.float32)
    want = (
        np.asarray(UNARY[operator](x.astype(np.float64)))
        .reshape(shape)
        .astype(np.float32)
    )
    gives(operator, [x], want, opset=13, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("operator", ["Erf", "Exp", "Tanh"])
@pytest.mark.parametrize("shared", [False, True])
def test_large_arrays_are_right_in_every_share_and_in_place(operator, dtype, shared):
    with np.errstate(all="ignore"):
        x = np.concatenate([EDGES, R.standard_normal(2 * LARGE) * 3]).astype(dtype)
        want = np.concatenate(
            [UNARY[operator](part.astype(float)) for part in (x[:50], x[-50:])]
        )
        want = want.astype(dtype)
    share = [(0, 0)] if shared else ()
    (y,) = Bound(node_of(operator, [x]), [x], [x], 13, share=share).run()
    near = 1e-6 if dtype == "float32" else 2e-3
    np.testing.assert_allclose(
        np.concatenate([y[:50], y[-50:]]), want, rtol=near, atol=1e-7
    )
    assert np.isnan(y).sum() == np.isnan(x).sum()


def ulps(got, want):
    gap = np.spacing(np.abs(want.astype(np.float32))).astype(np.float64)
    return np.max(np.abs(got.astype(np.float64) - want) / gap)


POINTS = {
    "exp": (np.exp, np.linspace(-87, 88.7, 20001), 1.1),
    "expm1": (np.expm1, np.linspace(-30, 30, 20001), 1.6),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), np.linspace(-87, 30, 20001), 2.4),
    "tanh": (np.tanh, np.r_[np.linspace(-12, 12, 20001), np.geomspace(1e-8, 1, 9999)], 5),
    "erf": (UNARY["Erf"], np.r_[np.linspace(-6, 6, 20001), np.geomspace(1e-8, 1, 9999)], 5),
    "log1p_unit": (np.log1p, np.r_[np.linspace(0, 1, 20001), np.geomspace(1e-8, 1, 999)], 4),
}  # fmt: skip


@pytest.mark.parametrize("name", POINTS)
def test_compiled_functions_are_within_the_ulps_that_they_state(name):
    exact, points, most = POINTS[name]
    function = getattr(float32_math, name)

    @fused
    def loop(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    x = points.astype(np.float32)
    out = np.empty_like(x)
    loop(x, out)
    assert ulps(out, exact(x.astype(np.float64))) <= most


def test_exp_is_zero_subnormal_and_infinite_where_it_should_be():
    x = np.zeros(16, np.float32)
    x[:6] = [-120, -100, 88.72, 88.73, 1000, -INF]
    out = np.empty_like(x)
    activation_loops.exp(x, out, np.float32(0), np.float32(0))
    np.testing.assert_allclose(
        out[:6], [0, np.exp(-100.0), np.exp(np.float64(x[2])), INF, INF, 0], rtol=0.04
    )


@pytest.mark.parametrize(("positive", "negative"), [(1, 1), (1, 0), (0, 1), (0, 0)])
@pytest.mark.parametrize("dtype", [*FLOATS, "float8_e5m2"])
def test_is_inf_counts_the_signs_asked_for(positive, negative, dtype):
    x = np.array([NAN, INF, -INF, 0, 3], of(dtype))
    want = np.array([False, bool(positive), bool(negative), False, False])
    gives(
        "IsInf",
        [x[1:]],
        want[1:],
        opset=20,
        detect_positive=positive,
        detect_negative=negative,
    )
    like = np.empty(5, bool)
    node = node_of("IsInf", [x], detect_positive=positive, detect_negative=negative)
    np.testing.assert_array_equal(Bound(node, [x], [like], 20).run()[0], want)


@pytest.mark.parametrize(
    "dtype",
    [*FLOATS, "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"],
)
def test_is_nan_knows_every_float(dtype):
    x = np.array([NAN, 0, 3, -2], of(dtype))
    (y,) = Bound(node_of("IsNaN", [x]), [x], [np.empty(4, bool)], 20).run()
    np.testing.assert_array_equal(y, [True, False, False, False])


def test_erf_of_integers_is_cut_to_an_integer_before_opset_13_and_refused_after():
    x = np.array([-7, -6, -5, -1, 0, 1, 5, 6, 127], np.int8)
    want = [int(math.erf(v)) for v in x.tolist()]
    gives("Erf", [x], np.array(want, np.int8), opset=9)
    gives("Erf", [x[4:].astype(np.uint8)], np.array(want[4:], np.uint8), opset=9)
    assert isinstance(run_node(TABLE, node_of("Erf", [x]), [x], [x], opset=13), Refusal)


def test_not_and_bitwise_not_turn_truth_and_bits():
    gives("Not", [np.array([True, False])], np.array([False, True]), opset=7)
    for dtype in ("uint8", "int8", "uint64", "int64"):
        x = np.array([0, 1, 100], dtype)
        gives("BitwiseNot", [x], ~x, opset=18)


@pytest.mark.parametrize("opset", [7, 13, 22])
@pytest.mark.parametrize(
    "operator", ["Abs", "Ceil", "Exp", "Sqrt", "Tanh", "Sin", "Log"]
)
def test_onnxruntime_agrees_at_every_version(operator, opset):
    x = np.abs(R.standard_normal((3, 5))).astype(np.float32)
    agrees(operator, [x], opset=opset, rtol=1e-6)


@pytest.mark.parametrize("name", activation_loops.__all__)
def test_an_array_replaced_in_place_gets_the_same_bits(name):
    """LLVM was promised that arrays do not overlap; lengths leave every kind of tail."""
    loop = getattr(activation_loops, name)
    for size in (0, 1, 7, 8, 33, 127, 1000):
        x = (np.random.default_rng(size).standard_normal(size) * 4).astype(np.float32)
        out = np.empty_like(x)
        loop(x, out, np.float32(0.5), np.float32(1.5))
        loop(x, x, np.float32(0.5), np.float32(1.5))
        np.testing.assert_array_equal(x, out)
