"""Generated kernels by their text: what is joined, what it computes, what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from tests.core.toys import model
from tests.cuda.plain import groups_of, nodes_of, run

from seamline.claims import collect
from seamline.constants import Constants
from seamline.devices import Device
from seamline.graph import load
from seamline.kernels import KernelProvider
from seamline.provider import Refusal, view_of
from seamline_cuda.elementwise import generated
from seamline_cuda.formulas import FORMULAS
from seamline_cuda.fusion import single, trampled
from seamline_cuda.reshaping import RESHAPING
from seamline_cuda.table import TABLE

drawn = np.random.default_rng(3)
SPECIAL = np.array(
    [0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 3e38, 1e-40, -0.4, 88.0, 0.5],
    np.float32,
)


def check(text, feeds, opset=23, rtol=2e-6):
    """Hold a model's outputs to onnx.reference, NaN and infinity in the same places."""
    got = run(text, feeds)
    reference = ReferenceEvaluator(model(text, opset))
    with np.errstate(all="ignore"):
        wanted = reference.run(None, feeds)
    for name, want in zip(reference.output_names, wanted, strict=True):
        assert got[name].dtype == want.dtype
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(got[name], want)
        else:
            np.testing.assert_allclose(
                got[name].astype(np.float64),
                want.astype(np.float64),
                rtol=rtol,
                atol=1e-7,
            )


UNARY = [
    "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "Log", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign",
    "Sin", "Softplus", "Softsign", "Sqrt", "Tanh", "Tan", "Atan", "Sinh", "Cosh", "Asinh",
    "Celu", "Selu", "Mish", "ThresholdedRelu", "Shrink",
]  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
def test_a_function_of_one_operand_is_what_the_standard_says(op):
    text = f"g (float[20] x) => (float[20] y) {{ y = {op}(x) }}"
    check(text, {"x": (drawn.standard_normal(20) * 3).astype(np.float32)})


@pytest.mark.parametrize(
    "op", ["Relu", "Abs", "Neg", "Sign", "Identity", "Sqrt", "Floor"]
)
def test_special_values_go_through_a_function_as_the_standard_says(op):
    text = f"g (float[12] x) => (float[12] y) {{ y = {op}(x) }}"
    check(text, {"x": SPECIAL})


@pytest.mark.parametrize("dtype", ["float", "int32", "int64", "uint8", "double"])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_arithmetic_keeps_its_type_and_integers_divide_towards_zero(op, dtype):
    kind = {"float": np.float32, "double": np.float64}.get(dtype) or np.dtype(dtype)
    a = np.array([7, 200, 5, 9, 100, 3]).astype(kind)
    b = np.array([2, 100, 9, 1, 7, 255 if dtype == "uint8" else -2]).astype(kind)
    if np.dtype(kind).kind != "u":
        a = a * np.array([1, -1, 1, -1, 1, 1], kind)
    text = f"g ({dtype}[6] a, {dtype}[6] b) => ({dtype}[6] y) {{ y = {op}(a, b) }}"
    with np.errstate(all="ignore"):
        check(text, {"a": a, "b": b})


@pytest.mark.parametrize(
    "op", ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]
)
def test_a_comparison_with_nan_is_false(op):
    text = f"g (float[12] a, float[12] b) => (bool[12] y) {{ y = {op}(a, b) }}"
    check(text, {"a": SPECIAL, "b": SPECIAL[::-1].copy()})


@pytest.mark.parametrize("op", ["Min", "Max"])
def test_nan_goes_through_the_least_and_the_greatest(op):
    text = f"g (float[12] a, float[12] b) => (float[12] y) {{ y = {op}(a, b) }}"
    check(text, {"a": SPECIAL, "b": np.roll(SPECIAL, 5)})


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_a_chain_in_half_precision_rounds_after_every_node(kind):
    name = {np.float16: "float16", ml_dtypes.bfloat16: "bfloat16"}[kind]
    text = f"""g ({name}[64] a, {name}[64] b) => ({name}[64] y)
        {{ t = Mul(a, b)  u = Add(t, a)  y = Sub(u, b) }}"""
    a, b = (drawn.standard_normal(64).astype(kind) for _ in range(2))
    want = ((a * b).astype(kind) + a).astype(kind) - b
    got = run(text, {"a": a, "b": b})["y"]
    assert got.view(np.uint16).tolist() == want.astype(kind).view(np.uint16).tolist()


SHAPES = [
    ((2, 3, 4), (4,)), ((2, 3, 4), (3, 1)), ((2, 3, 4), ()), ((1, 5), (4, 1)), ((3, 1, 2), (1, 7, 1)),
    ((0, 3), (3,)), ((2, 1, 3, 1, 2), (2, 4, 1, 5, 2)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_operands_broadcast_either_way(shapes):
    a, b = (drawn.standard_normal(s).astype(np.float32) for s in shapes)
    dims = [
        f"[{','.join(map(str, s))}]" if s else ""
        for s in (*shapes, np.broadcast_shapes(*shapes))
    ]
    text = f"g (float{dims[0]} a, float{dims[1]} b) => (float{dims[2]} y) {{ y = Sub(a, b) }}"
    check(text, {"a": a, "b": b})


CASTS = [
    "float",
    "float16",
    "bfloat16",
    "double",
    "int8",
    "uint8",
    "int32",
    "int64",
    "bool",
]
NUMBERS = {"float": 1, "float16": 10, "bfloat16": 16, "double": 11, "int8": 3, "uint8": 2, "int32": 6, "int64": 7, "bool": 9}  # fmt: skip


@pytest.mark.parametrize("target", CASTS)
@pytest.mark.parametrize("source", CASTS)
def test_a_cast_gives_what_numpy_gives(source, target):
    kinds = {"float": np.float32, "double": np.float64, "bfloat16": ml_dtypes.bfloat16}
    kind = kinds.get(source) or np.dtype(source)
    x = np.array([0, 1, 2.75, 100, 3.0009765, 7.5]).astype(kind)
    to = kinds.get(target) or np.dtype(target)
    text = f"g ({source}[6] x) => ({target}[6] y) {{ y = Cast<to = {NUMBERS[target]}>(x) }}"
    got = run(text, {"x": x})["y"]
    assert got.dtype == to
    assert got.tolist() == x.astype(to).tolist()


def test_where_chooses_and_clip_keeps_within_what_is_given():
    text = """g (bool[4] c, float[4] a, float b, float hi) => (float[4] y, float[4] z)
        { y = Where(c, a, b)  z = Clip(y, , hi) }"""
    feeds = {
        "c": np.array([True, False, True, False]),
        "a": np.array([1, 2, np.nan, 4], np.float32),
        "b": np.array(9, np.float32),
        "hi": np.array(3, np.float32),
    }
    got = run(text, feeds)
    np.testing.assert_array_equal(got["y"], [1, 9, np.nan, 9])
    np.testing.assert_array_equal(got["z"], [1, 3, np.nan, 3])


def test_neighbours_of_one_size_are_one_kernel_that_stores_what_is_read_outside():
    text = """g (float[8,4] x, float[4] b) => (float[8,4] y, float[8,4] t)
        { t = Add(x, b)  u = Relu(t)  v = Mul(u, u)  y = Sub(v, x) }"""
    (group,) = groups_of(text)
    assert [node.op_type for node in group.nodes] == ["Add", "Relu", "Mul", "Sub"]
    assert group.loads == ("x", "b")
    assert group.stores == ("t", "y")
    assert generated(group).forms == ("flat", "strided")
    check(
        text, {"x": drawn.standard_normal((8, 4)).astype(np.float32), "b": SPECIAL[:4]}
    )


def test_a_value_that_is_repeated_ends_the_group_that_makes_it():
    text = """g (float[4] b, float[8,4] x) => (float[8,4] y)
        { t = Relu(b)  y = Add(x, t) }"""
    first, second = groups_of(text)
    assert first.stores == ("t",)
    assert second.loads == ("x", "t")


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("count", [1, 3, 4, 7, 16])
def test_any_number_of_elements_at_once_leaves_none_out(at_once, count):
    text = f"""g (float[{count},3] x, float[3] b) => (float[{count},3] y)
        {{ t = Add(x, b)  y = Relu(t) }}"""
    x, b = drawn.standard_normal((count, 3)).astype(np.float32), SPECIAL[2:5]
    got = run(text, {"x": x, "b": b}, at_once)["y"]
    np.testing.assert_array_equal(got, np.maximum(x + b, 0))


def test_one_text_serves_every_size():
    texts = {
        generated(groups_of(f"g (float[{n},4] x, float[4] b) => (float[{n},4] y) {{ y = Add(x, b) }}")[0]).kernel.text
        for n in (2, 3, 77)
    }  # fmt: skip
    assert len(texts) == 1


def test_a_group_is_taken_apart_where_it_would_overwrite_what_others_read():
    text = "g (float[8] x, float[8] z) => (float[8] y) { t = Add(x, z)  y = Relu(t) }"
    (group,) = groups_of(text)
    made, apart = generated(group), {"x": (0, 32), "z": (64, 32), "y": (128, 32)}
    assert trampled(group, made, apart) == ""
    assert trampled(group, made, {**apart, "y": (0, 32)}) == ""  # each its own element
    assert "'y' lies over 'x'" in trampled(group, made, {**apart, "y": (16, 32)})
    assert [one.stores for one in single(group)] == [("t",), ("y",)]
    small = "g (float[8] x, float z) => (float[8] y) { t = Add(x, z)  y = Relu(t) }"
    (group,) = groups_of(small)
    over = {"x": (0, 32), "z": (64, 4), "y": (64, 32)}
    assert "'y' lies over 'z'" in trampled(group, generated(group), over)


REFUSED = {
    "string": "g (string[2] x) => (string[2] y) { y = Identity(x) }",
    "a huge result": "g (float[65536,1] x, float[65536] z) => (float[65536,65536] y) { y = Add(x, z) }",
    "complex": "g (complex64[2] x) => (complex64[2] y) { y = Add(x, x) }",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_device_has_not_is_refused_with_a_reason(what):
    provider = KernelProvider(TABLE, device=Device("cuda"))
    graph = load(model(REFUSED[what], 23))
    constants = Constants(graph)
    types = dict(collect(graph, [provider], constants).types)
    answer = provider.claim(view_of(graph.nodes[0], types, constants.get))
    assert isinstance(answer, Refusal)
    assert str(answer)


def test_every_formula_is_claimed_for_every_type_that_it_names():
    assert {*FORMULAS, *RESHAPING} <= set(TABLE.operators())
    nodes, _ = nodes_of("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    assert TABLE.find(nodes[0]).not_capturable is None
