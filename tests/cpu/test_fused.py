"""Fused operators against their definition in float64, and FusedConv against onnxruntime."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from tests.cpu.test_convolution import defined, normal
from tests.node_cases import run_node

from seamline.provider import Refusal
from seamline_cpu.kernels import TABLE

CONTRIB, OWN = "com.microsoft", "seamline"
erf = np.vectorize(math.erf, otypes=[np.float64])


def expit(v):
    return 1 / (1 + np.exp(-v))


THEIRS = {
    "": ([], lambda v: v),
    "Relu": ([], lambda v: np.maximum(v, 0)),
    "Tanh": ([], np.tanh),
    "Sigmoid": ([], expit),
    "LeakyRelu": ([0.25], lambda v: np.where(v < 0, 0.25 * v, v)),
    "Clip": ([-0.5, 0.75], lambda v: np.clip(v, -0.5, 0.75)),
    "HardSigmoid": ([0.3, 0.4], lambda v: np.clip(0.3 * v + 0.4, 0, 1)),
}
OURS = {
    "HardSwish": ([], lambda v: v * np.clip(v / 6 + 0.5, 0, 1)),
    "Gelu": ([], lambda v: v * (1 + erf(v * np.sqrt(0.5))) / 2),
    "FastGelu": (
        [],
        lambda v: v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3))) / 2,
    ),
    "QuickGelu": ([1.0], lambda v: v * expit(v)),
}
EVERY = {**THEIRS, **OURS}
#: One of each form: pointwise, planes of two strides, depthwise, dense of three axes, groups,
#: fewer pixels than a vector, and units that are cut along channels.
FORMS = {
    "pointwise": ((2, 9, 5, 7), (14, 9, 1, 1), {}),
    "planes": ((2, 5, 9, 13), (8, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    "strided": (
        (1, 5, 12, 11),
        (7, 5, 3, 3),
        {"pads": [1, 1, 1, 1], "strides": [2, 2]},
    ),
    "depthwise": ((2, 6, 9, 8), (6, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 6}),
    "dense": ((1, 3, 4, 5, 6), (5, 3, 2, 2, 2), {}),
    "far": ((1, 3, 16, 17), (5, 3, 3, 3), {"strides": [3, 3]}),
    "groups": ((1, 6, 6, 6), (8, 3, 3, 3), {"group": 2}),
    "winograd": ((1, 16, 24, 24), (18, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    "few_pixels": ((2, 20, 4, 3), (19, 20, 3, 3), {"pads": [0, 1, 1, 1]}),
    "one_pixel": ((3, 40, 1, 1), (50, 40, 1, 1), {}),
    "many_channels": ((1, 300, 6, 6), (100, 300, 1, 1), {}),
}


def conv_node(domain, activation, params, residual, **attributes):
    inputs = ["x", "w", "b", *(["z"] if residual else [])]
    if activation:
        attributes["activation"] = activation
    if params:
        attributes["activation_params"] = [float(p) for p in params]
    return helper.make_node("FusedConv", inputs, ["y"], domain=domain, **attributes)


def case(form, activation, *, residual):
    x_shape, w_shape, attributes = FORMS[form]
    x, w, b = normal(*x_shape), normal(*w_shape), normal(w_shape[0])
    wide = [v.astype(np.float64) for v in (x, w, b)]
    total = defined(*wide, **attributes)
    z = normal(*total.shape)
    params, function = EVERY[activation]
    want = function(total + z if residual else total)
    domain = CONTRIB if activation in THEIRS else OWN
    node = conv_node(domain, activation, params, residual, **attributes)
    scale = float(np.abs(total).max()) + 1
    return node, [x, w, b, *([z] if residual else [])], want, scale


@pytest.mark.parametrize("constant", [(), (1, 2)], ids=["fed", "constant"])
@pytest.mark.parametrize("form", FORMS)
def test_a_fused_convolution_is_its_definition_in_every_form(form, constant):
    for activation, residual in itertools.product(EVERY, (False, True)):
        node, inputs, want, scale = case(form, activation, residual=residual)
        (got,) = run_node(
            TABLE, node, inputs, [want.astype(np.float32)], constant=constant
        )
        depth = inputs[1][0].size
        bound = 1e-6 * np.sqrt(depth) * scale
        assert np.abs(got - want).max() < bound, activation


@pytest.mark.parametrize("activation", THEIRS)
def test_a_fused_convolution_is_onnxruntimes(activation):
    node, inputs, want, _ = case("planes", activation, residual=True)
    names = list(node.input)
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(n, 1, x.shape) for n, x in zip(names, inputs, strict=True)],
        [helper.make_empty_tensor_value_info("y")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = ort.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (theirs,) = session.run(None, dict(zip(names, inputs, strict=True)))
    (got,) = run_node(TABLE, node, inputs, [want.astype(np.float32)])
    np.testing.assert_allclose(got, theirs, rtol=1e-5, atol=1e-5)


def test_nan_and_infinity_pass_an_activation_as_they_pass_a_node_of_its_own():
    node, (x, w, b), want, _ = case("pointwise", "Relu", residual=False)
    x[0, 0, 0, :3] = np.nan, np.inf, -np.inf
    (got,) = run_node(TABLE, node, [x, w, b], [want.astype(np.float32)])
    with np.errstate(invalid="ignore"):
        want = np.maximum(defined(x, w, b), 0)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isposinf(got), np.isposinf(want))


def test_no_pixels_are_nothing():
    node = conv_node(CONTRIB, "Relu", [], residual=False)
    x, w, b = normal(0, 3, 4, 4), normal(2, 3, 1, 1), normal(2)
    (got,) = run_node(TABLE, node, [x, w, b], [np.zeros((0, 2, 4, 4), np.float32)])
    assert got.shape == (0, 2, 4, 4)


def test_an_activation_that_is_not_there_is_refused_and_names_those_that_are():
    node, inputs, want, _ = case("pointwise", "Relu", residual=False)
    node.attribute.append(helper.make_attribute("activation", "Mish"))
    del node.attribute[0]
    answer = run_node(TABLE, node, inputs, [want.astype(np.float32)])
    assert isinstance(answer, Refusal)
    assert "'Mish'" in answer.because
    assert "HardSwish" in answer.because


def test_a_residual_of_another_shape_is_refused():
    node, inputs, want, _ = case("pointwise", "Relu", residual=True)
    inputs[3] = inputs[3][:, :, :1]
    answer = run_node(TABLE, node, inputs, [want.astype(np.float32)])
    assert isinstance(answer, Refusal)
    assert "its Z is float32[2, 14, 1, 7]" in answer.because


# -- products ----------------------------------------------------------------------------


def product_node(activation, given, **attributes):
    params, _ = EVERY[activation]
    names = ["a", "w", "bias" if "bias" in given else "", "z" if "z" in given else ""]
    while not names[-1]:
        names.pop()
    if activation:
        attributes["activation"] = activation
    if params:
        attributes["activation_params"] = [float(p) for p in params]
    return helper.make_node("FusedMatMul", names, ["y"], domain=OWN, **attributes)


@pytest.mark.parametrize("constant", [(), (1, 2)], ids=["fed", "constant"])
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize(
    "shape", [(1, 5, 7), (3, 64, 33), (4, 17, 16), (50, 300, 70), (2, 3, 19, 40), (2, 600, 500)],
    ids=str,
)  # fmt: skip
def test_a_fused_product_is_its_definition(shape, turned, constant):
    *rows, depth, width = shape
    a, w = normal(*rows, depth), normal(depth, width)
    bias, z = normal(width), normal(*rows, width)
    total = a.astype(np.float64) @ w
    w = np.ascontiguousarray(w.T) if turned else w
    for given in ((), ("bias",), ("z",), ("bias", "z")):
        for activation in ("", "Relu", "Gelu", "Clip"):
            want = total + (bias if "bias" in given else 0)
            want = EVERY[activation][1](want + (z if "z" in given else 0))
            node = product_node(activation, given, transB=turned)
            inputs = [
                a,
                w,
                bias if "bias" in given else None,
                z if "z" in given else None,
            ]
            inputs = inputs[: len(node.input)]
            kept = [i for i in constant if i < len(inputs) and inputs[i] is not None]
            (got,) = run_node(
                TABLE, node, inputs, [want.astype(np.float32)], constant=kept
            )
            bound = 2e-6 * np.sqrt(depth) * max(1.0, float(np.abs(want).max()))
            assert np.abs(got - want).max() < bound, (given, activation)


def test_a_bias_of_another_length_is_refused():
    node = product_node("Relu", ("bias",))
    inputs = [normal(4, 5), normal(5, 6), normal(5)]
    answer = run_node(TABLE, node, inputs, [normal(4, 6)])
    assert isinstance(answer, Refusal)
    assert "rows have 6 elements" in answer.because


def test_a_stack_of_matrices_on_the_right_is_refused():
    node = product_node("Relu", ())
    answer = run_node(
        TABLE, node, [normal(2, 4, 5), normal(2, 5, 6)], [normal(2, 4, 6)]
    )
    assert isinstance(answer, Refusal)
    assert "one matrix is multiplied with" in answer.because


# -- ONNX's own, under Seamline's domain -------------------------------------------------


@pytest.mark.parametrize("op", ["HardSwish", "LayerNormalization"])
def test_an_operator_of_a_newer_opset_means_what_onnx_says(op):
    x = 4 * normal(3, 70)
    more = [normal(70), normal(70)] if op == "LayerNormalization" else []
    names = [f"x{i}" for i in range(1 + len(more))]
    nodes = [helper.make_node(op, names, ["y"], domain=d) for d in ("", OWN)]
    one, other = (run_node(TABLE, node, [x, *more], [x])[0] for node in nodes)
    np.testing.assert_array_equal(one, other)
    want = ReferenceEvaluator(nodes[0]).run(
        None, dict(zip(names, [x, *more], strict=True))
    )[0]
    np.testing.assert_allclose(other, want, rtol=1e-4, atol=1e-5)
