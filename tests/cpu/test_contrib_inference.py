"""Sizes of onnxruntime's operators are known at planning, and are what the kernels give."""

from __future__ import annotations

import numpy as np
import onnx.helper as oh
import pytest
from onnx import numpy_helper
from tests.cpu.movement import node_of, peer
from tests.node_cases import view_of_node

from seamline.pipeline import Pipeline
from seamline.planned import Segment
from seamline.provider import NodeView
from seamline.tensors import TensorType
from seamline_cpu.kernels import TABLE

R = np.random.default_rng(7)
DOMAIN = "com.microsoft"


def floats(*shape):
    return R.standard_normal(shape).astype(np.float32)


def whole(high, *shape):
    return R.integers(0, high, shape).astype(np.uint8)


def tables():
    return floats(20, 8), floats(20, 8)


X = floats(2, 3, 16)
QKV = {"num_heads": 4, "domain": DOMAIN}
GQA = {"num_heads": 4, "kv_num_heads": 2, "domain": DOMAIN}
LENGTH = np.array([4, 4], np.int32)
CASES = {
    "MatMulNBits": (
        "MatMulNBits",
        [X, whole(255, 5, 1, 8), floats(5)],
        1,
        {"K": 16, "N": 5, "bits": 4, "block_size": 16},
    ),
    "GatherBlockQuantized": (
        "GatherBlockQuantized",
        [whole(255, 7, 16), np.array([[1, 6]]), floats(7, 2)],
        1,
        {"bits": 4, "block_size": 16, "gather_axis": 0, "quantize_axis": 1},
    ),
    "MatMulBnb4": (
        "MatMulBnb4",
        [X, whole(255, 5 * 8), floats(5)],
        1,
        {"K": 16, "N": 5, "block_size": 16, "quant_type": 1},
    ),
    "QMoE": (
        "QMoE",
        [X, floats(6, 3), whole(255, 3, 16, 8), floats(3, 16), None, whole(255, 3, 16, 8),
         floats(3, 16)],
        1,
        {"k": 2, "expert_weight_bits": 4},
    ),
    "MoE": (
        "MoE",
        [X, floats(6, 3), floats(3, 5, 16), None, floats(3, 16, 5)],
        1,
        {"k": 2},
    ),
    "SkipLayerNormalization": (
        "SkipLayerNormalization",
        [X, X, floats(16), floats(16), floats(16)],
        (0, 3),
        {"epsilon": 1e-5},
    ),
    "SkipSimplifiedLayerNormalization": (
        "SkipSimplifiedLayerNormalization",
        [X, X, floats(16)],
        (0, 3),
        {"epsilon": 1e-5},
    ),
    "FusedConv": (
        "FusedConv",
        [floats(1, 3, 8, 8), floats(4, 3, 3, 3), floats(4)],
        1,
        {"activation": "Relu", "pads": [1, 0, 1, 0], "strides": [2, 1]},
    ),
    "FusedMatMul": ("FusedMatMul", [floats(3, 4, 5), floats(6, 5)], 1, {"transB": 1}),
    "FusedMatMul by batch": (
        "FusedMatMul",
        [floats(4, 2, 3), floats(2, 3, 5)],
        1,
        {"transBatchA": 1},
    ),
    "FusedMatMul broadcast": ("FusedMatMul", [floats(1, 4, 5), floats(3, 5, 6)], 1, {}),
    "DynamicQuantizeLSTM": (
        "DynamicQuantizeLSTM",
        [floats(3, 2, 4), whole(127, 2, 4, 20), whole(127, 2, 5, 20), floats(2, 40), None,
         None, None, None, floats(2), np.zeros(2, np.uint8), floats(2),
         np.zeros(2, np.uint8)],
        3,
        {"direction": "bidirectional", "hidden_size": 5},
    ),
    "DynamicQuantizeMatMul": (
        "DynamicQuantizeMatMul",
        [X, whole(127, 16, 5), floats(5)],
        1,
        {},
    ),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat",
        [whole(255, 2, 3, 16), whole(127, 16, 5), floats(1), floats(5)],
        1,
        {},
    ),
    "Gelu": ("Gelu", [X], 1, {}),
    "FastGelu": ("FastGelu", [X, floats(16)], 1, {}),
    "QuickGelu": ("QuickGelu", [X], 1, {"alpha": 1.5}),
    "BiasGelu": ("BiasGelu", [X, floats(16)], 1, {}),
    "RotaryEmbedding": (
        "RotaryEmbedding",
        [X, np.array([3], np.int64), *tables()],
        1,
        {},
    ),
    "MultiHeadAttention": (
        "MultiHeadAttention",
        [X, floats(2, 5, 16), floats(2, 5, 24)],
        1,
        QKV,
    ),
    "MultiHeadAttention by head": (
        "MultiHeadAttention",
        [X, floats(2, 4, 5, 4), floats(2, 4, 5, 4)],
        1,
        QKV,
    ),
    "MultiHeadAttention cached": (
        "MultiHeadAttention",
        [X, X, X, None, None, None, floats(2, 4, 5, 4), floats(2, 4, 5, 4)],
        3,
        QKV,
    ),
    "Attention": ("Attention", [X, floats(16, 36), floats(36)], 1, QKV),
    "Attention cached": (
        "Attention",
        [X, floats(16, 48), floats(48), None, floats(2, 2, 4, 5, 4)],
        2,
        {**QKV, "unidirectional": 1},
    ),
    "Attention of sizes": (
        "Attention",
        [X, floats(16, 40), floats(40)],
        1,
        {**QKV, "qkv_hidden_sizes": [16, 16, 8]},
    ),
    "GroupQueryAttention": (
        "GroupQueryAttention",
        [floats(2, 5, 64), floats(2, 5, 32), floats(2, 5, 32), None, None, LENGTH,
         np.array(5, np.int32)],
        3,
        GQA,
    ),
    "GroupQueryAttention packed": (
        "GroupQueryAttention",
        [floats(2, 1, 128), None, None, floats(2, 2, 4, 16), floats(2, 2, 4, 16),
         LENGTH, np.array(5, np.int32)],
        3,
        GQA,
    ),
    "GroupQueryAttention shared": (
        "GroupQueryAttention",
        [floats(2, 1, 128), None, None, floats(2, 2, 9, 16), floats(2, 2, 9, 16),
         LENGTH, np.array(5, np.int32)],
        3,
        GQA,
    ),
}  # fmt: skip


CODES = whole(255, 2, 3, 8, 7)
POINTS = [np.array(0.1, np.float32), np.array(3, np.uint8)] * 3
#: Operators over bytes: their inputs of several axes are fed.
OF_BYTES = {
    "QLinearAdd": ([CODES, *POINTS[:2], whole(255, 3, 1, 7), *POINTS[:4]], {}),
    "QLinearMul": ([CODES, *POINTS[:2], whole(255, 4, 1, 3, 1, 7), *POINTS[:4]], {}),
    "QLinearSigmoid": ([CODES, *POINTS[:4]], {}),
    "QLinearLeakyRelu": ([CODES, *POINTS[:4]], {}),
    "QLinearConcat": ([*POINTS[:2], CODES, *POINTS[:2], whole(255, 2, 5, 8, 7), *POINTS[:2]], {"axis": 1}),
    "QLinearGlobalAveragePool": ([CODES, *POINTS[:4]], {}),
    "QLinearAveragePool": ([CODES, *POINTS[:4]], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1}),
    "QLinearConv": ([CODES, *POINTS[:2], whole(255, 4, 3, 3, 3), *POINTS[:4]], {"strides": [2, 1], "pads": [1, 1, 0, 1]}),
    "QGemm": ([whole(255, 4, 9), *POINTS[:2], whole(255, 6, 9), *POINTS[:2], None, *POINTS[:2]], {"transB": 1}),
}  # fmt: skip


@pytest.mark.parametrize("op", OF_BYTES)
def test_sizes_of_bytes_are_known_at_planning_and_are_onnxruntimes(op):
    inputs, attributes = OF_BYTES[op]
    model, feeds = model_of(op, inputs, 1, attributes, np.uint8)
    pipeline = Pipeline.open(model, providers=["cpu"])
    plan = pipeline.plan({n: x.shape for n, x in feeds.items()})
    (got,) = pipeline.run(feeds)
    pipeline.close()
    (want,) = peer(op, inputs, opset=21, domain=DOMAIN, **attributes)
    assert plan.types["y0"] == TensorType("uint8", want.shape)
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
    steps = [step for step in plan.steps if isinstance(step, Segment)]
    assert [step.sizes_at_run for step in steps] == [False]


def model_of(op, inputs, outputs, attributes, kind=np.float32):
    """Make a model whose floats, or other arrays of axes, are fed; all else is constant."""
    attributes = {k: v for k, v in attributes.items() if k != "domain"}
    node = node_of(op, inputs, outputs, DOMAIN, **attributes)
    given, constants, feeds = [], [], {}
    for name, x in zip(node.input, inputs, strict=True):
        if x is None:
            continue
        packed = op in ("QLinearConv", "QGemm") and name == "x3"
        if x.dtype == kind and (kind == np.float32 or x.ndim > 1) and not packed:
            sizes = [f"{name}_{i}" for i in range(x.ndim)]
            dtype = oh.np_dtype_to_tensor_dtype(x.dtype)
            given.append(oh.make_tensor_value_info(name, dtype, sizes))
            feeds[name] = x
        else:
            constants.append(numpy_helper.from_array(x, name))
    results = [oh.make_empty_tensor_value_info(n) for n in node.output if n]
    graph = oh.make_graph([node], "g", given, results, constants)
    imports = [oh.make_opsetid("", 21), oh.make_opsetid(DOMAIN, 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=10), feeds


def shapes_of(case):
    op, inputs, outputs, attributes = case
    attributes = {k: v for k, v in attributes.items() if k != "domain"}
    found = peer(op, inputs, opset=21, outputs=outputs, domain=DOMAIN, **attributes)
    return [x.shape for x in found if x is not None]


@pytest.mark.parametrize("name", CASES)
def test_sizes_are_known_at_planning_and_are_onnxruntimes(name):
    model, feeds = model_of(*CASES[name])
    pipeline = Pipeline.open(model, providers=["cpu"])
    try:
        plan = pipeline.plan({n: x.shape for n, x in feeds.items()})
        results = pipeline.run(feeds)
    finally:
        pipeline.close()
    want = shapes_of(CASES[name])
    assert [plan.types[n] for n in pipeline.graph.outputs] == [
        TensorType("float32", shape) for shape in want
    ]
    assert [x.shape for x in results] == want
    steps = [step for step in plan.steps if isinstance(step, Segment)]
    assert [step.sizes_at_run for step in steps] == [False]


def test_every_foreign_operator_of_the_table_has_a_case():
    named = {case[0] for case in CASES.values()}
    every = [op.split("::") for op in TABLE.operators() if "::" in op]
    foreign = {op for domain, op in every if domain == DOMAIN}
    # The layer normalization is sized as ONNX's own operator of that name is; softmax,
    # of its input's size, is in the tests of the linear operators.
    assert foreign - named - set(OF_BYTES) == {
        "SimplifiedLayerNormalization", "QLinearSoftmax",
    }  # fmt: skip


@pytest.mark.parametrize("axis", [-1, 1])
def test_a_simplified_layer_normalization_keeps_its_shape(axis):
    inputs = [X, floats(*X.shape[axis:])]
    for domain in ("", DOMAIN):
        model, feeds = model_of(
            "SimplifiedLayerNormalization", inputs, 2, {"axis": axis}
        )
        model.graph.node[0].domain = domain
        pipeline = Pipeline.open(model, providers=["cpu"])
        try:
            plan = pipeline.plan({n: x.shape for n, x in feeds.items()})
            results = pipeline.run(feeds)
        finally:
            pipeline.close()
        assert [plan.types[f"y{i}"].shape for i in range(2)] == [
            x.shape for x in results
        ]
        wide = X.astype(np.float64)
        axes = tuple(range(axis % 3, 3))
        inverse = 1 / np.sqrt((wide**2).mean(axes, keepdims=True) + 1e-5)
        np.testing.assert_allclose(results[0], wide * inverse * inputs[1], rtol=1e-4)
        np.testing.assert_allclose(results[1], inverse, rtol=1e-4)


# -- what the table itself says, where less is known ---------------------------------------


def inferred(op, kinds, attributes, outputs, known=None):
    """Ask the table for a node whose inputs have the types given."""
    given = [None if k is None else np.empty(0) for k in kinds]
    node = node_of(op, given, outputs, DOMAIN, **attributes)
    made = view_of_node(node, [], [], 1).node
    constants = {f"x{i}": value for i, value in (known or {}).items()}
    return TABLE.inferred(
        NodeView(made, tuple(kinds), (None,) * outputs, constants.get)
    )


def kind(*shape):
    return TensorType("float16", shape)


HEADED = {"num_heads": 4, "kv_num_heads": 2}


def test_a_cache_of_unknown_total_is_open_in_that_one_size():
    kinds = [kind("B", "S", 128), None, None, kind("B", 2, 9, 16), kind("B", 2, 9, 16),
             TensorType("int32", ("B",)), TensorType("int32", ())]  # fmt: skip
    y, key, value = inferred("GroupQueryAttention", kinds, HEADED, 3)
    assert y == kind("B", "S", 64)
    assert key == value == kind("B", 2, None, 16)
    known = {6: np.array(12, np.int32)}
    assert inferred("GroupQueryAttention", kinds, HEADED, 3, known)[1] == kind(
        "B", 2, 12, 16
    )


def test_symbols_pass_through_and_what_depends_on_one_is_open():
    y, key, _ = inferred(
        "MultiHeadAttention",
        [kind("B", "S", 16), kind("B", "T", 16), kind("B", "T", "V")],
        {"num_heads": 4},
        3,
    )
    assert (y, key) == (kind("B", "S", "V"), kind("B", 4, "T", 4))
    cached = [kind("B", "S", 16)] * 3 + [None] * 3 + [kind("B", 4, "P", 4)] * 2
    assert inferred("MultiHeadAttention", cached, {"num_heads": 4}, 3)[1] == kind(
        "B", 4, None, 4
    )


def test_a_product_of_symbols_keeps_the_sizes_that_must_hold():
    found = inferred(
        "FusedMatMul", [kind("B", "M", 8), kind(3, 5, 8)], {"transB": 1}, 1
    )
    assert found == [kind(3, "M", 5)]


def test_statistics_of_a_skip_normalization_are_one_for_each_row():
    kinds = [kind("B", "S", 16)] * 2 + [kind(16)]
    found = inferred("SkipLayerNormalization", kinds, {}, 4)
    assert found == [kinds[0], *[TensorType("float32", ("B", "S", 1))] * 2, kinds[0]]


@pytest.mark.parametrize("op", sorted({case[0] for case in CASES.values()}))
@pytest.mark.parametrize("count", [1, 3, 7])
def test_inputs_of_unknown_type_or_rank_leave_sizes_open(op, count):
    if (found := inferred(op, [kind()] * count, {}, 2)) is not None:
        assert len(found) <= 2
    for each in (TensorType("float16", None), TensorType("float16", ("A",) * 5)):
        for one in inferred(op, [each] * count, {}, 2) or ():
            assert not isinstance(one, TensorType) or not one.is_sized
