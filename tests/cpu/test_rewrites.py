"""Every rule against the graph that it rewrites, over many shapes, and where it must not act."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cpu.rewritten import Both, model_of

R = np.random.default_rng(3)
few = settings(max_examples=8, deadline=None)
sizes = st.integers(1, 9)
CONTRIB, OWN = "com.microsoft::", "seamline::"


def normal(*shape):
    return R.standard_normal(shape).astype(np.float32)


def positive(*shape):
    return (np.abs(R.standard_normal(shape)) + 0.5).astype(np.float32)


def conv_then(lines, channels=4, inputs=3, **constants):
    """Build ``c = Conv(x, w, b)`` and what follows it."""
    constants.setdefault("w", normal(channels, inputs, 3, 3))
    constants.setdefault("b", normal(channels))
    text = (
        f"g (float[1,{inputs},6,7] x) => (y)"
        f" {{ c = Conv <pads = [1,1,1,1]> (x, w, b) {lines} }}"
    )
    return model_of(text, **constants), {"x": normal(1, inputs, 6, 7)}


def named_in(text, numbers):
    """Give the numbers whose names stand in a text."""
    words = set(re.findall(r"\w+", text))
    return {name: number for name, number in numbers.items() if name in words}


# -- nodes that do nothing ---------------------------------------------------------------


def test_a_cast_to_the_type_that_is_there_goes_and_another_stays():
    model = model_of(
        "g (float[3] x) => (y) { a = Cast <to = 1> (x) b = Cast <to = 11> (a) y = Neg(b) }"
    )
    both = Both(model, {"x": normal(3)})
    assert both.ops["Cast"] == 1
    assert both.rules["cast"] == 1
    both.are_alike()


@pytest.mark.parametrize(("mode", "stays"), [(False, 0), (True, 1)])
def test_dropout_goes_unless_it_trains(mode, stays):
    model = model_of(
        "g (float[3] x) => (y) { a = Dropout(x, r, t) y = Neg(a) }",
        r=np.array(0.0, np.float32),
        t=np.array(mode),
    )
    both = Both(model, {"x": normal(3)})
    assert both.ops["Dropout"] == stays
    both.are_alike()


@few
@given(st.permutations(range(3)), st.permutations(range(3)))
def test_two_transpositions_are_one_or_none(one, other):
    text = (
        "g (float[2,3,4] x) => (y) {"
        f" a = Transpose <perm = {list(one)}> (x) b = Transpose <perm = {list(other)}> (a)"
        " y = Neg(b) }"
    )
    both = Both(model_of(text), {"x": normal(2, 3, 4)})
    none = [one[axis] for axis in other] == [0, 1, 2]
    assert both.ops["Transpose"] == (0 if none else 1)
    both.are_alike()


@pytest.mark.parametrize(
    ("target", "left"),
    [([6, 4], 1), ([-1], 1), ([0, 8], 2)],
    ids=["set", "rest", "kept"],
)
def test_of_two_reshapes_the_first_goes_unless_the_second_keeps_a_size(target, left):
    model = model_of(
        "g (float[2,3,4] x) => (y) { a = Reshape(x, s) b = Reshape(a, t) y = Neg(b) }",
        s=np.array([3, 8]),
        t=np.array(target),
    )
    both = Both(model, {"x": normal(2, 3, 4)})
    assert both.ops["Reshape"] == left
    both.are_alike()


# -- constants into convolutions ---------------------------------------------------------


@few
@given(sizes, sizes, st.sampled_from([1e-5, 1e-2]), st.booleans())
def test_batch_normalization_goes_into_the_convolution(channels, inputs, epsilon, bias):
    text = f"n = BatchNormalization <epsilon = {epsilon}> (c, s, t, m, v) y = Neg(n)"
    model, feeds = conv_then(
        text, channels=channels, inputs=inputs,
        s=normal(channels), t=normal(channels), m=normal(channels), v=positive(channels),
    )  # fmt: skip
    if not bias:
        del model.graph.node[0].input[2]
    both = Both(model, feeds, "basic")
    assert both.ops["BatchNormalization"] == 0
    assert both.ops["Conv"] == 1
    both.are_alike(1e-4, 1e-5)


@pytest.mark.parametrize(("group", "left"), [(1, 0), (2, 1)])
def test_batch_normalization_goes_into_a_transposed_convolution_of_one_group(
    group, left
):
    text = (
        "g (float[1,4,5,6] x) => (y)"
        f" {{ c = ConvTranspose <strides = [2,2], group = {group}> (x, w, b)"
        " n = BatchNormalization(c, s, t, m, v) y = Neg(n) }"
    )
    constants = {name: normal(6) for name in "bstm"}
    model = model_of(text, w=normal(4, 6 // group, 3, 3), v=positive(6), **constants)
    both = Both(model, {"x": normal(1, 4, 5, 6)}, "basic")
    assert both.ops["BatchNormalization"] == left
    both.are_alike(1e-4, 1e-5)


def test_batch_normalization_that_trains_stays():
    text = "y, m2, v2 = BatchNormalization <training_mode = 1> (c, s, t, m, v)"
    model, feeds = conv_then(text, s=normal(4), t=normal(4), m=normal(4), v=positive(4))
    both = Both(model, feeds)
    assert both.ops["BatchNormalization"] == 1
    both.are_alike()


@few
@given(st.sampled_from(["Add", "Mul"]), st.sampled_from([(), (1,), (5, 1, 1), (1, 5, 1, 1)]),
       st.booleans(), st.booleans())  # fmt: skip
def test_a_constant_a_channel_goes_into_the_convolution(op, shape, first, bias):
    pair = "k, c" if first else "c, k"
    model, feeds = conv_then(
        f"n = {op}({pair}) y = Neg(n)", channels=5, k=normal(*shape)
    )
    if not bias:
        del model.graph.node[0].input[2]
    both = Both(model, feeds, "basic")
    assert both.rules == {f"convolution-{op.lower()}": 1}
    both.are_alike()


@few
@given(st.sampled_from([(), (1,), (5, 1, 1)]), st.booleans())
def test_constants_after_a_normalization_go_into_its_scale_and_bias(shape, first):
    text = (
        "g (float[2,5,3,4] x) => (y) { n = BatchNormalization(x, s, t, m, v)"
        f" p = Mul({'k, n' if first else 'n, k'}) q = Add(p, l) y = Relu(q) }}"
    )
    constants = {name: normal(5) for name in "stm"}
    model = model_of(
        text, v=positive(5), k=normal(*shape), l=normal(5, 1, 1), **constants
    )
    both = Both(model, {"x": normal(2, 5, 3, 4)}, "basic")
    assert both.rules == {"normalization-mul": 1, "normalization-add": 1}
    both.are_alike(1e-4, 1e-5)


@pytest.mark.parametrize(
    "shape", [(7,), (6, 1), (6, 7), (2, 1, 1, 1), (1, 1, 1, 1, 1)], ids=str
)
def test_a_constant_along_another_axis_stays(shape):
    model, feeds = conv_then("n = Add(c, k) y = Neg(n)", k=normal(*shape))
    both = Both(model, feeds, "basic")
    assert not both.rules
    both.are_alike()


def test_weights_that_are_made_from_constants_take_part():
    model, feeds = conv_then(
        "n = Mul(c, k) y = Neg(n)", k=normal(4, 1, 1), channels=4, w=normal(3, 3, 3, 4)
    )
    model.graph.node.insert(0, _node("Transpose", ["w"], ["turned"], perm=[3, 2, 0, 1]))
    model.graph.node[1].input[1] = "turned"
    both = Both(model, feeds, "basic")
    assert both.rules["convolution-mul"] == 1
    both.are_alike()


def _node(op, inputs, outputs, **attributes):
    from onnx import helper

    return helper.make_node(op, inputs, outputs, **attributes)


# -- epilogues ---------------------------------------------------------------------------

ACTIVATIONS = {
    "Relu": "y = Relu(c)",
    "Sigmoid": "y = Sigmoid(c)",
    "Tanh": "y = Tanh(c)",
    "LeakyRelu": "y = LeakyRelu <alpha = 0.3> (c)",
    "HardSigmoid": "y = HardSigmoid <alpha = 0.3, beta = 0.4> (c)",
    "HardSwish": "y = HardSwish(c)",
    "Clip": "y = Clip(c, low, high)",
    "Clip_above": "y = Clip(c, , high)",
    "swish": "s = Sigmoid(c) y = Mul(c, s)",
    "gelu": "h = Mul(c, r) e = Erf(h) o = Add(e, one) p = Mul(c, o) y = Mul(p, half)",
}
NUMBERS = {
    "low": np.array(-0.5, np.float32),
    "high": np.array(0.75, np.float32),
    "r": np.array(np.sqrt(0.5), np.float32),
    "one": np.array(1, np.float32),
    "half": np.array(0.5, np.float32),
}


def with_numbers(text):
    return named_in(text, NUMBERS)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_becomes_part_of_the_convolution(name):
    text = ACTIVATIONS[name]
    model, feeds = conv_then(text, **with_numbers(text))
    both = Both(model, feeds)
    assert sum(both.ops.values()) == 1
    assert next(iter(both.ops)).endswith("::FusedConv")
    both.are_alike()


@few
@given(
    sizes, sizes, sizes, st.sampled_from([1, 2, 3]), st.sampled_from(["c, z", "z, c"])
)
def test_a_residual_becomes_part_of_the_convolution(
    channels, height, width, stride, pair
):
    kernel = normal(channels, 2, 1, 1)
    out = [-(-n // stride) for n in (height, width)]
    text = (
        f"g (float[2,2,{height},{width}] x, float[2,{channels},{out[0]},{out[1]}] z) => (y)"
        f" {{ c = Conv <strides = [{stride},{stride}]> (x, w) s = Add({pair}) y = Relu(s) }}"
    )
    feeds = {"x": normal(2, 2, height, width), "z": normal(2, channels, *out)}
    both = Both(model_of(text, w=kernel), feeds)
    assert both.ops == {f"{CONTRIB}FusedConv": 1}
    both.are_alike()


def test_the_sum_of_two_convolutions_takes_one_of_them_in():
    model, feeds = conv_then(
        "d = Conv <pads = [1,1,1,1]> (x, w) s = Add(c, d) y = Relu(s)"
    )
    both = Both(model, feeds)
    assert both.ops == {"Conv": 1, f"{CONTRIB}FusedConv": 1}
    both.are_alike()


def test_a_convolution_doubled_is_not_its_own_residual():
    model, feeds = conv_then("s = Add(c, c) y = Relu(s)")
    both = Both(model, feeds)
    assert both.ops["Conv"] == 1
    both.are_alike()


def test_float64_is_not_fused_for_no_kernel_has_it():
    model, feeds = conv_then("y = Relu(c)")
    for tensor in model.graph.initializer:
        _widen(tensor)
    model.graph.input[0].type.tensor_type.elem_type = 11
    both = Both(model, {"x": feeds["x"].astype(np.float64)})
    assert both.ops == {"Conv": 1, "Relu": 1}
    both.are_alike()


def _widen(tensor):
    from onnx import numpy_helper

    array = numpy_helper.to_array(tensor).astype(np.float64)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


@pytest.mark.parametrize("rows", [1, 2, 7, 40])
@pytest.mark.parametrize("name", ["none", "Relu", "swish", "gelu"])
def test_bias_residual_and_activation_become_part_of_a_product(rows, name):
    last = {"none": "y = Neg(c)", **ACTIVATIONS}[name]
    text = (
        f"g (float[2,{rows},19] x, float[2,{rows},37] z) => (y)"
        f" {{ m = MatMul(x, w) n = Add(b, m) c = Add(n, z) {last} }}"
    )
    feeds = {"x": normal(2, rows, 19), "z": normal(2, rows, 37)}
    model = model_of(text, w=normal(19, 37), b=normal(37), **with_numbers(last))
    both = Both(model, feeds)
    assert both.ops == {
        f"{OWN}FusedMatMul": 1,
        **({"Neg": 1} if name == "none" else {}),
    }
    both.are_alike(1e-4, 1e-5)


def test_a_product_of_two_values_that_are_fed_stays():
    text = "g (float[2,3] x, float[3,4] w) => (y) { m = MatMul(x, w) n = Add(m, b) y = Relu(n) }"
    both = Both(model_of(text, b=normal(4)), {"x": normal(2, 3), "w": normal(3, 4)})
    assert not both.rules
    both.are_alike()


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("rows", [1, 9])
def test_gemm_with_a_constant_matrix_is_a_product_and_a_bias(turned, rows):
    text = f"g (float[{rows},5] x) => (y) {{ m = Gemm <transB = {turned}> (x, w, b) y = Tanh(m) }}"
    w = normal(7, 5) if turned else normal(5, 7)
    both = Both(model_of(text, w=w, b=normal(7)), {"x": normal(rows, 5)})
    assert both.ops == {f"{OWN}FusedMatMul": 1}
    both.are_alike()


def test_gemm_that_scales_stays():
    text = "g (float[2,5] x) => (y) { y = Gemm <alpha = 0.5> (x, w, b) }"
    both = Both(model_of(text, w=normal(5, 7), b=normal(7)), {"x": normal(2, 5)})
    assert both.ops == {"Gemm": 1}


# -- expressions -------------------------------------------------------------------------

GELUS = (
    "h = Div(x, root) e = Erf(h) o = Add(e, one) p = Mul(x, o) y = Mul(p, half)",
    "h = Mul(inverse, x) e = Erf(h) o = Add(one, e) q = Mul(o, half) y = Mul(q, x)",
    "h = Mul(x, inverse) e = Erf(h) o = Add(e, one) q = Mul(x, half) y = Mul(q, o)",
    "h = Div(x, root) e = Erf(h) o = Add(e, one) p = Mul(x, o) y = Div(p, two)",
)
FAST = (
    "c = Pow(x, three) k = Mul(c, cubic) i = Add(x, k) s = Mul(i, scale) t = Tanh(s)"
    " o = Add(t, one) q = Mul(x, half) y = Mul(q, o)",
    "a = Mul(x, x) c = Mul(a, x) k = Mul(cubic, c) i = Add(k, x) s = Mul(scale, i)"
    " t = Tanh(s) o = Add(one, t) p = Mul(x, o) y = Mul(half, p)",
)
CONSTANTS = {
    "root": np.sqrt(2), "inverse": np.sqrt(0.5), "half": 0.5, "one": 1, "two": 2, "three": 3,
    "cubic": 0.044715, "scale": np.sqrt(2 / np.pi), "six": 6, "zero": 0,
}  # fmt: skip


def expression(text, opset=17, shape=(2, 3, 50), **changed):
    numbers = {**CONSTANTS, **changed}
    used = {n: np.array(v, np.float32) for n, v in named_in(text, numbers).items()}
    sizes = ",".join(map(str, shape))
    return model_of(f"g (float[{sizes}] x) => (y) {{ {text} }}", opset, **used)


@pytest.mark.parametrize("text", GELUS)
def test_gelu_written_with_erf_is_one_operator(text):
    both = Both(expression(text), {"x": 3 * normal(2, 3, 50)})
    assert both.ops == {f"{CONTRIB}Gelu": 1}
    both.are_alike(1e-5, 1e-6)


@pytest.mark.parametrize("text", FAST)
def test_gelu_written_with_tanh_is_one_operator(text):
    both = Both(expression(text), {"x": 3 * normal(2, 3, 50)})
    assert both.ops == {f"{CONTRIB}FastGelu": 1}
    both.are_alike(1e-4, 1e-6)


@pytest.mark.parametrize(
    "changed", [{"half": 0.51}, {"root": 1.41}, {"one": 1.0001}], ids=str
)
def test_an_expression_with_another_number_is_not_gelu(changed):
    both = Both(expression(GELUS[0], **changed), {"x": normal(2, 3, 50)})
    assert not both.rules
    both.are_alike()


@pytest.mark.parametrize(
    "text",
    [
        "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
        "a = Add(x, three) c = Clip(a, zero, six) d = Div(c, six) y = Mul(d, x)",
        "a = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x) y = Mul(x, a)",
    ],
)
@pytest.mark.parametrize(("opset", "domain"), [(12, OWN), (14, "")])
def test_hard_swish_written_out_is_one_operator_also_where_the_opset_lacks_it(
    text, opset, domain
):
    both = Both(expression(text, opset), {"x": 4 * normal(2, 3, 50)})
    assert both.ops == {f"{domain}HardSwish": 1}
    both.are_alike(1e-5, 1e-6)


def test_a_hard_sigmoid_of_another_slope_is_not_rounded_to_hard_swish():
    text = "a = HardSigmoid <alpha = 0.1667, beta = 0.5> (x) y = Mul(x, a)"
    both = Both(expression(text), {"x": normal(2, 3, 50)})
    assert both.ops == {"HardSigmoid": 1, "Mul": 1}
    both.are_alike()


def norm_text(mean, square, even):
    return f"{mean('x', 'u')} d = Sub(x, u) {square} {mean('q', 'v')} e = Add(v, eps) r = Sqrt(e) {even} s = Mul(n, w) y = Add(s, b)"


@few
@given(
    st.sampled_from([(17, ""), (12, OWN), (18, "")]),
    st.sampled_from(["q = Pow(d, two)", "q = Mul(d, d)"]),
    st.sampled_from(["n = Div(d, r)", "i = Reciprocal(r) n = Mul(d, i)"]),
    st.integers(1, 40),
)
def test_layer_normalization_written_out_is_one_operator(version, square, even, width):
    opset, domain = version

    def mean(source, target):
        if opset >= 18:
            return f"{target} = ReduceMean({source}, last)"
        return f"{target} = ReduceMean <axes = [-1]> ({source})"

    constants = {
        "w": normal(width),
        "b": normal(width),
        "eps": np.array(1e-5, np.float32),
    }
    if "two" in square:
        constants["two"] = np.array(2, np.float32)
    if opset >= 18:
        constants["last"] = np.array([-1])
    text = f"g (float[3,{width}] x) => (y) {{ {norm_text(mean, square, even)} }}"
    both = Both(model_of(text, opset, **constants), {"x": normal(3, width)})
    assert both.ops == {f"{domain}LayerNormalization": 1}
    both.are_alike(1e-4, 1e-5)


def test_a_mean_over_another_axis_is_no_layer_normalization():
    def mean(source, target):
        return f"{target} = ReduceMean <axes = [0]> ({source})"

    text = f"g (float[3,3] x) => (y) {{ {norm_text(mean, 'q = Mul(d, d)', 'n = Div(d, r)')} }}"
    model = model_of(text, w=normal(3), b=normal(3), eps=np.array(1e-5, np.float32))
    both = Both(model, {"x": normal(3, 3)})
    assert not both.rules
    both.are_alike()


def test_values_that_are_read_elsewhere_too_keep_an_expression_as_it_is():
    text = GELUS[0].replace("y = Mul(p, half)", "z = Mul(p, half) y = Add(z, e)")
    both = Both(expression(text), {"x": normal(2, 3, 50)})
    assert both.left["gelu"] == "'e' is read elsewhere too"
    both.are_alike()
