"""QuantizeLinear and its kin against the formula: ties, saturation, granularity, types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, agrees, gives, node_of

R = np.random.default_rng(6)
F32 = np.float32
NAN, INF = np.nan, np.inf
LARGE = 150_001
ENDS = {
    "uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767),
    "uint4": (0, 15), "int4": (-8, 7), "uint2": (0, 3), "int2": (-2, 1),
}  # fmt: skip


def of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def quantize(x, scale, zero, out, opset=25, **attributes):
    inputs = [x, scale] if zero is None else [x, scale, zero]
    node = node_of("QuantizeLinear", inputs, **attributes)
    return Bound(node, inputs, [np.empty(x.shape, of(out))], opset).run()[0]


X = [0.25, 0.75, 1.25, 1.75, -0.25, -0.75, -1.25, 100, -100, 0]
EVEN = np.array([0, 2, 2, 4, 0, -2, -2, 200, -200, 0])


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 25])
@pytest.mark.parametrize(
    ("source", "target", "zero"),
    [
        ("float32", "uint8", 0),
        ("float32", "uint8", 131),
        ("float32", "int8", -3),
        ("float16", "int8", 1),
        ("float16", "uint8", 7),
        ("bfloat16", "uint8", 8),
        ("float32", "int16", 5),
        ("float32", "uint4", 7),
        ("float32", "int4", -1),
        ("float32", "int2", 0),
        ("float32", "uint2", 1),
    ],
)
def test_ties_go_to_even_before_the_zero_point_is_added(source, target, zero, opset):
    x, scale = np.array(X).astype(of(source)), np.array(0.5).astype(of(source))
    got = quantize(x, scale, np.array(zero).astype(of(target)), target, opset)
    np.testing.assert_array_equal(got.astype(int), np.clip(EVEN + zero, *ENDS[target]))


@pytest.mark.parametrize("target", ["uint8", "int8"])
def test_a_large_array_is_quantized_alike_in_every_share(target):
    x = np.concatenate([X, R.uniform(-200, 200, LARGE)]).astype(F32)
    x[[20, 21, 22, 23]] = [INF, -INF, 1e38, NAN]
    zero = np.array(3, of(target))
    got = quantize(x, F32(0.5), zero, target)
    low, high = ENDS[target]
    want = np.clip(np.rint(x.astype(float) / 0.5) + 3, low, high)
    want[23] = low
    np.testing.assert_array_equal(got, want)
    small = quantize(x[:64], F32(0.5), zero, target)
    np.testing.assert_array_equal(small, want[:64])
    back = Bound(
        node_of("DequantizeLinear", [got, F32(0.5), zero]),
        [got, F32(0.5), zero],
        [x],
        13,
    )
    np.testing.assert_array_equal(back.run()[0], (got.astype(F32) - 3) * F32(0.5))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 70, 500)])
def test_scales_along_an_axis(axis, shape):
    x = R.uniform(-50, 50, shape).astype(F32)
    n = shape[axis]
    scale, zero = R.uniform(0.1, 1, n).astype(F32), R.integers(-9, 9, n).astype(np.int8)
    column = [1, 1, 1]
    column[axis] = n
    s, z = scale.reshape(column), zero.reshape(column).astype(int)
    want = np.clip(np.rint(x / s) + z, -128, 127).astype(np.int8)
    np.testing.assert_array_equal(quantize(x, scale, zero, "int8", 13, axis=axis), want)
    gives(
        "DequantizeLinear",
        [want, scale, zero],
        ((want - z) * s).astype(F32),
        opset=13,
        axis=axis,
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    ("shape", "axis", "block"),
    [
        ((1, 8, 2), 1, 2),
        ((3, 6, 3), 1, 3),
        ((3, 3), -1, 3),
        ((5, 3), 0, 5),
        ((4, 7, 2), 1, 3),
        ((7,), 0, 4),
        ((2, 0, 3), 1, 2),
        ((64, 1000), 1, 32),
    ],
)
@pytest.mark.parametrize("target", ["int4", "uint4", "int8", "uint16"])
def test_blocks_follow_each_other_and_the_last_may_be_short(shape, axis, block, target):
    counts = list(shape)
    counts[axis] = -(-shape[axis] // block)
    low, high = ENDS[target]
    q = R.integers(max(low, -128), min(high, 255) + 1, shape)
    scale = R.uniform(1, 4, counts).astype(F32)
    zero = R.integers(0, 7, counts)
    s, z = (
        np.repeat(v, block, axis).take(range(shape[axis]), axis) for v in (scale, zero)
    )
    want = ((q - z) * s).astype(F32)
    inputs = [q.astype(of(target)), scale, zero.astype(of(target))]
    node = node_of("DequantizeLinear", inputs, axis=axis, block_size=block)
    np.testing.assert_allclose(
        Bound(node, inputs, [want], 21).run()[0], want, rtol=1e-6
    )
    got = quantize(want, scale, inputs[2], target, 21, axis=axis, block_size=block)
    np.testing.assert_array_equal(got.astype(int), q)


@pytest.mark.parametrize(
    "target", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
)
@pytest.mark.parametrize("saturate", [0, 1])
def test_float8_is_quantized_without_rounding_to_integers(target, saturate):
    x = np.array([0.6, -1.5, 1e6, NAN, 0], F32)
    got = quantize(
        x, F32(2), np.zeros((), of(target)), target, 19, saturate=saturate
    ).astype(F32)
    info = ml_dtypes.finfo(of(target))
    beyond = INF if target == "float8_e5m2" else NAN
    want = (x / 2).astype(of(target)).astype(F32)
    want[2] = float(info.max) if saturate else beyond
    np.testing.assert_array_equal(got, want)


def test_the_type_comes_from_output_dtype_where_there_is_no_zero_point():
    x = np.array([1, 300, -5], F32)
    np.testing.assert_array_equal(
        quantize(x, F32(1), None, "int16", 21, output_dtype=5), [1, 300, -5]
    )
    np.testing.assert_array_equal(quantize(x, F32(1), None, "uint8", 21), [1, 255, 0])
    got = quantize(
        np.array([1.3, -9], F32), F32(1), None, "float4_e2m1fn", 23, output_dtype=23
    )
    np.testing.assert_array_equal(got.astype(F32), [1.5, -6])


def test_precision_decides_in_which_type_to_divide():
    x, scale = np.array([1.0], F32), np.array(0.399902, F32)  # 2.5006 in float32
    np.testing.assert_array_equal(quantize(x, scale, np.int8(0), "int8", 23), [3])
    np.testing.assert_array_equal(
        quantize(x, scale, np.int8(0), "int8", 23, precision=16), [2]
    )


def test_integers_and_powers_of_two_serve_as_input_and_scale():
    x = np.array([5, -7, 1000], np.int32)
    np.testing.assert_array_equal(
        quantize(x, F32(2), np.int8(0), "int8", 13), [2, -4, 127]
    )
    scale = np.array(2.0, F32).astype(of("float8_e8m0fnu"))
    np.testing.assert_array_equal(
        quantize(np.array([5.0, -7], F32), scale, np.int8(0), "int8", 24), [2, -4]
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dequantizing_gives_the_scales_type_or_the_one_asked_for(dtype):
    q = np.array([-8, 7, 0]).astype(of("int4"))
    scale = np.array(0.5).astype(of(dtype))
    want = np.array([-4, 3.5, 0]).astype(of(dtype))
    gives("DequantizeLinear", [q, scale], want, opset=21)
    f8 = np.array([1.5, -448]).astype(of("float8_e4m3fn"))
    gives(
        "DequantizeLinear",
        [f8, scale],
        np.array([0.75, -224]).astype(of(dtype)),
        opset=19,
    )
    wide = np.array([1 << 20, -3], np.int32)
    gives(
        "DequantizeLinear", [wide, F32(0.5)], np.array([1 << 19, -1.5], F32), opset=10
    )
    code = {"float32": 1, "float16": 10, "bfloat16": 16}[dtype]
    gives("DequantizeLinear", [q, F32(0.5)], want, opset=23, output_dtype=code)


@pytest.mark.parametrize(
    ("scale", "attributes", "says"),
    [
        ((3,), {"axis": 0}, "axis 0"),
        ((2, 2), {"axis": 1}, "block_size"),
        ((2, 3), {"axis": 1, "block_size": 2}, r"\[2, 2\]"),
        ((4,), {"axis": 5}, "axis 5"),
    ],
)
def test_a_scale_that_fits_nothing_is_an_error_that_says_so(scale, attributes, says):
    x = np.zeros((2, 4), F32)
    with pytest.raises(Exception, match=says):
        quantize(x, np.ones(scale, F32), None, "uint8", 21, **attributes)


def dynamic(x):
    x = np.array(x, F32)
    node = node_of("DynamicQuantizeLinear", [x], 3)
    like = [np.empty(x.shape, np.uint8), np.empty((), F32), np.empty((), np.uint8)]
    return [y.copy() for y in Bound(node, [x], like, 18).run()]


def test_dynamic_quantization_takes_scale_and_zero_from_the_range():
    q, scale, zero = dynamic([-63.5, 64, 0.25, 0.75, -0.25, -0.75])
    assert (scale, zero) == (0.5, 127)
    np.testing.assert_array_equal(q, [0, 255, 127, 129, 127, 125])
    q, scale, zero = dynamic([-62.25, 65.25, 0.0])  # the zero point lies on a half
    assert (scale, zero) == (0.5, 124)
    np.testing.assert_array_equal(q, [0, 254, 124])


def test_the_range_includes_zero_and_may_be_nothing_else():
    q, scale, zero = dynamic([51, 102, 255])
    assert (scale, zero) == (1, 0)
    np.testing.assert_array_equal(q, [51, 102, 255])
    q, scale, zero = dynamic([-255, -1])
    assert (scale, zero) == (1, 255)
    np.testing.assert_array_equal(q, [0, 254])
    for nothing in ([], [0, 0]):
        q, scale, zero = dynamic(nothing)
        assert np.isfinite(scale)
        assert zero == 0
        assert not q.any()


def test_a_large_dynamic_quantization_agrees_with_onnxruntime():
    x = R.standard_normal(LARGE).astype(F32)
    agrees("DynamicQuantizeLinear", [x], opset=18, outputs=3)


@pytest.mark.parametrize("opset", [10, 13, 19, 21])
def test_onnxruntime_agrees_at_every_version(opset):
    x = R.uniform(-40, 40, (2, 3, 5)).astype(F32)
    for zero in (np.uint8(12), np.int8(-4)):
        agrees("QuantizeLinear", [x, F32(0.3), zero], opset=opset)
        q = R.integers(0, 100, (2, 3, 5)).astype(zero.dtype)
        agrees("DequantizeLinear", [q, F32(0.3), zero], opset=opset)
    if opset >= 13:
        agrees(
            "QuantizeLinear",
            [x, np.array([0.1, 0.2, 0.3], F32), np.zeros(3, np.uint8)],
            opset=opset,
        )
