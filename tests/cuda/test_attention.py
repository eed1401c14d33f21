"""ONNX's Attention by its kernels' text, against the definition in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.attentions import attend, hide
from tests.cuda.directly import claim_of, done, node_of
from tests.cuda.emulation import check

import seamline_cuda.attention_works as works
from seamline.provider import Refusal

R = np.random.default_rng(24)
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
F32 = "float32"


def floats(*shape):
    return R.standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """A warp for each block, since an emulated thread takes a while."""
    monkeypatch.setattr(works, "THREADS", 32)


@pytest.fixture(params=["few", "tiles"])
def either_kernel(request, monkeypatch):
    """Attend by the kernel of few queries, then by tiles."""
    if request.param == "tiles":
        for name in ("few_columns", "matrices_fit", "floats_fit"):
            monkeypatch.setattr(works, name, lambda *_: 0)


either = pytest.mark.usefixtures("either_kernel")


def gives(inputs, *want, close=CLOSE, **attributes):
    kinds = [None if w is None else inputs[0].dtype.name for w in want]
    found, complaints = done("Attention", inputs, kinds, **attributes)
    assert not complaints
    for got, like in zip(found, want, strict=True):
        if like is not None:
            np.testing.assert_allclose(got.astype(np.float64), like, **close)


@either
@pytest.mark.parametrize("heads", [(2, 2), (6, 2), (3, 1)])
@pytest.mark.parametrize("causal", [0, 1])
def test_query_heads_share_key_heads_in_runs(heads, causal):
    q, k, v = (
        floats(1, heads[0], 5, 8),
        floats(1, heads[1], 7, 8),
        floats(1, heads[1], 7, 6),
    )
    bias = hide(np.arange(7) <= np.arange(5)[:, None]) if causal else 0
    want = attend(q, k, v, bias)[0]
    gives([q, k, v], want, is_causal=causal)


def test_rows_of_all_heads_are_read_where_they_lie():
    q, k, v = floats(2, 4, 3, 8), floats(2, 2, 4, 8), floats(2, 2, 4, 5)
    want = attend(q, k, v)[0]
    flat = [x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) for x in (q, k, v, want)]
    gives(flat[:3], flat[3], q_num_heads=4, kv_num_heads=2)


@either
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("size", [(8, 8), (6, 5)])
def test_narrow_floats_are_loaded_as_wide_as_they_lie_and_summed_in_float32(
    dtype, size
):
    q, k, v = (
        floats(1, 2, 3, size[0]),
        floats(1, 1, 9, size[0]),
        floats(1, 1, 9, size[1]),
    )
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    close = (
        {"rtol": 1e-2, "atol": 1e-2}
        if dtype != np.float16
        else {"rtol": 1e-3, "atol": 1e-3}
    )
    gives([q, k, v], attend(q, k, v, scale=0.3)[0], scale=0.3, close=close)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_scores_are_given_at_the_stage_asked_for(mode, softcap):
    q, k, v, mask = (
        floats(1, 2, 2, 4),
        floats(1, 1, 6, 4),
        floats(1, 1, 6, 4),
        floats(2, 6),
    )
    want, stages = attend(q, k, v, mask, softcap=softcap)
    gives([q, k, v, mask], want, None, None, stages[mode], qk_matmul_output_mode=mode, softcap=softcap)  # fmt: skip


@either
@pytest.mark.parametrize("shape", [(6,), (3, 6), (2, 3, 6), (2, 1, 3, 6), (2, 2, 1, 6)])
@pytest.mark.parametrize("causal", [0, 1])
def test_a_mask_broadcasts_and_composes_with_causality(shape, causal):
    q, k, v = floats(2, 2, 3, 4), floats(2, 2, 6, 4), floats(2, 2, 6, 4)
    keep = R.random(shape) < 0.7
    keep[..., 0] = True
    before = hide(np.arange(6) <= np.arange(3)[:, None]) if causal else 0
    gives([q, k, v, keep], attend(q, k, v, hide(keep) + before)[0], is_causal=causal)
    mask = floats(*shape)
    gives([q, k, v, mask], attend(q, k, v, mask + before)[0], is_causal=causal)


def test_a_short_mask_hides_the_keys_past_its_end():
    q, k, v = floats(1, 1, 2, 4), floats(1, 1, 5, 4), floats(1, 1, 5, 4)
    k[:, :, 3:] = v[:, :, 3:] = np.nan
    want = attend(q, k[:, :, :3], v[:, :, :3])[0]
    gives([q, k, v, np.ones((2, 3), bool)], want)


@either
def test_a_query_that_sees_no_key_gives_zeros_in_every_output():
    q, k, v = floats(1, 1, 3, 4), floats(1, 1, 3, 4), floats(1, 1, 3, 4)
    keep = np.array([[True] * 3, [False] * 3, [True, False, True]])
    want, stages = attend(q, k, v, hide(keep))
    assert (want[0, 0, 1] == 0).all()
    gives([q, k, v, keep], want, None, None, stages[3], qk_matmul_output_mode=3)


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_past_stands_before_and_shifts_the_diagonal(asked, dtype):
    made = [floats(1, 4, 3, 8), floats(1, 2, 3, 8), floats(1, 2, 3, 6), floats(1, 2, 5, 8), floats(1, 2, 5, 6)]  # fmt: skip
    q, k, v, past_k, past_v = (x.astype(dtype) for x in made)
    all_k, all_v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    want = attend(q, all_k, all_v, hide(np.arange(8) <= np.arange(3)[:, None] + 5))[0]
    presents = [all_k, all_v] if asked else []
    close = CLOSE if dtype == np.float32 else {"rtol": 1e-3, "atol": 1e-3}
    gives([q, k, v, None, past_k, past_v], want, *presents, is_causal=1, close=close)


@either
def test_a_cache_kept_outside_is_read_to_its_length_and_no_further():
    q, k, v = floats(3, 2, 2, 8), floats(3, 2, 6, 8), floats(3, 2, 6, 8)
    lengths = np.array([6, 3, 1])
    at = np.arange(2)[:, None] + (lengths - 2)[:, None, None, None]
    keep = (np.arange(6) <= at) & (np.arange(6) < lengths[:, None, None, None])
    want = attend(q, k, v, hide(keep))[0]
    for entry, length in enumerate(lengths):
        k[entry, :, length:] = v[entry, :, length:] = np.nan
    gives([q, k, v, None, None, None, lengths], want, is_causal=1)


@either
@pytest.mark.parametrize("window", [(2, -1), (-1, 1), (2, 1), (0, 0)])
@pytest.mark.parametrize("causal", [0, 1])
def test_a_window_bounds_what_is_seen_on_either_side(window, causal):
    q, k, v = floats(1, 1, 4, 4), floats(1, 1, 6, 4), floats(1, 1, 6, 4)
    ahead = np.arange(6) - np.arange(4)[:, None]
    keep = (ahead <= 0) if causal else np.ones((4, 6), bool)
    keep = keep & (ahead >= -window[0]) if window[0] >= 0 else keep
    keep = keep & (ahead <= window[1]) if window[1] >= 0 else keep
    sides = {"left_window_size": window[0], "right_window_size": window[1]}
    gives(
        [q, k, v], attend(q, k, v, hide(keep))[0], opset=25, is_causal=causal, **sides
    )


@either
@pytest.mark.parametrize("keys", [64 * 2, 64 * 3 + 5])
@pytest.mark.parametrize("window", [-1, 40])
def test_few_queries_meet_keys_in_parts_that_are_added_up(keys, window):
    q, k, v = floats(1, 2, 1, 8), floats(1, 1, keys, 8), floats(1, 1, keys, 8)
    assert works.parts_of(1, 1, 2, 1, keys, 8, 8) == keys // 64
    ahead = np.arange(keys)
    keep = (ahead <= window) if window >= 0 else np.ones(keys, bool)
    sides = {"right_window_size": window}
    gives([q, k, v], attend(q, k, v, hide(keep))[0], opset=25, **sides)


@either
def test_parts_that_have_no_key_leave_nothing():
    q, k, v = floats(2, 1, 1, 8), floats(2, 1, 200, 8), floats(2, 1, 200, 8)
    lengths = np.array([40, 0])
    want = attend(q, k, v, hide(np.arange(200) < lengths[:, None, None, None]))[0]
    k[0, :, 40:] = v[0, :, 40:] = np.nan
    gives([q, k, v, None, None, None, lengths], want)


@pytest.mark.parametrize("size", [16, 40, 136, 256])
def test_tiles_shrink_as_heads_grow(size):
    q, k, v = floats(1, 1, 17, size), floats(1, 1, 20, size), floats(1, 1, 20, 24)
    gives([q, k, v], attend(q, k, v, hide(np.arange(20) <= np.arange(17)[:, None]))[0], is_causal=1)  # fmt: skip


@pytest.mark.parametrize("size", [(33, 65), (64, 128), (136, 24), (256, 256)])
@pytest.mark.parametrize("heads", [1, 3, 8])
def test_warps_share_the_keys_of_few_queries_of_any_width(size, heads, monkeypatch):
    monkeypatch.setattr(works, "THREADS", 64)
    q, k, v = (
        floats(1, heads, 1, size[0]),
        floats(1, 1, 13, size[0]),
        floats(1, 1, 13, size[1]),
    )
    q, k, v = (x.astype(np.float16) for x in (q, k, v))
    assert works.few_columns(heads, *size)
    gives([q, k, v], attend(q, k, v)[0], close={"rtol": 2e-3, "atol": 2e-3})


def test_more_queries_than_a_tile_holds_meet_more_keys_than_a_tile_holds(monkeypatch):
    monkeypatch.setattr(works.Tiling, "most_columns", staticmethod(lambda *_: 16))
    q, k, v = floats(1, 3, 12, 4), floats(1, 1, 70, 4), floats(1, 1, 70, 4)
    gives([q, k, v], attend(q, k, v, hide(np.arange(70) <= np.arange(12)[:, None] + 0))[0], is_causal=1)  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_tiles_far_behind_the_first_load_their_queries(dtype, monkeypatch):
    monkeypatch.setattr(works.Tiling, "most_columns", staticmethod(lambda *_: 8))
    # A tile has 8 queries of 4 values, and the last one begins behind its 32 places.
    q, k, v = floats(1, 6, 11, 4), floats(1, 1, 3, 4), floats(1, 1, 3, 4)
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    close = CLOSE if dtype == np.float32 else {"rtol": 2e-3, "atol": 2e-3}
    gives([q, k, v], attend(q, k, v)[0], close=close)


def test_nothing_comes_of_nothing():
    q, k = floats(1, 2, 0, 4), floats(1, 2, 3, 4)
    gives([q, k, k], np.zeros((1, 2, 0, 4)))
    q, k = floats(1, 2, 3, 4), floats(1, 2, 0, 4)
    gives([q, k, k], np.zeros((1, 2, 3, 4)))


@either
def test_infinite_and_missing_numbers_go_through():
    q, k, v = floats(1, 1, 3, 4), floats(1, 1, 5, 4), floats(1, 1, 5, 4)
    q[0, 0, 1] = np.nan
    v[0, 0, 2, 1] = np.inf
    (got,), _ = done("Attention", [q, k, v], [F32])
    assert np.isnan(got[0, 0, 1]).all()
    assert (got[0, 0, [0, 2], 1] == np.inf).all()
    assert np.isfinite(got[0, 0, [0, 2]][:, [0, 2, 3]]).all()


REFUSED = {
    "past_key and past_value come together": ([0, 0, 0, None, 0], {}),
    "rank 3, and q_num_heads": ([1, 1, 1], {}),
    "softmax_precision is double": ([0, 0, 0], {"softmax_precision": 11}),
    "float32, float16, bfloat16": ([2, 2, 2], {}),
    "1 to 256 are what a tile holds": ([3, 3, 3], {}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_not_implemented_is_refused_with_the_reason(why):
    given = [floats(1, 2, 4, 8), floats(1, 4, 8), floats(1, 2, 4, 8).astype(np.float64),
             floats(1, 1, 2, 300)]  # fmt: skip
    which, attributes = REFUSED[why]
    inputs = [None if i is None else given[i] for i in which]
    _, answer = claim_of(
        node_of("Attention", inputs, [inputs[0].dtype.name], **attributes)
    )
    assert isinstance(answer, Refusal)
    assert why in str(answer)


def test_a_session_gives_what_onnx_defines_eager_recorded_and_replayed():
    text = """g (float[1,2,2,4] q, float[1,1,3,4] k, float[1,1,3,4] v, float[1,1,2,4] pk,
        float[1,1,2,4] pv) => (float[1,2,2,4] y, float[1,1,5,4] yk, float[1,1,5,4] yv)
        { y, yk, yv = Attention<is_causal = 1>(q, k, v, , pk, pv) }"""
    from tests.cuda.emulation import drawn

    check(text, drawn(text))
