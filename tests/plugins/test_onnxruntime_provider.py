"""The provider ``onnxruntime``: honest claims, segments built whole, results in place."""

from __future__ import annotations

import gc
import importlib.util

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.node_cases import Kept, view_of_node
from tests.plugins.segments import run_segment, segment_of

from seamline.errors import BuildError, ContractError, KernelError, RecordingError
from seamline.pipeline import Pipeline
from seamline.provider import Claim, Executable, NodeView, Provider, Refusal
from seamline.tensors import TensorType

pytest.importorskip("onnxruntime")

from seamline_onnxruntime import plugin
from seamline_onnxruntime.model import model_of
from seamline_onnxruntime.provider import OnnxRuntimeProvider

HEAD = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>\n'


@pytest.fixture
def provider():
    made = OnnxRuntimeProvider({"num_threads": 1})
    yield made
    made.close()


def view(op, inputs, outputs, *, opset=21, constant=(), **attributes):
    domain = attributes.pop("domain", "")
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = helper.make_node(
        op, names, [f"y{i}" for i in range(len(outputs))], name="node", **attributes
    )
    node.domain = domain
    return view_of_node(node, inputs, outputs, opset, constant)


def f32(*shape):
    return np.linspace(-2, 3, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def run(provider, text, feeds, **options):
    spec = segment_of(text, **options)
    executable = provider.build(spec, Kept())
    assert isinstance(executable, Executable)
    return run_segment(executable, spec, feeds)


def test_it_is_a_provider_that_finds_its_own_room(provider):
    assert isinstance(provider, Provider)
    assert provider.owns_intermediates
    assert not provider.captures


def test_the_probe_says_how_to_fix_a_missing_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (spec,) = plugin.seamline_providers()
    answer = spec.probe()
    assert not answer.usable
    assert answer.fix == "pip install onnxruntime"


def test_onnxruntimes_own_name_is_left_to_cpu():
    (spec,) = plugin.seamline_providers()
    assert spec.aliases == ()


# --- claims ---------------------------------------------------------------------------


def test_a_node_with_a_kernel_is_claimed_and_cannot_be_captured(provider):
    claim = provider.claim(view("Relu", [f32(2, 3)], [f32(2, 3)]))
    assert isinstance(claim, Claim)
    assert claim.not_capturable
    assert not claim.sizes_at_run


def test_a_type_without_a_kernel_is_refused_with_the_types_that_have_one(provider):
    x = np.zeros(3, ml_dtypes.bfloat16)
    refusal = provider.claim(view("Relu", [x], [x]))
    assert isinstance(refusal, Refusal)
    assert "Relu(14)" in refusal.because
    assert "float" in refusal.accepts
    assert "bfloat16" not in refusal.accepts


def test_an_unknown_operator_is_refused(provider):
    refusal = provider.claim(view("Bogus", [f32(2)], [f32(2)]))
    assert isinstance(refusal, Refusal)
    assert "Bogus" in refusal.because


def test_an_unknown_attribute_is_refused_by_name(provider):
    refusal = provider.claim(view("Relu", [f32(2)], [f32(2)], slope=2.0))
    assert isinstance(refusal, Refusal)
    assert "slope" in refusal.because


def test_an_operator_defined_by_a_function_is_claimed(provider):
    assert isinstance(provider.claim(view("Celu", [f32(2)], [f32(2)])), Claim)


def test_a_float16_node_without_its_own_kernel_says_that_it_is_cast(provider):
    x = np.zeros((1, 1, 3, 3), np.float16)
    claim = provider.claim(view("Conv", [x, x], [np.zeros((1, 1, 1, 1), np.float16)]))
    assert isinstance(claim, Claim)
    assert "float32" in claim.because


def test_data_decides_the_size_of_nonzero(provider):
    claim = provider.claim(view("NonZero", [f32(2, 3)], [np.zeros((2, 5), np.int64)]))
    assert isinstance(claim, Claim)
    assert claim.sizes_at_run


def test_sizes_that_planning_will_find_are_not_left_to_the_run(provider):
    text = (
        HEAD + "g (float[2, 6] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }"
    )
    assert not provider.claim(segment_of(text, sizes=False).nodes[0]).sizes_at_run


def test_an_own_operator_whose_rank_nobody_knows_is_sized_at_run(provider):
    x = f32(2, 3)
    node = view("Gelu", [x], [x], domain="com.microsoft", opset=1)
    unknown = NodeView(
        node.node, node.inputs, (TensorType("float32", None),), node.constants
    )
    assert not provider.claim(node).sizes_at_run
    assert provider.claim(unknown).sizes_at_run


def test_four_bit_values_are_taken_only_as_constants(provider):
    x = np.zeros(4, ml_dtypes.int4)
    scale, y = np.float32(1), f32(4)
    assert isinstance(
        provider.claim(view("DequantizeLinear", [x, scale], [y], constant=(0,))), Claim
    )
    refusal = provider.claim(view("DequantizeLinear", [x, scale], [y]))
    assert isinstance(refusal, Refusal)
    assert "int4" in refusal.because


def test_a_claim_is_asked_of_onnxruntime_once_for_nodes_alike(provider, monkeypatch):
    loads = []
    real = provider._trials._load
    monkeypatch.setattr(
        provider._trials, "_load", lambda *a: loads.append(1) or real(*a)
    )
    for shape in ((2, 3), (4, 5)):
        provider.claim(view("Relu", [f32(*shape)], [f32(*shape)]))
    provider.claim(view("LeakyRelu", [f32(2)], [f32(2)], alpha=0.1))
    provider.claim(view("LeakyRelu", [f32(2)], [f32(2)], alpha=0.2))
    assert len(loads) == 3


def test_output_types_of_its_own_operators_are_inferred(provider):
    node = view("Gelu", [f32(2, 3)], [f32(2, 3)], domain="com.microsoft", opset=1)
    assert provider.infer(node) == (TensorType("float32", (2, 3)),)


def test_types_of_an_unknown_operator_are_not_guessed(provider):
    assert provider.infer(view("Bogus", [f32(2)], [f32(2)])) is None


# --- segments -------------------------------------------------------------------------


def test_a_segment_runs_as_one_model_and_writes_in_place(provider):
    text = HEAD + (
        "g (float[2, 3] x) => (float[2, 3] a, float[2, 3] c)\n"
        "<float[3] w = {1.0, -2.0, 0.5}>\n"
        "{ a = Add(x, w)  b = Relu(a)  c = Mul(b, w) }"
    )
    x = f32(2, 3)
    w = np.array([1, -2, 0.5], np.float32)
    got = run(provider, text, {"x": x})
    np.testing.assert_array_equal(got["a"], x + w)
    np.testing.assert_array_equal(got["c"], np.maximum(x + w, 0) * w)


def test_changed_inputs_at_the_same_address_change_the_outputs(provider):
    spec = segment_of(HEAD + "g (float[3] x) => (float[3] y) { y = Neg(x) }")
    executable = provider.build(spec, Kept())
    views = {"x": f32(3), "y": np.zeros(3, np.float32)}
    executable.bind(views, {})
    executable.run()
    views["x"][:] = (7, 8, 9)
    executable.run()
    np.testing.assert_array_equal(views["y"], [-7, -8, -9])


def test_a_large_weight_is_read_where_it_lies(provider):
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 64))],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    spec = segment_of(model)
    made = model_of(spec)
    assert made.proto.ByteSize() < weight.nbytes / 8
    assert np.shares_memory(made.outside["w"], spec.nodes[0].constant(1))
    executable = provider.build(spec, Kept())
    x = f32(2, 64)
    got = run_segment(executable, spec, {"x": x})["y"]
    np.testing.assert_allclose(got, x.astype(np.float64) @ weight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "bool", "uint16"]
)
def test_types_that_numpy_lacks_cross_the_edge_bit_for_bit(provider, name):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    x = np.arange(8).astype(dtype)
    text = (
        HEAD
        + f"g ({name.replace('_', '')}[8] x) => ({name.replace('_', '')}[8] y) {{ y = Identity(x) }}"
    )
    got = run(provider, text, {"x": x})["y"]
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.view(np.uint8), x.view(np.uint8))


def test_large_bfloat16_constants_stay_outside_the_model(provider):
    weight = np.arange(4096).astype(ml_dtypes.bfloat16)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "i"], ["y"])],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, (3,))],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, (3,))],
        [numpy_helper.from_array(weight, "w")],
    )
    spec = segment_of(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    )
    executable = provider.build(spec, Kept())
    got = run_segment(executable, spec, {"i": np.array([0, 255, 16])})["y"]
    np.testing.assert_array_equal(got.astype(np.float32), [0, 255, 16])


def test_a_strided_constant_outlives_the_build(provider):
    strided = np.arange(64 * 64, dtype=np.float32).reshape(64, 64).T
    matrix = TensorType("float32", (64, 64))
    text = (
        HEAD
        + "g (float[64, 64] x, float[64, 64] w) => (float[64, 64] y) { y = Mul(x, w) }"
    )
    made = segment_of(text)
    node = NodeView(made.nodes[0].node, (matrix, matrix), (matrix,), {"w": strided}.get)
    spec = type(made)(made.name, (node,), ("x",), ("y",), made.opsets)
    executable = provider.build(spec, Kept())
    gc.collect()
    clutter = [np.full((64, 64), 9, np.float32) for _ in range(50)]
    views = {"x": np.ones((64, 64), np.float32), "y": np.zeros((64, 64), np.float32)}
    executable.bind(views, {})
    executable.run()
    np.testing.assert_array_equal(views["y"], strided)
    assert len(clutter) == 50


def test_four_bit_constants_are_packed_for_onnxruntime(provider):
    weight = np.array([-8, -1, 0, 7, 3], ml_dtypes.int4)
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
            helper.make_node("Add", ["d", "x"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (5,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (5,))],
        [
            helper.make_tensor("w", TensorProto.INT4, (5,), weight.astype(np.int8)),
            numpy_helper.from_array(np.float32(0.5), "s"),
        ],
    )
    spec = segment_of(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    )
    got = run_segment(
        provider.build(spec, Kept()), spec, {"x": np.ones(5, np.float32)}
    )["y"]
    np.testing.assert_array_equal(got, [-3, 0.5, 1, 4.5, 2.5])


def test_strings_come_out_as_objects(provider):
    text = HEAD + (
        'g (string[2] x) => (string[2] y) <string[2] w = {"-b", "-é"}> { y = StringConcat(x, w) }'
    )
    x = np.array(["ä", ""], dtype=object)
    got = run(provider, text, {"x": x})["y"]
    assert got.dtype == object
    assert got.tolist() == ["ä-b", "-é"]


def test_zero_sized_values_pass(provider):
    got = run(
        provider,
        HEAD + "g (float[0, 3] x) => (float[0, 3] y) { y = Relu(x) }",
        {"x": f32(0, 3)},
    )
    assert got["y"].shape == (0, 3)


def test_outputs_sized_at_run_are_given_by_name(provider):
    text = HEAD + "g (bool[2, 3] x) => (int64[2, n] y) { y = NonZero(x) }"
    x = np.array([[0, 1, 1], [1, 0, 0]], bool)
    got = run(provider, text, {"x": x})["y"]
    np.testing.assert_array_equal(got, np.array(np.nonzero(x)))


def test_an_empty_output_sized_at_run_keeps_its_type(provider):
    text = HEAD + "g (bool[2, 3] x) => (int64[2, n] y) { y = NonZero(x) }"
    got = run(provider, text, {"x": np.zeros((2, 3), bool)})["y"]
    assert got.shape == (2, 0)
    assert got.dtype == np.int64


def test_operators_of_other_domains_bring_their_import(provider):
    text = (
        HEAD
        + "g (float[4] x) => (float[4] y) { a = Neg(x) y = com.microsoft.FastGelu(a) }"
    )
    spec = segment_of(text, sizes=False)
    got = run_segment(provider.build(spec, Kept()), spec, {"x": f32(4)})["y"]
    z = -f32(4).astype(np.float64)
    want = 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# --- failures -------------------------------------------------------------------------


def test_a_value_that_nothing_gives_is_a_broken_contract(provider):
    spec = segment_of(
        HEAD + "g (float[3] x, float[3] z) => (float[3] y) { y = Add(x, z) }"
    )
    broken = type(spec)(spec.name, spec.nodes, ("x",), spec.outputs, spec.opsets)
    with pytest.raises(ContractError, match="nothing gives 'z'"):
        provider.build(broken, Kept())


def test_a_build_that_fails_names_the_node(provider):
    text = HEAD + (
        "g (float[3] x) => (float[3] y) { a = Neg(x) [odd] b = Bogus(a) y = Relu(b) }"
    )
    spec = segment_of(text, sizes=False)
    with pytest.raises(BuildError) as caught:
        provider.build(spec, Kept())
    assert caught.value.node == spec.nodes[1].name
    assert caught.value.segment == "s0"


def test_data_that_a_kernel_refuses_names_the_node(provider):
    text = (
        HEAD
        + "g (float[3] x, int64[1] i) => (float[1] y) { a = Neg(x) y = Gather(a, i) }"
    )
    spec = segment_of(text)
    executable = provider.build(spec, Kept())
    with pytest.raises(KernelError) as caught:
        run_segment(executable, spec, {"x": f32(3), "i": np.array([9])})
    assert caught.value.node == spec.nodes[1].name
    assert caught.value.provider == "onnxruntime"


def test_recording_is_refused_with_a_reason(provider):
    spec = segment_of(HEAD + "g (float[3] x) => (float[3] y) { y = Neg(x) }")
    with pytest.raises(RecordingError, match="cannot be recorded"):
        provider.build(spec, Kept()).record()


def test_running_before_binding_says_so(provider):
    spec = segment_of(HEAD + "g (float[3] x) => (float[3] y) { y = Neg(x) }")
    with pytest.raises(ContractError, match="not bound"):
        provider.build(spec, Kept()).run()


def test_closing_twice_does_nothing(provider):
    spec = segment_of(HEAD + "g (float[3] x) => (float[3] y) { y = Neg(x) }")
    executable = provider.build(spec, Kept())
    executable.close()
    executable.close()


@pytest.mark.parametrize("level", ["disabled", "basic", "extended", "all"])
def test_every_optimization_level_gives_the_same_answer(level):
    made = OnnxRuntimeProvider({"graph_optimization_level": level, "num_threads": 1})
    text = (
        HEAD
        + "g (float[2, 2] x) => (float[2, 2] y) { a = MatMul(x, x) b = Add(a, x) y = Relu(b) }"
    )
    x = f32(2, 2)
    got = run(made, text, {"x": x})["y"]
    np.testing.assert_allclose(got, np.maximum(x @ x + x, 0), rtol=1e-6)


def test_a_node_that_reads_one_value_twice_is_built(provider):
    got = run(
        provider,
        HEAD + "g (float[3] x) => (float[3] y) { y = Mul(x, x) }",
        {"x": f32(3)},
    )
    np.testing.assert_array_equal(got["y"], f32(3) ** 2)


def test_the_checker_accepts_the_models_that_it_makes(provider):
    spec = segment_of(
        HEAD
        + "g (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }"
    )
    onnx.checker.check_model(model_of(spec).proto)


@pytest.mark.parametrize(
    ("asked", "wanted"), [("a,", [0, 1]), (",b", [2, 3]), ("a,,", [0, 1]), (",,c", [])]
)
def test_a_piece_of_a_split_may_be_left_out(asked, wanted):
    names = asked.split(",")
    node = helper.make_node("Split", ["x"], names, axis=0, num_outputs=len(names))
    (name,) = filter(None, names)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 1, [4])],
        [helper.make_tensor_value_info(name, 1, [len(wanted)])],
    )
    source = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10
    )
    pipeline = Pipeline.open(source, providers=["onnxruntime"])
    (got,) = pipeline.run({"x": np.arange(4, dtype=np.float32)})
    pipeline.close()
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("opset", [16, 21])
def test_a_body_that_later_opsets_do_not_have_is_refused(provider, opset):
    x = np.float64([-2, 3])
    said = provider.claim(view("LeakyRelu", [x], [x], opset=opset))
    assert isinstance(said, Refusal)
    assert "in models of later opsets" in said.because


def test_a_body_that_every_opset_has_is_claimed_and_built(provider):
    x = f32(2)
    assert isinstance(provider.claim(view("Celu", [x], [x], opset=21)), Claim)
    text = HEAD + "g (float[2] x) => (float[2] y) { y = Celu(x) }"
    (got,) = run(provider, text, {"x": x}).values()
    want = np.maximum(x, 0) + np.minimum(0, np.expm1(x))
    np.testing.assert_allclose(got, want, rtol=1e-6)
