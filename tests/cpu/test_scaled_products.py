"""Products of bytes that end as floats or as bytes again, by definition and onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.movement import give, node_of, peer, same
from tests.node_cases import view_of_node

from seamline.provider import Refusal
from seamline_cpu.kernels import TABLE

R = np.random.default_rng(21)
CONTRIB = "com.microsoft"


def whole(dtype, *shape, narrow=False):
    info = np.iinfo(dtype)
    low, high = (info.min // 2, info.max // 2) if narrow else (info.min, info.max)
    return R.integers(low, high + 1, shape).astype(dtype)


def scales(*shape):
    return R.uniform(0.01, 0.05, shape).astype(np.float32)


SIZES = [
    (1, 1, 1),
    (1, 33, 17),
    (5, 64, 7),
    (13, 31, 50),
    (7, 129, 16),
    (2, 0, 3),
    (0, 4, 5),
]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("left", "right"), [("uint8", "int8"), ("int8", "uint8")])
def test_a_product_of_bytes_becomes_floats(sizes, left, right):
    m, k, n = sizes
    a, b, bias = (
        whole(left, m, k),
        whole(right, k, n),
        R.normal(size=n).astype(np.float32),
    )
    p, q, of_a, of_b = whole(left, 1), whole(right, n), scales(1), scales(n)
    sums = (a.astype(np.int64) - p) @ (b.astype(np.int64) - q)
    want = (sums * (of_a * of_b).astype(np.float64) + bias).astype(np.float32)
    inputs = [a, b, of_a, of_b, p, q, bias]
    got = give("MatMulIntegerToFloat", inputs, want, constant=(1, 5), domain=CONTRIB)
    same(got, want, rtol=2e-6, atol=1e-5)


def test_left_out_points_and_bias_of_a_stack_of_matrices():
    a, b = whole("uint8", 2, 3, 4, 10), whole("int8", 10, 6)
    of_a, of_b = scales(), scales()
    want = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.float32) * (of_a * of_b)
    inputs = [a, b, np.asarray(of_a), np.asarray(of_b)]
    got = give("MatMulIntegerToFloat", inputs, want, constant=(1,), domain=CONTRIB)
    same(got, want, rtol=2e-6)


def quantised(x):
    """Quantise by DynamicQuantizeLinear's text."""
    low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
    scale = np.float32((high - low) / np.float32(255))
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return np.clip(np.rint(x / scale) + zero, 0, 255) - zero, scale


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 40, 33), (6, 65, 20), (19, 30, 31)])
@pytest.mark.parametrize("columns", [False, True])
def test_a_float_side_is_quantised_by_its_own_range(sizes, columns):
    m, k, n = sizes
    a, b = R.normal(size=(m, k)).astype(np.float32), whole("int8", k, n)
    of_b, q = (
        (scales(n), whole("int8", n)) if columns else (scales(1), whole("int8", 1))
    )
    bias = R.normal(size=n).astype(np.float32)
    codes, scale = quantised(a)
    want = codes @ (b.astype(np.float64) - q) * (scale * of_b) + bias
    want = want.astype(np.float32)
    inputs = [a, b, of_b, q, bias]
    got = give("DynamicQuantizeMatMul", inputs, want, constant=(1, 3), domain=CONTRIB)
    same(got, want, rtol=2e-6, atol=1e-5)


def test_onnxruntime_agrees():
    a, b = (
        R.normal(size=(4, 9, 64)).astype(np.float32),
        whole("int8", 64, 24, narrow=True),
    )
    inputs = [
        a,
        b,
        scales(24),
        np.zeros(24, np.int8),
        R.normal(size=24).astype(np.float32),
    ]
    want = peer("DynamicQuantizeMatMul", inputs, opset=17, domain=CONTRIB)
    got = give("DynamicQuantizeMatMul", inputs, want, constant=(1, 3), domain=CONTRIB)
    same(got, want, rtol=1e-5, atol=1e-5)
    codes = whole("uint8", 4, 9, 64)
    inputs = [
        codes,
        b,
        scales(1),
        scales(24),
        np.array([131], np.uint8),
        np.zeros(24, np.int8),
    ]
    want = peer("MatMulIntegerToFloat", inputs, opset=17, domain=CONTRIB)
    got = give("MatMulIntegerToFloat", inputs, want, constant=(1, 5), domain=CONTRIB)
    same(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("b", "constant", "said"),
    [
        ((8, 4), (), "not constant"),
        ((2, 8, 4), (1,), "3 axes"),
        ((7, 4), (1,), "input 1"),
    ],
)
def test_what_it_cannot_pack_is_refused(b, constant, said):
    a = R.normal(size=(3, 8)).astype(np.float32)
    inputs = [a, whole("int8", *b), scales(1)]
    node = node_of("DynamicQuantizeMatMul", inputs, 1, CONTRIB)
    like = [np.zeros((3, 4), np.float32)]
    answer = TABLE.find(view_of_node(node, inputs, like, 17, constant))
    assert isinstance(answer, Refusal)
    assert said in str(answer)


@pytest.mark.parametrize("per_row", [False, True])
def test_scales_of_rows_and_columns_of_a_quantised_product(per_row):
    a, b = whole("int8", 9, 21), whole("int8", 21, 18)
    of_a, p = (
        (scales(9), whole("int8", 9)) if per_row else (scales(1), whole("int8", 1))
    )
    of_b, q = scales(18), whole("int8", 18)
    last, zero = np.array([0.9], np.float32), np.array([-7], np.int8)
    rows = (of_a[:, None] if per_row else of_a) * of_b
    sums = (a.astype(np.int64) - p[:, None]) @ (b.astype(np.int64) - q)
    real = sums * (rows / last).astype(np.float64)
    want = np.clip(np.rint(real) - 7, -128, 127).astype(np.int8)
    inputs = [a, of_a, p, b, of_b, q, last, zero]
    same(give("QLinearMatMul", inputs, want, opset=21, constant=(3, 5)), want)
    same(give("QLinearMatMul", inputs, want, opset=21), want)
