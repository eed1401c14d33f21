"""MatMulInteger and QLinearMatMul: exact, by plain integer arithmetic and onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.movement import agrees, gives

R = np.random.default_rng(3)
KINDS = [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8")]


def whole(dtype, *shape):
    info = np.iinfo(dtype)
    return R.integers(info.min, info.max + 1, shape).astype(dtype)


def narrow(dtype, *shape):
    # Without VNNI onnxruntime adds pairs of products in 16 bits, which saturate; weights
    # of seven bits keep it exact.
    return R.integers(-64 if dtype == "int8" else 0, 64, shape).astype(dtype)


def exact(a, b, p=0, q=0):
    return np.matmul(a.astype(np.int64) - p, b.astype(np.int64) - q).astype(np.int32)


@pytest.mark.parametrize(("left", "right"), KINDS)
@pytest.mark.parametrize("k", [1, 9, 1024, 1025, 3000])
def test_the_product_is_exact_however_long_the_sum(left, right, k):
    a, b = whole(left, 5, k), whole(right, k, 6)
    p, q = whole(left, 1)[0], whole(right, 1)[0]
    gives("MatMulInteger", [a, b], exact(a, b), opset=10, fixed=(1,))
    want = exact(a, b, int(p), int(q))
    gives("MatMulInteger", [a, b, p, q], want, opset=10, fixed=(1, 3))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_extremes_do_not_round(dtype):
    info = np.iinfo(dtype)
    a, b = np.full((2, 2049), info.min, dtype), np.full((2049, 3), info.max, dtype)
    p, q = np.array(info.max, dtype), np.array(info.min, dtype)
    gives("MatMulInteger", [a, b, p, q], exact(a, b, int(p), int(q)), opset=10)
    low = np.full((2049, 3), info.min, dtype)
    gives("MatMulInteger", [a, low], exact(a, low), opset=10)


def test_zero_points_by_row_and_by_column():
    a, b = whole("uint8", 4, 7), whole("int8", 7, 5)
    p, q = whole("uint8", 4), whole("int8", 5)
    want = exact(a, b, p.astype(int)[:, None], q.astype(int))
    gives("MatMulInteger", [a, b, p, q], want, opset=10, fixed=(1, 3))
    a, b = whole("uint8", 2, 3, 4, 7), whole("int8", 2, 3, 7, 5)
    p, q = whole("uint8", 2, 3, 4, 1), whole("int8", 2, 3, 1, 5)
    want = exact(a, b, p.astype(int), q.astype(int))
    gives("MatMulInteger", [a, b, p, q], want, opset=10)


def test_a_missing_first_zero_point_is_zero():
    a, b, q = whole("uint8", 4, 7), whole("uint8", 7, 5), np.array(131, np.uint8)
    gives("MatMulInteger", [a, b, None, q], exact(a, b, 0, 131), opset=10)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((7,), (7, 5)),
        ((4, 7), (7,)),
        ((2, 4, 7), (7, 5)),
        ((2, 4, 7), (2, 7, 5)),
        ((4, 0), (0, 5)),
    ],
)
def test_shapes_follow_matmul(a, b):
    a, b = whole("uint8", *a), whole("int8", *b)
    gives(
        "MatMulInteger",
        [a, b, np.array(9, np.uint8)],
        exact(a, b, 9),
        opset=10,
        fixed=(1,),
    )


def test_onnxruntime_agrees_on_a_larger_product():
    a, b = whole("uint8", 33, 384), narrow("int8", 384, 40)
    agrees("MatMulInteger", [a, b, np.array(100, np.uint8)], opset=13, fixed=(1,))


def quantized(dtype, per):
    a, b = whole("uint8", 6, 40), narrow(dtype, 40, 5)
    scale = R.uniform(0.01, 0.05, 5 if per else ()).astype(np.float32)
    zero = np.zeros(5, dtype) if per and dtype == "int8" else whole(dtype, 5)
    zero = zero if per else whole(dtype, 1)[0]
    one = np.float32(0.02), np.array(120, np.uint8)
    out = np.float32(1.5), np.array(128, np.uint8)
    return [a, *map(np.asarray, one), b, scale, np.asarray(zero), *map(np.asarray, out)]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("per", [False, True])
def test_a_quantized_product_saturates_and_rounds_halves_to_even(dtype, per):
    given = quantized(dtype, per)
    a, sa, za, b, sb, zb, sy, zy = (x.astype(np.float64) for x in given)
    real = np.matmul(a - za, b - zb) * (sa * sb / sy) + zy
    want = np.clip(np.rint(real), 0, 255).astype(np.uint8)
    gives("QLinearMatMul", given, want, opset=10, fixed=(1, 2, 3, 4, 5, 6, 7))
    gives("QLinearMatMul", given, want, opset=21)


def test_a_half_goes_to_the_even_neighbour():
    a, b = np.array([[1], [3], [5]], np.int8), np.array([[1]], np.int8)
    zero, one, two = (
        np.array(0, np.int8),
        np.array(1, np.float32),
        np.array(2, np.float32),
    )
    want = np.array([[0], [2], [2]], np.int8)
    gives("QLinearMatMul", [a, one, zero, b, one, zero, two, zero], want, opset=10)


def test_onnxruntime_agrees_on_a_quantized_product():
    agrees("QLinearMatMul", quantized("int8", True), opset=10)
    agrees("QLinearMatMul", quantized("uint8", False), opset=10)
