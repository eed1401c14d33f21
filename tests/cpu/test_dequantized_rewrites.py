"""Products of dequantised constants: what becomes one packed product, and what does not."""

from __future__ import annotations

import weakref

import ml_dtypes
import numpy as np
import onnx.helper as oh
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from tests.cpu.packed_weights import error
from tests.cpu.rewritten import Both
from tests.cpu.test_dequantized_products import weights

import seamline
from seamline.pipeline import Pipeline

R = np.random.default_rng(17)
OWN = "seamline::"
F = np.float32
FUSED = f"{OWN}DequantizedMatMul"


def tensor(array, name):
    """Store an array of any type."""
    return numpy_helper.from_array(np.asarray(array), name)


def built(text, opset=23, **constants):
    graph = parser.parse_graph(text)
    graph.initializer.extend(tensor(x, name) for name, x in constants.items())
    opsets = [oh.make_opsetid("", opset)]
    return oh.make_model(graph, opset_imports=opsets, ir_version=11)


def dequantised(n=40, k=96, then="y = MatMul(x, w)", scale_to="", kind="int4", **form):
    """Give a model whose ``w`` is dequantised, its feeds, and ``w`` as N by K."""
    q, s, z, given, w = weights(n, k, kind=kind, **form)
    named = {"q": q, "s": s} | ({} if z is None else {"z": z})
    attributes = f"axis = {given['axis']}"
    if "block_size" in given:
        attributes += f", block_size = {given['block_size']}"
    text = (
        f"g (float[M,{k}] x) => (y) {{ w = DequantizeLinear <{attributes}>"
        f" ({', '.join(named)}) {then} }}"
    )
    opset = 25 if kind in ("int2", "uint2") else 23
    return built(text, opset, **named), {"x": R.standard_normal((3, k)).astype(F)}, w


@pytest.mark.parametrize(
    "kind", ["int2", "int4", "uint4", "int8", "uint8", "float4_e2m1fn"]
)
@pytest.mark.parametrize("block", [0, 32])
def test_a_product_of_codes_is_one_node(kind, block):
    model, feeds, w = dequantised(kind=kind, block=block)
    both = Both(model, feeds)
    assert both.ops == {FUSED: 1}
    assert both.rules["dequantized-product"] == 1
    both.are_alike()
    assert error(both.given[0], feeds["x"].astype(float) @ w.T) < 2e-6


def test_zero_points_and_a_transposition():
    model, feeds, w = dequantised(
        turned=True, block=16, points=True, kind="uint4",
        then="t = Transpose <perm = [1, 0]> (w) y = MatMul(x, t)",
    )  # fmt: skip
    both = Both(model, feeds)
    assert both.ops == {FUSED: 1}
    assert error(both.given[0], feeds["x"].astype(float) @ w.T) < 2e-6


@pytest.mark.parametrize("turned", [False, True])
def test_a_gemm_with_its_bias(turned):
    then = f"y = Gemm <transB = {int(turned)}> (x, w, c)"
    model, feeds, w = dequantised(turned=turned, block=32, then=then)
    c = R.standard_normal(40).astype(F)
    model.graph.initializer.append(tensor(c, "c"))
    both = Both(model, feeds)
    assert both.ops == {FUSED: 1}
    assert error(both.given[0], feeds["x"].astype(float) @ w.T + c) < 2e-6


def test_a_bias_that_is_added_is_where_sums_begin():
    model, feeds, w = dequantised(then="p = MatMul(x, w) y = Add(c, p)")
    c = R.standard_normal(40).astype(F)
    model.graph.initializer.append(tensor(c, "c"))
    both = Both(model, feeds)
    assert both.ops == {FUSED: 1}
    assert error(both.given[0], feeds["x"].astype(float) @ w.T + c) < 2e-6


def test_codes_on_the_left_are_multiplied_with_both_sides_turned():
    q, s, _, given, w = weights(40, 96, turned=True, block=32)
    text = (
        "g (float[2,96,5] x) => (y) { w = DequantizeLinear <axis = 1, block_size = 32>"
        " (q, s) y = MatMul(w, x) }"
    )
    x = R.standard_normal((2, 96, 5)).astype(F)
    both = Both(built(text, q=q, s=s), {"x": x})
    assert both.ops == {FUSED: 1, "Transpose": 2}
    assert error(both.given[0], w @ x.astype(float)) < 2e-6
    assert given["transB"] == 1


def test_blocks_that_are_an_axis_of_their_own():
    q, s, z, _, w = weights(40, 96, turned=True, block=32, points=True, kind="uint4")
    text = (
        "g (float[M,96] x) => (y) { d = DequantizeLinear <axis = 2, block_size = 32>"
        " (q, s, z) r = Reshape(d, sizes) t = Transpose <perm = [1, 0]> (r)"
        " y = MatMul(x, t) }"
    )
    named = {"q": q.reshape(40, 3, 32), "s": s[..., None], "z": z[..., None],
             "sizes": np.array([40, 96])}  # fmt: skip
    x = R.standard_normal((3, 96)).astype(F)
    both = Both(built(text, **named), {"x": x})
    assert both.ops == {FUSED: 1, "Reshape": 3}  # of constants: folded
    assert error(both.given[0], x.astype(float) @ w.T) < 2e-6


def test_a_reshape_that_does_not_join_blocks_stays():
    q, s, *_ = weights(40, 96, turned=True, block=32)
    text = (
        "g (float[M,96] x) => (y) { d = DequantizeLinear <axis = 2, block_size = 32>"
        " (q, s) r = Reshape(d, sizes) y = MatMul(x, r) }"
    )
    named = {"q": q.reshape(40, 3, 32), "s": s[..., None], "sizes": np.array([96, 40])}
    both = Both(built(text, **named), {"x": R.standard_normal((3, 96)).astype(F)})
    assert FUSED not in both.ops
    both.are_alike()


@pytest.mark.parametrize("scale", ["float32", "float8_e8m0fnu"])
def test_mxfp4_is_multiplied_as_codes(scale):
    q, s, _, _, w = weights(
        40, 96, kind="float4_e2m1fn", block=32, scale="float8_e8m0fnu"
    )
    s = s.astype(F) if scale == "float32" else s
    kind = ", output_dtype = 1" if scale != "float32" else ""
    text = (
        f"g (float[M,96] x) => (y) {{ w = DequantizeLinear <axis = 0, block_size = 32{kind}>"
        " (q, s) y = MatMul(x, w) }"
    )
    x = R.standard_normal((3, 96)).astype(F)
    both = Both(built(text, 24, q=q, s=s), {"x": x})
    assert both.ops == {FUSED: 1}
    both.are_alike()
    assert error(both.given[0], x.astype(float) @ w.T) < 2e-6


def test_two_products_of_one_matrix_leave_no_floats():
    model, feeds, _ = dequantised(
        then="a = MatMul(x, w) b = Relu(x) c = MatMul(b, w) y = Add(a, c)"
    )
    both = Both(model, feeds)
    assert both.ops[FUSED] == 2
    assert "DequantizeLinear" not in both.ops
    both.are_alike()


KEPT = [
    (
        {"by": "column", "turned": True},
        "y = MatMul(x, w)",
        "scales go along the columns",
    ),
    ({"block": 8}, "y = MatMul(x, w)", "blocks of 8"),
    ({}, "y = Gemm <alpha = 2.0> (x, w)", "its alpha is 2.0"),
]


@pytest.mark.parametrize(("form", "then", "why"), KEPT)
def test_a_form_that_does_not_fit_stays_with_its_reason(form, then, why):
    model, feeds, _ = dequantised(n=96, k=96, then=then, **form)
    both = Both(model, feeds)
    assert FUSED not in both.ops
    assert why in both.left["dequantized-product"]
    both.are_alike()


def test_a_pinned_dequantisation_stays():
    model, feeds, _ = dequantised()
    model.graph.node[0].name = "dequantise"
    pipeline = Pipeline.open(
        model, pins={"dequantise": "cpu"}, graph_optimization_level="all"
    )
    assert [r.why for r in pipeline.optimized.left] == [
        "'dequantise' is pinned by 'dequantise'"
    ]
    pipeline.run(feeds)


def test_at_the_basic_level_codes_are_folded_to_floats_as_before():
    model, feeds, _ = dequantised()
    both = Both(model, feeds, level="basic")
    assert both.ops["MatMul"] == 1
    both.are_alike()


@pytest.mark.parametrize("level", ["0", "4"])
def test_the_sessions_entry_lets_activations_be_of_8_bits(level):
    model, feeds, w = dequantised(block=32)
    options = seamline.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", level)
    session = seamline.InferenceSession(model.SerializeToString(), options)
    (y,) = session.run(None, feeds)
    wrong = error(y, feeds["x"].astype(float) @ w.T)
    assert wrong < 2e-6 if level == "0" else 1e-4 < wrong < 2e-2
    with pytest.raises(ValueError, match="takes '0' to '4'"):
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "7")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_floats_of_16_bits(dtype):
    q, s, *_ = weights(40, 96, block=32, scale="float16")
    s = s.astype(dtype)
    name = "float16" if dtype == np.float16 else "bfloat16"
    text = (
        f"g ({name}[M,96] x) => (y) {{ w = DequantizeLinear <axis = 0, block_size = 32>"
        " (q, s) y = MatMul(x, w) }"
    )
    x = R.standard_normal((3, 96)).astype(dtype)
    both = Both(built(text, q=q, s=s), {"x": x})
    assert both.ops == {FUSED: 1}
    assert error(both.given[0], both.plain[0]) < (2e-3 if dtype == np.float16 else 1e-2)


# -- both operands of 8 bits -------------------------------------------------------------


def of_bytes(then, turned=False, by="column", kind="int8", a_kind="uint8", **more):
    """Give a QDQ model, its feeds, and what the definition says of the product."""
    q, s, z, given, w = weights(40, 96, kind=kind, turned=turned, by=by, points=True)
    constants = {"q": q, "s": s, "z": z, "xs": np.float32(0.03),
                 "xz": np.array(3, a_kind), **more}  # fmt: skip
    text = (
        "g (float[M,96] x) => (y) { b = QuantizeLinear(x, xs, xz)"
        f" a = DequantizeLinear(b, xs, xz) w = DequantizeLinear <axis = {given['axis']}>"
        f" (q, s, z) {then} }}"
    )
    x = R.standard_normal((5, 96)).astype(F)
    low = np.iinfo(a_kind)
    codes = np.clip(np.rint(x / np.float32(0.03)) + 3, low.min, low.max)
    return built(text, 21, **constants), {"x": x}, ((codes - 3) * 0.03) @ w.T


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("by", ["column", "tensor"])
@pytest.mark.parametrize(("kind", "a_kind"), [("int8", "uint8"), ("uint8", "int8")])
def test_two_matrices_of_bytes_are_multiplied_as_bytes(turned, by, kind, a_kind):
    then = "t = Transpose(w) y = MatMul(a, t)" if turned else "y = MatMul(a, w)"
    model, feeds, want = of_bytes(then, turned, by, kind, a_kind)
    both = Both(model, feeds)
    assert both.ops["com.microsoft::MatMulIntegerToFloat"] == 1
    assert both.rules["quantized-product"] == 1
    assert "MatMul" not in both.ops
    both.are_alike(share=1e-5)
    assert error(both.given[0], want) < 1e-5


def test_bytes_that_are_quantised_again_at_once():
    then = (
        "p = MatMul(a, w) c = QuantizeLinear(p, ys, yz) y = DequantizeLinear(c, ys, yz)"
    )
    model, feeds, _ = of_bytes(then, ys=np.float32(0.2), yz=np.int8(5))
    both = Both(model, feeds)
    assert both.ops["QLinearMatMul"] == 1
    assert both.ops["DequantizeLinear"] == 1
    apart = np.abs(both.given[0] - both.plain[0]) / 0.2
    assert apart.max() < 1.001  # one code
    assert np.mean(apart > 0.5) < 0.02


@pytest.mark.parametrize(
    "then", ["y = Gemm(a, w, c)", "p = MatMul(a, w) y = Add(p, c)"]
)
def test_a_bias_of_bytes(then):
    c = R.standard_normal(40).astype(F)
    model, feeds, want = of_bytes(then, c=c)
    both = Both(model, feeds)
    assert both.ops["com.microsoft::MatMulIntegerToFloat"] == 1
    assert not {"Add", "Gemm", "MatMul"} & set(both.ops)
    assert error(both.given[0], want + c) < 1e-5


def test_bytes_that_two_products_read_are_dequantised_no_more():
    then = "p = MatMul(a, w) r = MatMul(a, w) y = Add(p, r)"
    model, feeds, want = of_bytes(then)
    both = Both(model, feeds)
    # The second takes the first's result as its residual.
    assert both.ops["com.microsoft::MatMulIntegerToFloat"] == 1
    assert both.ops["seamline::MatMulIntegerToFloat"] == 1
    assert "DequantizeLinear" not in both.ops
    assert error(both.given[0], 2 * want) < 1e-5


def test_codes_that_are_packed_are_not_kept_unpacked():
    model, feeds, _ = dequantised(block=32)
    pipeline = Pipeline.open(model, graph_optimization_level="all")
    for _ in range(3):
        pipeline.run(feeds)
    unpacked = weakref.ref(pipeline.graph.constant("q"))
    assert unpacked() is None  # nobody but this line had it
    scales = weakref.ref(pipeline.graph.constant("s"))
    assert scales() is not None


@pytest.mark.parametrize("level", ["0", "4"])
def test_onnxruntime_agrees_on_what_it_fuses(level):
    model, feeds, _ = dequantised(n=64, k=128, block=32)
    key = "session.qdq_matmulnbits_accuracy_level"
    theirs, ours = ort.SessionOptions(), seamline.SessionOptions()
    for options in (theirs, ours):
        options.add_session_config_entry(key, level)
    theirs.log_severity_level = 3
    peer = ort.InferenceSession(model.SerializeToString(), theirs)
    (want,) = peer.run(None, feeds)
    (got,) = seamline.InferenceSession(model.SerializeToString(), ours).run(None, feeds)
    assert error(got, want) < (2e-6 if level == "0" else 1e-4)
