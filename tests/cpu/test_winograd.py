"""Convolution by Winograd's method: its algebra exactly, its sums against the definition."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys
from fractions import Fraction

import numpy as np
import pytest
from onnx import helper, numpy_helper
from tests.cpu.test_convolution import defined, in_onnxruntime
from tests.node_cases import run_node, view_of_node

import seamline
from seamline.windows import window_of
from seamline_cpu.kernels import TABLE
from seamline_cpu.kernels.convolution import compact
from seamline_cpu.kernels.convolution_float32 import Shape
from seamline_cpu.winograd import TILE, method_of

RNG = np.random.default_rng(5)
ROUNDING = np.finfo(np.float32).eps / 2


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def apply(matrix, values):
    return [sum(a * b for a, b in zip(row, values, strict=True)) for row in matrix]


@pytest.mark.parametrize("taps", [3, 5])
def test_the_matrices_make_a_correlation_exactly(taps):
    method = method_of(taps)
    inputs = [Fraction(int(i)) for i in RNG.integers(-99, 99, method.points)]
    filtered = [Fraction(int(i)) for i in RNG.integers(-99, 99, taps)]
    products = [
        a * b
        for a, b in zip(
            apply(method.inputs, inputs), apply(method.weights, filtered), strict=True
        )
    ]
    want = [sum(filtered[s] * inputs[i + s] for s in range(taps)) for i in range(TILE)]
    assert apply(method.outputs, products) == want
    assert method.points == taps + TILE - 1


@pytest.mark.parametrize("taps", [3, 5])
def test_float32_holds_the_matrices_of_inputs_and_outputs_exactly(taps):
    method = method_of(taps)
    for entry in itertools.chain(*method.inputs, *method.outputs):
        assert Fraction(float(np.float32(float(entry)))) == entry


def form_of(x, w, y, given, constant=(1,), options=None):
    node = helper.make_node("Conv", ["x", "w"], ["y"], **given)
    view = view_of_node(node, [x, w], [y], 17, constant)
    window = compact(window_of(view, x.shape[2:], y.shape[2:], w.shape[2:]))
    return Shape.of(window, x.shape, w.shape, view, options or {}).form


CASES = {
    "tiles_in_whole_panels": ((1, 16, 64, 64), 24, {"pads": [1, 1, 1, 1]}),
    "rows_and_columns_that_are_cut": ((1, 33, 14, 29), 20, {"pads": [1, 1, 1, 1]}),
    "panels_that_go_from_image_to_image": ((3, 24, 13, 13), 31, {"pads": [1, 1, 1, 1]}),
    "the_last_panel_has_one_quad": ((1, 17, 35, 16), 18, {"pads": [1, 1, 1, 1]}),
    "an_odd_number_of_quads": ((1, 20, 28, 40), 25, {"pads": [1, 1, 1, 1]}),
    "no_pads": ((1, 30, 27, 27), 32, {}),
    "wide_pads_on_one_side": ((1, 20, 26, 30), 30, {"pads": [2, 0, 1, 2]}),
    "pads_that_outgrow_the_window": ((1, 20, 26, 30), 30, {"pads": [0, 1, 5, 7]}),
    "few_inputs_and_many_outputs": ((1, 7, 40, 48), 64, {"pads": [1, 1, 1, 1]}),
    "few_outputs": ((1, 64, 32, 32), 5, {"pads": [1, 1, 1, 1]}),
    "rows_of_three": ((2, 24, 9, 63), 36, {"kernel_shape": [1, 3], "pads": [0, 1, 0, 1]}),
    "rows_of_five": ((1, 24, 9, 37), 20, {"kernel_shape": [1, 5], "pads": [0, 2, 0, 2]}),
    "columns_of_five": ((1, 24, 99, 1), 36, {"kernel_shape": [5, 1]}),
    "one_axis_of_three": ((2, 33, 156), 36, {"kernel_shape": [3], "pads": [2, 1]}),
    "one_axis_of_five": ((1, 33, 129), 20, {"kernel_shape": [5], "pads": [4, 3]}),
    "automatic_pads": ((1, 16, 16, 48), 18, {"auto_pad": "SAME_LOWER"}),
}  # fmt: skip


def case(name):
    shape, outputs, given = CASES[name]
    kernel = given.get("kernel_shape", [3, 3])
    x, w, bias = normal(*shape), normal(outputs, shape[1], *kernel), normal(outputs)
    pads = given.get("pads", [1] * 4 if "auto_pad" in given else None)
    return (x, w, bias), pads, given


@pytest.mark.parametrize("name", CASES)
def test_convolution_is_its_definition(name):
    (x, w, bias), pads, given = case(name)
    want = defined(*(v.astype(np.float64) for v in (x, w, bias)), pads=pads)
    assert form_of(x, w, want.astype(np.float32), given) == "winograd"
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **given)
    like = [want.astype(np.float32)]
    ones = [
        run_node(
            TABLE, node, [x, w, bias], like, constant=(1, 2), options={"num_threads": n}
        )[0]
        for n in (1, 2)
    ]
    np.testing.assert_array_equal(*ones)
    assert np.abs(ones[0] - want).max() < 3e-6 * np.abs(want).max()


@pytest.mark.parametrize(
    "name", ["rows_and_columns_that_are_cut", "automatic_pads", "one_axis_of_five"]
)
def test_onnxruntime_agrees(name):
    (x, w, bias), _, given = case(name)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **given)
    want = in_onnxruntime(node, [x, w, bias])
    (got,) = run_node(TABLE, node, [x, w, bias], want, constant=(1, 2))
    np.testing.assert_allclose(got, want[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [(3, 3), (1, 3), (1, 5)])
@pytest.mark.parametrize("channels", [16, 256])
def test_the_error_is_below_its_bound_and_near_that_of_direct_sums(channels, kernel):
    x, w = np.abs(normal(1, channels, 16, 66)), normal(36, channels, *kernel)
    want = defined(x.astype(np.float64), w.astype(np.float64))
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    like = want.astype(np.float32)
    assert form_of(x, w, like, {}) == "winograd"
    (got,) = run_node(TABLE, node, [x, w], [like], constant=(1,))
    (direct,) = run_node(TABLE, node, [x, w], [like])  # weights that are fed
    error, usual = (np.abs(y - want).max() for y in (got, direct))
    growth = np.prod([method_of(taps).growth for taps in kernel if taps > 1])
    largest = np.abs(x).max((0, 2, 3)) @ np.abs(w).max((0, 2, 3))
    assert 0 < error < growth * (channels + 20) * ROUNDING * largest
    assert error < 6 * usual


@pytest.mark.parametrize("taps", [3, 5])
def test_nan_and_infinity_reach_only_the_windows_of_a_row_that_see_them(taps):
    x, w = normal(2, 16, 150), normal(20, 16, taps)
    x[0, 3, 30], x[1, 7, 2], x[1, 0, 149] = np.nan, np.inf, -np.inf
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 2])
    want = defined(x.astype(np.float64), w.astype(np.float64), pads=[1, 2])
    like = want.astype(np.float32)
    assert form_of(x, w, like, {"pads": [1, 2]}) == "winograd"
    (got,) = run_node(TABLE, node, [x, w], [like], constant=(1,))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_nan_and_infinity_reach_only_the_windows_that_see_them():
    x, w = normal(2, 16, 30, 40), normal(20, 16, 3, 3)
    x[0, 3, 2, 30], x[1, 7, 17, 2], x[1, 0, 29, 39] = np.nan, np.inf, -np.inf
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    want = defined(x.astype(np.float64), w.astype(np.float64), pads=[1] * 4)
    like = want.astype(np.float32)
    assert form_of(x, w, like, {"pads": [1] * 4}) == "winograd"
    (got,) = run_node(TABLE, node, [x, w], [like], constant=(1,))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_weights_that_are_infinite_give_what_the_definition_gives():
    x, w = normal(1, 16, 20, 20), normal(20, 16, 3, 3)
    w[4, 3, 0, 1], w[9, 2, 2, 2] = np.inf, np.nan
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    with np.errstate(invalid="ignore"):  # zero of the padding times infinity
        want = defined(x, w, pads=[1] * 4)
    (got,) = run_node(TABLE, node, [x, w], [want], constant=(1,))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))


def test_transforms_that_overflow_do_not_make_finite_outputs_infinite():
    x = np.full((1, 16, 20, 20), 3e38, np.float32)
    x[:, :, ::2] *= -1
    w = normal(20, 16, 3, 3) * np.float32(1e-3)
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    want = defined(x.astype(np.float64), w.astype(np.float64))
    (got,) = run_node(TABLE, node, [x, w], [want.astype(np.float32)], constant=(1,))
    np.testing.assert_allclose(got, want, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(
    ("activation", "then"),
    [
        ("", lambda y: y),
        ("Relu", lambda y: np.maximum(y, 0)),
        ("LeakyRelu", lambda y: np.where(y < 0, 0.1 * y, y)),
        ("Clip", lambda y: np.clip(y, -0.5, 0.75)),
    ],
)
def test_what_follows_is_done_to_every_output_once(activation, then, residual):
    x, w, bias = normal(2, 16, 19, 37), normal(22, 16, 3, 3), normal(22)
    params = {"LeakyRelu": [0.1], "Clip": [-0.5, 0.75]}.get(activation, [])
    given = {"pads": [1] * 4}
    if activation:
        given |= {"activation": activation}
    if params:
        given |= {"activation_params": params}
    want = defined(*(v.astype(np.float64) for v in (x, w, bias)), pads=[1] * 4)
    more = normal(*want.shape) if residual else None
    want = then(want + more if residual else want)
    names = ["x", "w", "b", *(["z"] if residual else [])]
    node = helper.make_node("FusedConv", names, ["y"], domain="com.microsoft", **given)
    inputs = [x, w, bias, *([more] if residual else [])]
    (got,) = run_node(
        TABLE, node, inputs, [want.astype(np.float32)], constant=(1, 2), opset=1
    )
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_direct_sums_can_be_asked_for_and_the_claim_says_what_was_taken():
    x, w = normal(1, 32, 28, 28), normal(32, 32, 3, 3)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1] * 4)], "g",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_tensor_value_info("y", 1, x.shape)],
        [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    want = defined(x.astype(np.float64), w.astype(np.float64), pads=[1] * 4)
    said, errors = [], []
    for options in ({}, {"convolution": "direct"}):
        with seamline.InferenceSession(
            model.SerializeToString(), providers=[("cpu", options)]
        ) as session:
            errors.append(np.abs(session.run(None, {"x": x})[0] - want).max())
            said.append(session.explain().to_json())
    for text, parts in zip(
        said,
        [
            ("winograd", "the rounding error of direct sums"),
            ("planes", "direct sums were asked"),
        ],
        strict=True,
    ):
        assert all(part in text for part in parts)
    assert 0 < errors[1] < errors[0] < 1e-4


def test_weights_that_are_fed_and_small_images_take_the_direct_form():
    x, w, y = normal(1, 32, 28, 28), normal(32, 32, 3, 3), normal(1, 32, 26, 26)
    assert form_of(x, w, y, {}) == "winograd"
    assert form_of(x, w, y, {}, ()) == "planes"
    x, y = normal(1, 32, 6, 6), normal(1, 32, 4, 4)
    assert form_of(x, w, y, {}) == "planes"


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows protects no pages by mprotect"
)
def test_nothing_is_read_beside_the_input():
    """A read outside would end the process: the pages around it allow none."""
    shape, page = (1, 16, 16, 20), mmap.PAGESIZE
    size = int(np.prod(shape)) * 4
    room = -(-size // page) * page
    memory = mmap.mmap(-1, room + 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for at in (base, base + page + room):
        assert protect(at, page, 0) == 0
    w, like = np.ones((18, 16, 3, 3), np.float32), np.zeros((1, 18, 16, 20), np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    for begin in (page, page + room - size):
        x = np.frombuffer(memory, np.float32, size // 4, begin).reshape(shape)
        x[...] = 1
        (got,) = run_node(TABLE, node, [x, w], [like], constant=(1,))
        np.testing.assert_allclose(got[0, :, ::15, ::19], 64, rtol=1e-5)
        np.testing.assert_allclose(got[0, :, 1:-1, 1:-1], 144, rtol=1e-5)
