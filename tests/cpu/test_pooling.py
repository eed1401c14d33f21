"""Pools against the definition in float64, element by element, and onnxruntime."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from tests.cpu.test_convolution import in_onnxruntime, normal
from tests.node_cases import run_node

from seamline_cpu.kernels import TABLE


def windows(x, kernel, strides, dilations, pads, outs):
    """Give, for each output place, the flat indices of the window that lie in the input."""
    rank = len(kernel)
    for place in itertools.product(*map(range, outs)):
        seen = []
        for tap in itertools.product(*map(range, kernel)):
            at = [
                p * s - b + t * d
                for p, s, b, t, d in zip(
                    place, strides, pads[:rank], tap, dilations, strict=True
                )
            ]
            if all(0 <= a < n for a, n in zip(at, x.shape[2:], strict=True)):
                seen.append(tuple(at))
        yield place, seen


def pooled(x, reduce, kernel, strides=None, dilations=None, pads=None, ceil_mode=0):
    rank = len(kernel)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads = pads or [0] * 2 * rank
    outs = []
    for i, n in enumerate(x.shape[2:]):
        span = n + pads[i] + pads[i + rank] - (kernel[i] - 1) * dilations[i] - 1
        out = (math.ceil if ceil_mode else math.floor)(span / strides[i]) + 1
        # A window may not begin in the padding after the input.
        if ceil_mode and (out - 1) * strides[i] >= n + pads[i]:
            out -= 1
        outs.append(out)
    y = np.zeros((*x.shape[:2], *outs))
    for place, seen in windows(x, kernel, strides, dilations, pads, outs):
        for image, channel in np.ndindex(*x.shape[:2]):
            y[(image, channel, *place)] = reduce(
                np.array([x[(image, channel, *a)] for a in seen])
            )
    return y


CASES = {
    "halving": ((2, 3, 8, 9), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "padded": ((1, 2, 7, 9), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "asymmetric": ((1, 2, 7, 9), {"kernel_shape": [3, 2], "pads": [2, 0, 1, 1], "strides": [2, 3]}),
    "rounded_up": ((1, 2, 7, 8), {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1}),
    "rounded_up_and_padded": ((1, 1, 8, 8), {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    "large": ((1, 2, 9, 20), {"kernel_shape": [5, 13], "pads": [2, 6, 2, 6]}),
    "rows_of_several_vectors": ((1, 2, 6, 83), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "windows_that_begin_and_end_in_padding": ((1, 1, 4, 21), {"kernel_shape": [2, 2], "strides": [1, 1], "pads": [1, 1, 1, 1]}),
    "whole_rows_of_less_than_a_vector": ((1, 3, 13, 7), {"kernel_shape": [7, 7]}),
    "short_rows_in_one_strip": ((2, 5, 13, 13), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 1, 0]}),
    "blocks_of_rows": ((1, 2, 150, 101), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "stride_of_three": ((1, 3, 17, 29), {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 0, 1]}),
    "rows_beyond_the_window": ((1, 2, 12, 12), {"kernel_shape": [2, 2], "strides": [1, 3]}),
    "one_axis": ((2, 3, 20), {"kernel_shape": [4], "strides": [3], "pads": [1, 2]}),
    "three_axes": ((1, 2, 4, 5, 6), {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2]}),
}  # fmt: skip


def plain(given):
    return {"kernel" if k == "kernel_shape" else k: v for k, v in given.items()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dilated", [False, True])
def test_largest_of_each_window(name, dilated):
    shape, given = CASES[name]
    if dilated:
        given = given | {"dilations": [2] + [1] * (len(given["kernel_shape"]) - 1)}
    x = normal(*shape) - 3  # below zero: a pad must not win
    want = pooled(x.astype(np.float64), np.max, **plain(given)).astype(np.float32)
    node = helper.make_node("MaxPool", ["x"], ["y"], **given)
    np.testing.assert_array_equal(run_node(TABLE, node, [x], [want])[0], want)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("include", [0, 1])
def test_mean_of_each_window(name, include):
    shape, given = CASES[name]
    x = normal(*shape)
    node = helper.make_node(
        "AveragePool", ["x"], ["y"], count_include_pad=include, **given
    )
    want = in_onnxruntime(node, [x], 19)
    got = run_node(TABLE, node, [x], want, opset=19)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)
    if not include:
        want = pooled(x.astype(np.float64), np.mean, **plain(given))
        np.testing.assert_allclose(got[0], want, rtol=1e-5, atol=1e-5)


def test_the_mean_of_one_window_over_all_is_that_of_the_channel():
    x = normal(2, 5, 6, 7)
    want = x.astype(np.float64).mean((2, 3), keepdims=True).astype(np.float32)
    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[6, 7])
    (got,) = run_node(TABLE, node, [x], [want], opset=19)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["padded", "asymmetric", "one_axis", "three_axes"])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_norm_of_each_window(name, p):
    shape, given = CASES[name]
    x = normal(*shape)
    want = pooled(
        x.astype(np.float64),
        lambda v: (np.abs(v) ** p).sum() ** (1 / p),
        **plain(given),
    )
    node = helper.make_node("LpPool", ["x"], ["y"], p=p, **given)
    (got,) = run_node(TABLE, node, [x], [want.astype(np.float32)])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("name", ["halving", "padded", "one_axis", "three_axes"])
def test_places_of_the_largest_are_those_of_onnxruntime(name, order):
    shape, given = CASES[name]
    x = np.random.default_rng(5).integers(-2, 3, shape).astype(np.float32)  # with ties
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], storage_order=order, **given)
    want = in_onnxruntime(node, [x], 12)
    got = run_node(TABLE, node, [x], want, opset=12)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


def test_padding_never_wins_over_the_smallest_input():
    x = np.full((1, 1, 3, 3), -np.inf, np.float32)
    node = helper.make_node(
        "MaxPool", ["x"], ["y", "i"], kernel_shape=[3, 3], pads=[1] * 4
    )
    like = [x, np.zeros(x.shape, np.int64)]
    got = run_node(TABLE, node, [x], like)
    assert got[1].ravel().tolist() == [0, 0, 1, 0, 0, 1, 3, 3, 4]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8"])
def test_largest_in_other_types(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = (np.random.default_rng(6).integers(0, 100, (1, 2, 6, 7))).astype(kind)
    if kind.kind != "u":
        x = (x - x.dtype.type(101)).astype(kind)
    want = pooled(x.astype(np.float64), np.max, [3, 3], pads=[1] * 4).astype(kind)
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1] * 4)
    (got,) = run_node(TABLE, node, [x], [want])
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def test_nan_is_the_largest_of_its_windows_and_of_no_other():
    x = normal(1, 1, 6, 9)
    x[0, 0, 2, 4] = np.nan
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])
    want = pooled(x, np.max, [2, 2]).astype(np.float32)
    (got,) = run_node(TABLE, node, [x], [want])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "shape", [(2, 3, 5, 7), (1, 4, 9), (2, 2, 3, 4, 5), (3, 900, 20, 20)]
)
def test_global_pools_reduce_all_pixels(dtype, shape):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = normal(*shape).astype(kind)
    wide = x.astype(np.float64).reshape(*shape[:2], -1)
    wants = {
        "GlobalAveragePool": wide.mean(-1), "GlobalMaxPool": wide.max(-1),
        "GlobalLpPool": np.sqrt((wide**2).sum(-1)),
    }  # fmt: skip
    tolerance = {"float32": 1e-5, "float64": 1e-12}.get(dtype, 2e-2)
    for op, want in wants.items():
        want = want.reshape(*shape[:2], *[1] * (len(shape) - 2))
        node = helper.make_node(op, ["x"], ["y"])
        (got,) = run_node(TABLE, node, [x], [want.astype(kind)])
        np.testing.assert_allclose(
            got.astype(np.float64), want, rtol=tolerance, atol=tolerance
        )


def test_unpooling_undoes_pooling_and_names_a_wrong_index():
    x = np.random.default_rng(8).permutation(64).astype(np.float32).reshape(1, 1, 8, 8)
    pool = helper.make_node(
        "MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], strides=[2, 2]
    )
    like = [np.zeros((1, 1, 4, 4), np.float32), np.zeros((1, 1, 4, 4), np.int64)]
    y, places = run_node(TABLE, pool, [x], like)
    node = helper.make_node(
        "MaxUnpool", ["y", "i"], ["x"], kernel_shape=[2, 2], strides=[2, 2]
    )
    (got,) = run_node(TABLE, node, [y, places], [x])
    np.testing.assert_array_equal(got, np.where(np.isin(x, y), x, 0))
    places[0, 0, 1, 1] = 64
    with pytest.raises(Exception, match="index 64 is outside the 64 elements"):
        run_node(TABLE, node, [y, places], [x])
