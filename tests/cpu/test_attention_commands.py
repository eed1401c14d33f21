"""The compiled attention by itself, against its definition in float64, and what is recorded."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.toys import model
from tests.cpu.movement import Bound, node_of
from tests.cpu.test_recording import captures

from seamline.pipeline import Pipeline
from seamline_cpu.commands import Native
from seamline_cpu.kernels.attention_arguments import BLOCK
from seamline_cpu.kernels.attention_native import Bias, Form, bind_attention, entries
from seamline_cpu.tiles import COLUMNS, LANES

R = np.random.default_rng(18)
few = settings(max_examples=12, deadline=None)
NONE = np.float64(-np.inf)


def floats(*shape):
    return R.standard_normal(shape).astype(np.float32)


def defined(q, k, v, form, table, bias=0.0):
    """Give attention row by row, by the text: the softmax of what a row sees, times values."""
    (batch, heads, rows, _), group = q.shape, q.shape[1] // k.shape[1]
    y = np.zeros((*q.shape[:3], v.shape[3]))
    bias = np.broadcast_to(bias, (batch, heads, rows, k.shape[2]))
    for b, (valid, position, keys) in enumerate(table):
        for h in range(heads):
            for r in range(min(rows, valid)):
                at = position + r
                seen = np.arange(k.shape[2]) < keys
                if form.causal:
                    seen &= np.arange(k.shape[2]) <= at
                if form.left >= 0:
                    seen &= np.arange(k.shape[2]) >= at - form.left
                if form.right >= 0:
                    seen &= np.arange(k.shape[2]) <= at + form.right
                scores = k[b, h // group].astype(float) @ q[b, h, r] * form.scale
                if form.softcap:
                    scores = form.softcap * np.tanh(scores / form.softcap)
                scores = np.where(seen, scores + bias[b, h, r], NONE)
                most = scores.max(initial=NONE)
                if form.sinks is not None:
                    most = max(most, float(form.sinks[h % form.sinks.size]))
                most = most if most > NONE else 0.0
                weights = np.exp(scores - most)
                total = weights.sum()
                if form.sinks is not None:
                    total += np.exp(float(form.sinks[h % form.sinks.size]) - most)
                y[b, h, r] = weights @ v[b, h // group] / total if total else 0.0
    return y


def is_as_defined(q, k, v, form, table, biases=(), bias=0.0, threads=2, tolerance=2e-5):
    y = np.full((*q.shape[:3], v.shape[3]), np.nan, q.dtype)
    run = bind_attention(q, k, v, y, form, table, threads, biases)
    assert isinstance(run, Native)
    run()
    wide = [x.astype(np.float64) for x in (q, k, v)]
    want = defined(*wide, form, table, bias)
    np.testing.assert_allclose(y.astype(float), want, rtol=tolerance, atol=tolerance)


@few
@given(
    st.integers(1, 3),
    st.sampled_from([(1, 1), (4, 2), (6, 2), (9, 3)]),
    st.sampled_from([1, 2, LANES, COLUMNS + 1]),
    st.sampled_from([1, 5, 7, 8, LANES - 1, LANES + 3, BLOCK - 1, BLOCK + 7]),
    st.sampled_from([(1, 1), (3, 5), (8, 6), (20, 13), (64, 33)]),
    st.booleans(),
)
def test_any_sizes_give_what_the_definition_says(
    batch, heads, rows, keys, size, causal
):
    depth, width = size
    q, k = floats(batch, heads[0], rows, depth), floats(batch, heads[1], keys, depth)
    v = floats(batch, heads[1], keys, width)
    form = Form(0.4, causal=causal)
    is_as_defined(q, k, v, form, entries(batch, rows, keys - rows, keys))


FORMS = {
    "cap": Form(0.3, softcap=1.5),
    "window": Form(0.3, causal=True, left=9),
    "both sides": Form(0.3, left=4, right=11),
    "one sink": Form(0.3, causal=True, sinks=np.zeros(1, np.float32)),
    "sinks": Form(0.3, sinks=floats(6)),
    "all": Form(0.3, 2.0, causal=True, left=150, sinks=floats(6)),
}


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("name", FORMS)
def test_each_form_holds_for_few_rows_and_for_panels(name, rows):
    keys = BLOCK + 60
    q, k, v = floats(2, 6, rows, 12), floats(2, 2, keys, 12), floats(2, 2, keys, 20)
    is_as_defined(q, k, v, FORMS[name], entries(2, rows, keys - rows, keys))


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("kind", ["float32", "bool", "int32"])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (2, 1, 1), (1, 6, 1), (2, 1, 0), (1, 6, 0), (2, 6, 0)]
)
def test_a_bias_or_mask_broadcasts_over_entries_heads_and_rows(shape, kind, rows):
    keys = 70
    q, k, v = floats(2, 6, rows, 8), floats(2, 2, keys, 8), floats(2, 2, keys, 8)
    whole = (*shape[:2], shape[2] or rows, keys)
    if kind == "float32":
        array = floats(*whole)
        biases, bias = (Bias(array),), array
    else:
        array = (R.random(whole) < 0.6).astype(kind)
        filler = -np.inf if kind == "bool" else -3.0
        biases, bias = (Bias(array, filler),), np.where(array, 0.0, filler)
    table = entries(2, rows, keys - rows, keys)
    is_as_defined(q, k, v, Form(0.5, causal=True), table, biases, bias)


@pytest.mark.parametrize("rows", [1, 40])
def test_two_biases_are_added(rows):
    q, k, v = floats(2, 2, rows, 8), floats(2, 2, 30, 8), floats(2, 2, 30, 8)
    one, two = floats(2, 1, 1, 30), floats(1, 2, rows, 30)
    table = entries(2, rows, 0, 30)
    is_as_defined(q, k, v, Form(0.5), table, (Bias(one), Bias(two)), one + two)


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_entries_have_rows_positions_and_keys_of_their_own(rows):
    q, k, v = floats(3, 4, rows, 8), floats(3, 2, 300, 8), floats(3, 2, 300, 8)
    table = np.array([[rows, 10, 10 + rows], [max(rows - 1, 0), 200, 230], [0, 0, 0]])
    for b, (_, _, keys) in enumerate(table):
        k[b, :, keys:] = v[b, :, keys:] = np.nan  # beyond its tokens nothing is read
    is_as_defined(q, np.nan_to_num(k), np.nan_to_num(v), Form(0.5, causal=True), table)
    y = np.zeros((3, 4, rows, 8), np.float32)
    bind_attention(q, k, v, y, Form(0.5, causal=True), table, 2)()
    assert np.isfinite(y).all()
    assert (y[2] == 0).all()


@pytest.mark.parametrize("rows", [1, 40])
def test_a_row_that_sees_nothing_gives_zeros(rows):
    q, k, v = floats(1, 2, rows, 8), floats(1, 2, 9, 8), floats(1, 2, 9, 8)
    mask = np.ones((1, 1, rows, 9), bool)
    mask[:, :, 0] = False
    y = np.ones((1, 2, rows, 8), np.float32)
    bind_attention(q, k, v, y, Form(0.5), entries(1, rows, 0, 9), 1, (Bias(mask),))()
    assert (y[:, :, 0] == 0).all()
    assert (y[:, :, 1:] != 0).all()


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_scores_beyond_what_exp_can_hold_neither_overflow_nor_vanish(rows, threads):
    keys = 2 * BLOCK + 5
    q, k, v = floats(1, 3, rows, 16), floats(1, 3, keys, 16), floats(1, 3, keys, 16)
    table = entries(1, rows, 0, keys)
    is_as_defined(q * 60, k * 60, v, Form(1.0), table, threads=threads, tolerance=2e-3)
    low = np.full((1, 1, 1, keys), -9000.0, np.float32)
    is_as_defined(q, k, v, Form(1.0), table, (Bias(low),), low, threads, 2e-3)


@pytest.mark.parametrize("rows", [1, 40])
def test_nan_reaches_the_rows_that_see_it_and_no_other(rows):
    q, k, v = floats(1, 1, rows, 8), floats(1, 1, 60, 8), floats(1, 1, 60, 8)
    k[0, 0, 50] = np.nan
    y = np.zeros((1, 1, rows, 8), np.float32)
    table = entries(1, rows, 40 if rows > 1 else 55, 60)
    bind_attention(q, k, v, y, Form(0.5, causal=True), table, 2)()
    sees = table[0, 1] + np.arange(rows) >= 50
    np.testing.assert_array_equal(np.isnan(y[0, 0]).all(axis=1), sees)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2)]
)
def test_small_floats_are_multiplied_in_float32(rows, dtype, tolerance):
    shapes = ((2, 6, rows, 20), (2, 2, 300, 20), (2, 2, 300, 24))
    q, k, v = (floats(*shape).astype(dtype) for shape in shapes)
    table = entries(2, rows, 300 - rows, 300)
    is_as_defined(q, k, v, Form(0.3, causal=True), table, tolerance=tolerance)


def test_heads_inside_of_a_packed_projection_are_read_where_they_lie():
    packed = floats(2, 33, 3 * 4 * 8).reshape(2, 33, 3, 4, 8)
    q, k, v = (packed[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    is_as_defined(q, k, v, Form(0.3, causal=True), entries(2, 33, 0, 33))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("heads", [(4, 4), (6, 2)])
def test_rows_that_lie_apart_are_brought_together_for_many_panels(heads, dtype):
    rows, keys = 5 * COLUMNS, BLOCK + 9
    q, k, v = (
        floats(2, n, h, 64).transpose(0, 2, 1, 3).astype(dtype, order="K")
        for n, h in ((rows, heads[0]), (keys, heads[1]), (keys, heads[1]))
    )
    table = np.array([[rows, 20, keys], [rows, 0, 100]])
    tolerance = 2e-5 if dtype == np.float32 else 4e-3
    is_as_defined(q, k, v, Form(0.2, causal=True), table, tolerance=tolerance)


# -- which nodes are lists of commands ----------------------------------------------------

NODES = {
    "Attention": ("Attention", "", [(1, 2, 3, 8)] * 3, {}),
    "MultiHeadAttention": (
        "MultiHeadAttention", "com.microsoft", [(1, 3, 16)] * 3, {"num_heads": 2},
    ),
    "projected": (
        "Attention", "com.microsoft", [(1, 3, 8), (8, 48), (48,)], {"num_heads": 2},
    ),
    "skip": (
        "SkipLayerNormalization", "com.microsoft",
        [(2, 3, 8), (3, 8), (8,), (8,), (8,)], {},
    ),
    "skip rms": (
        "SkipSimplifiedLayerNormalization", "com.microsoft",
        [(2, 3, 8), (2, 3, 8), (8,), (8,)], {},
    ),
    "rotary": (
        "RotaryEmbedding", "", [(1, 2, 3, 8), (1, 3, 4), (1, 3, 4)], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_bound_to_commands_alone(name):
    op, domain, shapes, attributes = NODES[name]
    inputs = [floats(*shape) for shape in shapes]
    node = node_of(op, inputs, 1, domain, **attributes)
    width = 16 if name == "projected" else inputs[0].shape[-1]
    like = np.zeros((*inputs[0].shape[:-1], width), np.float32)
    bound = Bound(node, inputs, [like], 23)
    assert all(isinstance(run, Native) for run in bound.executable._runs)


def test_scores_that_are_given_out_stay_in_numpy_and_the_claim_says_so():
    source = """g (float[1,2,3,4] q, float[1,2,3,4] k, float[1,2,3,4] v) => (y, s) {
      [a] y, , , s = Attention(q, k, v) [b] z = Neg(y) [c] w = Add(z, y) }"""
    pipeline = Pipeline.open(
        model(source, opset=23), providers=["cpu"], graph_optimization_level="none"
    )
    try:
        feeds = {name: floats(1, 2, 3, 4) for name in "qkv"}
        for _ in range(2):
            pipeline.run(feeds)
        claim = pipeline.placement.of(pipeline.graph.nodes[0]).claim
        assert "qk_matmul_output" in claim.not_capturable
    finally:
        pipeline.close()


DECODER = """g (float[1,s,12] x, float[1,2,p,4] pk, float[1,2,p,4] pv) => (y, nk, nv) {
  h = RMSNormalization <axis = -1> (x, w)
  q = MatMul(h, wq) k = MatMul(h, wk) v = MatMul(h, wv)
  a, nk, nv = Attention <q_num_heads = 3, kv_num_heads = 1, is_causal = 1> (q, k, v, , pk, pv)
  o = Add(a, x) y = RMSNormalization <axis = -1> (o, w) }"""


def test_a_decoder_step_is_recorded_whole():
    constants = {
        "w": floats(12),
        "wq": floats(12, 12),
        "wk": floats(12, 4),
        "wv": floats(12, 4),
    }
    text = DECODER.replace("[1,2,p,4]", "[1,1,p,4]")
    from tests.cpu.rewritten import model_of

    pipeline = Pipeline.open(model_of(text, 23, **constants), providers=["cpu"])
    try:
        for past, rows in ((6, 1), (0, 5)):
            feeds = {
                "x": floats(1, rows, 12), "pk": floats(1, 1, past, 4),
                "pv": floats(1, 1, past, 4),
            }  # fmt: skip
            first, again = (pipeline.run(feeds) for _ in range(2))
            for one, other in zip(first, again, strict=True):
                np.testing.assert_array_equal(one, other)
            if past:
                assert [capture["left"] for capture in captures(pipeline)] == [{}]
    finally:
        pipeline.close()
