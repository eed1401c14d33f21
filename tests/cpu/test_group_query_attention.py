"""GroupQueryAttention: by its definition in float64, and beside onnxruntime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx.helper as oh
import pytest
from onnx import TensorProto, numpy_helper
from tests.attentions import HEADS, KV, NONE, SIZE, by_head, tables
from tests.attentions import grouped as defined
from tests.cpu.movement import Bound, agrees, give, node_of

from seamline.errors import SeamlineError
from seamline.pipeline import Pipeline

R = np.random.default_rng(46)
FORM = {"num_heads": HEADS, "kv_num_heads": KV, "domain": "com.microsoft"}
CLOSE = {"rtol": 1e-4, "atol": 2e-5}


def floats(*shape):
    return R.standard_normal(shape).astype(np.float32)


def node_inputs(rows, lengths, *, capacity=0, total=None, packed=False, **named):
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
    inputs[5] = np.array(lengths, np.int32)
    inputs[6] = np.array(max(lengths) + 1 if total is None else total, np.int32)
    places = {"cos": 7, "sin": 8, "positions": 9, "bias": 10, "sink": 11, "counts": 16}
    for name, value in named.items():
        inputs[places[name]] = value
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def is_as_defined(inputs, tolerance=CLOSE, **attributes):
    want = defined(inputs, **attributes)
    dtype = inputs[0].dtype
    like = [w.astype(dtype) for w in want]
    got = give("GroupQueryAttention", inputs, like, **FORM, **attributes)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g.astype(np.float64), w, **tolerance)


def is_as_peers(inputs, **attributes):
    agrees("GroupQueryAttention", inputs, outputs=3, **FORM, **CLOSE, **attributes)


FEATURES = {
    "plain": ({}, {}),
    "scale": ({}, {"scale": 0.7}),
    "window": ({}, {"local_window_size": 3}),
    "cap": ({}, {"softcap": 0.8}),
    "smooth": ({}, {"smooth_softmax": 1}),
    "sink": ({"sink": floats(HEADS)}, {}),
    "all": (
        {"sink": floats(HEADS)},
        {"softcap": 1.5, "local_window_size": 2, "scale": 0.4},
    ),
}


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("rows", "lengths", "capacity"),
    [(5, [4, 4], 0), (1, [6, 6], 6), (1, [6, 6], 9), (4, [8], 5)],
    ids=["prompt", "growing", "shared", "chunk"],
)
def test_each_form_is_as_defined_and_as_onnxruntime_gives(
    feature, packed, rows, lengths, capacity
):
    named, attributes = FEATURES[feature]
    inputs = node_inputs(rows, lengths, capacity=capacity, packed=packed, **named)
    is_as_defined(inputs, **attributes)
    for past in inputs[3:5]:
        if past is not None:
            np.nan_to_num(past, copy=False)
    if capacity != 9:  # there it leaves rows open that are zero here
        is_as_peers(inputs, **attributes)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("half", [SIZE // 2, SIZE // 4])
@pytest.mark.parametrize("packed", [False, True])
def test_rotation_follows_each_entrys_own_positions(interleaved, half, packed):
    cos, sin = tables(50, half)
    form = {"do_rotary": 1, "rotary_interleaved": interleaved}
    for rows, lengths, capacity in ((3, [2, 2], 0), (1, [7, 4, 0], 7), (3, [6], 9)):
        inputs = node_inputs(
            rows, lengths, capacity=capacity, packed=packed, cos=cos, sin=sin
        )
        is_as_defined(inputs, **form)
    prompt = node_inputs(3, [2, 2], packed=packed, cos=cos, sin=sin)
    is_as_peers(prompt, **form)


def test_position_ids_replace_the_positions():
    cos, sin = tables(30, SIZE // 2)
    named = {"cos": cos, "sin": sin, "positions": np.array([[9], [12]], np.int64)}
    inputs = node_inputs(1, [5, 5], capacity=5, **named)
    is_as_defined(inputs, do_rotary=1)
    is_as_peers(inputs, do_rotary=1)


def test_position_ids_of_a_first_prompt_start_at_their_first_element():
    cos, sin = tables(30, SIZE // 2)
    starting = {"positions": np.arange(3)[None] + np.array([[0], [0]])}
    given = node_inputs(3, [2, 2], cos=cos, sin=sin, **starting)
    is_as_defined(given, do_rotary=1)
    is_as_peers(given, do_rotary=1)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, HEADS), (2, HEADS)])
def test_a_bias_is_broadcast_over_entries_and_heads(shape):
    inputs = node_inputs(1, [6, 6], capacity=6, bias=floats(*shape, 1, 7))
    is_as_defined(inputs)
    is_as_peers(inputs)
    is_as_defined(node_inputs(4, [3, 1], bias=floats(*shape, 4, 4)))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float16, 4e-3), (ml_dtypes.bfloat16, 4e-2)]
)
def test_small_floats_are_added_up_in_float32(dtype, tolerance):
    cos, sin = tables(20, SIZE // 2)
    inputs = [
        x if x is None or x.dtype != np.float32 else x.astype(dtype)
        for x in node_inputs(1, [4, 8, 0], capacity=9, cos=cos, sin=sin)
    ]
    is_as_defined(inputs, {"rtol": tolerance, "atol": tolerance}, do_rotary=1)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 3)])
def test_lengths_may_stand_in_a_row_or_a_column(shape):
    inputs = node_inputs(1, [4, 8, 0], capacity=9)
    inputs[5] = inputs[5].reshape(shape)
    is_as_defined(inputs)


def test_a_short_prompts_padding_leaves_no_trace():
    inputs = node_inputs(5, [4, 1])
    is_as_defined(inputs)
    for x in inputs[:3]:
        x[1, 2:] = np.nan
    is_as_defined(inputs)


def test_counted_rows_are_the_only_ones_that_enter_the_cache():
    counts = np.array([2, 0, 3], np.int32)
    inputs = node_inputs(3, [5, 3, 2], capacity=9, total=9, counts=counts)
    for past in inputs[3:5]:
        past[:, :, :5] = floats(3, KV, 5, SIZE)
    is_as_defined(inputs)


def test_many_keys_are_taken_block_by_block():
    inputs = node_inputs(9, [413], capacity=410)
    is_as_defined(inputs)
    is_as_defined(inputs, local_window_size=250)


def test_normalised_heads_are_divided_by_their_root_mean_square():
    inputs = [*node_inputs(3, [2, 2]), *NONE][:16]
    weights = floats(SIZE), floats(SIZE)
    plain = list(inputs)
    for i, heads in enumerate((HEADS, KV)):
        x = by_head(inputs[i], heads)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * weights[i]
        plain[i] = x.reshape(inputs[i].shape).astype(np.float32)
    inputs[14:16] = weights
    want = [w.astype(np.float32) for w in defined(plain)]
    got = give("GroupQueryAttention", inputs, want, qk_norm_epsilon=1e-3, **FORM)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, **CLOSE)


def test_a_cache_in_its_pasts_own_memory_gains_only_the_new_rows():
    inputs = node_inputs(1, [4, 8], capacity=9)
    want = defined(inputs)
    form = dict(FORM)
    node = node_of("GroupQueryAttention", inputs, 3, form.pop("domain"), **form)
    like = [w.astype(np.float32) for w in want]
    bound = Bound(node, inputs, like, 23, share=((1, 3), (2, 4)))
    y, keys, values = bound.run()
    assert np.shares_memory(keys, bound.views["x3"])
    np.testing.assert_allclose(y, want[0], **CLOSE)
    assert np.isnan(keys[0, :, 5:]).all()
    np.testing.assert_allclose(keys[0, :, :5], want[1][0, :, :5], **CLOSE)
    np.testing.assert_allclose(values[1], want[2][1], **CLOSE)


def test_an_empty_batch_and_an_empty_chunk_give_empty_outputs():
    inputs = node_inputs(1, [0, 0])
    empty = [x[:0] if x is not None and x.ndim else x for x in inputs]
    like = [np.zeros((0, 1, HEADS * SIZE)), *[np.zeros((0, KV, 1, SIZE))] * 2]
    like = [x.astype(np.float32) for x in like]
    assert [y.size for y in give("GroupQueryAttention", empty, like, **FORM)] == [0] * 3


# -- what is refused, and what is an error -------------------------------------------------


@pytest.mark.parametrize("last", [-1, -(2**31), 9, 2**31 - 1])
def test_a_length_outside_the_cache_is_an_error_with_entry_and_capacity(last):
    inputs = node_inputs(1, [3, 3], capacity=9)
    inputs[5] = np.array([3, last], np.int32)
    like = [inputs[0], inputs[3], inputs[4]]
    with pytest.raises(SeamlineError) as caught:
        give("GroupQueryAttention", inputs, like, **FORM)
    for text in ("seqlens_k", "entry 1", str(last), "9"):
        assert text in str(caught.value)


def test_a_past_longer_than_its_buffer_is_an_error():
    inputs = node_inputs(1, [3], capacity=4, total=50)
    inputs[5] = np.array([40], np.int32)
    like = [inputs[0], *[np.zeros((1, KV, 50, SIZE), np.float32)] * 2]
    with pytest.raises(SeamlineError, match=r"seqlens_k of entry 0 is 40.* 4 rows"):
        give("GroupQueryAttention", inputs, like, **FORM)


@pytest.mark.parametrize("total", [11, 10**9, 2**31 - 1])
@pytest.mark.parametrize("known", [False, True], ids=["fed", "constant"])
def test_more_tokens_than_there_can_be_are_an_error_and_no_allocation(total, known):
    inputs = node_inputs(1, [3, 3], capacity=9, total=total)
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    model = model_of(inputs)
    if known:
        model.graph.initializer.append(numpy_helper.from_array(feeds.pop("x6"), "x6"))
        kept = [i for i in model.graph.input if i.name != "x6"]
        del model.graph.input[:]
        model.graph.input.extend(kept)
    pipeline = Pipeline.open(model, providers=["cpu"])
    try:
        with pytest.raises(SeamlineError, match=f"total_sequence_length is {total}"):
            pipeline.run(feeds)
    finally:
        pipeline.close()


def test_a_position_beyond_the_rotary_tables_is_an_error():
    cos, sin = tables(4, SIZE // 2)
    inputs = node_inputs(1, [6], capacity=6, cos=cos, sin=sin)
    like = [inputs[0], *[np.zeros((1, KV, 7, SIZE), np.float32)] * 2]
    with pytest.raises(SeamlineError, match=r"position 6 is outside \[0, 4\)"):
        give("GroupQueryAttention", inputs, like, do_rotary=1, **FORM)


def test_another_number_of_lengths_than_entries_is_an_error():
    inputs = node_inputs(1, [2, 2], capacity=4)
    inputs[5] = np.array([2, 2, 2], np.int32)
    with pytest.raises(SeamlineError, match=r"seqlens_k is \[3\], the batch has 2"):
        give("GroupQueryAttention", inputs, [inputs[0], *inputs[3:5]], **FORM)


@pytest.mark.parametrize(
    ("change", "attributes", "reason"),
    [
        ({5: np.array(2, np.int32)}, {}, "seqlens_k is a scalar"),
        ({1: None}, {}, "key and value come together"),
        ({4: None}, {}, "past_key and past_value come together"),
        ({}, {"do_rotary": 1}, "cos_cache and sin_cache are not given"),
        ({}, {"causal": 0}, "causal=0"),
        ({}, {"sliding_window_cache": 1}, "sliding_window_cache=1"),
        ({}, {"qk_output": 1}, "qk_output=1"),
        ({}, {"k_quant_type": "PER_TENSOR"}, "a quantised cache"),
        ({3: np.zeros((1, KV, 4, SIZE), np.int8)}, {}, "input 3 is int8"),
    ],
)
def test_what_is_not_implemented_is_refused_with_its_reason(change, attributes, reason):
    inputs = node_inputs(1, [3], capacity=4)
    for index, value in change.items():
        inputs[index] = value
    like = [inputs[0], *[np.zeros((1, KV, 4, SIZE), np.float32)] * 2]
    with pytest.raises(NotImplementedError, match=reason):
        give("GroupQueryAttention", inputs, like, **FORM, **attributes)


# -- through the pipeline ------------------------------------------------------------------


def model_of(inputs, total_from_mask=False):
    """Make a model; total_sequence_length is fed, or the mask's length as exporters do."""
    kinds = {"f": TensorProto.FLOAT, "i": TensorProto.INT32}
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    given = [
        oh.make_tensor_value_info(
            n, kinds[x.dtype.kind], [f"{n}_{i}" for i in range(x.ndim)]
        )
        for n, x in zip(names, inputs, strict=True)
        if x is not None and not (total_from_mask and n == "x6")
    ]
    form = dict(FORM)
    node = oh.make_node(
        "GroupQueryAttention", names, ["y0", "y1", "y2"], name="gqa", **form
    )
    nodes = [node]
    constants = []
    if total_from_mask:
        given.append(oh.make_tensor_value_info("mask", TensorProto.INT64, ["b", "t"]))
        constants = [oh.make_tensor("one", TensorProto.INT64, [], [1])]
        nodes = [
            oh.make_node("Shape", ["mask"], ["sizes"], name="shape"),
            oh.make_node("Gather", ["sizes", "one"], ["length"], name="gather"),
            oh.make_node("Cast", ["length"], ["x6"], name="cast", to=TensorProto.INT32),
            node,
        ]
    results = [
        oh.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(3)
    ]
    graph = oh.make_graph(nodes, "g", given, results, constants)
    imports = [oh.make_opsetid("", 21), oh.make_opsetid("com.microsoft", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.mark.parametrize(
    ("rows", "lengths", "capacity", "present"),
    [(5, [4, 2], 0, 5), (1, [5, 3], 5, 6), (1, [5, 3], 9, 9), (3, [5], 9, 9)],
    ids=["prompt", "growing", "shared", "chunk"],
)
@pytest.mark.parametrize("known", [False, True], ids=["fed", "sized"])
def test_the_present_is_as_long_as_the_buffer_or_as_all_tokens(
    rows, lengths, capacity, present, known
):
    inputs = node_inputs(rows, lengths, capacity=capacity)
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    if known:
        del feeds["x6"]
        feeds["mask"] = np.ones((len(lengths), max(lengths) + 1), np.int64)
    pipeline = Pipeline.open(model_of(inputs, known), providers=["cpu"])
    try:
        got = pipeline.run(feeds)
        plan = pipeline.plan({name: x.shape for name, x in feeds.items()})
    finally:
        pipeline.close()
    want = defined(inputs)
    np.testing.assert_allclose(got[0], want[0], **CLOSE)
    for g, w in zip(got[1:], want[1:], strict=True):
        for b, last in enumerate(lengths):  # what lies beyond is open
            np.testing.assert_allclose(
                g[b, :, : last + 1], w[b, :, : last + 1], **CLOSE
            )
    assert got[1].shape == (len(lengths), KV, present, SIZE)
    sized = plan.types["y1"].shape == got[1].shape
    assert sized is known, (
        "sizes that follow from the feeds' sizes are known at planning"
    )
