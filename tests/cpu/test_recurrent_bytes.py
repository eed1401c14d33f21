"""DynamicQuantizeLSTM against its definition, step by step, and onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.movement import give, node_of, peer, same
from tests.node_cases import view_of_node

from seamline.provider import Refusal
from seamline_cpu.kernels import TABLE

R = np.random.default_rng(12)
OP = "DynamicQuantizeLSTM"
FIXED = (1, 2, 3, 8, 9, 10, 11)


def quantised(x):
    """Give codes less their zero point, and the scale, by DynamicQuantizeLinear's text."""
    low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
    scale = np.float32((high - low) / np.float32(255)) or np.float32(1)
    zero = np.rint(np.clip(-low / scale, 0, 255))
    codes = np.clip(np.rint(x.astype(np.float32) / scale) + zero, 0, 255)
    return (codes - zero).astype(np.int64), float(scale)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def product(x, weights, scale, zero):
    codes, mine = quantised(x)
    whole = codes @ (weights.astype(np.int64) - zero.astype(np.int64))
    return whole * mine * scale.astype(np.float64)


def defined(x, w, r, b, lens, h0, c0, scales, back=(False, True)):
    """Give Y and the last states in float64."""
    (count, batch), (ways, size) = x.shape[:2], r.shape[:2]
    y = np.zeros((count, ways, batch, size))
    h_last, c_last = np.zeros((2, ways, batch, size))
    for d in range(ways):
        ws, wz, rs, rz = (s[d] for s in scales)
        given = product(x.reshape(count * batch, -1), w[d], ws, wz)
        given = given.reshape(count, batch, -1)
        h = np.zeros((batch, size)) if h0 is None else h0[d].astype(np.float64)
        c = np.zeros((batch, size)) if c0 is None else c0[d].astype(np.float64)
        bias = 0 if b is None else b[d, : 4 * size] + b[d, 4 * size :]
        for t in reversed(range(count)) if back[d] else range(count):
            i, o, f, g = np.split(given[t] + product(h, r[d], rs, rz) + bias, 4, -1)
            new = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            going = np.ones((batch, 1)) if lens is None else (t < lens)[:, None]
            c = np.where(going, new, c)
            h = np.where(going, sigmoid(o) * np.tanh(new), h)
            y[t, d] = np.where(going, h, 0)
        h_last[d], c_last[d] = h, c
    return [v.astype(np.float32) for v in (y, h_last, c_last)]


def case(count, batch, depth, size, ways, kind, *, columns=False, narrow=False):
    """Draw inputs; weights of seven bits where onnxruntime may saturate."""
    low, high = (-128, 128) if kind == "int8" else (0, 256)
    low, high = (low // 2, high // 2) if narrow else (low, high)
    w = R.integers(low, high, (ways, depth, 4 * size)).astype(kind)
    r = R.integers(low, high, (ways, size, 4 * size)).astype(kind)
    form = (ways, 4 * size) if columns else (ways,)
    spread = 1 / (50 * np.sqrt(size))
    scales = [
        R.uniform(0.5, 1, form).astype(np.float32) * np.float32(spread) for _ in "wr"
    ]
    middle = (low + high) // 2
    zeros = [np.full(form, middle, kind) if narrow else
             (middle + R.integers(-9, 10, form)).astype(kind) for _ in "wr"]  # fmt: skip
    x = R.normal(size=(count, batch, depth)).astype(np.float32)
    b = (R.normal(size=(ways, 8 * size)) * 0.2).astype(np.float32)
    state = [R.uniform(-1, 1, (ways, batch, size)).astype(np.float32) for _ in "hc"]
    return x, w, r, b, state, [scales[0], zeros[0], scales[1], zeros[1]]


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1), (4, 1, 7, 5), (3, 2, 6, 9), (5, 3, 33, 20)]
)
def test_every_step_is_as_defined(kind, columns, sizes):
    x, w, r, b, (h0, c0), scales = case(*sizes, 2, kind, columns=columns)
    want = defined(x, w, r, b, None, h0, c0, scales)
    given = [x, w, r, b, None, h0, c0, None, *scales]
    found = give(OP, given, want, constant=FIXED, domain="com.microsoft",
                direction="bidirectional")  # fmt: skip
    for got, wanted in zip(found, want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_one_direction_and_left_out_inputs(direction):
    x, w, r, _, _, scales = case(6, 2, 10, 12, 1, "int8")
    want = defined(x, w, r, None, None, None, None, scales, [direction == "reverse"])
    given = [x, w, r, None, None, None, None, None, *scales]
    got = give(OP, given, want, constant=FIXED, domain="com.microsoft",
               direction=direction)  # fmt: skip
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)


def test_a_row_that_has_ended_keeps_its_state_and_shows_zeros():
    x, w, r, b, (h0, c0), scales = case(5, 3, 8, 16, 2, "uint8", columns=True)
    lens = np.array([5, 0, 3], np.int32)
    want = defined(x, w, r, b, lens, h0, c0, scales)
    given = [x, w, r, b, lens, h0, c0, None, *scales]
    got = give(OP, given, want, constant=FIXED, domain="com.microsoft",
               direction="bidirectional")  # fmt: skip
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)
    np.testing.assert_array_equal(got[1][:, 1], h0[:, 1])
    assert not got[0][3:, :, 2].any()


def test_scales_and_biases_that_are_fed_are_read_in_each_run():
    x, w, r, b, (h0, c0), scales = case(3, 1, 6, 8, 2, "int8")
    want = defined(x, w, r, b, None, h0, c0, scales)
    given = [x, w, r, b, None, h0, c0, None, *scales]
    got = give(OP, given, want, constant=(1, 2, 9, 11), domain="com.microsoft",
               direction="bidirectional")  # fmt: skip
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)


def test_no_steps_give_the_first_states():
    x, w, r, b, (h0, c0), scales = case(0, 2, 8, 4, 2, "int8")
    want = [np.zeros((0, 2, 2, 4), np.float32), h0, c0]
    given = [x, w, r, b, None, h0, c0, None, *scales]
    got = give(OP, given, want, constant=FIXED, domain="com.microsoft",
                          direction="bidirectional")  # fmt: skip
    np.testing.assert_array_equal(got[1], h0)
    np.testing.assert_array_equal(got[2], c0)


@pytest.mark.parametrize("columns", [False, True])
def test_onnxruntime_agrees(columns):
    x, w, r, b, (h0, c0), scales = case(
        7, 1, 24, 32, 2, "int8", columns=columns, narrow=True
    )
    given = [x, w, r, b, None, h0, c0, None, *scales]
    options = {"direction": "bidirectional", "hidden_size": 32}
    want = peer(OP, given, opset=17, outputs=3, domain="com.microsoft", **options)
    got = give(
        OP, given, want, opset=17, constant=FIXED, domain="com.microsoft", **options
    )
    same(got, want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"clip": 1.0}, "clip"),
        ({"activations": ["Relu", "Tanh", "Tanh"]}, "activations"),
        ({"direction": "reverse"}, "W"),
    ],
)
def test_what_it_cannot_do_is_refused(change, said):
    x, w, r, b, (h0, c0), scales = case(2, 1, 4, 4, 2, "int8")
    inputs = [x, w, r, b, None, h0, c0, None, *scales]
    options = {"direction": "bidirectional"} | change
    node = node_of(OP, inputs, 1, "com.microsoft", **options)
    like = [np.zeros((2, 2, 1, 4), np.float32)]
    answer = TABLE.find(view_of_node(node, inputs, like, 17, FIXED))
    assert isinstance(answer, Refusal)
    assert said in str(answer)


def test_weights_that_are_not_constant_are_refused():
    x, w, r, b, _, scales = case(2, 1, 4, 4, 1, "int8")
    inputs = [x, w, r, b, None, None, None, None, *scales]
    node = node_of(OP, inputs, 1, "com.microsoft")
    like = [np.zeros((2, 1, 1, 4), np.float32)]
    answer = TABLE.find(view_of_node(node, inputs, like, 17))
    assert isinstance(answer, Refusal)
    assert "not constant" in str(answer)
