"""Transposed and integer convolutions, against their definitions and onnxruntime."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import helper
from tests.cpu.test_convolution import defined, in_onnxruntime, normal
from tests.node_cases import run_node

from seamline_cpu.kernels import TABLE

RNG = np.random.default_rng(11)
BYTES = ("uint8", "int8")


def spread(x, w, bias, outs, group, strides, dilations, begins):
    """Transpose a convolution by the definition: each input adds its window to the output."""
    each = w.shape[1]
    out = np.zeros((x.shape[0], each * group, *outs))
    per = x.shape[1] // group
    for tap in itertools.product(*map(range, w.shape[2:])):
        for place in itertools.product(*map(range, x.shape[2:])):
            at = tuple(
                p * s + t * d - b
                for p, s, t, d, b in zip(
                    place, strides, tap, dilations, begins, strict=True
                )
            )
            if all(0 <= a < o for a, o in zip(at, outs, strict=True)):
                for g in range(group):
                    seen = x[(slice(None), slice(g * per, (g + 1) * per), *place)]
                    weights = w[(slice(g * per, (g + 1) * per), slice(None), *tap)]
                    out[(slice(None), slice(g * each, (g + 1) * each), *at)] += (
                        seen @ weights
                    )
    return out + bias.reshape(-1, *[1] * len(outs))


TRANSPOSED = {
    "doubling": ((1, 5, 4, 6), (5, 3, 2, 2), {"strides": [2, 2]}),
    "overlapping": ((2, 4, 4, 5), (4, 3, 3, 3), {"strides": [2, 1], "pads": [1, 0, 1, 2]}),
    "output_padding": ((1, 2, 4, 4), (2, 3, 3, 3), {"strides": [3, 2], "output_padding": [1, 1]}),
    "output_shape": ((1, 2, 4, 4), (2, 3, 3, 3), {"strides": [2, 2], "output_shape": [7, 8]}),
    "same_upper": ((1, 2, 4, 5), (2, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "same_lower": ((1, 2, 4, 5), (2, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    "valid": ((1, 2, 4, 5), (2, 2, 3, 3), {"auto_pad": "VALID"}),
    "grouped": ((1, 6, 3, 4), (6, 2, 3, 2), {"group": 3, "strides": [2, 2]}),
    "dilated": ((1, 2, 4, 4), (2, 3, 3, 2), {"dilations": [2, 3]}),
    "one_axis": ((2, 3, 7), (3, 4, 4), {"strides": [3], "pads": [1, 2]}),
    "three_axes": ((1, 2, 2, 3, 2), (2, 2, 2, 2, 3), {"strides": [2, 1, 2]}),
    "more_stride_than_kernel": ((1, 2, 3, 3), (2, 2, 2, 1), {"strides": [3, 4]}),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolution_is_that_of_onnxruntime(name):
    shape, kernel, given = TRANSPOSED[name]
    x, w = normal(*shape), normal(*kernel)
    bias = normal(kernel[1] * given.get("group", 1))
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **given)
    want = in_onnxruntime(node, [x, w, bias])
    for constant in ((), (1, 2)):
        got = run_node(TABLE, node, [x, w, bias], want, constant=constant)
        np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("group", [1, 2])
def test_transposed_convolution_is_its_definition(dtype, group):
    x, w, bias = normal(2, 4, 3, 4), normal(4, 3, 3, 2), normal(3 * group)
    x, w, bias = (v.astype(dtype) for v in (x, w, bias))
    want = spread(
        *(v.astype(np.float64) for v in (x, w, bias)),
        (5, 6),
        group,
        (2, 2),
        (1, 1),
        (1, 1),
    )
    node = helper.make_node(
        "ConvTranspose",
        ["x", "w", "b"],
        ["y"],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        group=group,
    )
    (got,) = run_node(TABLE, node, [x, w, bias], [want.astype(dtype)])
    tolerance = 2e-2 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(
        got.astype(np.float64), want, rtol=tolerance, atol=tolerance
    )


INTEGER = {
    "three_by_three": ((2, 5, 9, 11), (7, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    "pointwise": ((1, 37, 5, 6), (10, 37, 1, 1), {}),
    "strided": (
        (1, 4, 12, 19),
        (6, 4, 3, 3),
        {"strides": [2, 3], "pads": [0, 1, 2, 1]},
    ),
    "depthwise": ((1, 6, 9, 11), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    "one_axis": ((1, 3, 40), (4, 3, 11), {"dilations": [3], "pads": [15, 15]}),
    "three_axes": ((1, 2, 4, 5, 6), (3, 2, 2, 2, 2), {}),
}


def drawn(shape, kind):
    limits = np.iinfo(kind)
    values = RNG.integers(limits.min, limits.max, shape, endpoint=True)
    values.flat[:2] = limits.min, limits.max
    return values.astype(kind)


@pytest.mark.parametrize("name", INTEGER)
@pytest.mark.parametrize(("x_kind", "w_kind"), [(a, b) for a in BYTES for b in BYTES])
def test_integer_sums_are_exact(name, x_kind, w_kind):
    shape, kernel, given = INTEGER[name]
    x, w = drawn(shape, x_kind), drawn(kernel, w_kind)
    x_zero, w_zero = drawn((2,), x_kind)[:1].reshape(()), drawn(kernel[:1], w_kind)
    wide_x = x.astype(np.int64) - int(x_zero)
    wide_w = w.astype(np.int64) - w_zero.astype(np.int64).reshape(
        -1, *[1] * (w.ndim - 1)
    )
    want = defined(wide_x, wide_w, **given).astype(np.int32)
    node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], **given)
    for constant in ((), (1, 3)):
        got = run_node(TABLE, node, [x, w, x_zero, w_zero], [want], constant=constant)
        np.testing.assert_array_equal(got[0], want)
    bare = helper.make_node("ConvInteger", ["x", "w"], ["y"], **given)
    want = defined(x.astype(np.int64), w.astype(np.int64), **given).astype(np.int32)
    np.testing.assert_array_equal(run_node(TABLE, bare, [x, w], [want])[0], want)


def test_sums_of_the_largest_products_do_not_saturate():
    x, w = (
        np.full((1, 512, 3, 3), 255, np.uint8),
        np.full((2, 512, 3, 3), -128, np.int8),
    )
    node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"])
    (got,) = run_node(
        TABLE, node, [x, w, np.uint8(0)], [np.zeros((1, 2, 1, 1), np.int32)]
    )
    assert set(got.ravel()) == {255 * -128 * 512 * 9}


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_quantised_convolution_rounds_half_to_even_and_saturates(per_channel, kind):
    x, w = drawn((1, 4, 8, 9), kind), drawn((6, 4, 3, 3), "int8")
    x_scale, y_scale = (
        np.float32(0.25),
        np.float32(64),
    )  # powers of two: every tie is exact
    w_scale = np.full(6 if per_channel else 1, 0.5, np.float32)
    zeros = [np.array(3, kind), np.zeros(w_scale.shape, "int8"), np.array(7, kind)]
    if not per_channel:
        w_scale, zeros[1] = w_scale.reshape(()), zeros[1].reshape(())
    bias = RNG.integers(-9000, 9000, 6).astype(np.int32)
    sums = defined(
        x.astype(np.int64) - 3, w.astype(np.int64), bias.astype(np.int64), pads=[1] * 4
    )
    limits = np.iinfo(kind)
    want = np.clip(np.rint(sums * (0.125 / 64)) + 7, limits.min, limits.max).astype(
        kind
    )
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    node = helper.make_node("QLinearConv", names, ["y"], pads=[1] * 4)
    given = [x, x_scale, zeros[0], w, w_scale, zeros[1], y_scale, zeros[2], bias]
    for constant in ((), (3, 4, 5, 8)):
        (got,) = run_node(TABLE, node, given, [want], constant=constant)
        np.testing.assert_array_equal(got, want)
