"""ONNX's newer operators under Seamline's domain, where graph optimization puts them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import ALONE, model
from tests.cuda.emulation import check, defined, drawn, emulated

import seamline_cpu.plugin
import seamline_cuda.plugin
from seamline.pipeline import Pipeline

OWN = ', "seamline" : 1'
#: Types of inputs and of the result, and the operator with its inputs.
NODES = {
    "Attention": (
        "float[2,3,8] q, float[2,5,4] k, float[2,5,4] v, float[3,5] m", "float[2,3,8]",
        "Attention<q_num_heads = 4, kv_num_heads = 2, scale = 0.5>(q, k, v, m)",
    ),
    "RotaryEmbedding": (
        "float[1,2,3,8] x, float[1,3,4] c, float[1,3,4] s", "float[1,2,3,8]",
        "RotaryEmbedding(x, c, s)",
    ),
    "LayerNormalization": (
        "float[3,7] x, float[7] w, float[7] b", "float[3,7]",
        "LayerNormalization<axis = -1, epsilon = 1e-3>(x, w, b)",
    ),
    "HardSwish": ("float[9] x", "float[9]", "HardSwish(x)"),
}  # fmt: skip
WRITTEN_OUT = """g (float[2,3,8] x, float[2,1,1,3] m) => (float[2,3,8] y)
    <int64[4] cut = {0,0,2,4}, int64[3] whole = {0,0,8}, float by = {0.5}> {
    a = Reshape(x, cut)  q = Transpose<perm = [0,2,1,3]>(a)  k = Transpose<perm = [0,2,3,1]>(a)
    s = MatMul(q, k)  t = Mul(s, by)  u = Add(t, m)  p = Softmax<axis = -1>(u)
    o = MatMul(p, q)  r = Transpose<perm = [0,2,1,3]>(o)  y = Reshape(r, whole) }"""


@pytest.mark.parametrize("op", NODES)
def test_an_operator_of_seamlines_domain_means_what_onnx_says(op):
    inputs, result, node = NODES[op]
    text = f"g ({inputs}) => ({result} y) {{ y = %s{node} }}"
    theirs = model(text % "", 23)
    check(
        text % "seamline.", drawn(text % "", opset=23), more=OWN, opset=13,
        oracle=lambda _, feeds: defined(theirs, feeds), rtol=2e-5, atol=2e-5,
    )  # fmt: skip


def test_attention_that_an_older_model_writes_out_is_one_operator_of_the_device():
    source = model(WRITTEN_OUT, 17)
    feeds = drawn(WRITTEN_OUT, opset=17)
    with emulated():
        session = Pipeline.open(
            source, providers=["cuda", "cpu"], settings=ALONE,
            plugins=[seamline_cuda.plugin, seamline_cpu.plugin],
            graph_optimization_level="ORT_ENABLE_ALL",
        )  # fmt: skip
        try:
            found = {
                n.qualified_op: session.placement.of(n).provider
                for n in session.graph.nodes
            }
            (y,) = session.run(feeds)
        finally:
            session.close()
    assert found == {"seamline::Attention": "cuda"}
    np.testing.assert_allclose(y, defined(source, feeds)[0], rtol=2e-5, atol=2e-5)
