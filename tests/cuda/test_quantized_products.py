"""Products and convolutions of codes, and codes of a range found by running."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tests.cuda.emulation import check, peer
from tests.cuda.test_convolution import wide
from tests.cuda.worked import node_worked

from seamline.provider import Refusal

spread = np.random.default_rng(17)
ENDS = {"int8": (-128, 127), "uint8": (0, 255)}


def codes(dtype, *sizes):
    low, high = ENDS[dtype]
    return spread.integers(low, high + 1, sizes).astype(dtype)


def scales(*sizes):
    return (spread.random(sizes) * 0.02 + 0.001).astype(np.float32)


def weights(*sizes):
    """Draw weights of 7 bits: onnxruntime adds pairs of products in 16 on some machines."""
    return spread.integers(-63, 64, sizes).astype(np.int8)


def coded(sums, factor, zero, dtype):
    """Give codes of whole sums by the definition, rounded from float64."""
    low, high = ENDS[dtype]
    return np.clip(np.rint(sums * factor) + int(zero), low, high)


def near(got, want, dtype):
    """Hold codes to the definition: a sum between two codes may become either."""
    assert got.dtype == dtype
    apart = np.abs(got.astype(int) - want)
    assert apart.max(initial=0) <= 1
    assert (apart != 0).mean() < 0.01 if apart.size else True


PRODUCTS = {
    "one scale each": ((5, 33), (33, 7), (), ()),
    "a scale for each row and column": ((70, 33), (33, 65), (70,), (65,)),
    "a scale for each column": ((3, 8), (8, 5), (1,), (5,)),
    "a stack": ((2, 3, 4, 9), (3, 9, 6), (), ()),
    "a stack, a scale for each column": ((2, 3, 4), (2, 4, 6), (), (6,)),
    "vectors": ((9,), (9,), (), ()),
    "no rows": ((0, 9), (9, 4), (), ()),
    "no depth": ((3, 0), (0, 4), (), ()),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtypes", [("uint8", "int8", "uint8"), ("int8", "int8", "int8"), ("uint8", "uint8", "uint8")])  # fmt: skip
def test_a_product_of_codes_is_its_sums_scaled_and_rounded_once(name, dtypes):
    left, right, many_a, many_b = PRODUCTS[name]
    a, b = codes(dtypes[0], *left), codes(dtypes[1], *right)
    a_scale, b_scale, y_scale = scales(*many_a), scales(*many_b), np.float32(0.7)
    a_zero, b_zero = codes(dtypes[0], *many_a), codes(dtypes[1], *many_b)
    y_zero = codes(dtypes[2])
    across = a_zero.reshape(-1, 1) if many_a else a_zero
    sums = np.matmul(a.astype(int) - across.astype(int), b.astype(int) - b_zero.astype(int))  # fmt: skip
    factor = a_scale.astype(float).reshape(-1, 1) if many_a else float(a_scale)
    want = coded(sums, factor * b_scale / y_scale, y_zero, dtypes[2])
    node = onnx.helper.make_node("QLinearMatMul", [*"abcdefgh"], ["y"])
    given = [a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero]
    (got,) = node_worked(node, given, [np.zeros(want.shape, dtypes[2])])
    near(got, want, dtypes[2])


CONVOLUTIONS = {
    "an image": ((2, 3, 6, 7), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}, ()),
    "a scale for each channel": ((1, 4, 6, 6), (6, 2, 3, 3), {"group": 2, "strides": [2, 2]}, (6,)),
    "a row": ((1, 3, 9), (2, 3, 3), {"dilations": [2]}, (2,)),
}  # fmt: skip


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_of_codes_is_its_sums_scaled_and_rounded_once(name, has_bias):
    sizes, kernels, attributes, many = CONVOLUTIONS[name]
    rank = len(sizes) - 2
    x, w = codes("uint8", *sizes), codes("int8", *kernels)
    x_scale, w_scale, y_scale = scales(), scales(*many), np.float32(0.9)
    x_zero, w_zero, y_zero = codes("uint8"), codes("int8", *many) // 16, codes("uint8")
    bias = spread.integers(-5000, 5000, kernels[0]).astype(np.int32)
    pads = attributes.get("pads", [0] * 2 * rank)
    window = (
        attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank),
        list(zip(pads[:rank], pads[rank:], strict=True)),
    )  # fmt: skip
    by_channel = (-1, *[1] * rank)
    exact = w.astype(int) - w_zero.astype(int).reshape(-1, 1, *[1] * rank)
    sums = wide(x.astype(int) - int(x_zero), exact, bias if has_bias else None, window, attributes.get("group", 1))  # fmt: skip
    factor = x_scale.astype(float) * w_scale.astype(float) / float(y_scale)
    want = coded(sums, factor.reshape(by_channel) if many else factor, y_zero, "uint8")
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", *["b"] * has_bias]
    node = onnx.helper.make_node("QLinearConv", names, ["y"], **attributes)
    given = [x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *[bias] * has_bias]  # fmt: skip
    (got,) = node_worked(node, given, [np.zeros(want.shape, np.uint8)])
    near(got, want, "uint8")


def dynamically(x):
    """Give codes, scale and zero point by the standard's text, in float32."""
    low, high = min(0, x.min(initial=0)), max(0, x.max(initial=0))
    scale = np.float32(np.float32(high - low) / np.float32(255))
    scale = scale if scale else np.float32(1)
    zero = np.clip(np.rint(-np.float32(low) / scale), 0, 255)
    found = np.clip(np.rint(x / scale) + zero, 0, 255)
    return found.astype(np.uint8), scale, np.uint8(zero)


RANGES = {
    "both sides of 0": spread.standard_normal((3, 50)).astype(np.float32),
    "above 0": spread.random((40,)).astype(np.float32) + 3,
    "below 0": -spread.random((2, 3, 4)).astype(np.float32) - 1,
    "all 0": np.zeros(5, np.float32),
    "one": np.array(-2.5, np.float32),
    "blocks that share it": spread.standard_normal(8300).astype(np.float32),
    "nothing": np.zeros((0, 4), np.float32),
}


@pytest.mark.parametrize("name", RANGES)
def test_a_range_that_is_found_by_running_makes_the_codes(name):
    x = RANGES[name]
    node = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    want = dynamically(x)
    for got, one in zip(node_worked(node, [x], want), want, strict=True):
        np.testing.assert_array_equal(got, one, strict=True)


@pytest.mark.parametrize("oracle", [None, peer])
def test_a_product_of_dynamic_codes_is_right_eager_and_recorded(oracle):
    text = """g (float[4,16] x, int8[16,8] w) => (float[4,8] y) <float s = {0.02}>
        { q, t, z = DynamicQuantizeLinear(x)  p = MatMulInteger(q, w, z)
          f = Cast<to = 1>(p)  m = Mul(t, s)  y = Mul(f, m) }"""
    feeds = {"x": spread.standard_normal((4, 16)).astype(np.float32), "w": weights(16, 8)}  # fmt: skip
    check(text, feeds, oracle=oracle, opset=21)


@pytest.mark.parametrize("oracle", [None, peer])
def test_a_chain_of_codes_is_right_eager_and_recorded(oracle):
    text = """g (uint8[1,3,6,6] x, int8[4,3,3,3] w) => (uint8[1,4,16] y)
        <float s = {0.02}, uint8 z = {120}, float[4] v = {0.01, 0.02, 0.03, 0.005},
         int8[4] o = {0, 0, 0, 0}, float u = {0.3}, int64[3] f = {1, 4, 16}>
        { c = QLinearConv(x, s, z, w, v, o, u, z)  y = Reshape(c, f) }"""
    feeds = {"x": codes("uint8", 1, 3, 6, 6), "w": weights(4, 3, 3, 3)}
    check(text, feeds, oracle=oracle, opset=21)


REFUSED = {
    "a scale of other places": ((3, 8), (8, 5), (4,), np.float32, "one for all, or one for each row"),
    "a scale of 16 bits": ((3, 8), (8, 5), (), np.float16, "float32 of known size is accepted"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_says_what_would_be_accepted(what):
    left, right, many, kind, why = REFUSED[what]
    zero, one = np.uint8(3), np.ones((), kind)
    node = onnx.helper.make_node("QLinearMatMul", [*"abcdefgh"], ["y"])
    given = [codes("uint8", *left), np.ones(many, kind), zero, codes("uint8", *right), one, zero, one, zero]  # fmt: skip
    found = node_worked(node, given, [np.zeros((left[0], right[1]), np.uint8)])
    assert isinstance(found, Refusal)
    assert why in str(found)
