"""Convolutions against the definition in float64 or exact integers, and onnxruntime."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from tests.node_cases import run_node

from seamline.provider import Refusal
from seamline_cpu.kernels import TABLE

RNG = np.random.default_rng(7)


def defined(x, w, bias=None, group=1, strides=None, dilations=None, pads=None, zero=0):
    """Convolve by the definition: one output element after another's taps, vectorised by tap."""
    rank = x.ndim - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads = pads or [0] * 2 * rank
    width = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    x = np.pad(x, width, constant_values=zero)
    outs = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(x.shape[2:], w.shape[2:], dilations, strides, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *outs), x.dtype)
    per_in, per_out = x.shape[1] // group, w.shape[0] // group
    for tap in itertools.product(*map(range, w.shape[2:])):
        at = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, dilations, outs, strides, strict=True)
        )
        seen = x[(slice(None), slice(None), *at)]
        for g in range(group):
            mine = slice(g * per_out, (g + 1) * per_out)
            weights = w[(mine, slice(None), *tap)]
            part = seen[:, g * per_in : (g + 1) * per_in]
            out[:, mine] += np.einsum("nc...,mc->nm...", part, weights)
    return out if bias is None else out + bias.reshape(-1, *[1] * rank)


def in_onnxruntime(node, inputs, opset=17):
    names = [n for n in node.input if n]
    arrays = [x for x in inputs if x is not None]
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
         for n, x in zip(names, arrays, strict=True)],
        [helper.make_empty_tensor_value_info(n) for n in node.output if n],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    session = ort.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(zip(names, arrays, strict=True)))


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


CASES = {
    "dense_three_by_three": ((2, 5, 13, 17), (8, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    "narrow_rows_in_one_strip": ((1, 9, 11, 9), (7, 9, 3, 3), {"pads": [1, 1, 1, 1]}),
    "wide_rows": ((1, 3, 5, 67), (13, 3, 3, 5), {"pads": [1, 2, 1, 2]}),
    "strided_with_asymmetric_pads": ((1, 3, 21, 40), (16, 3, 3, 3), {"strides": [2, 2], "pads": [0, 1, 2, 1]}),
    "unequal_strides_and_dilations": ((1, 4, 20, 33), (6, 4, 3, 2), {"strides": [1, 2], "dilations": [2, 3], "pads": [2, 0, 1, 3]}),
    "stride_beyond_planes": ((1, 2, 30, 31), (5, 2, 4, 4), {"strides": [5, 3], "pads": [1, 1, 1, 1]}),
    "stride_larger_than_kernel": ((1, 3, 16, 16), (4, 3, 2, 2), {"strides": [4, 1]}),
    "pointwise": ((2, 37, 9, 11), (19, 37, 1, 1), {}),
    "pointwise_with_stride_and_pad": ((1, 6, 9, 11), (4, 6, 1, 1), {"strides": [2, 2], "pads": [1, 0, 0, 1]}),
    "pointwise_in_slabs": ((1, 520, 9, 11), (31, 520, 1, 1), {}),
    "pointwise_read_in_place": ((2, 300, 7, 9), (11, 300, 1, 1), {}),
    "pointwise_read_in_place_over_whole_panels": ((1, 300, 4, 44), (12, 300, 1, 1), {}),
    "pointwise_of_rows_that_share_cache_sets": ((1, 40, 16, 32), (9, 40, 1, 1), {}),
    "planes_in_slabs": ((1, 150, 7, 9), (13, 150, 3, 3), {"pads": [1, 1, 1, 1]}),
    "planes_in_long_slabs": ((1, 150, 7, 9), (49, 150, 3, 3), {"pads": [1, 1, 1, 1]}),
    "planes_in_slabs_over_wide_rows": ((1, 40, 3, 37), (7, 40, 3, 3), {"pads": [1, 1, 1, 1]}),
    "column_of_one_pixel": ((2, 9, 61, 1), (8, 9, 5, 1), {"pads": [2, 0, 1, 0]}),
    "row_end_shares_padding_with_the_next": ((1, 6, 9, 20), (8, 6, 3, 5), {"pads": [1, 3, 1, 1]}),
    "row_start_is_not_padded": ((1, 6, 9, 20), (8, 6, 3, 5), {"pads": [1, 0, 1, 4]}),
    "few_pixels_of_a_long_row": ((1, 1, 640), (37, 1, 256), {"strides": [128]}),
    "few_pixels_and_pads": ((2, 19, 4), (16, 19, 3), {"pads": [1, 1]}),
    "few_pixels_strided_and_dilated": ((1, 6, 7, 9), (33, 6, 3, 2), {"strides": [2, 3], "dilations": [2, 1], "pads": [0, 1, 2, 0]}),
    "few_pixels_in_groups": ((2, 8, 3, 3), (36, 4, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "few_pixels_of_three_axes": ((1, 3, 3, 4, 4), (18, 3, 2, 2, 2), {"strides": [1, 2, 2]}),
    "one_pixel": ((1, 96, 1, 1), (24, 96, 1, 1), {}),
    "grouped": ((2, 12, 9, 20), (18, 4, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    "grouped_pointwise": ((1, 12, 7, 5), (8, 3, 1, 1), {"group": 4}),
    "depthwise": ((2, 10, 23, 37), (10, 1, 3, 3), {"group": 10, "pads": [1, 1, 1, 1]}),
    "depthwise_five_strided": ((1, 6, 24, 61), (6, 1, 5, 5), {"group": 6, "strides": [2, 1], "pads": [2, 2, 2, 2]}),
    "depthwise_stride_three": ((1, 4, 24, 61), (4, 1, 5, 3), {"group": 4, "strides": [3, 3], "pads": [2, 2, 1, 0]}),
    "depthwise_dilated": ((1, 3, 19, 40), (3, 1, 3, 3), {"group": 3, "dilations": [2, 4], "pads": [2, 4, 2, 4]}),
    "depthwise_with_multiplier": ((1, 4, 14, 18), (12, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "depthwise_of_many_rows": ((1, 2, 300, 120), (2, 1, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "many_channels_in_blocks_of_rows": ((1, 40, 40, 40), (9, 40, 3, 3), {"pads": [1, 1, 1, 1]}),
    "one_axis": ((2, 5, 50), (7, 5, 3), {"pads": [1, 1]}),
    "one_axis_strided_far": ((1, 1, 900), (20, 1, 256), {"strides": [128], "pads": [64, 0]}),
    "three_axes": ((1, 3, 6, 7, 8), (5, 3, 3, 2, 3), {"pads": [1, 0, 1, 1, 1, 1], "strides": [1, 2, 1]}),
    "three_axes_depthwise": ((1, 4, 5, 6, 9), (4, 1, 3, 3, 3), {"group": 4, "pads": [1] * 6}),
    "four_axes": ((1, 2, 3, 4, 3, 5), (3, 2, 2, 2, 2, 2), {}),
    "pad_wider_than_the_input": ((1, 2, 3, 3), (3, 2, 5, 5), {"pads": [4, 4, 4, 4]}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_convolution_is_its_definition(name):
    shape, kernel, given = CASES[name]
    x, w, bias = normal(*shape), normal(*kernel), normal(kernel[0])
    want = defined(*(v.astype(np.float64) for v in (x, w, bias)), **given)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **given)
    for constant in ((), (1, 2)):
        got = run_node(
            TABLE, node, [x, w, bias], [want.astype(np.float32)], constant=constant
        )
        np.testing.assert_allclose(got[0], want, rtol=1e-4, atol=1e-4)
    bare = helper.make_node("Conv", ["x", "w"], ["y"], **given)
    got = run_node(
        TABLE, bare, [x, w], [want.astype(np.float32)], options={"num_threads": 1}
    )
    want = want - bias.reshape(-1, *[1] * (x.ndim - 2))
    np.testing.assert_allclose(got[0], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
@pytest.mark.parametrize(
    ("size", "kernel", "stride"), [(9, 3, 2), (10, 4, 3), (7, 2, 1), (8, 1, 3)]
)
def test_automatic_pads_are_those_of_onnxruntime(mode, size, kernel, stride):
    x, w = normal(1, 2, size, size + 1), normal(3, 2, kernel, kernel)
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"], auto_pad=mode, strides=[stride] * 2
    )
    want = in_onnxruntime(node, [x, w])
    got = run_node(TABLE, node, [x, w], want)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float16", 2e-2), ("bfloat16", 0.1), ("float64", 1e-12)]
)
@pytest.mark.parametrize("opset", [7, 11, 22])
def test_other_floats_are_rounded_once_at_the_end(dtype, tolerance, opset):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x, w, b = (normal(*s).astype(kind) for s in [(1, 4, 9, 10), (6, 4, 3, 3), (6,)])
    want = defined(*(v.astype(np.float64) for v in (x, w, b)), pads=[1] * 4)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1] * 4)
    (got,) = run_node(TABLE, node, [x, w, b], [want.astype(kind)], opset=opset)
    np.testing.assert_allclose(
        got.astype(np.float64), want, rtol=tolerance, atol=tolerance
    )


def test_nan_and_infinity_reach_only_the_windows_that_see_them():
    x, w = normal(1, 1, 8, 40), np.ones((6, 1, 3, 3), np.float32)
    x[0, 0, 2, 30], x[0, 0, 7, 2] = np.nan, np.inf
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    want = defined(x, w, pads=[1] * 4)
    (got,) = run_node(TABLE, node, [x, w], [want])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))


@pytest.mark.parametrize("kernel", [1, 3])
def test_equal_channels_round_alike_wherever_their_tiles_are_cut(kernel):
    """Sums that nearly overflow their precision show any other order of adding."""
    one = normal(1, 520, kernel, kernel) * np.float32(1e6)
    x, w = normal(1, 520, 7, 9), np.repeat(one, 50, 0)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[kernel // 2] * 4)
    like = [np.zeros((1, 50, 7, 9), np.float32)]
    (got,) = run_node(TABLE, node, [x, w], like)
    np.testing.assert_array_equal(got, np.repeat(got[:, :1], 50, 1))


def test_an_empty_batch_gives_an_empty_output():
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    like = np.zeros((0, 4, 3, 3), np.float32)
    (got,) = run_node(TABLE, node, [normal(0, 2, 5, 5), normal(4, 2, 3, 3)], [like])
    assert got.shape == (0, 4, 3, 3)


def test_no_input_channels_leave_the_bias():
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"])
    bias = normal(4)
    like = np.zeros((1, 4, 3, 3), np.float32)
    (got,) = run_node(
        TABLE, node, [normal(1, 0, 5, 5), normal(4, 0, 3, 3), bias], [like]
    )
    np.testing.assert_array_equal(
        got, np.broadcast_to(bias.reshape(4, 1, 1), got.shape)
    )


def test_integers_are_refused():
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    x = np.zeros((1, 1, 3, 3), np.int32)
    answer = run_node(TABLE, node, [x, x], [x])
    assert isinstance(answer, Refusal)
    assert "int32" in str(answer)


_ = onnx
