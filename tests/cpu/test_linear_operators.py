"""onnxruntime's operators over bytes, by definition in float64, then against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from tests.cpu.movement import Bound, give, node_of, peer, same
from tests.node_cases import view_of_node

from seamline.provider import Refusal
from seamline_cpu.kernels import TABLE

R = np.random.default_rng(31)
CONTRIB = "com.microsoft"
KINDS = pytest.mark.parametrize("kind", ["uint8", "int8"])


def whole(kind, *shape):
    info = np.iinfo(kind)
    return R.integers(info.min, info.max, shape, kind, endpoint=True)


def points(kind, *scales):
    """Give pairs of a scale and a zero point."""
    made = []
    for scale in scales:
        made += [np.float32(scale), whole(kind, 1).reshape(())]
    return made


def real(x, scale, zero):
    return (x.astype(np.float64) - np.float64(zero)) * np.float64(scale)


def codes(values, scale, zero):
    info = np.iinfo(zero.dtype)
    rounded = np.rint(values / np.float64(scale)) + np.float64(zero)
    return np.clip(rounded, info.min, info.max).astype(zero.dtype)


def near(got, want, share=0.01):
    """Assert that codes are the same but for a few, which lie between two, by one."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    apart = np.abs(got.astype(int) - want.astype(int))
    assert apart.max(initial=0) <= 1
    assert (apart > 0).sum() <= max(1, share * apart.size)


def given_by(op, inputs, want, **attributes):
    (got,) = give(op, inputs, want, opset=17, domain=CONTRIB, **attributes)
    return got


SHAPES = [((3, 4), (3, 4)), ((2, 3, 40), (40,)), ((2, 3, 5), (3, 1)), ((7,), ()), ((4, 1), (1, 5)),
          ((2, 1, 3, 1, 4), (1, 5, 1, 6, 1)), ((0, 3), (3,))]  # fmt: skip


@KINDS
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("swapped", [False, True])
def test_arithmetic_of_bytes_is_rounded_once(kind, shapes, op, swapped):
    a, b = (whole(kind, *shape) for shape in (shapes[::-1] if swapped else shapes))
    sa, za, sb, zb, sc, zc = points(kind, 0.0203, 0.0507, 0.0911)
    x, y = real(a, sa, za), real(b, sb, zb)
    want = codes(x + y if op == "QLinearAdd" else x * y, sc, zc)
    near(given_by(op, [a, sa, za, b, sb, zb, sc, zc], want), want)


@KINDS
@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_functions_of_a_byte(kind, op):
    x, (sx, zx) = whole(kind, 3, 50), points(kind, 0.05)
    sy, zy = np.float32(0.01731), whole(kind, 1)
    v = real(x, sx, zx)
    y = (
        1 / (1 + np.exp(-v))
        if op == "QLinearSigmoid"
        else np.where(v < 0, 0.213 * v, v)
    )
    want = codes(y, sy, zy)
    near(given_by(op, [x, sx, zx, sy, zy], want, alpha=0.213), want)


@KINDS
@pytest.mark.parametrize(
    ("axis", "opset", "over"),
    [(-1, 13, (2,)), (1, 13, (1,)), (1, 12, (1, 2)), (0, 13, (0,))],
)
def test_softmax_of_bytes(kind, axis, opset, over):
    x, (sx, zx) = whole(kind, 3, 5, 17), points(kind, 0.04)
    v = real(x, sx, zx)
    e = np.exp(v - v.max(over, keepdims=True))
    sy, zy = np.float32(1 / 256), np.array(np.iinfo(kind).min, kind)
    want = codes(e / e.sum(over, keepdims=True), sy, zy)
    inputs = [x, sx, zx, sy, zy]
    node = node_of("QLinearSoftmax", inputs, 1, CONTRIB, axis=axis)
    node.attribute.append(helper.make_attribute("opset", opset))
    near(Bound(node, inputs, [want], 17).run()[0], want)


@KINDS
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_tensors_of_bytes_one_after_the_other(kind, axis):
    sizes = [[2, 3, 4] for _ in range(3)]
    for size, one in zip(sizes, (1, 5, 2), strict=True):
        size[axis] = one
    xs, (sy, zy) = [whole(kind, *size) for size in sizes], points(kind, 0.03)
    inputs, parts = [sy, zy], []
    for x in xs:
        s, z = points(kind, R.uniform(0.01, 0.05))
        inputs += [x, s, z]
        parts.append(codes(real(x, s, z), sy, zy))
    want = np.concatenate(parts, axis)
    near(given_by("QLinearConcat", inputs, want, axis=axis), want)


POOLS = [
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1},
    {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1], "ceil_mode": 1},
    {"kernel_shape": [2, 3], "auto_pad": "SAME_UPPER"},
]


@KINDS
@pytest.mark.parametrize("given", POOLS)
def test_means_of_windows_of_bytes(kind, given):
    x, (sx, zx, sy, zy) = whole(kind, 2, 3, 8, 7), points(kind, 0.0409, 0.0313)
    (mean,) = peer(
        "AveragePool", [real(x, sx, zx).astype(np.float32)], opset=19, **given
    )
    want = codes(mean.astype(np.float64), sy, zy)
    near(given_by("QLinearAveragePool", [x, sx, zx, sy, zy], want, **given), want, 0.02)


@KINDS
def test_means_of_channels_of_bytes(kind):
    x, (sx, zx, sy, zy) = whole(kind, 2, 9, 8, 7), points(kind, 0.0409, 0.00313)
    want = codes(real(x, sx, zx).mean((2, 3), keepdims=True), sy, zy)
    inputs = [x, sx, zx, sy, zy]
    near(given_by("QLinearGlobalAveragePool", inputs, want, channels_last=0), want)


@KINDS
def test_the_largest_byte_of_a_window(kind):
    x = whole(kind, 2, 3, 9, 8)
    given = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
    padded = np.full((2, 3, 11, 9), np.iinfo(kind).min, kind)
    padded[:, :, 1:10, :8] = x
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3))
    want = windows[:, :, ::2].max((4, 5))
    same(give("MaxPool", [x], want, opset=17, **given), want)


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("floats", [False, True])
def test_a_product_of_bytes_with_an_integer_bias(turned, columns, floats):
    a, b = whole("uint8", 5, 21), whole("int8", 21, 18)
    sa, za = points("uint8", 0.02)
    sb = R.uniform(0.001, 0.01, 18 if columns else 1).astype(np.float32)
    zb = whole("int8", 18 if columns else 1)
    c = R.integers(-2000, 2000, 18).astype(np.int32)
    sums = (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb) + c
    value = sums * (np.float64(sa) * sb) * 0.5
    given = [a, sa, za, b.T.copy() if turned else b, sb, zb, c]
    numbers = {"transB": turned, "alpha": 0.5}
    if floats:
        want = value.astype(np.float32)
        got = give(
            "QGemm",
            given,
            want,
            opset=17,
            constant=(1, 3, 5),
            domain=CONTRIB,
            **numbers,
        )
        same(got, want, rtol=2e-6, atol=1e-5)
        return
    sy, zy = points("uint8", 0.08)
    want = codes(value, sy, zy)
    (got,) = give(
        "QGemm",
        [*given, sy, zy],
        want,
        opset=17,
        constant=(1, 3, 5),
        domain=CONTRIB,
        **numbers,
    )
    near(got, want)


ATTRIBUTES = {
    "QLinearAdd": {}, "QLinearMul": {}, "QLinearSigmoid": {}, "QLinearLeakyRelu": {"alpha": 0.1},
    "QLinearGlobalAveragePool": {"channels_last": 0},
    "QLinearAveragePool": POOLS[1],
}  # fmt: skip


@KINDS
@pytest.mark.parametrize("op", ATTRIBUTES)
def test_onnxruntime_agrees(kind, op):
    x = whole(kind, 2, 3, 8, 7)
    inputs = [x, *points(kind, 0.04)]
    if op in ("QLinearAdd", "QLinearMul"):
        inputs += [whole(kind, 3, 1, 7), *points(kind, 0.03)]
    least = np.array(np.iinfo(kind).min, kind)
    inputs += (
        [np.float32(1 / 256), least] if op == "QLinearSoftmax" else points(kind, 0.03)
    )
    want = peer(op, inputs, opset=17, domain=CONTRIB, **ATTRIBUTES[op])[0]
    near(given_by(op, inputs, want, **ATTRIBUTES[op]), want, 0.02)


@pytest.mark.parametrize(
    ("op", "change", "said"),
    [
        ("QLinearAdd", {1: np.ones(3, np.float32)}, "input 1"),
        ("QLinearAveragePool", {3: np.ones(2, np.float32)}, "input 3"),
        ("QLinearConcat", {3: np.ones(2, np.float32)}, "input 3"),
    ],
)
def test_scales_of_another_form_are_refused(op, change, said):
    x, s, z = whole("uint8", 1, 2, 3, 3), np.float32(0.1), np.array(3, np.uint8)
    inputs = {"QLinearAdd": [x, s, z, x, s, z, s, z], "QLinearAveragePool": [x, s, z, s, z],
              "QLinearConcat": [s, z, x, s, z]}[op]  # fmt: skip
    for index, value in change.items():
        inputs[index] = value
    node = node_of(op, inputs, 1, CONTRIB, axis=0, kernel_shape=[2, 2])
    answer = TABLE.find(view_of_node(node, inputs, [x], 17))
    assert isinstance(answer, Refusal)
    assert said in str(answer)


@KINDS
@pytest.mark.parametrize(("axis", "shape"), [(1, (3, 5, 7)), (-1, (4, 6)), (0, (5, 3))])
def test_scales_along_an_axis_take_commands(kind, axis, shape):
    x = (R.standard_normal(shape) * 4).astype(np.float32)
    count = shape[axis]
    scale = R.uniform(0.02, 0.06, count).astype(np.float32)
    zero, column = whole(kind, count), [1] * len(shape)
    column[axis] = count
    info = np.iinfo(kind)
    spread = scale.reshape(column), zero.reshape(column).astype(np.int64)
    want = np.rint((x / spread[0]).astype(np.float32)).astype(np.int64) + spread[1]
    want = np.clip(want, info.min, info.max).astype(kind)
    inputs = [x, scale, zero]
    same(give("QuantizeLinear", inputs, want, opset=19, axis=axis), want)
    back = ((want - spread[1]).astype(np.float32) * spread[0]).astype(np.float32)
    same(give("DequantizeLinear", [want, scale, zero], back, opset=19, axis=axis), back)
    bound = Bound(node_of("QuantizeLinear", inputs, axis=axis), inputs, [want], 19)
    bound.run()
    assert bound.claim.variant == "commands"
