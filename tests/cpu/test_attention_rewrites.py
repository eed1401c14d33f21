"""Attention, rotary positions and skip connections written out, and the operators they become."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cpu.rewritten import Both, model_of

from seamline.pipeline import Pipeline

R = np.random.default_rng(41)
CONTRIB, OWN = "com.microsoft::", "seamline::"
BATCH, ROWS, HEADS, SIZE = 2, 5, 3, 4
HIDDEN = HEADS * SIZE
few = settings(max_examples=8, deadline=None)


def normal(*shape):
    return R.standard_normal(shape).astype(np.float32)


def scalar(value):
    return np.array(value, np.float32)


CUT = {"cut": np.array([0, 0, HEADS, SIZE]), "back": np.array([0, 0, HIDDEN])}
SCORES = "t = MatMul(q, k) s = Mul(t, scale)"
HEADS_OF = """
 qr = Reshape(xq, cut) q = Transpose <perm = [0,2,1,3]> (qr)
 kr = Reshape(xk, cut) k = Transpose <perm = [0,2,3,1]> (kr)
 vr = Reshape(xv, cut) v = Transpose <perm = [0,2,1,3]> (vr)
"""
JOINED = "m = MatMul(p, v) mt = Transpose <perm = [0,2,1,3]> (m) y = Reshape(mt, back)"
INPUTS = "g (float[b,s,12] xq, float[b,t,12] xk, float[b,t,12] xv, float[b,1,1,t] mask) => (y)"


def encoder(middle, opset=17, inputs=INPUTS, **constants):
    text = f"{inputs} {{ {HEADS_OF} {middle} {JOINED} }}"
    constants = {"scale": scalar(0.5), **CUT, **constants}
    used = {n: c for n, c in constants.items() if n in text}
    return model_of(text, opset, **used)


def fed(keys=7, mask=None):
    return {
        "xq": normal(BATCH, ROWS, HIDDEN),
        "xk": normal(BATCH, keys, HIDDEN),
        "xv": normal(BATCH, keys, HIDDEN),
        "mask": normal(BATCH, 1, 1, keys) if mask is None else mask,
    }


def attends(both, op=f"{OWN}Attention", more=()):
    """Assert that the graph is one attention, and gives what it gave."""
    assert both.ops == {op: 1, **dict(more)}, both.left
    assert both.rules["attention"] == 1
    both.are_alike()


@pytest.mark.parametrize("pair", ["s, mask", "mask, s"])
@pytest.mark.parametrize(
    ("opset", "op"),
    [(12, f"{OWN}Attention"), (17, f"{OWN}Attention"), (23, "Attention")],
)
def test_an_encoders_attention_takes_projections_as_they_come(opset, op, pair):
    middle = f"{SCORES} a = Add({pair}) p = Softmax <axis = 3> (a)"
    attends(Both(encoder(middle, opset), fed()), op)


def test_without_a_mask_it_is_the_operator_that_peers_know():
    middle = f"{SCORES} p = Softmax <axis = -1> (s) unread = Identity(mask)"
    attends(Both(encoder(middle), fed()), f"{CONTRIB}MultiHeadAttention")


def test_a_mask_with_all_rows_is_the_peers_bias():
    inputs = INPUTS.replace("b,1,1,t", "b,1,s,t")
    middle = f"{SCORES} a = Add(s, mask) p = Softmax <axis = -1> (a)"
    feeds = fed(mask=normal(BATCH, 1, ROWS, 7))
    attends(Both(encoder(middle, inputs=inputs), feeds), f"{CONTRIB}MultiHeadAttention")


SCALED = {
    "divided": "t = MatMul(q, k) s = Div(t, scale)",
    "query first": "q2 = Mul(q, scale) s = MatMul(q2, k)",
    "both": "q2 = Mul(q, scale) k2 = Mul(scale, k) s = MatMul(q2, k2)",
    "twice": "q2 = Div(q, scale) t = MatMul(q2, k) s = Mul(scale, t)",
    "not at all": "s = MatMul(q, k)",
}


@pytest.mark.parametrize("form", SCALED)
def test_the_factor_may_stand_before_the_product_or_after(form):
    middle = f"{SCALED[form]} a = Add(s, mask) p = Softmax <axis = -1> (a)"
    attends(Both(encoder(middle), fed()))


def test_a_guard_against_rows_that_see_nothing_is_taken_in():
    middle = f"""{SCORES} a = Add(s, mask) w = Softmax <axis = -1> (a)
      n = IsNaN(w) p = Where(n, zero, w)"""
    mask = normal(BATCH, 1, 1, 7)
    mask[1] = -np.inf
    both = Both(encoder(middle, zero=scalar(0)), fed(mask=mask))
    attends(both)
    assert (both.given[0][1] == 0).all()


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min, -1e4])
def test_a_chosen_score_becomes_a_mask_if_its_number_swallows_any(keeps, hidden):
    inputs = INPUTS.replace("float[b,1,1,t]", "bool[b,1,1,t]")
    order = "s, hidden" if keeps else "hidden, s"
    middle = f"{SCORES} a = Where(mask, {order}) p = Softmax <axis = -1> (a)"
    mask = R.random((BATCH, 1, 1, 7)) < 0.5
    mask[..., 0] = keeps
    mask[..., 1] = not keeps
    both = Both(encoder(middle, inputs=inputs, hidden=scalar(hidden)), fed(mask=mask))
    if hidden == -1e4:
        assert both.ops["Softmax"] == 1
        assert "not minus infinity" in both.left["attention"]
        both.are_alike()
    else:
        attends(both, more={"Where": 1})


def test_a_finite_number_hides_as_it_did_where_a_row_sees_nothing():
    inputs = INPUTS.replace("float[b,1,1,t]", "bool[b,1,1,t]")
    middle = f"{SCORES} a = Where(mask, s, hidden) p = Softmax <axis = -1> (a)"
    least = scalar(np.finfo(np.float32).min)
    feeds = fed(mask=np.zeros((BATCH, 1, 1, 7), bool))
    attends(
        Both(encoder(middle, inputs=inputs, hidden=least), feeds), more={"Where": 1}
    )


@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min])
def test_scores_that_are_replaced_and_then_masked_become_one_mask(hidden):
    inputs = INPUTS.replace(") => (y)", ", bool[s,t] before) => (y)")
    middle = f"""{SCORES} c = Where(before, s, hidden) a = Add(c, mask)
      p = Softmax <axis = -1> (a)"""
    feeds = fed() | {"before": R.random((ROWS, 7)) < 0.6}
    feeds["before"][:, 0] = True
    both = Both(encoder(middle, inputs=inputs, hidden=scalar(hidden)), feeds)
    # The mask of all rows is what peers know.
    attends(both, f"{CONTRIB}MultiHeadAttention", more={"Where": 1, "Add": 1})


KEYS_TURNED = {
    "axes": "k = Transpose <perm = [0,1,3,2]> (xk)",
    "from rows": "kr = Transpose <perm = [0,2,1,3]> (xk) k = Transpose <perm = [0,2,3,1]> (kr)",
    "through three": """kf = Reshape(xk, three) kt = Transpose <perm = [0,2,1]> (kf)
      k = Reshape(kt, four)""",
}


@pytest.mark.parametrize("form", KEYS_TURNED)
def test_heads_that_come_first_stay_first(form):
    text = f"""g (float[2,3,5,4] xq, float[2,3,7,4] xk, float[2,3,7,6] xv) => (y) {{
      {KEYS_TURNED[form]} t = MatMul(xq, k) p = Softmax <axis = -1> (t)
      y = MatMul(p, xv) }}"""
    shapes = {"three": np.array([6, 7, 4]), "four": np.array([2, 3, 4, 7])}
    model = model_of(text, 17, **{n: v for n, v in shapes.items() if n in text})
    feeds = {
        "xq": normal(2, 3, 5, 4),
        "xk": normal(2, 3, 7, 4),
        "xv": normal(2, 3, 7, 6),
    }
    both = Both(model, feeds)
    assert both.ops[f"{OWN}Attention"] == 1
    assert both.ops["Softmax"] == 0
    both.are_alike()


def test_heads_that_were_repeated_for_the_product_are_shared_instead():
    text = """g (float[b,6,s,4] q, float[b,2,t,4] k, float[b,2,t,4] v) => (y) {
      k1 = Unsqueeze(k, two) k2 = Expand(k1, spread) k3 = Reshape(k2, six)
      v1 = Unsqueeze(v, two) v2 = Expand(v1, spread) v3 = Reshape(v2, six)
      kt = Transpose <perm = [0,1,3,2]> (k3) s = MatMul(q, kt) p = Softmax <axis = -1> (s)
      y = MatMul(p, v3) }"""
    sizes = {
        "two": np.array([2]),
        "spread": np.array([1, 1, 3, 1, 1]),
        "six": np.array([0, 6, -1, 4]),
    }
    feeds = {"q": normal(2, 6, 5, 4), "k": normal(2, 2, 7, 4), "v": normal(2, 2, 7, 4)}
    both = Both(model_of(text, 17, **sizes), feeds)
    assert both.ops == {f"{OWN}Attention": 1}, both.left
    both.are_alike()


@few
@given(
    st.integers(1, 9), st.integers(1, 40), st.integers(1, 4), st.sampled_from([2, 6, 8])
)
def test_any_sizes_give_what_the_nodes_gave(rows, keys, heads, size):
    hidden = heads * size
    inputs = INPUTS.replace(",12]", f",{hidden}]")
    sizes = {"cut": np.array([0, 0, heads, size]), "back": np.array([0, 0, hidden])}
    middle = f"{SCORES} a = Add(s, mask) p = Softmax <axis = -1> (a)"
    feeds = {
        "xq": normal(BATCH, rows, hidden), "xk": normal(BATCH, keys, hidden),
        "xv": normal(BATCH, keys, hidden), "mask": normal(BATCH, 1, 1, keys),
    }  # fmt: skip
    Both(encoder(middle, inputs=inputs, **sizes), feeds).are_alike()


REFUSED = {
    "weights are asked for": ("p", "is an output of the graph"),
    "scores are asked for": ("s", "is an output of the graph"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_values_that_are_asked_for_stay(case):
    value, why = REFUSED[case]
    middle = f"{SCORES} a = Add(s, mask) p = Softmax <axis = -1> (a)"
    model = encoder(middle, inputs=INPUTS.replace("(y)", f"(y, {value})"))
    both = Both(model, fed())
    assert both.ops["Softmax"] == 1
    assert why in both.left["attention"]
    both.are_alike()


def test_a_mask_over_other_keys_stays():
    inputs = INPUTS.replace("b,1,1,t", "b,1,1,1")
    middle = f"{SCORES} a = Add(s, mask) p = Softmax <axis = -1> (a)"
    both = Both(encoder(middle, inputs=inputs), fed(mask=normal(BATCH, 1, 1, 1)))
    assert both.ops["Softmax"] == 1
    assert "its mask is" in both.left["attention"]
    both.are_alike()


def test_a_pinned_node_stays():
    middle = f"{SCORES} a = Add(s, mask) p = Softmax <axis = -1> (a)"
    model = encoder(middle)
    model.graph.node[[n.op_type for n in model.graph.node].index("Softmax")].name = "it"
    pipeline = Pipeline.open(model, graph_optimization_level="all", pins={"it": "cpu"})
    try:
        assert "Softmax" in {node.op_type for node in pipeline.graph.nodes}
        (left,) = [one for one in pipeline.optimized.left if one.rule == "attention"]
        assert "pinned" in left.why
    finally:
        pipeline.close()


# -- rotary ------------------------------------------------------------------------------

ROTATED = """
 x1 = Slice(x, zero, half, last) x2 = Slice(x, half, end, last)
 n = Neg(x2) r = Concat <axis = -1> ({parts})
 a = Mul(x, cos) b = Mul(r, sin) y = Add({sum})
"""
EDGES = {
    "zero": np.array([0]), "half": np.array([3]), "end": np.array([2**63 - 1]),
    "last": np.array([-1]), "one": np.array([1]),
}  # fmt: skip


def rotation(
    made, opset=17, parts="n, x1", order="a, b", inputs="float[b,s,6] f", **more
):
    text = f"g (float[b,3,s,6] x, {inputs}) => (y) {{ {made} "
    text += ROTATED.format(parts=parts, sum=order) + "}"
    named = {n: v for n, v in EDGES.items() if n in text.replace("Constant", "")}
    return model_of(text, opset, **named, **more)


ANGLES = """e = Concat <axis = -1> (h, h) c0 = Cos(e) s0 = Sin(e)
 cos = Unsqueeze(c0, one) sin = Unsqueeze(s0, one)"""


@pytest.mark.parametrize("order", ["a, b", "b, a"])
@pytest.mark.parametrize("opset", [17, 23])
def test_a_rotation_of_halves_becomes_rotary_embedding(opset, order):
    model = rotation(ANGLES, opset, order=order, inputs="float[b,s,3] h")
    both = Both(model, {"x": normal(2, 3, 5, 6), "h": normal(2, 5, 3)})
    assert both.ops["RotaryEmbedding" if opset == 23 else f"{OWN}RotaryEmbedding"] == 1
    assert both.ops["Concat"] == 1  # of the angles
    both.are_alike()


def test_tables_that_are_gathered_rotate_if_their_halves_are_equal():
    half = normal(9, 3)
    text = """c0 = Gather(table, p) s0 = Gather(other, p)
      cos = Unsqueeze(c0, one) sin = Unsqueeze(s0, one)"""
    feeds = {"x": normal(2, 3, 5, 6), "p": R.integers(0, 9, (2, 5))}
    doubled = np.concatenate([half, half], 1)
    both = Both(
        rotation(text, inputs="int64[b,s] p", table=doubled, other=doubled * 2), feeds
    )
    assert both.ops[f"{OWN}RotaryEmbedding"] == 1
    both.are_alike()
    plain = Both(
        rotation(text, inputs="int64[b,s] p", table=normal(9, 6), other=doubled), feeds
    )
    assert plain.ops["Neg"] == 1
    assert "both halves" in plain.left["rotary"]
    plain.are_alike()


def test_halves_joined_the_other_way_round_are_no_rotation():
    model = rotation(ANGLES, parts="x1, n", inputs="float[b,s,3] h")
    both = Both(model, {"x": normal(2, 3, 5, 6), "h": normal(2, 5, 3)})
    assert both.ops["Neg"] == 1
    both.are_alike()


# -- skip connections and root mean squares ----------------------------------------------

RMS = {
    "divided": "v = Sqrt(n) o = Div(x, v)",
    "reciprocal": "v = Sqrt(n) r = Reciprocal(v) o = Mul(x, r)",
    "one over": "v = Sqrt(n) r = Div(unit, v) o = Mul(r, x)",
}


@pytest.mark.parametrize("square", ["q = Pow(x, two)", "q = Mul(x, x)"])
@pytest.mark.parametrize("form", RMS)
@pytest.mark.parametrize("opset", [17, 23])
def test_a_root_mean_square_written_out_is_joined(opset, form, square):
    mean = (
        "m = ReduceMean <axes = [-1]> (q)" if opset < 18 else "m = ReduceMean(q, axes)"
    )
    text = f"""g (float[b,s,8] x) => (y) {{ {square} {mean} n = Add(m, eps) {RMS[form]}
      y = Mul(w, o) }}"""
    constants = {
        "two": scalar(2), "eps": scalar(1e-5), "unit": scalar(1), "w": normal(8),
        "axes": np.array([-1]),
    }  # fmt: skip
    used = {n: c for n, c in constants.items() if n in text}
    both = Both(model_of(text, opset, **used), {"x": normal(2, 3, 8)})
    op = "RMSNormalization" if opset == 23 else "SimplifiedLayerNormalization"
    assert both.ops == {op: 1}
    both.are_alike()


NORMS = {
    "LayerNormalization": "LayerNormalization <axis = -1> (t, w, w2)",
    "RMSNormalization": "RMSNormalization <axis = -1> (t, w)",
}


@pytest.mark.parametrize("read_too", [False, True])
@pytest.mark.parametrize("op", NORMS)
def test_a_sum_goes_into_its_normalization_and_is_given_where_it_is_read(op, read_too):
    more = "z = Relu(t)" if read_too else "z = Relu(x)"
    text = f"""g (float[b,s,8] x, float[b,s,8] skip) => (y, z) {{
      t = Add(x, skip) y = {NORMS[op]} {more} }}"""
    used = {"w": normal(8), **({"w2": normal(8)} if "w2" in text else {})}
    feeds = {"x": normal(2, 3, 8), "skip": normal(2, 3, 8)}
    both = Both(model_of(text, 23, **used), feeds)
    simple = "Simplified" if op.startswith("RMS") else ""
    assert both.ops == {f"{CONTRIB}Skip{simple}LayerNormalization": 1, "Relu": 1}
    both.are_alike()


def test_a_sum_with_a_product_is_the_products_to_make():
    text = """g (float[b,s,8] x, float[b,s,8] skip) => (y) {
      p = MatMul(x, m) t = Add(p, skip) y = LayerNormalization <axis = -1> (t, w, w2) }"""
    constants = {"m": normal(8, 8), "w": normal(8), "w2": normal(8)}
    feeds = {"x": normal(2, 3, 8), "skip": normal(2, 3, 8)}
    both = Both(model_of(text, 17, **constants), feeds)
    assert both.ops == {f"{OWN}FusedMatMul": 1, "LayerNormalization": 1}
    both.are_alike()


def test_a_sum_that_broadcasts_stays():
    text = """g (float[b,s,8] x, float[8] skip) => (y) {
      t = Add(x, skip) y = LayerNormalization <axis = -1> (t, w, w2) }"""
    constants = {"w": normal(8), "w2": normal(8)}
    both = Both(
        model_of(text, 17, **constants), {"x": normal(2, 3, 8), "skip": normal(8)}
    )
    assert both.ops == {"Add": 1, "LayerNormalization": 1}
    both.are_alike()


def test_a_sum_that_is_asked_for_is_given_under_its_name():
    text = """g (float[b,s,8] x, float[b,s,8] skip) => (y, t) {
      t = Add(x, skip) y = LayerNormalization <axis = -1> (t, w, w2) }"""
    constants = {"w": normal(8), "w2": normal(8)}
    feeds = {"x": normal(2, 3, 8), "skip": normal(2, 3, 8)}
    both = Both(model_of(text, 17, **constants), feeds)
    assert both.ops == {f"{CONTRIB}SkipLayerNormalization": 1}
    both.are_alike()
