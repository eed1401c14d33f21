"""Attention with its projections as one product: by the definition, and made from a graph."""

from __future__ import annotations

import numpy as np
import pytest
from tests.attentions import attend, hide
from tests.core.toys import ALONE
from tests.cpu.rewritten import model_of
from tests.cuda.directly import claim_of, done, node_of
from tests.cuda.emulation import defined, emulated
from tests.cuda.test_attention import floats

import seamline_cpu.plugin
import seamline_cuda.plugin
from seamline.pipeline import Pipeline
from seamline.provider import Refusal

BATCH, ROWS, IN = 2, 5, 6
FORM = {"domain": "seamline", "q_num_heads": 4, "kv_num_heads": 2}
PARTS = {"qkv_hidden_sizes": [16, 8, 12]}


def wanted(x, weights, bias, mask=0.0, **how):
    parts = np.split(x.astype(np.float64) @ weights + bias, [16, 24], axis=2)
    q, k, v = (
        part.reshape(BATCH, ROWS, heads, -1).transpose(0, 2, 1, 3)
        for part, heads in zip(parts, (4, 2, 2), strict=True)
    )
    return (
        attend(q, k, v, mask, **how)[0].transpose(0, 2, 1, 3).reshape(BATCH, ROWS, -1)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("mask", [None, (BATCH, 1, 1, ROWS), (ROWS, ROWS)])
@pytest.mark.parametrize("causal", [0, 1])
def test_parts_of_one_product_are_attended_to_where_they_lie(dtype, mask, causal):
    given = [
        x.astype(dtype)
        for x in (floats(BATCH, ROWS, IN), floats(IN, 36) / 2, floats(36))
    ]
    bias = hide(np.arange(ROWS) <= np.arange(ROWS)[:, None]) if causal else 0.0
    if mask:
        given.append(floats(*mask).astype(dtype))
        bias = bias + given[3].astype(np.float64)
    (y,), _ = done(
        "ProjectedAttention", given, [given[0].dtype.name], is_causal=causal, scale=0.3,
        softcap=2.0, **FORM, **PARTS,
    )  # fmt: skip
    want = wanted(*given[:3], bias, scale=0.3, softcap=2.0)
    close = 1e-5 if dtype == np.float32 else 4e-3
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=close, atol=close)


REFUSED = {
    "parts of [16, 8]": ([16, 8], (IN, 36), 36, None),
    "do not divide into 4 and 2 heads": ([16, 12, 8], (IN, 36), 36, None),
    "its weights are": ([16, 8, 12], (IN, 37), 36, None),
    "and the scores are [2, 4, 5, 5]": ([16, 8, 12], (IN, 36), 36, (ROWS, 4)),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_does_not_fit_is_refused_with_the_reason(why):
    parts, weights, bias, mask = REFUSED[why]
    inputs = [floats(BATCH, ROWS, IN), floats(*weights), floats(bias)]
    inputs += [floats(*mask)] if mask else []
    node = node_of(
        "ProjectedAttention", inputs, ["float32"], **FORM, qkv_hidden_sizes=parts
    )
    _, answer = claim_of(node)
    assert isinstance(answer, Refusal)
    assert why in str(answer)


TEXT = """g ({kind}[2,3,6] x, {kind}[2,1,1,3] m) => ({kind}[2,3,8] y)
    <int64[4] cut = {{0,0,2,4}}, int64[3] whole = {{0,0,8}}, {kind} by = {{0.5}}> {{
    q0 = MatMul(x, wq)  q1 = Add(q0, b)  k0 = MatMul(x, wk)  k1 = Add(b, k0)
    v0 = MatMul(x, wv)  v1 = Add(v0, b)
    q2 = Reshape(q1, cut)  q = Transpose<perm = [0,2,1,3]>(q2)
    k2 = Reshape(k1, cut)  k = Transpose<perm = [0,2,3,1]>(k2)
    v2 = Reshape(v1, cut)  v = Transpose<perm = [0,2,1,3]>(v2)
    s = MatMul(q, k)  t = Mul(s, by)  u = Add(t, m)  p = Softmax<axis = -1>(u)
    o = MatMul(p, v)  r = Transpose<perm = [0,2,1,3]>(o)  y = Reshape(r, whole)  {also} }}"""


def run(text, providers, opset=17):
    """Give the operators over providers, the result, and what ONNX defines."""
    source = model_of(
        text, opset, b=floats(8), **{f"w{n}": floats(6, 8) for n in "qkv"}
    )
    feeds = {"x": floats(2, 3, 6), "m": floats(2, 1, 1, 3)}
    with emulated():
        session = Pipeline.open(
            source, providers=providers, settings=ALONE,
            plugins=[seamline_cuda.plugin, seamline_cpu.plugin],
            graph_optimization_level="ORT_ENABLE_ALL",
        )  # fmt: skip
        try:
            ops = sorted(
                n.qualified_op for n in session.graph.nodes if n.op_type != "Concat"
            )
            left = {one.rule for one in session.optimized.left}
            return ops, left, session.run(feeds), defined(source, feeds)
        finally:
            session.close()


def test_projections_of_one_input_are_made_one_product_where_a_provider_claims_it():
    text = TEXT.format(kind="float", also="")
    ops, _, found, want = run(text, ["cuda", "cpu"])
    assert ops == ["seamline::ProjectedAttention"]
    np.testing.assert_allclose(found[0], want[0], rtol=2e-5, atol=2e-5)
    ops, left, found, want = run(text, ["cpu"])
    assert "seamline::ProjectedAttention" not in ops
    assert "projected-attention" not in left  # that nobody has it needs no mention
    np.testing.assert_allclose(found[0], want[0], rtol=2e-5, atol=2e-5)


def test_a_projection_that_is_asked_for_stays():
    text = TEXT.format(kind="float", also="z = Identity(k1)")
    text = text.replace("=> (", "=> (float[2,3,8] z, ")
    ops, _, found, want = run(text, ["cuda", "cpu"])
    assert "seamline::ProjectedAttention" not in ops
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
