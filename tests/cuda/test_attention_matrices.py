"""Attention by tensor cores, over their definition, against attention's own in float64."""

from __future__ import annotations

import ast

import ml_dtypes
import numpy as np
import pytest
from tests.attentions import attend, hide
from tests.cuda.directly import done
from tests.cuda.test_attention import floats

import seamline_cuda.attention_matrices as matrices
import seamline_cuda.attention_works as works
from seamline_cuda.attention_few import few_kernel
from seamline_cuda.attention_floats import floats_kernel
from seamline_cuda.attention_tiles import tiles_kernel
from seamline_cuda.attention_tiling import Tiling

TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LOOSE = {"float16": 2e-3, "bfloat16": 2e-2}


@pytest.fixture
def only_tensor_cores(monkeypatch):
    """Leave nothing to the other kernels, and count what this one made."""
    made = []

    def kernel(tiling):
        made.append(tiling)
        return matrices.matrices_kernel(tiling)

    monkeypatch.setattr(works, "few_columns", lambda *_: 0)
    monkeypatch.setitem(works._KERNELS, "matrices", kernel)
    yield
    assert made


only = pytest.mark.usefixtures("only_tensor_cores")


def gives(inputs, want, kind, **attributes):
    (got,), complaints = done("Attention", inputs, [kind], **attributes)
    assert not complaints
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=LOOSE[kind], atol=LOOSE[kind])  # fmt: skip


def drawn(kind, heads, kv, rows, keys, depth, width, batch=1):
    shapes = (heads, rows, depth), (kv, keys, depth), (kv, keys, width)
    return [floats(batch, *shape).astype(TYPES[kind]) for shape in shapes]


@only
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("causal", [0, 1])
def test_heads_share_keys_over_several_tiles_of_either(kind, causal):
    q, k, v = drawn(kind, 6, 2, 7, 70, 16, 16)
    bias = hide(np.arange(70) <= np.arange(7)[:, None]) if causal else 0
    gives([q, k, v], attend(q, k, v, bias)[0], kind, is_causal=causal)


@only
@pytest.mark.parametrize("size", [(32, 16), (48, 64), (128, 128)])
def test_heads_of_any_width_that_is_a_multiple_of_sixteen(size):
    q, k, v = drawn("float16", 1, 1, 17, 19, *size)
    gives([q, k, v], attend(q, k, v)[0], "float16")


@only
def test_rows_of_all_heads_are_read_where_they_lie():
    q, k, v = drawn("float16", 4, 2, 9, 21, 16, 32, batch=2)
    want = attend(q, k, v)[0]
    flat = [x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) for x in (q, k, v, want)]
    gives(flat[:3], flat[3], "float16", q_num_heads=4, kv_num_heads=2)


@only
def test_masks_windows_and_a_cap_are_as_in_the_other_kernels():
    q, k, v = drawn("float16", 2, 1, 9, 70, 16, 16)
    keep = np.random.default_rng(3).random((2, 9, 70)) < 0.7
    keep[:, 4] = False  # a query that sees no key
    ahead = np.arange(70) - np.arange(9)[:, None]
    bias = hide(keep & (ahead >= -3) & (ahead <= 40))
    want = attend(q, k, v, bias, softcap=2.0)[0]
    sides = {"left_window_size": 3, "right_window_size": 40}
    gives([q, k, v, keep], want, "float16", opset=25, softcap=2.0, **sides)
    assert (want[:, :, 4] == 0).all()


@only
def test_a_cache_is_read_to_its_length_and_no_further():
    q, k, v = drawn("bfloat16", 2, 2, 5, 80, 16, 16, batch=3)
    lengths = np.array([80, 65, 9])
    at = np.arange(5)[:, None] + (lengths - 5)[:, None, None, None]
    want = attend(q, k, v, hide(np.arange(80) <= at))[0]
    for entry, length in enumerate(lengths):
        k[entry, :, length:] = v[entry, :, length:] = np.nan
    gives([q, k, v, None, None, None, lengths], want, "bfloat16", is_causal=1)


@only
@pytest.mark.parametrize("lengths", [None, (140, 40)])
def test_keys_in_parts_are_added_up(lengths):
    q, k, v = drawn("float16", 2, 1, 9, 140, 16, 16, batch=2)
    assert works.parts_of(2, 1, 2, 9, 140, 16, 16) == 2
    given, bias = [q, k, v], 0
    if lengths is not None:
        given += [None, None, None, np.array(lengths)]
        bias = hide(np.arange(140) < np.array(lengths)[:, None, None, None])
    gives(given, attend(q, k, v, bias)[0], "float16")


@only
def test_infinite_and_missing_numbers_stay_in_their_rows():
    q, k, v = drawn("float16", 1, 1, 5, 9, 16, 16)
    q[0, 0, 1] = np.nan
    v[0, 0, 2, 1] = np.inf
    (got,), _ = done("Attention", [q, k, v], ["float16"])
    assert np.isnan(got[0, 0, 1]).all()
    others = got[0, 0, [0, 2, 3, 4]]
    assert (others[:, 1] == np.inf).all()
    assert np.isfinite(np.delete(others, 1, axis=1)).all()


@only
def test_scores_far_from_zero_do_not_overflow():
    q, k, v = drawn("float16", 1, 1, 3, 20, 16, 16)
    q, k = q * np.float16(60), k * np.float16(60)
    gives([q, k, v], attend(q, k, v)[0], "float16")


PLACES = {"part", "tile", "entry", "head", "column", "columns", "first", "end", "fresh"}
KERNELS = {
    "few": few_kernel(Tiling(("float16",) * 4, 64, 64, 8, wide=(1, 2, 2), split=True)),
    "tiles": tiles_kernel(Tiling(("float32",) * 4, 64, 64, 64, split=True)),
    "floats": floats_kernel(Tiling(("float32",) * 4, 64, 64, 32, split=True)),
    "matrices": matrices.matrices_kernel(
        Tiling(("float16",) * 4, 64, 64, 64, wide=(2, 2, 2), split=True)
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_what_says_where_a_block_stands_is_said_once(name):
    # Texts are put together, and a name that two of them use would be one variable.
    told = [
        target.id
        for node in ast.walk(ast.parse(KERNELS[name].text))
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.For))
        for target in ast.walk(
            node.targets[0] if isinstance(node, ast.Assign) else node.target
        )
        if isinstance(target, ast.Name)
    ]
    assert {n: told.count(n) for n in PLACES} == dict.fromkeys(PLACES, 1)
