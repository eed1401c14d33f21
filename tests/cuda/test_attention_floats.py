"""Attention of float32 whose tiles are copied ahead, against attention's own in float64."""

from __future__ import annotations

import numpy as np
import pytest
from tests.attentions import attend, hide
from tests.cuda.directly import done
from tests.cuda.test_attention import floats, gives

import seamline_cuda.attention_floats as kernels
import seamline_cuda.attention_works as works


@pytest.fixture(autouse=True)
def only_floats(monkeypatch):
    """Leave nothing to the other kernels; a warp for each block, and few queries of a tile."""
    made = []

    def kernel(tiling):
        made.append(tiling)
        return kernels.floats_kernel(tiling)

    monkeypatch.setattr(works, "few_columns", lambda *_: 0)
    monkeypatch.setattr(works, "THREADS", 32)
    monkeypatch.setitem(works._COLUMNS, "floats", lambda *_: 8)
    monkeypatch.setitem(works._KERNELS, "floats", kernel)
    yield
    assert made


@pytest.mark.parametrize("causal", [0, 1])
def test_heads_share_keys_over_several_tiles_of_either(causal):
    q, k, v = floats(1, 6, 7, 8), floats(1, 2, 70, 8), floats(1, 2, 70, 12)
    bias = hide(np.arange(70) <= np.arange(7)[:, None]) if causal else 0
    gives([q, k, v], attend(q, k, v, bias)[0], is_causal=causal)


@pytest.mark.parametrize("size", [(36, 40), (64, 4), (128, 20)])
def test_heads_of_any_width_that_is_a_multiple_of_four(size):
    q, k, v = (
        floats(1, 1, 9, size[0]),
        floats(1, 1, 19, size[0]),
        floats(1, 1, 19, size[1]),
    )
    gives([q, k, v], attend(q, k, v)[0])


def test_rows_of_all_heads_are_read_where_they_lie():
    q, k, v = floats(2, 4, 5, 8), floats(2, 2, 9, 8), floats(2, 2, 9, 12)
    want = attend(q, k, v)[0]
    flat = [x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) for x in (q, k, v, want)]
    gives(flat[:3], flat[3], q_num_heads=4, kv_num_heads=2)


def test_masks_windows_and_a_cap_are_as_in_the_other_kernels():
    q, k, v = floats(1, 2, 9, 8), floats(1, 1, 70, 8), floats(1, 1, 70, 8)
    keep = np.random.default_rng(3).random((2, 9, 70)) < 0.7
    keep[:, 4] = False  # a query that sees no key
    ahead = np.arange(70) - np.arange(9)[:, None]
    want = attend(q, k, v, hide(keep & (ahead >= -3) & (ahead <= 40)), softcap=2.0)[0]
    sides = {"left_window_size": 3, "right_window_size": 40}
    gives([q, k, v, keep], want, opset=25, softcap=2.0, **sides)
    assert (want[:, :, 4] == 0).all()


def test_a_cache_is_read_to_its_length_and_no_further():
    q, k, v = floats(3, 2, 5, 8), floats(3, 2, 80, 8), floats(3, 2, 80, 8)
    lengths = np.array([80, 65, 9])
    at = np.arange(5)[:, None] + (lengths - 5)[:, None, None, None]
    want = attend(q, k, v, hide(np.arange(80) <= at))[0]
    for entry, length in enumerate(lengths):
        k[entry, :, length:] = v[entry, :, length:] = np.nan
    gives([q, k, v, None, None, None, lengths], want, is_causal=1)


@pytest.mark.parametrize("lengths", [None, (140, 40)])
def test_keys_in_parts_are_added_up(lengths):
    q, k, v = floats(2, 2, 9, 8), floats(2, 1, 140, 8), floats(2, 1, 140, 8)
    given, bias = [q, k, v], 0
    if lengths is not None:
        given += [None, None, None, np.array(lengths)]
        bias = hide(np.arange(140) < np.array(lengths)[:, None, None, None])
    gives(given, attend(q, k, v, bias)[0])


def test_infinite_and_missing_numbers_stay_in_their_rows():
    q, k, v = floats(1, 1, 5, 8), floats(1, 1, 9, 8), floats(1, 1, 9, 8)
    q[0, 0, 1] = np.nan
    v[0, 0, 2, 1] = np.inf
    (got,), _ = done("Attention", [q, k, v], ["float32"])
    assert np.isnan(got[0, 0, 1]).all()
    others = got[0, 0, [0, 2, 3, 4]]
    assert (others[:, 1] == np.inf).all()
    assert np.isfinite(np.delete(others, 1, axis=1)).all()
