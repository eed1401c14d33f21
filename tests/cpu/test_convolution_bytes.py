"""
Convolutions of bytes in each of their forms, against the definition in exact integers.

The forms share nothing but their tiles: planes read in place, and the transform that makes
four outputs at once. Sizes leave remainders in every dimension that is cut.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from tests.cpu.test_convolution import defined, in_onnxruntime
from tests.node_cases import run_node, view_of_node

from seamline.windows import window_of
from seamline_cpu.integer_transforms import (
    LARGEST,
    nested,
    transform_of,
)
from seamline_cpu.kernels import TABLE
from seamline_cpu.kernels.convolution import compact
from seamline_cpu.kernels.transformed_blocks import suits_transformed, sums_fit
from seamline_cpu.kernels.word_blocks import suits_words

RNG = np.random.default_rng(11)

WORDS = {
    "a_pixel": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    "odd_channels": ((2, 5, 9, 20), (7, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    "rows_narrower_than_a_tile": ((1, 6, 13, 5), (6, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
    "every_second_pixel": ((1, 3, 11, 70), (13, 3, 3, 3), {"strides": [2, 2], "pads": [0, 1, 2, 1]}),
    "stride_of_one_axis": ((1, 4, 9, 41), (6, 4, 2, 5), {"strides": [1, 3], "pads": [1, 2, 0, 4]}),
    "groups": ((2, 6, 7, 33), (9, 2, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    "depthwise": ((1, 5, 8, 19), (5, 1, 3, 3), {"group": 5, "pads": [1, 1, 1, 1]}),
    "dilated": ((1, 3, 20, 30), (4, 3, 3, 2), {"dilations": [3, 5]}),
    "one_axis": ((3, 7, 50), (8, 7, 4), {"pads": [0, 3]}),
    "longer_than_the_cache": ((1, 400, 300), (6, 400, 2), {"pads": [1, 0]}),
    "one_wide": ((1, 4, 60, 1), (5, 4, 3, 1), {"pads": [1, 0, 1, 0]}),
}  # fmt: skip

TRANSFORMED = {
    "three_taps": ((1, 16, 400), (13, 16, 3), {"pads": [1, 1]}),
    "four_taps": ((1, 9, 403), (12, 9, 4), {"pads": [0, 3]}),
    "five_taps": ((2, 8, 401), (18, 8, 5), {"pads": [2, 2]}),
    "seven_taps_dilated": ((1, 11, 402), (14, 11, 7), {"dilations": [3], "pads": [9, 9]}),
    "eleven_taps_dilated": ((1, 10, 399), (12, 10, 11), {"dilations": [5], "pads": [25, 25]}),
    "eleven_taps": ((1, 8, 1030), (12, 8, 11), {"pads": [5, 5]}),
    "six_taps": ((1, 8, 397), (12, 8, 6), {"pads": [1, 4]}),
    "eight_taps_of_an_image": ((1, 9, 5, 90), (13, 9, 2, 8), {"pads": [1, 3, 0, 4]}),
    "nine_taps": ((1, 10, 301), (19, 10, 9), {"pads": [4, 4]}),
    "fourteen_taps": ((1, 9, 404), (12, 9, 14), {"pads": [6, 7], "dilations": [2]}),
    "an_image": ((1, 24, 19, 37), (25, 24, 3, 3), {"pads": [1, 1, 1, 1]}),
    "an_image_dilated_both_ways": ((2, 9, 21, 50), (12, 9, 2, 3), {"dilations": [3, 2], "pads": [1, 2, 2, 0]}),
    "groups": ((1, 16, 17, 31), (24, 8, 3, 5), {"group": 2, "pads": [1, 2, 1, 2]}),
    "one_wide": ((1, 8, 300, 1), (12, 8, 3, 1), {"pads": [1, 0, 1, 0]}),
    "longer_than_the_cache": ((1, 220, 520), (12, 220, 11), {"dilations": [2], "pads": [10, 10]}),
}  # fmt: skip


def drawn(shape, kind):
    limits = np.iinfo(kind)
    values = RNG.integers(limits.min, limits.max, shape, endpoint=True)
    values.flat[:1] = limits.min
    return values.astype(kind)


def node_of(given):
    return helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], **given)


def form_of(inputs, want, given):
    view = view_of_node(node_of(given), inputs, [want], 17)
    x, w = inputs[:2]
    window = compact(window_of(view, x.shape[2:], want.shape[2:], w.shape[2:]))
    each = w.shape[0] // given.get("group", 1)
    if suits_transformed(window, w.shape[1], each):
        return "transformed", window
    return "words" if suits_words(window) else "dense", window


def check(form, case, x_kind, w_kind):
    shape, kernel, given = case
    x, w = drawn(shape, x_kind), drawn(kernel, w_kind)
    x_zero, w_zero = drawn((2,), x_kind)[1:].reshape(()), drawn(kernel[:1], w_kind)
    wide = w.astype(np.int64) - w_zero.reshape(-1, *[1] * (w.ndim - 1)).astype(np.int64)
    want = defined(x.astype(np.int64) - int(x_zero), wide, **given).astype(np.int32)
    inputs = [x, w, x_zero, w_zero]
    assert form_of(inputs, want, given)[0] == form
    got = run_node(TABLE, node_of(given), inputs, [want], constant=(1, 3))
    np.testing.assert_array_equal(got[0], want)
    return inputs, want


@pytest.mark.parametrize(
    "kinds", [("uint8", "uint8"), ("int8", "int8"), ("uint8", "int8")]
)
@pytest.mark.parametrize("name", WORDS)
def test_planes_give_exact_sums(name, kinds):
    check("words", WORDS[name], *kinds)


@pytest.mark.parametrize("kinds", [("uint8", "uint8"), ("int8", "int8")])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms_give_exact_sums(name, kinds):
    check("transformed", TRANSFORMED[name], *kinds)


@pytest.mark.parametrize("name", TRANSFORMED)
def test_weights_that_are_fed_take_the_direct_form_and_give_the_same(name):
    shape, kernel, given = TRANSFORMED[name]
    x, w = drawn(shape, "uint8"), drawn(kernel, "int8")
    zeros = np.array(7, np.uint8), np.array(-3, np.int8)
    want = defined(x.astype(np.int64) - 7, w.astype(np.int64) + 3, **given)
    got = run_node(TABLE, node_of(given), [x, w, *zeros], [want.astype(np.int32)])
    np.testing.assert_array_equal(got[0], want)


def test_the_largest_products_neither_saturate_nor_leave_the_transform():
    x = np.where(RNG.integers(0, 2, (1, 64, 600)) == 1, 255, 0).astype(np.uint8)
    w = np.where(RNG.integers(0, 2, (12, 64, 11)) == 1, 127, -128).astype(np.int8)
    given = {"pads": [5, 5]}
    zeros = np.array(255, np.uint8), np.array(127, np.int8)
    wide = x.astype(np.int64) - 255, w.astype(np.int64) - 127
    want = defined(*wide, **given).astype(np.int32)
    assert sums_fit(wide[1], form_of([x, w], want, given)[1])
    got = run_node(TABLE, node_of(given), [x, w, *zeros], [want], constant=(1, 3))
    np.testing.assert_array_equal(got[0], want)


def test_sums_beyond_the_transforms_bits_take_the_direct_form():
    # 1400 channels of 3 taps of 255 times 255 is above 2**28.
    x, w = np.full((1, 1400, 300), 255, np.uint8), np.full((12, 1400, 3), 255, np.uint8)
    zeros, given = (np.zeros((), np.uint8),) * 2, {"pads": [1, 1]}
    want = defined(x.astype(np.int64), w.astype(np.int64), **given).astype(np.int32)
    form, window = form_of([x, w], want, given)
    assert form == "transformed"
    assert not sums_fit(w.astype(np.int16), window)
    got = run_node(TABLE, node_of(given), [x, w, *zeros], [want], constant=(1, 3))
    np.testing.assert_array_equal(got[0], want)


@pytest.mark.parametrize("name", ["seven_taps_dilated", "an_image", "groups"])
def test_onnxruntime_agrees(name):
    _, _, given = TRANSFORMED[name]
    inputs, want = check("transformed", TRANSFORMED[name], "uint8", "uint8")
    inputs[3] = np.asarray(inputs[3][0])  # onnxruntime takes one zero point only
    peer = in_onnxruntime(node_of(given), inputs)
    got = run_node(TABLE, node_of(given), inputs, [want], constant=(1, 3))
    np.testing.assert_array_equal(got[0], peer[0])


def correlated(transform, g, d):
    """Give a transform's outputs, times ``2**shift``, modulo 2**32."""
    m = [
        sum(a * b for a, b in zip(u, g, strict=True))
        * sum(a * b for a, b in zip(v, d, strict=True))
        for u, v in zip(transform.weights, transform.inputs, strict=True)
    ]
    found = []
    for i in range(transform.count):
        points = zip(transform.outputs, transform.scales, m, strict=True)
        total = sum(row[i] * scale * value for row, scale, value in points)
        found.append((total + (1 << 31)) % (1 << 32) - (1 << 31))
    return found


@pytest.mark.parametrize(
    ("taps", "outputs"), [(1, 1), (2, 2), (3, 2), (3, 4), (4, 4), (5, 4)]
)
def test_a_transform_is_the_correlation_in_any_integers(taps, outputs):
    transform = transform_of(taps, outputs)
    for _ in range(200):
        g = [int(v) for v in RNG.integers(-255, 256, taps)]
        d = [int(v) for v in RNG.choice([-255, 255], transform.points)]
        want = [sum(g[s] * d[i + s] for s in range(taps)) for i in range(outputs)]
        assert correlated(transform, g, d) == [v << transform.shift for v in want]


@pytest.mark.parametrize("taps", range(3, 16))
def test_transformed_values_fit_sixteen_bits_and_all_taps_are_taken(taps):
    form = nested(taps)
    assert min(form.headroom()) >= LARGEST
    assert max(form.headroom()) < 1 << 15
    assert form.inner.taps * form.outer.taps * form.filters >= taps


def test_too_many_taps_for_the_points_are_refused():
    with pytest.raises(ValueError, match="6 taps need 9 points"):
        transform_of(6, 4)
