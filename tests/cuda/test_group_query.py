"""GroupQueryAttention by its kernels' text, against its definition in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.attentions import NONE, by_head, grouped, tables
from tests.cuda.directly import claim_of, done, node_of
from tests.cuda.emulation import check

import seamline_cuda.attention_works as works
from seamline.provider import Refusal

R = np.random.default_rng(46)
HEADS, KV, SIZE = SIZES = 4, 2, 8
FORM = {"num_heads": HEADS, "kv_num_heads": KV, "domain": "com.microsoft"}
CLOSE = {"rtol": 1e-4, "atol": 2e-5}
PLACES = {"cos": 7, "sin": 8, "positions": 9, "bias": 10, "sink": 11, "counts": 16}
GROWING = ((1, 3), (2, 4))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """A warp for each block, since an emulated thread takes a while."""
    monkeypatch.setattr(works, "THREADS", 32)


def floats(*shape):
    return R.standard_normal(shape).astype(np.float32)


def node_inputs(rows, lengths, *, capacity=0, packed=False, dtype=np.float32, **named):
    """Make inputs; rows of the past that no entry has are NaN."""
    batch = len(lengths)
    new = [floats(batch, rows, n * SIZE) for n in (HEADS, KV, KV)]
    inputs = list(NONE)
    inputs[:3] = [np.concatenate(new, axis=2), None, None] if packed else new
    if capacity:
        inputs[3], inputs[4] = (floats(batch, KV, capacity, SIZE) for _ in range(2))
        for b, last in enumerate(lengths):
            for past in inputs[3:5]:
                past[b, :, max(last + 1 - rows, 0) :] = np.nan
    inputs = [x if x is None else x.astype(dtype) for x in inputs]
    inputs[5] = np.array(lengths, np.int32)
    inputs[6] = np.array(max(lengths) + 1, np.int32)
    for name, value in named.items():
        inputs[PLACES[name]] = value
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def is_as_defined(inputs, close=CLOSE, together=(), **attributes):
    want = grouped(inputs, SIZES, **attributes)
    kind = inputs[0].dtype.name
    got, complaints = done(
        "GroupQueryAttention", inputs, [kind] * 3, together=together, constants=(6,),
        **FORM, **attributes,
    )  # fmt: skip
    assert not complaints
    np.testing.assert_allclose(got[0].astype(np.float64), want[0], **close)
    for b, last in enumerate(inputs[5].reshape(-1)):
        for g, w in zip(got[1:], want[1:], strict=True):
            held = (b, slice(None), slice(0, last + 1) if together else slice(None))
            np.testing.assert_allclose(g.astype(np.float64)[held], w[held], **close)
    return got


FEATURES = {
    "plain": ({}, {}),
    "window": ({}, {"local_window_size": 3}),
    "smooth": ({}, {"smooth_softmax": 1}),
    "sink": ({"sink": floats(HEADS)}, {}),
    "all": ({"sink": floats(HEADS)}, {"softcap": 1.5, "local_window_size": 2, "scale": 0.4}),
}  # fmt: skip


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize(
    ("rows", "lengths", "capacity", "packed"),
    [
        (5, [4, 2], 0, True),
        (1, [6, 3], 6, False),
        (1, [6], 9, True),
        (4, [8], 5, False),
    ],
    ids=["prompt", "growing", "shared", "chunk"],
)
def test_each_form_is_as_defined(feature, rows, lengths, capacity, packed):
    named, attributes = FEATURES[feature]
    inputs = node_inputs(rows, lengths, capacity=capacity, packed=packed, **named)
    is_as_defined(inputs, **attributes)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("half", [SIZE // 2, SIZE // 4])
def test_rotation_follows_each_entrys_own_positions(interleaved, half):
    cos, sin = tables(50, half)
    form = {"do_rotary": 1, "rotary_interleaved": interleaved}
    for rows, lengths, capacity in ((3, [2, 2], 0), (1, [7, 4, 0], 7), (3, [6], 9)):
        inputs = node_inputs(rows, lengths, capacity=capacity, packed=bool(interleaved), cos=cos, sin=sin)  # fmt: skip
        is_as_defined(inputs, **form)


def test_position_ids_replace_the_positions_but_of_a_first_prompt():
    cos, sin = tables(30, SIZE // 2)
    named = {"cos": cos, "sin": sin, "positions": np.array([[9], [12]], np.int64)}
    is_as_defined(node_inputs(1, [5, 5], capacity=5, **named), do_rotary=1)
    starting = {"positions": np.arange(3)[None] + np.array([[0], [0]])}
    is_as_defined(node_inputs(3, [2, 2], cos=cos, sin=sin, **starting), do_rotary=1)


@pytest.mark.parametrize("shape", [(1, 1), (2, HEADS)])
def test_a_bias_is_broadcast_over_entries_and_heads(shape):
    is_as_defined(node_inputs(1, [6, 6], capacity=6, bias=floats(*shape, 1, 7)))
    is_as_defined(node_inputs(4, [3, 1], bias=floats(*shape, 4, 4)))


def test_counts_say_how_many_rows_are_new():
    inputs = node_inputs(3, [6, 3], capacity=9, counts=np.array([2, 3], np.int32))
    for past in inputs[3:5]:
        np.nan_to_num(past, copy=False)
    is_as_defined(inputs)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rotated_and_summed_in_float32(dtype):
    cos, sin = (t.astype(dtype) for t in tables(20, SIZE // 2))
    inputs = node_inputs(2, [5], capacity=6, packed=True, dtype=dtype, cos=cos, sin=sin)
    close = 4e-3 if dtype == np.float16 else 3e-2
    is_as_defined(inputs, {"rtol": close, "atol": close}, do_rotary=1)


def test_queries_and_keys_are_normalised_before_they_are_rotated():
    weights = [floats(SIZE), floats(SIZE)]
    inputs = [*node_inputs(2, [1, 1])]
    inputs += [None] * (14 - len(inputs)) + weights
    plain = list(inputs[:7])
    for i, heads in enumerate((HEADS, KV)):
        x = by_head(inputs[i], heads)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * weights[i]
        plain[i] = x.reshape(inputs[i].shape)
    want = grouped(plain, SIZES)
    got, _ = done("GroupQueryAttention", inputs, ["float32"] * 3, constants=(6,), qk_norm_epsilon=1e-3, **FORM)  # fmt: skip
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, **CLOSE)


def test_a_cache_that_is_shared_is_written_where_it_lies_and_nowhere_else():
    inputs = node_inputs(1, [6, 3], capacity=9)
    for past in inputs[3:5]:
        past[np.isnan(past)] = 77
    got = is_as_defined(inputs, together=GROWING)
    for b, last in enumerate(inputs[5]):
        for x in got[1:]:
            assert (x[b, :, last + 1 :] == 77).all()


def test_many_tokens_are_attended_to_in_parts_as_far_as_they_reach():
    inputs = node_inputs(1, [120, 3], capacity=130, sink=floats(HEADS))
    assert works.parts_of(2, KV, HEADS // KV, 1, 130, SIZE, SIZE) == 2
    is_as_defined(inputs)


@pytest.mark.parametrize(
    ("lengths", "named"),
    [([9, 3], {}), ([-1, 3], {}), ([6, 3], {"counts": np.array([1, 2], np.int32)})],
    ids=["too long", "negative", "more than there are"],
)
def test_a_length_that_does_not_fit_is_told_and_writes_nothing_of_its_entry(
    lengths, named
):
    inputs = node_inputs(1, [6, 3], capacity=9)
    for past in inputs[3:5]:
        np.nan_to_num(past, copy=False)
    inputs[5] = np.array(lengths, np.int32)
    if named:
        inputs += [None] * (16 - len(inputs)) + [named["counts"]]
    got, complaints = done("GroupQueryAttention", inputs, ["float32"] * 3, together=GROWING, constants=(6,), **FORM)  # fmt: skip
    assert ["do not fit" in why for why in complaints] == [True]
    bad = 1 if named else 0
    assert (got[0][bad] == 0).all()
    np.testing.assert_array_equal(got[1][bad], inputs[3][bad])
    assert not (got[0][1 - bad] == 0).any()


@pytest.mark.parametrize("positions", [[[50]], [[-1]]])
def test_a_position_outside_of_the_tables_is_told(positions):
    cos, sin = tables(50, SIZE // 2)
    named = {"cos": cos, "sin": sin, "positions": np.array(positions, np.int64)}
    inputs = node_inputs(1, [5], capacity=5, **named)
    _, complaints = done("GroupQueryAttention", inputs, ["float32"] * 3, constants=(6,), do_rotary=1, **FORM)  # fmt: skip
    assert {"a position is outside [0, 50) of the rotary tables"} == set(complaints)


@pytest.mark.parametrize(
    ("why", "change", "attributes"),
    [
        ("k_quant_type=", {}, {"k_quant_type": "PER_TENSOR"}),
        ("come together", {2: None}, {}),
        ("num_heads 4 do not divide among kv_num_heads 3", {}, {"kv_num_heads": 3}),
        ("float32, float16, bfloat16", {0: np.float64}, {}),
        ("the batch has 2 entries", {5: np.zeros(3, np.int32)}, {}),
    ],
)
def test_what_is_not_implemented_is_refused_with_the_reason(why, change, attributes):
    inputs = node_inputs(2, [1, 1])
    for index, value in change.items():
        inputs[index] = (
            inputs[index].astype(value) if isinstance(value, type) else value
        )
    form = FORM | attributes
    _, answer = claim_of(
        node_of("GroupQueryAttention", inputs, [inputs[0].dtype.name] * 3, **form)
    )
    assert isinstance(answer, Refusal)
    assert why in str(answer)


def test_one_recording_serves_every_step_of_a_decoder():
    cos, sin = tables(9, SIZE // 2)
    more = ', "com.microsoft" : 1'
    text = """g (float[1,1,64] q, float[1,2,8,8] k, float[1,2,8,8] v, int32[1] n,
        float[9,4] c, float[9,4] s) => (float[1,1,32] y, float[1,2,8,8] pk, float[1,2,8,8] pv)
        <int32 total = {8}> { y, pk, pv = com.microsoft.GroupQueryAttention<num_heads = 4,
        kv_num_heads = 2, do_rotary = 1>(q, , , k, v, n, total, c, s) }"""
    steps = []
    for last in (0, 3, 4, 7):
        k, v = (floats(1, KV, 8, SIZE) for _ in range(2))
        n = np.array([last], np.int32)
        steps.append(
            {"q": floats(1, 1, 64), "k": k, "v": v, "c": cos, "s": sin, "n": n}
        )

    def oracle(_, feeds):
        past, (last,) = [feeds["k"], feeds["v"]], feeds["n"]
        inputs = [feeds["q"], None, None, *past, feeds["n"], np.array(8), cos, sin]
        found = grouped(inputs, SIZES, do_rotary=1)
        for x, before in zip(found[1:], past, strict=True):
            x[:, :, last + 1 :] = before[:, :, last + 1 :]  # written where it lies
        return [x.astype(np.float32) for x in found]

    check(
        text, steps[0], others=steps[1:], oracle=oracle, more=more, opset=21, atol=1e-5
    )
