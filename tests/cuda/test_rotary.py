"""RotaryEmbedding of both domains by its kernel's text, against the definition in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.attentions import rotated
from tests.cuda.directly import claim_of, done, node_of
from tests.cuda.emulation import check, drawn

from seamline.provider import Refusal

R = np.random.default_rng(25)
CONTRIB = "com.microsoft"
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def floats(*shape):
    return R.standard_normal(shape).astype(np.float32)


def gives(inputs, want, close=CLOSE, **attributes):
    (got,), complaints = done(
        "RotaryEmbedding", inputs, [inputs[0].dtype.name], **attributes
    )
    assert not complaints
    np.testing.assert_allclose(got.astype(np.float64), want, **close)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dim", [0, 4])
def test_pairs_are_rotated_and_the_rest_is_kept(interleaved, dim):
    x, half = floats(2, 3, 4, 8), (dim or 8) // 2
    cos, sin, places = floats(20, half), floats(20, half), R.integers(0, 20, (2, 3))
    want = rotated(x, cos[places], sin[places], interleaved)
    form = {"interleaved": interleaved, "rotary_embedding_dim": dim}
    first = [v.transpose(0, 2, 1, 3) for v in (x, want)]
    flat = [v.reshape(2, 3, 32) for v in (x, want)]
    gives([first[0], cos, sin, places], first[1], **form)
    gives([flat[0], cos, sin, places], flat[1], num_heads=4, **form)
    gives([flat[0], cos[places], sin[places]], flat[1], num_heads=4, **form)
    ours = dict(form, domain=CONTRIB)
    gives([first[0], places, cos, sin], first[1], **ours)
    gives(
        [flat[0], places, cos, sin],
        flat[1],
        **({"num_heads": 4} if dim else {}),
        **ours,
    )


def test_one_position_is_where_every_row_starts():
    x, cos, sin = floats(2, 3, 32), floats(20, 4), floats(20, 4)
    at = np.tile(np.arange(5, 8), (2, 1))
    want = rotated(x.reshape(2, 3, 4, 8), cos[at], sin[at], 0).reshape(x.shape)
    gives([x, np.array([5]), cos, sin], want, domain=CONTRIB)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rotated_in_float32_and_rounded_once(dtype):
    x, cos, sin = (
        v.astype(dtype) for v in (floats(1, 2, 3, 8), floats(9, 4), floats(9, 4))
    )
    places = np.array([[0, 8, 3]])
    moved = x.transpose(0, 2, 1, 3)
    want = rotated(moved, *(t[places].astype(np.float64) for t in (cos, sin)), 0)
    close = 1e-3 if dtype == np.float16 else 8e-3
    gives(
        [x, cos, sin, places], want.transpose(0, 2, 1, 3), {"rtol": close, "atol": 1e-3}
    )


@pytest.mark.parametrize("place", [9, -1])
def test_a_position_outside_of_the_tables_is_told(place):
    x, cos = floats(1, 1, 2, 4), floats(9, 2)
    _, complaints = done(
        "RotaryEmbedding", [x, cos, cos, np.array([[0, place]])], ["float32"]
    )
    assert complaints == ["a position is outside [0, 9) of the rotary tables"]


def test_nothing_is_rotated_of_no_rows():
    gives([floats(1, 2, 0, 4), floats(9, 2), floats(9, 2), np.zeros((1, 0), np.int64)], np.zeros((1, 2, 0, 4)))  # fmt: skip


@pytest.mark.parametrize(
    ("why", "attributes", "half"),
    [
        ("num_heads is not given", {}, 4),
        ("caches 3 wide do not rotate 8 values of a head of 8", {"num_heads": 4}, 3),
        ("is_packed_batching", {"domain": CONTRIB, "is_packed_batching": 1}, 4),
    ],
)
def test_what_is_not_implemented_is_refused_with_the_reason(why, attributes, half):
    x, cos, places = floats(1, 2, 32), floats(9, half), np.zeros((1, 2), np.int64)
    inputs = [x, places, cos, cos] if "domain" in attributes else [x, cos, cos, places]
    _, answer = claim_of(node_of("RotaryEmbedding", inputs, ["float32"], **attributes))
    assert isinstance(answer, Refusal)
    assert why in str(answer)


def test_a_session_reads_positions_anew_in_every_replay():
    text = """g (float[1,2,3,4] x, float[50,2] c, float[50,2] s, int64[1,3] p) =>
        (float[1,2,3,4] y) { y = RotaryEmbedding(x, c, s, p) }"""
    check(text, drawn(text))
