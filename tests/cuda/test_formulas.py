"""Powers, remainders, bits, activations and versions of elementwise operators, by definition."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from tests.core.toys import model
from tests.cuda.plain import groups_of, run
from tests.cuda.test_elementwise import SPECIAL, check

from seamline.claims import collect
from seamline.constants import Constants
from seamline.devices import Device
from seamline.graph import load
from seamline.kernels import KernelProvider
from seamline.provider import Refusal, view_of
from seamline_cuda.table import TABLE

drawn = np.random.default_rng(21)
NAMES = {"float": np.float32, "double": np.float64, "bfloat16": ml_dtypes.bfloat16}
DOUBLES = [
    "Exp", "Log", "Sin", "Cos", "Tanh", "Erf", "Sqrt", "Sigmoid", "Softplus", "Gelu",
    "Elu", "Selu", "Celu", "Mish", "HardSigmoid", "HardSwish", "LeakyRelu", "Reciprocal",
    "Round", "Floor", "Softsign", "Atan",
]  # fmt: skip


def kind_of(name):
    return NAMES.get(name) or np.dtype(name)


def refusal(text, opset=23):
    """Give what the table says to the first node of a model."""
    provider = KernelProvider(TABLE, device=Device("cuda"))
    graph = load(model(text, opset))
    constants = Constants(graph)
    types = dict(collect(graph, [provider], constants).types)
    answer = provider.claim(view_of(graph.nodes[0], types, constants.get))
    assert isinstance(answer, Refusal), answer
    return str(answer)


@pytest.mark.parametrize("op", DOUBLES)
def test_a_function_of_doubles_is_computed_in_doubles(op):
    text = f"g (double[9] x) => (double[9] y) {{ y = {op}(x) }}"
    x = np.abs(drawn.standard_normal(9)) + 0.1
    # Tables of the standard's own function bodies hold some constants as float32.
    loose = 1e-7 if op in ("HardSigmoid", "HardSwish", "LeakyRelu", "Mish") else 1e-12
    check(text, {"x": x}, rtol=loose)


@pytest.mark.parametrize("op", ["Asin", "Acos", "Atanh"])
def test_a_function_has_no_value_outside_its_domain(op):
    text = f"g (float[7] x) => (float[7] y) {{ y = {op}(x) }}"
    check(text, {"x": np.array([-2, -1, -0.5, 0, 0.25, 1, np.nan], np.float32)})


@pytest.mark.parametrize(
    "op", ["Celu", "Selu", "ThresholdedRelu", "Shrink", "IsNaN", "IsInf"]
)
def test_special_values_go_through_what_the_standard_says(op):
    result = "bool" if op.startswith("Is") else "float"
    check(f"g (float[12] x) => ({result}[12] y) {{ y = {op}(x) }}", {"x": SPECIAL})


@pytest.mark.parametrize(
    ("positive", "negative", "found"),
    [(1, 1, [True, True]), (1, 0, [True, False]), (0, 1, [False, True]), (0, 0, [False, False])],
)  # fmt: skip
def test_infinity_is_looked_for_with_the_signs_asked_for(positive, negative, found):
    text = f"""g (float16[3] x) => (bool[3] y) {{ y = IsInf<detect_positive = {positive},
        detect_negative = {negative}>(x) }}"""
    x = np.array([np.inf, -np.inf, 1], np.float16)
    assert run(text, {"x": x})["y"].tolist() == [*found, False]


@pytest.mark.parametrize("exponent", ["float", "double", "int64", "int8", "float16"])
@pytest.mark.parametrize("base", ["float", "double", "float16", "int32", "int64"])
def test_a_power_has_the_type_of_its_base(base, exponent):
    x = np.array([2, 3, -2, 5, 0, -1, 7]).astype(kind_of(base))
    y = np.array([3, 0, 5, 2, 4, 3, 1]).astype(kind_of(exponent))
    text = f"g ({base}[7] x, {exponent}[7] p) => ({base}[7] y) {{ y = Pow(x, p) }}"
    got = run(text, {"x": x, "p": y})["y"]
    assert got.dtype == x.dtype
    assert got.tolist() == [8, 1, -32, 25, 0, -1, 7]


@pytest.mark.parametrize("value", [0.0, 1.0, 2.0, 3.0, 0.5, -1.0, -0.5, 2.5])
def test_a_constant_exponent_gives_the_special_values_of_a_power(value):
    text = (
        f"g (float[12] x) => (float[12] y) <float p = {{{value}}}> {{ y = Pow(x, p) }}"
    )
    with np.errstate(all="ignore"):
        want = np.power(SPECIAL, np.full(12, value, np.float32))
    got = run(text, {"x": SPECIAL, "p": np.float32(value)})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert np.signbit(got[:2]).tolist() == np.signbit(want[:2]).tolist()


def test_integers_wrap_in_a_power_and_cut_a_negative_one_to_a_whole():
    text = "g (int64[6] x, int64[6] p) => (int64[6] y) { y = Pow(x, p) }"
    feeds = {"x": np.array([3, 10, 1, -1, -1, 2]), "p": np.array([41, 25, -3, -3, -2, -1])}  # fmt: skip
    want = [(3**41 + 2**63) % 2**64 - 2**63, (10**25 + 2**63) % 2**64 - 2**63, 1, -1, 1, 0]  # fmt: skip
    assert run(text, feeds)["y"].tolist() == want


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32"])
def test_a_remainder_has_the_sign_that_is_asked_for(dtype, fmod):
    a, b = np.array([7, 7, 5, 100]), np.array([3, 2, 5, 7])
    if np.dtype(dtype).kind == "i":
        a, b = a * [1, -1, -1, -1], b * [-1, 1, 1, -1]
    text = f"g ({dtype}[4] a, {dtype}[4] b) => ({dtype}[4] y) {{ y = Mod<fmod = {fmod}>(a, b) }}"
    check(text, {"a": a.astype(dtype), "b": b.astype(dtype)})


@pytest.mark.parametrize("dtype", ["float", "double", "float16"])
def test_a_remainder_of_floats_has_either_sign_too(dtype):
    a, b = (np.array(v).astype(kind_of(dtype)) for v in ([5.5, -5.5, 3], [2, 2, -4]))
    text = f"g ({dtype}[3] a, {dtype}[3] b) => ({dtype}[3] y) {{ y = Mod<fmod = 1>(a, b) }}"
    assert run(text, {"a": a, "b": b})["y"].tolist() == [1.5, -1.5, 3]
    whole = text.replace("<fmod = 1>", "")
    assert run(whole, {"a": a, "b": b})["y"].tolist() == [1.5, 0.5, -1]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int64"])  # fmt: skip
def test_bits_are_those_of_the_type(dtype):
    text = f"""g ({dtype}[4] a, {dtype}[4] b) => ({dtype}[4] w, {dtype}[4] x, {dtype}[4] y,
        {dtype}[4] z) {{ w = BitwiseAnd(a, b) x = BitwiseOr(a, b) y = BitwiseXor(a, b)
        z = BitwiseNot(a) }}"""
    a, b = (np.array(v).astype(dtype) for v in ([0, 1, 85, 127], [3, 2, 102, 1]))
    check(text, {"a": a, "b": b})


@pytest.mark.parametrize("way", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_a_shift_by_more_than_there_are_bits_leaves_nothing(dtype, way):
    bits = 8 * np.dtype(dtype).itemsize
    a = np.array([200, 3, 255, 1], dtype)
    b = np.array([1, bits - 1, bits, bits + 3], dtype)
    text = f"""g ({dtype}[4] a, {dtype}[4] b) => ({dtype}[4] y)
        {{ y = BitShift<direction = "{way}">(a, b) }}"""
    got = run(text, {"a": a, "b": b})["y"].tolist()
    want = [
        (int(x) << int(n)) % 2**bits if way == "LEFT" else int(x) >> int(n)
        for x, n in zip(a, b, strict=True)
    ]
    assert got == want


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_a_shift_of_signed_numbers_keeps_the_sign_to_the_right(dtype):
    bits = 8 * np.dtype(dtype).itemsize
    a = np.array([-7, 9, -1, 5, -3], dtype)
    b = np.array([1, 2, bits, -1, bits - 1], dtype)
    text = f"""g ({dtype}[5] a, {dtype}[5] b) => ({dtype}[5] y, {dtype}[5] z)
        {{ y = BitShift<direction = "RIGHT">(a, b) z = BitShift<direction = "LEFT">(a, b) }}"""
    got = run(text, {"a": a, "b": b})
    assert got["y"].tolist() == [-4, 2, -1, 0, -1]
    assert got["z"].tolist() == [-14, 36, 0, 0, -(2 ** (bits - 1))]


def test_a_slope_for_each_channel_is_of_what_lies_below_0():
    text = "g (float[2,3,4] x, float[3,1] s) => (float[2,3,4] y) { y = PRelu(x, s) }"
    x, s = drawn.standard_normal((2, 3, 4)), drawn.standard_normal((3, 1))
    check(text, {"x": x.astype(np.float32), "s": s.astype(np.float32)})


def test_a_mean_is_of_all_operands_and_a_swish_has_its_own_slope():
    text = (
        "g (float[4] a, float[2,4] b, float c) => (float[2,4] y) { y = Mean(a, b, c) }"
    )
    a, b = np.arange(4, dtype=np.float32), np.ones((2, 4), np.float32)
    got = run(text, {"a": a, "b": b, "c": np.float32(3)})["y"]
    np.testing.assert_allclose(got, np.tile((a + 4) / 3, (2, 1)), rtol=1e-6)
    x = drawn.standard_normal(6).astype(np.float32)
    text = "g (float[6] x) => (float[6] y) { y = Swish<alpha = 2.0>(x) }"
    want = x / (1 + np.exp(-2 * x.astype(np.float64)))
    np.testing.assert_allclose(run(text, {"x": x}, opset=24)["y"], want, rtol=1e-6)


def erf(x):
    return np.array([math.erf(v) for v in x.ravel()]).reshape(x.shape)


CONTRIB = {
    "Gelu(x)": lambda x, b: x / 2 * (1 + erf(x / math.sqrt(2))),
    "BiasGelu(x, b)": lambda x, b: (x + b) / 2 * (1 + erf((x + b) / math.sqrt(2))),
    "QuickGelu(x)": lambda x, b: x / (1 + np.exp(-1.702 * x)),
    "QuickGelu<alpha = 3.0>(x)": lambda x, b: x / (1 + np.exp(-3 * x)),
    "FastGelu(x)": lambda x, b: (
        x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "FastGelu(x, b)": lambda x, b: CONTRIB["FastGelu(x)"](x + b, b),
}


@pytest.mark.parametrize("form", CONTRIB)
def test_an_activation_of_onnxruntime_is_what_its_documentation_says(form):
    text = (
        f"g (float[3,8] x, float[8] b) => (float[3,8] y) {{ y = com.microsoft.{form} }}"
    )
    x, b = drawn.standard_normal((3, 8)), drawn.standard_normal(8)
    feeds = {"x": x.astype(np.float32), "b": b.astype(np.float32)}
    want = CONTRIB[form](feeds["x"].astype(np.float64), feeds["b"].astype(np.float64))
    np.testing.assert_allclose(run(text, feeds)["y"], want, rtol=1e-5, atol=1e-6)


def test_limits_in_attributes_are_those_of_older_versions():
    text = "g (float[12] x) => (float[12] y) { y = Clip<min = -1.0, max = 2.0>(x) }"
    got = run(text, {"x": SPECIAL}, opset=10)["y"]
    np.testing.assert_array_equal(got, np.clip(SPECIAL, -1, 2))
    text = text.replace("min = -1.0, ", "")
    np.testing.assert_array_equal(
        run(text, {"x": SPECIAL}, opset=10)["y"], np.minimum(SPECIAL, 2)
    )


def test_casts_choices_and_numbers_of_other_widths_stay_one_kernel():
    text = """g (float[4,8] x, int64[4,8] n, bool[8] m) => (float16[4,8] y)
        { a = Cast<to = 7>(x)  b = Add(a, n)  c = Less(b, n)  d = Or(c, m)
          e = CastLike(b, x)  f = Where(d, e, x)  y = Cast<to = 10>(f) }"""
    (group,) = groups_of(text)
    assert group.stores == ("y",)
    assert group.loads == ("x", "n", "m")
    x = (drawn.standard_normal((4, 8)) * 9).astype(np.float32)
    n, m = drawn.integers(-9, 9, (4, 8)), drawn.standard_normal(8) > 0
    total = x.astype(np.int64) + n
    want = np.where((total < n) | m, total.astype(np.float32), x).astype(np.float16)
    np.testing.assert_array_equal(run(text, {"x": x, "n": n, "m": m})["y"], want)


def test_a_type_alone_is_not_read_so_its_operand_may_have_any_size():
    text = (
        "g (float[3] x, float16[0,7] like) => (float16[3] y) { y = CastLike(x, like) }"
    )
    (group,) = groups_of(text)
    assert group.loads == ("x",)
    x = np.array([1.5, 2.25, 70000], np.float32)
    got = run(text, {"x": x})["y"]
    assert got.dtype == np.float16
    assert got.tolist() == [1.5, 2.25, np.inf]


def test_dropout_passes_its_input_and_is_refused_where_it_may_train():
    text = "g (float[3] x) => (float[3] y) { y = Dropout(x) }"
    assert run(text, {"x": SPECIAL[2:5]})["y"].tolist() == SPECIAL[2:5].tolist()
    trains = "g (float[3] x, float r, bool t) => (float[3] y) { y = Dropout(x, r, t) }"
    assert "training_mode is not known" in refusal(trains)
    drawing = "g (float[3] x) => (float[3] y, bool[3] m) { y, m = Dropout(x) }"
    assert "a mask is drawn" in refusal(drawing)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int64"])
def test_a_magnitude_of_whole_numbers_keeps_their_type(dtype):
    ends = np.iinfo(dtype)
    x = np.array([ends.min + (ends.min < 0), 0, 1, ends.max], dtype)
    got = run(f"g ({dtype}[4] x) => ({dtype}[4] y) {{ y = Abs(x) }}", {"x": x})["y"]
    assert got.dtype == x.dtype
    assert got.tolist() == [abs(int(one)) for one in x]
