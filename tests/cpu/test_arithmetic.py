"""Arithmetic, comparisons, powers and Where: broadcasting, signs, ends of ranges, NaN."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, agrees, give, gives, node_of
from tests.node_cases import run_node

from seamline.provider import Refusal
from seamline_cpu.kernels import TABLE

R = np.random.default_rng(4)
NAN, INF = np.nan, np.inf
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
BINARY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
SHAPES = [
    ((), ()),
    ((3, 1), (1, 4)),
    ((2, 3, 4), (4,)),
    ((0, 3), (1, 3)),
    ((1,), (0,)),
    ((5,), ()),
]


def of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("operator", BINARY)
def test_operands_broadcast_to_each_other(operator, shapes):
    a, b = (R.uniform(1, 2, s).astype(np.float32) for s in shapes)
    want = np.asarray(BINARY[operator](a.astype(float), b.astype(float))).astype(
        np.float32
    )
    gives(operator, [a, b], want, opset=7, rtol=1e-6)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("operator", BINARY)
def test_every_type_keeps_its_own_arithmetic(operator, dtype):
    a, b = (
        np.array([7, 12, 100, 3]).astype(of(dtype)),
        np.array([2, 3, 7, 3]).astype(of(dtype)),
    )
    exact = BINARY[operator](a.astype(float), b.astype(float))
    whole = dtype in INTEGERS
    want = (np.trunc(exact).astype(np.int64) if whole else exact).astype(of(dtype))
    gives(operator, [a, b], want, opset=14, rtol=0 if whole else 1e-2)


@pytest.mark.parametrize(
    "shapes",
    [
        ((600, 1000), (600, 1000)),
        ((3, 400, 500), (500,)),
        ((2, 300, 1000), (2, 1, 1)),
        ((600_000,), ()),
    ],
)
def test_large_operands_are_shared_without_a_seam(shapes):
    a, b = (R.standard_normal(s).astype(np.float32) for s in shapes)
    gives("Add", [a, b], a + b, opset=14)
    gives(
        "Where",
        [np.broadcast_to(b > 0, b.shape), a, np.float32(3)],
        np.where(b > 0, a, np.float32(3)),
        opset=16,
    )


@pytest.mark.parametrize("place", [0, 1])
def test_the_result_may_lie_where_an_operand_does(place):
    for size in (6, 600_000):
        a, b = (R.standard_normal(size).astype(np.float32) for _ in range(2))
        for operator in ("Sub", "Div", "Max"):
            want = {"Sub": a - b, "Div": a / b, "Max": np.maximum(a, b)}[operator]
            bound = Bound(
                node_of(operator, [a, b]), [a, b], [want], 14, share=[(0, place)]
            )
            np.testing.assert_array_equal(bound.run()[0], want)


A, B = [7, -7, 7, -7, -1, 6, -6, 0], [3, 3, -3, -3, 5, -6, 6, -4]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integer_division_truncates_and_mod_takes_the_sign_it_should(dtype):
    a, b = np.array(A, dtype), np.array(B, dtype)
    gives("Div", [a, b], np.array([2, -2, -2, 2, 0, -1, -1, 0], dtype), opset=14)
    gives("Mod", [a, b], np.array([1, 2, -2, -1, 4, 0, 0, 0], dtype), opset=13)
    gives("Mod", [a, b], np.array([1, -1, 1, -1, -1, 0, 0, 0], dtype), opset=13, fmod=1)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_lowest_integer_by_minus_one_and_any_by_zero_do_not_trap(dtype):
    low = np.iinfo(dtype).min
    a, b = np.array([low, 5, low], dtype), np.array([-1, 0, 0], dtype)
    for fmod in (0, 1):
        (m,) = give("Mod", [a, b], np.empty_like(a), opset=13, fmod=fmod)
        assert m[0] == 0
    give("Div", [a, b], np.empty_like(a), opset=14)
    wide = np.array([low, low + 1, low, 9], dtype)
    by = np.array([2, 3, 1, -2], dtype)
    exact = [
        int(abs(int(x)) // abs(int(y))) * (1 if (x < 0) == (y < 0) else -1)
        for x, y in zip(wide, by, strict=True)
    ]
    gives("Div", [wide, by], np.array(exact, dtype), opset=14)


def test_integer_division_keeps_what_a_float_would_lose():
    a = np.array([2**62 + 1, -(2**62) - 1, 2**53 + 1], np.int64)
    gives("Div", [a, np.ones(3, np.int64)], a, opset=14)
    u = np.array([2**64 - 1], np.uint64)
    gives("Div", [u, np.array([3], np.uint64)], u // np.uint64(3), opset=14)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_mod_follows_the_special_cases_of_opset_28(dtype):
    x = np.array([-1, 1, 0.0, -0.0, INF, 5, 5.5, -5.5, NAN]).astype(of(dtype))
    y = np.array([INF, -INF, -2, 2, 2, 0, 2, 2, 1]).astype(of(dtype))
    floor = np.array([INF, -INF, -0.0, 0.0, NAN, NAN, 1.5, 0.5, NAN])
    node = node_of("Mod", [x, y], fmod=0)
    got = Bound(node, [x, y], [x], 28).run()[0].astype(float)
    np.testing.assert_array_equal(got, floor)
    np.testing.assert_array_equal(np.signbit(got[2:4]), [True, False])
    cut = np.array([-1, 1, 0, 0, NAN, NAN, 1.5, -1.5, NAN])
    got = Bound(node_of("Mod", [x, y], fmod=1), [x, y], [x], 28).run()[0].astype(float)
    np.testing.assert_array_equal(got, cut)


def test_division_by_zero_and_arguments_outside_a_domain_follow_ieee():
    a = np.array([1, -1, 0, 4, -2], np.float32)
    b = np.array([0, 0, 0, -0.0, 8], np.float32)
    gives("Div", [a, b], np.array([INF, -INF, NAN, -INF, -0.25], np.float32), opset=14)
    gives(
        "Reciprocal", [b], np.array([INF, INF, INF, -INF, 0.125], np.float32), opset=13
    )
    gives(
        "Log",
        [a],
        np.array([0, NAN, -INF, np.log(4), NAN], np.float32),
        opset=13,
        rtol=1e-6,
    )
    gives("Pow", [b, a], np.array([0, INF, 1, 0, 1 / 64], np.float32), opset=15)
    gives(
        "Mod", [a, b], np.array([NAN, NAN, NAN, NAN, -2], np.float32), opset=13, fmod=1
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("s", [0.5, NAN])
def test_max_and_min_give_nan_wherever_any_operand_is(dtype, s):
    a = np.linspace(-4, 5, 19)
    b = a[::-1].copy()
    a[[0, 7, 8, 18]], b[[0, 3, 16, 17]] = NAN, NAN
    a, b, s = a.astype(of(dtype)), b.astype(of(dtype)), np.array([s]).astype(of(dtype))
    for operator, choose in (("Max", max), ("Min", min)):
        for operands in ([a, b], [b, a], [a, s, b], [s, a], [a]):
            rows = np.broadcast_arrays(*[x.astype(float) for x in operands])
            want = [
                NAN if any(np.isnan(v)) else choose(v) for v in zip(*rows, strict=True)
            ]
            like = np.array(want).astype(a.dtype)
            got = Bound(node_of(operator, operands), operands, [like], 13).run()[0]
            np.testing.assert_array_equal(got.astype(float), like.astype(float))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_max_and_min_of_integers(dtype):
    a, b = np.array([1, 5, 9], dtype), np.array([[3], [7]], dtype)
    gives("Max", [a, b], np.maximum(a, b), opset=12)
    gives("Min", [a, b], np.minimum(a, b), opset=12)


@pytest.mark.parametrize("opset", [7, 8, 13])
def test_sum_and_mean_take_any_number_of_operands(opset):
    rows = [R.standard_normal((2, 3)).astype(np.float32) for _ in range(4)]
    for count in (1, 2, 4):
        exact = np.sum([r.astype(float) for r in rows[:count]], axis=0)
        gives(
            "Sum",
            rows[:count],
            exact.astype(np.float32),
            opset=opset,
            rtol=1e-5,
            atol=1e-6,
        )
        gives(
            "Mean",
            rows[:count],
            (exact / count).astype(np.float32),
            opset=opset,
            rtol=1e-5,
            atol=1e-6,
        )


def test_a_small_operand_first_spreads_over_the_sum():
    rows = [np.float32([[1]]), np.float32([2]), np.arange(4, dtype=np.float32)]
    gives("Sum", rows, np.arange(4, dtype=np.float32)[None] + 3, opset=13)
    gives(
        "Mean",
        rows,
        (np.arange(4, dtype=np.float32)[None] + 3) / np.float32(3),
        opset=13,
        rtol=1e-6,
    )


@pytest.mark.parametrize("opset", [7, 9, 12, 13, 15, 19])
def test_onnxruntime_agrees_at_every_version(opset):
    a, b = (
        R.uniform(1, 3, (2, 1, 4)).astype(np.float32),
        R.uniform(1, 3, (3, 1)).astype(np.float32),
    )
    for operator in ("Add", "Sub", "Mul", "Div", "Pow", "Greater", "Less"):
        agrees(operator, [a, b], opset=opset, rtol=2e-6)
    if opset >= 8:
        agrees("Max", [a, b], opset=opset)
    i = np.array([-7, 7, 5], np.int64)
    agrees("Div", [i, np.array([2], np.int64)], opset=opset)
    agrees("Equal", [i, i[:1]], opset=opset)


def test_a_type_without_arithmetic_is_refused_with_the_types_that_have_it():
    x = np.zeros(2, bool)
    answer = run_node(TABLE, node_of("Add", [x, x]), [x, x], [x], opset=14)
    assert isinstance(answer, Refusal)
    assert "bool" in str(answer)
    assert "float32" in str(answer)
