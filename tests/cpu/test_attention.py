"""Attention, RotaryEmbedding and onnxruntime's forms of both."""

from __future__ import annotations

import numpy as np
import pytest
from tests.attentions import attend, hide, rotated
from tests.cpu.movement import agrees, give, gives

from seamline.errors import KernelError

R = np.random.default_rng(24)
CONTRIB = "com.microsoft"


def floats(*shape):
    return R.standard_normal(shape).astype(np.float32)


CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("causal", [0, 1])
def test_query_heads_share_key_heads_in_runs(heads, causal):
    q, k, v = (
        floats(2, heads[0], 5, 8),
        floats(2, heads[1], 7, 8),
        floats(2, heads[1], 7, 6),
    )
    bias = hide(np.arange(7) <= np.arange(5)[:, None]) if causal else 0
    want = attend(q, k, v, bias)[0].astype(np.float32)
    gives("Attention", [q, k, v], want, is_causal=causal, **CLOSE)
    flat = [x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) for x in (q, k, v, want)]
    counts = {"q_num_heads": heads[0], "kv_num_heads": heads[1], "is_causal": causal}
    gives("Attention", flat[:3], flat[3], **counts, **CLOSE)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_scores_are_given_at_the_stage_asked_for(mode, softcap):
    q, k, v, mask = (
        floats(1, 2, 4, 8),
        floats(1, 2, 6, 8),
        floats(1, 2, 6, 8),
        floats(4, 6),
    )
    want, stages = attend(q, k, v, mask, softcap=softcap)
    like = [want.astype(np.float32), None, None, stages[mode].astype(np.float32)]
    gives(
        "Attention",
        [q, k, v, mask],
        like,
        qk_matmul_output_mode=mode,
        softcap=softcap,
        **CLOSE,
    )


@pytest.mark.parametrize("shape", [(6,), (4, 6), (2, 4, 6), (3, 1, 4, 6), (3, 2, 1, 6)])
@pytest.mark.parametrize("causal", [0, 1])
def test_a_mask_broadcasts_and_composes_with_causality(shape, causal):
    q, k, v = floats(3, 2, 4, 8), floats(3, 2, 6, 8), floats(3, 2, 6, 8)
    keep = R.random(shape) < 0.7
    keep[..., 0] = True
    before = hide(np.arange(6) <= np.arange(4)[:, None]) if causal else 0
    want = attend(q, k, v, hide(keep) + before)[0].astype(np.float32)
    gives("Attention", [q, k, v, keep], want, is_causal=causal, **CLOSE)
    mask = floats(*shape)
    want = attend(q, k, v, mask + before)[0].astype(np.float32)
    gives("Attention", [q, k, v, mask], want, is_causal=causal, **CLOSE)


def test_a_short_mask_hides_the_keys_past_its_end():
    q, k, v, mask = (
        floats(1, 1, 2, 4),
        floats(1, 1, 5, 4),
        floats(1, 1, 5, 4),
        np.ones((2, 3), bool),
    )
    want = attend(q, k[:, :, :3], v[:, :, :3])[0].astype(np.float32)
    gives("Attention", [q, k, v, mask], want, **CLOSE)


def test_a_query_that_sees_no_key_gives_zeros_in_every_output():
    q, k, v = floats(1, 1, 3, 4), floats(1, 1, 3, 4), floats(1, 1, 3, 4)
    keep = np.array([[True] * 3, [False] * 3, [True, False, True]])
    want, stages = attend(q, k, v, hide(keep))
    assert (want[0, 0, 1] == 0).all()
    like = [want.astype(np.float32), None, None, stages[3].astype(np.float32)]
    gives("Attention", [q, k, v, keep], like, qk_matmul_output_mode=3, **CLOSE)


@pytest.mark.parametrize("causal", [0, 1])
def test_the_past_stands_before_and_shifts_the_diagonal(causal):
    q, k, v = floats(2, 4, 3, 8), floats(2, 2, 3, 8), floats(2, 2, 3, 6)
    past_k, past_v = floats(2, 2, 5, 8), floats(2, 2, 5, 6)
    all_k, all_v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    bias = hide(np.arange(8) <= np.arange(3)[:, None] + 5) if causal else 0
    want = attend(q, all_k, all_v, bias)[0].astype(np.float32)
    gives(
        "Attention",
        [q, k, v, None, past_k, past_v],
        [want, all_k, all_v],
        is_causal=causal,
        **CLOSE,
    )


def test_a_cache_kept_outside_is_read_to_its_length():
    q, k, v = floats(3, 2, 2, 8), floats(3, 2, 6, 8), floats(3, 2, 6, 8)
    lengths = np.array([6, 3, 1])
    at = np.arange(2)[:, None] + (lengths - 2)[:, None, None, None]
    keep = (np.arange(6) <= at) & (np.arange(6) < lengths[:, None, None, None])
    want = attend(q, k, v, hide(keep))[0].astype(np.float32)
    gives(
        "Attention",
        [q, k, v, None, None, None, lengths],
        want,
        is_causal=1,
        opset=24,
        **CLOSE,
    )


@pytest.mark.parametrize("window", [(2, -1), (-1, 1), (2, 1), (0, 0)])
@pytest.mark.parametrize("causal", [0, 1])
def test_a_window_bounds_what_is_seen_on_either_side(window, causal):
    q, k, v = floats(1, 2, 4, 8), floats(1, 2, 6, 8), floats(1, 2, 6, 8)
    ahead = np.arange(6) - np.arange(4)[:, None]
    keep = (ahead <= 0) if causal else np.ones((4, 6), bool)
    keep = keep & (ahead >= -window[0]) if window[0] >= 0 else keep
    keep = keep & (ahead <= window[1]) if window[1] >= 0 else keep
    want = attend(q, k, v, hide(keep))[0].astype(np.float32)
    sides = {
        "left_window_size": window[0],
        "right_window_size": window[1],
        "is_causal": causal,
    }
    gives("Attention", [q, k, v], want, opset=25, **sides, **CLOSE)


def test_a_scale_of_its_own_and_half_precision():
    q, k, v = (floats(1, 2, 4, 8).astype(np.float16) for _ in range(3))
    want = attend(q, k, v, scale=0.3)[0].astype(np.float16)
    gives("Attention", [q, k, v], want, scale=0.3, rtol=1e-2, atol=1e-2)


def test_forms_that_contradict_themselves_are_refused():
    q = floats(1, 2, 4, 8)
    with pytest.raises(NotImplementedError, match="come together"):
        give("Attention", [q, q, q, None, q], q)
    with pytest.raises(NotImplementedError, match="q_num_heads"):
        give("Attention", [q[0], q[0], q[0]], q[0])


# --- rotary --------------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dim", [0, 4])
def test_pairs_are_rotated_and_the_rest_is_kept(interleaved, dim):
    x, half = floats(2, 3, 4, 8), (dim or 8) // 2
    cos, sin, places = floats(20, half), floats(20, half), R.integers(0, 20, (2, 3))
    want = rotated(x, cos[places], sin[places], interleaved)
    form = {
        "interleaved": interleaved,
        "rotary_embedding_dim": dim,
        "rtol": 1e-5,
        "atol": 1e-6,
    }
    first = [v.transpose(0, 2, 1, 3) for v in (x, want)]
    flat = [v.reshape(2, 3, 32) for v in (x, want)]
    gives("RotaryEmbedding", [first[0], cos, sin, places], first[1], **form)
    gives("RotaryEmbedding", [flat[0], cos, sin, places], flat[1], num_heads=4, **form)
    gives(
        "RotaryEmbedding",
        [flat[0], cos[places], sin[places]],
        flat[1],
        num_heads=4,
        **form,
    )
    ours = dict(form, domain=CONTRIB)
    gives("RotaryEmbedding", [first[0], places, cos, sin], first[1], **ours)
    heads = {"num_heads": 4} if dim else {}
    gives("RotaryEmbedding", [flat[0], places, cos, sin], flat[1], **heads, **ours)


def test_one_position_is_where_every_row_starts():
    x, cos, sin = floats(2, 3, 32), floats(20, 4), floats(20, 4)
    at = np.tile(np.arange(5, 8), (2, 1))
    want = rotated(x.reshape(2, 3, 4, 8), cos[at], sin[at], 0).reshape(x.shape)
    gives(
        "RotaryEmbedding",
        [x, np.array([5]), cos, sin],
        want,
        domain=CONTRIB,
        rtol=1e-5,
        atol=1e-6,
    )
    agrees(
        "RotaryEmbedding",
        [x, np.array([5]), cos, sin],
        domain=CONTRIB,
        rtol=1e-5,
        atol=1e-6,
    )


def test_a_position_past_the_caches_is_named():
    x, cos = floats(1, 1, 2, 4), floats(9, 2)
    with pytest.raises(KernelError, match=r"position 9 is outside \[0, 9\)"):
        give("RotaryEmbedding", [x, cos, cos, np.array([[0, 9]])], x)
