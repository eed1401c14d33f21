"""onnxruntime's MultiHeadAttention and Attention: it is the oracle, having no other text."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.movement import agrees, give

R = np.random.default_rng(25)
CONTRIB = "com.microsoft"
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def floats(*shape):
    return R.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mask", [None, "ends", "keys", "pairs"])
@pytest.mark.parametrize("extra", [False, True])
def test_multi_head_attention_agrees_with_onnxruntime(bias, mask, extra):
    q, k, v = floats(2, 5, 16), floats(2, 7, 16), floats(2, 7, 24)
    masks = {
        None: None,
        "ends": np.array([7, 4], np.int32),
        "keys": (R.random((2, 7)) < 0.7).astype(np.int32),
        "pairs": (R.random((2, 5, 7)) < 0.7).astype(np.int32),
    }
    inputs = [
        q,
        k,
        v,
        floats(56) if bias else None,
        masks[mask],
        floats(1, 4, 5, 7) if extra else None,
    ]
    while inputs[-1] is None:
        inputs.pop()
    agrees("MultiHeadAttention", inputs, domain=CONTRIB, num_heads=4, **CLOSE)


@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention_keeps_a_cache_as_onnxruntime_does(causal):
    q, k, v = (floats(2, 3, 16) for _ in range(3))
    past = [floats(2, 4, 5, 4), floats(2, 4, 5, 4)]
    inputs = [q, k, v, None, None, None, *past]
    form = dict(domain=CONTRIB, num_heads=4, unidirectional=causal, outputs=3, **CLOSE)
    agrees("MultiHeadAttention", inputs, **form)


def test_keys_with_heads_first_are_a_cross_attentions():
    q, k, v = floats(2, 3, 16), floats(2, 4, 6, 4), floats(2, 4, 6, 4)
    agrees("MultiHeadAttention", [q, k, v], domain=CONTRIB, num_heads=4, **CLOSE)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", [None, "ends", "both", "keys", "pairs"])
def test_attention_with_its_projection_agrees_with_onnxruntime(causal, mask):
    x, w, b = floats(2, 5, 12), floats(12, 48), floats(48)
    masks = {
        None: None,
        "ends": np.array([5, 3], np.int32),
        "both": np.array([5, 4, 0, 1], np.int32),
        "keys": (R.random((2, 5)) < 0.7).astype(np.int32),
        "pairs": (R.random((2, 5, 5)) < 0.7).astype(np.int32),
    }
    inputs = [x, w, b] + ([] if mask is None else [masks[mask]])
    agrees(
        "Attention", inputs, domain=CONTRIB, num_heads=4, unidirectional=causal, **CLOSE
    )


def test_attention_with_a_past_and_unequal_sizes_agrees_with_onnxruntime():
    x, w, b, past = floats(2, 3, 12), floats(12, 48), floats(48), floats(2, 2, 4, 5, 4)
    agrees("Attention", [x, w, b, None, past], domain=CONTRIB, num_heads=4, outputs=2,
           unidirectional=1, **CLOSE)  # fmt: skip
    w, b = floats(12, 16 + 16 + 24), floats(56)
    agrees(
        "Attention",
        [x, w, b],
        domain=CONTRIB,
        num_heads=4,
        qkv_hidden_sizes=[16, 16, 24],
        **CLOSE,
    )


def test_forms_not_implemented_are_refused_by_name():
    x = floats(2, 5, 16)
    with pytest.raises(NotImplementedError, match="packed QKV"):
        give("MultiHeadAttention", [x], x, domain=CONTRIB, num_heads=4)
    with pytest.raises(NotImplementedError, match="do_rotary"):
        give(
            "Attention",
            [x, floats(16, 48), floats(48)],
            x,
            domain=CONTRIB,
            num_heads=4,
            do_rotary=1,
        )
