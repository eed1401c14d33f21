"""What follows integer sums and becomes part of them, against the graph as it was."""

from __future__ import annotations

import numpy as np
import onnx.helper as oh
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper
from tests.cpu.rewritten import Both, model_of

from seamline.pipeline import Pipeline

R = np.random.default_rng(17)
CONTRIB, OWN = "com.microsoft::", "seamline::"
#: Scales are one number, or one a column; the product is scaled in one order or the other.
PRODUCT = (
    "g (float[M,24] x) => (y) { q, s, z = DynamicQuantizeLinear(x)"
    " i = MatMulInteger(q, w, z, wz) f = Cast <to = 1> (i) k = Mul(s, ws) p = Mul(f, k)"
)
CONVOLUTION = (
    "g (float[1,3,9,8] x) => (y) { q, s, z = DynamicQuantizeLinear(x)"
    " i = ConvInteger <pads = [1,1,1,1]> (q, w, z, wz) f = Cast <to = 1> (i)"
    " k = Mul(s, ws) p = Mul(f, k)"
)
BEFORE = (
    "g (float[1,3,9,8] x) => (y) { q, s, z = DynamicQuantizeLinear(x)"
    " i = ConvInteger <pads = [1,1,1,1]> (q, w, z, wz) k = Mul(s, ws)"
    " d = Div(b, k) e = Floor(d) c = Cast <to = 6> (e) r = Reshape(c, shape)"
    " a = Add(i, r) f = Cast <to = 1> (a) p = Mul(f, k)"
)


def normal(*shape):
    return R.standard_normal(shape).astype(np.float32)


def weights(*shape, columns=None):
    return {
        "w": R.integers(-127, 128, shape).astype(np.int8),
        "wz": np.zeros(columns or (), np.int8),
        "ws": R.uniform(0.001, 0.01, columns or ()).astype(np.float32),
    }


def product(rest, columns=None, rows=7, **more):
    model = model_of(f"{PRODUCT} {rest} }}", **weights(24, 40, columns=columns), **more)
    return Both(model, {"x": normal(rows, 24)})


def convolution(rest, text=CONVOLUTION, **more):
    model = model_of(f"{text} {rest} }}", **weights(5, 3, 3, 3), **more)
    return Both(model, {"x": normal(1, 3, 9, 8)})


@pytest.mark.parametrize("columns", [None, (1,), (40,)])
@pytest.mark.parametrize("rows", [1, 7])
def test_a_scaled_product_is_one_node(columns, rows):
    both = product("y = Neg(p)", columns, rows)
    assert both.ops[f"{CONTRIB}MatMulIntegerToFloat"] == 1
    assert both.rules["integer-scale"] == 1
    assert not both.ops["Cast"] + both.ops["Mul"] + both.ops["MatMulInteger"]
    both.are_alike(0.0, 0.0)


def test_a_bias_goes_into_it_and_stays_onnxruntimes_operator():
    both = product("y = Add(b, p)", b=normal(40))
    assert both.ops[f"{CONTRIB}MatMulIntegerToFloat"] == 1
    assert both.rules["integer-bias"] == 1
    both.are_alike(0.0, 0.0)


@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Tanh"])
def test_a_bias_a_residual_and_an_activation_go_into_it(name):
    rest = (
        f"a = Add(b, p) g1 = MatMul(x, other) h = Abs(g1) r = Add(a, h) y = {name}(r)"
    )
    both = product(rest, b=normal(40), other=normal(24, 40))
    assert both.ops[f"{OWN}MatMulIntegerToFloat"] == 1
    assert not both.ops["Add"] + both.ops[name]
    both.are_alike()


def test_gelu_written_out_goes_into_it():
    rest = "d = Div(p, root) e = Erf(d) o = Add(e, one) m = Mul(p, o) y = Mul(m, half)"
    numbers = {"root": np.sqrt(2), "one": 1, "half": 0.5}
    both = product(rest, **{k: np.float32(v) for k, v in numbers.items()})
    assert both.ops[f"{OWN}MatMulIntegerToFloat"] == 1
    both.are_alike(1e-5, 1e-5)


def test_one_quantised_input_serves_several_products():
    rest = (
        "i2 = MatMulInteger(q, w, z, wz) f2 = Cast <to = 1> (i2) k2 = Mul(ws, s)"
        " p2 = Mul(k2, f2) y = Sub(p, p2)"
    )
    both = product(rest)
    assert both.ops[f"{CONTRIB}MatMulIntegerToFloat"] == 2
    assert both.ops["DynamicQuantizeLinear"] == 1
    both.are_alike(0.0, 0.0)


def test_a_scale_that_is_read_elsewhere_stays():
    both = product("n = Neg(k) y = Add(p, n)")
    assert both.ops[f"{CONTRIB}MatMulIntegerToFloat"] == 1
    assert both.ops["Mul"] == 1
    both.are_alike(0.0, 0.0)


@pytest.mark.parametrize("asked", ["i", "f"])
def test_sums_that_somebody_reads_stay(asked):
    more = "" if asked == "f" else " g2 = Cast <to = 1> (i)"
    both = product(f"{more} n = Neg({'f' if asked == 'f' else 'g2'}) y = Add(p, n)")
    assert both.ops["MatMulInteger"] == 1
    assert both.ops[f"{CONTRIB}MatMulIntegerToFloat"] == 0
    both.are_alike(0.0, 0.0)


def test_weights_that_are_fed_are_left_and_said_so():
    text = PRODUCT.replace("float[M,24] x", "float[M,24] x, int8[24,40] w")
    constants = weights(24, 40)
    fed = constants.pop("w")
    both = Both(
        model_of(f"{text} y = Neg(p) }}", **constants), {"x": normal(3, 24), "w": fed}
    )
    assert both.ops["MatMulInteger"] == 1
    assert "not constant" in both.left["integer-scale"]
    both.are_alike()


@pytest.mark.parametrize(
    "text", [CONVOLUTION, BEFORE], ids=["sums", "sums_and_integers"]
)
def test_a_scaled_convolution_is_one_node(text):
    more = (
        {}
        if text is CONVOLUTION
        else {"b": normal(5), "shape": np.array([1, -1, 1, 1])}
    )
    both = convolution("y = Neg(p)", text, **more)
    assert both.ops[f"{OWN}ConvIntegerToFloat"] == 1
    assert both.ops["ConvInteger"] == 0
    assert both.rules["integer-scale"] == 1
    both.are_alike(0.0, 0.0)


@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "HardSwish"])
def test_what_follows_a_convolution_of_bytes_goes_into_it(name):
    rest = f"a = Add(p, b) g1 = Conv(x, other) c = Abs(g1) r = Add(c, a) y = {name}(r)"
    both = convolution(rest, b=normal(1, 5, 1, 1), other=normal(5, 3, 1, 1))
    assert both.ops[f"{OWN}ConvIntegerToFloat"] == 1
    assert not both.ops["Add"] + both.ops[name]
    assert {"integer-bias", "integer-residual", "integer-activation"} <= set(both.rules)
    both.are_alike()


def test_a_bias_along_another_axis_is_an_addition():
    both = convolution("y = Add(p, b)", b=normal(8))
    assert both.ops["Add"] == 1
    both.are_alike()


def test_nothing_is_rewritten_below_the_extended_level():
    model = model_of(f"{PRODUCT} y = Neg(p) }}", **weights(24, 40))
    both = Both(model, {"x": normal(2, 24)}, "basic")
    assert both.ops["MatMulInteger"] == 1
    both.are_alike()


def attention_of_bytes(mask, past=False, unidirectional=0):
    inputs = ["x", "w", "b", "xs", "ws", "mask" if mask is not None else "", "xz", "wz"]
    outputs = ["y"] + (["present"] if past else [])
    node = oh.make_node(
        "QAttention", inputs, outputs, "it", domain="com.microsoft", num_heads=4,
        unidirectional=unidirectional,
    )  # fmt: skip
    constants = {
        "w": R.integers(-63, 64, (16, 48)).astype(np.int8), "b": normal(48),
        "xs": np.array([0.02], np.float32), "xz": np.array([120], np.uint8),
        "ws": np.array([0.01], np.float32), "wz": np.array([0], np.int8),
    }  # fmt: skip
    if mask is not None:
        constants["mask"] = mask
    x = oh.make_tensor_value_info("x", TensorProto.UINT8, (2, 6, 16))
    results = [oh.make_tensor_value_info("y", TensorProto.FLOAT, (2, 6, 16))]
    results += [oh.make_empty_tensor_value_info(name) for name in outputs[1:]]
    stored = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    graph = oh.make_graph([node], "g", [x], results, stored)
    imports = [oh.make_opsetid("", 17), oh.make_opsetid("com.microsoft", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=8)


MASKS = {
    "none": None,
    "lengths": np.array([4, 6], np.int32),
    "keys": (np.arange(6) < np.array([[5], [3]])).astype(np.int32),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_of_bytes_is_a_product_and_attention(name, unidirectional):
    model = attention_of_bytes(MASKS[name], unidirectional=unidirectional)
    feeds = {"x": R.integers(0, 256, (2, 6, 16)).astype(np.uint8)}
    peer = ort.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (want,) = peer.run(None, feeds)
    pipeline = Pipeline.open(model, graph_optimization_level="all")
    for _ in range(3):
        (got,) = pipeline.run(feeds)
    ops = {node.op_type for node in pipeline.graph.nodes}
    pipeline.close()
    assert {"MatMulIntegerToFloat", "MultiHeadAttention"} <= ops
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_attention_of_bytes_that_gives_a_cache_is_left_and_said_so():
    model = attention_of_bytes(None, past=True)
    pipeline = Pipeline.open(
        model, graph_optimization_level="all", providers=["cpu", "onnxruntime"]
    )
    assert [one.why for one in pipeline.optimized.left] == [
        "it keeps keys and values of before"
    ]
    pipeline.close()
