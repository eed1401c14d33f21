"""onnxruntime's MultiHeadAttention and Attention by their kernels; it is the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cuda.directly import claim_of, done, node_of
from tests.cuda.emulation import check, drawn
from tests.cuda.emulation.sessions import peer

import seamline_cuda.attention_works as works
from seamline.provider import Refusal

R = np.random.default_rng(25)
FORM = {"num_heads": 2, "domain": "com.microsoft"}


def floats(*shape):
    return R.standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """A warp for each block, since an emulated thread takes a while."""
    monkeypatch.setattr(works, "THREADS", 32)


def agrees(op, inputs, outputs=1, asked=None, **attributes):
    """Compare with onnxruntime, which is asked for ``outputs`` where this is for ``asked``."""
    while inputs[-1] is None:
        inputs.pop()
    form = {**FORM, **attributes}
    kinds = ["float32"] * outputs
    source = node_of(op, inputs, kinds, 21, **form)
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    for value in source.graph.output:
        value.type.tensor_type.ClearField("shape")
    found, complaints = done(op, inputs, kinds[:asked], opset=21, **form)
    assert not complaints
    for got, want in zip(found, peer(source, feeds)[:asked], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


MASKS = {
    "none": None,
    "ends": np.array([7, 4], np.int32),
    "keys": (R.random((2, 7)) < 0.7).astype(np.int32),
    "pairs": (R.random((2, 3, 7)) < 0.7).astype(np.int32),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("extra", [False, True])
def test_multi_head_attention_agrees_with_onnxruntime(bias, mask, extra):
    inputs = [floats(2, 3, 8), floats(2, 7, 8), floats(2, 7, 12), floats(28) if bias else None,
              MASKS[mask], floats(1, 2, 3, 7) if extra else None]  # fmt: skip
    agrees("MultiHeadAttention", inputs)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("asked", [1, 3])
def test_multi_head_attention_keeps_a_cache_as_onnxruntime_does(causal, asked):
    q, k, v = (floats(2, 3, 8) for _ in range(3))
    inputs = [q, k, v, None, None, None, floats(2, 2, 5, 4), floats(2, 2, 5, 4)]
    agrees("MultiHeadAttention", inputs, 3, asked, unidirectional=causal)


def test_keys_with_heads_first_are_a_cross_attentions():
    agrees(
        "MultiHeadAttention", [floats(2, 3, 8), floats(2, 2, 6, 4), floats(2, 2, 6, 4)]
    )


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", ["none", "ends", "both", "keys", "pairs"])
def test_attention_with_its_projection_agrees_with_onnxruntime(causal, mask):
    masks = {
        "none": None,
        "ends": np.array([5, 3], np.int32),
        "both": np.array([5, 4, 0, 1], np.int32),
        "keys": (R.random((2, 5)) < 0.7).astype(np.int32),
        "pairs": (R.random((2, 5, 5)) < 0.7).astype(np.int32),
    }
    inputs = [floats(2, 5, 6), floats(6, 24), floats(24), masks[mask]]
    agrees("Attention", inputs, unidirectional=causal)


def test_attention_with_a_past_and_unequal_sizes_agrees_with_onnxruntime():
    x, w, b = floats(2, 3, 6), floats(6, 24), floats(24)
    agrees("Attention", [x, w, b, None, floats(2, 2, 2, 5, 4)], 2, unidirectional=1)
    w, b = floats(6, 8 + 8 + 12), floats(28)
    agrees("Attention", [x, w, b], qkv_hidden_sizes=[8, 8, 12])


@pytest.mark.parametrize(
    ("why", "weights", "attributes"),
    [
        ("do_rotary", (6, 24), {"do_rotary": 1}),
        ("its queries, keys and values are [8, 6, 10] of 24", (6, 24), {"qkv_hidden_sizes": [8, 6, 10]}),
        ("its weights is [5, 24], not [6, ?]", (5, 24), {}),
    ],
)  # fmt: skip
def test_projections_not_implemented_are_refused_by_name(why, weights, attributes):
    inputs = [floats(2, 3, 6), floats(*weights), floats(24)]
    source = node_of("Attention", inputs, ["float32"], **FORM, **attributes)
    _, answer = claim_of(source)
    assert isinstance(answer, Refusal)
    assert why in str(answer)


@pytest.mark.parametrize(
    ("why", "count", "shape"),
    [("packed QKV", 1, None), ("its mask is [2, 6], not [2] or", 3, (2, 6))],
)
def test_forms_not_implemented_are_refused_by_name(why, count, shape):
    inputs = [floats(2, 3, 8), floats(2, 7, 8), floats(2, 7, 8)][:count]
    if shape:
        inputs += [None, np.ones(shape, np.int32)]
    _, answer = claim_of(node_of("MultiHeadAttention", inputs, ["float32"], **FORM))
    assert isinstance(answer, Refusal)
    assert why in str(answer)


def test_a_session_projects_and_attends_eager_recorded_and_replayed():
    text = """g (float[1,2,6] x, float[6,24] w, float[24] b) =>
        (float[1,2,8] y) { y = com.microsoft.Attention<num_heads = 2>(x, w, b) }"""
    more = ', "com.microsoft" : 1'
    check(
        text,
        drawn(text, more=more, opset=21),
        oracle=peer,
        more=more,
        opset=21,
        atol=2e-5,
    )


def test_a_session_gives_what_onnxruntime_does_eager_recorded_and_replayed():
    text = """g (float[1,2,8] q, float[1,3,8] k, float[1,3,8] v, float[24] b) =>
        (float[1,2,8] y) { y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, b) }"""
    more = ', "com.microsoft" : 1'
    check(
        text,
        drawn(text, more=more, opset=21),
        oracle=peer,
        more=more,
        opset=21,
        atol=1e-5,
    )
