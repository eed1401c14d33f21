"""Normalizations by their definitions in float64, and by onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tests.cuda.emulation import check, drawn, peer
from tests.cuda.worked import node_worked

from seamline.provider import Refusal

spread = np.random.default_rng(5)
CONTRIB = "com.microsoft"
#: Sizes and the first axis of a row, for each team of threads.
FORMS = {
    "a warp": ((3, 40), -1), "a block": ((2, 700), -1), "two axes": ((2, 3, 4, 5), -2),
    "every axis": ((3, 5), 0), "a row of one": ((4, 1), -1), "shared": ((1, 8300), 1),
}  # fmt: skip


def statistics(x, axes, epsilon=1e-5):
    wide = x.astype(np.float64)
    mean = wide.mean(axes, keepdims=True)
    return mean, 1 / np.sqrt(((wide - mean) ** 2).mean(axes, keepdims=True) + epsilon)


def layer(x, axis, scale, shift=0.0, epsilon=1e-5):
    mean, inverse = statistics(x, tuple(range(axis % x.ndim, x.ndim)), epsilon)
    return (x - mean) * inverse * scale + shift


def rms(x, axis, scale, epsilon=1e-5):
    axes, wide = tuple(range(axis % x.ndim, x.ndim)), x.astype(np.float64)
    return wide / np.sqrt((wide * wide).mean(axes, keepdims=True) + epsilon) * scale


def numbers(*shape, kind=np.float32):
    return (spread.standard_normal(shape) * 2 + 3).astype(kind)


def made(op, inputs, like, domain="", opset=None, outputs=None, **attributes):
    names = [f"i{n}" if x is not None else "" for n, x in enumerate(inputs)]
    given = [f"o{n}" if x is not None else "" for n, x in enumerate(like)]
    node = onnx.helper.make_node(op, names, given, domain=domain, **attributes)
    found = node_worked(node, inputs, like, opset=opset)
    assert not isinstance(found, Refusal), str(found)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_layer_normalization_gives_its_statistics_as_well(form):
    sizes, axis = FORMS[form]
    x, row = numbers(*sizes), sizes[axis:]
    scale, shift = numbers(*row), numbers(*row)
    axes = tuple(range(axis % len(sizes), len(sizes)))
    mean, inverse = (v.astype(np.float32) for v in statistics(x, axes))
    y, m, i = made(
        "LayerNormalization", [x, scale, shift], [x, mean, inverse], axis=axis
    )
    np.testing.assert_allclose(y, layer(x, axis, scale, shift), rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(m, mean, rtol=1e-6)
    np.testing.assert_allclose(i, inverse, rtol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_rms_normalization_divides_by_the_root_of_the_mean_of_squares(form):
    sizes, axis = FORMS[form]
    x, scale = numbers(*sizes), numbers(*sizes[axis:])
    (y,) = made("RMSNormalization", [x, scale], [x], axis=axis, epsilon=1e-3)
    np.testing.assert_allclose(y, rms(x, axis, scale, 1e-3), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("own", [(1,), (4, 1), (1, 5), (3, 1, 5), (2, 3, 4, 5)])
def test_a_scale_broadcasts_to_the_axes_that_are_normalized_or_to_more(own):
    x, scale, shift = numbers(2, 3, 4, 5), numbers(*own), numbers(5)
    (y,) = made("LayerNormalization", [x, scale, shift], [x], axis=2)
    np.testing.assert_allclose(y, layer(x, 2, scale, shift), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_statistics_of_16_bits_are_made_in_32_and_doubles_stay_doubles(kind):
    x, scale = numbers(3, 300, kind=kind), numbers(300, kind=kind)
    (y,) = made("LayerNormalization", [x, scale], [x])
    tolerance = 2e-3 if kind is np.float16 else 1e-13
    np.testing.assert_allclose(y, layer(x, 1, scale), rtol=tolerance, atol=tolerance)


def test_a_row_far_from_zero_keeps_its_digits():
    x = (1e4 + spread.standard_normal((2, 600))).astype(np.float32)
    (y,) = made("LayerNormalization", [x, np.ones(600, np.float32)], [x])
    np.testing.assert_allclose(y, layer(x, 1, 1.0), atol=2e-3)


def test_a_vector_of_scales_may_have_another_type_than_the_rows():
    x, scale = numbers(3, 40, kind=np.float16), numbers(40)
    (y,) = made("SimplifiedLayerNormalization", [x, scale], [x], domain=CONTRIB)
    np.testing.assert_allclose(y, rms(x, 1, scale), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("domain", ["", CONTRIB])
def test_the_simplified_form_gives_its_factor(domain):
    x, scale = numbers(3, 40), numbers(40)
    factor = (1 / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5)).astype(np.float32)  # fmt: skip
    y, i = made("SimplifiedLayerNormalization", [x, scale], [x, factor], domain=domain)
    np.testing.assert_allclose(y, rms(x, 1, scale), rtol=1e-5)
    np.testing.assert_allclose(i, factor, rtol=1e-5)


SKIPS = {
    "as large": (2, 4, 40),
    "of no batch": (4, 40),
    "of a batch of one": (1, 4, 40),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("skip", SKIPS)
@pytest.mark.parametrize("simple", [False, True])
def test_a_skip_connection_and_a_bias_are_added_first(skip, bias, simple):
    x, more, scale, shift = (
        numbers(2, 4, 40),
        numbers(*SKIPS[skip]),
        numbers(40),
        numbers(40),
    )
    extra = numbers(40) if bias else None
    total = x + more + (extra if bias else 0)
    rows = np.zeros((2, 4, 1), np.float32)
    inputs = [x, more, scale, *([] if simple else [shift]), extra]
    if simple:
        like, want = [x, None, rows, x], rms(total, 2, scale, 1e-12)
    else:
        like, want = [x, rows, rows, x], layer(total, 2, scale, shift, 1e-12)
    op = f"Skip{'Simplified' if simple else ''}LayerNormalization"
    found = made(op, inputs if bias else inputs[:-1], like, domain=CONTRIB)
    np.testing.assert_allclose(found[0], want, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found[3], total)
    if not simple:
        np.testing.assert_allclose(found[1], total.mean(2, keepdims=True), rtol=1e-6)
        np.testing.assert_allclose(found[2], statistics(total, 2, 1e-12)[1], rtol=1e-5)


def test_the_sum_is_rounded_to_its_type_before_it_is_normalized():
    x, more = numbers(3, 64, kind=np.float16), numbers(3, 64, kind=np.float16)
    scale = np.ones(64, np.float16)
    like = [x, None, None, x]
    y, _, _, total = made("SkipSimplifiedLayerNormalization", [x, more, scale], like, domain=CONTRIB)  # fmt: skip
    np.testing.assert_array_equal(total, x + more)
    np.testing.assert_allclose(y, rms(x + more, 1, 1.0, 1e-12), rtol=1e-3)


@pytest.mark.parametrize(
    "sizes", [(2, 6, 3, 5), (1, 4, 1300), (2, 6, 1), (2, 6)], ids=str
)
def test_groups_of_channels_are_normalized_together(sizes):
    x, channels = numbers(*sizes), sizes[1]
    scale, shift = numbers(channels), numbers(channels)
    groups = x.reshape(sizes[0], 2, -1)
    by_channel = (1, channels, *(1,) * (len(sizes) - 2))
    flat = layer(groups, 2, 1.0).reshape(sizes)
    want = flat * scale.reshape(by_channel) + shift.reshape(by_channel)
    (y,) = made("GroupNormalization", [x, scale, shift], [x], num_groups=2)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=2e-5)
    scale, shift = numbers(2), numbers(2)
    want = layer(groups, 2, scale[:, None], shift[:, None]).reshape(sizes)
    (y,) = made("GroupNormalization", [x, scale, shift], [x], num_groups=2, opset=18)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=2e-5)


def test_an_instance_is_a_group_of_one_channel():
    x, scale, shift = numbers(2, 3, 4, 5), numbers(3), numbers(3)
    want = layer(x, 2, scale[:, None, None], shift[:, None, None])
    (y,) = made("InstanceNormalization", [x, scale, shift], [x])
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (4, 3), (1, 3, 3000)], ids=str)
def test_batch_normalization_uses_the_statistics_that_it_is_given(sizes):
    x, scale, shift, mean = numbers(*sizes), numbers(3), numbers(3), numbers(3)
    spreads = spread.random(3).astype(np.float32) + 0.5
    form = (1, 3, *(1,) * (len(sizes) - 2))
    a, b, m, v = (
        p.astype(np.float64).reshape(form) for p in (scale, shift, mean, spreads)
    )
    (y,) = made("BatchNormalization", [x, scale, shift, mean, spreads], [x])
    np.testing.assert_allclose(
        y, (x - m) / np.sqrt(v + 1e-5) * a + b, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axes_are_divided_by_their_norm_and_zeros_stay(p, axis):
    x = spread.standard_normal((3, 4, 5)).astype(np.float32)
    x[0] = x[:, 0] = x[..., 0] = 0
    norm = (np.abs(x) ** p).sum(axis, keepdims=True) ** (1 / p)
    want = np.divide(x, norm, where=norm != 0, out=np.zeros_like(x))
    (y,) = made("LpNormalization", [x], [x], p=p, axis=axis)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-7)


def test_a_deviation_of_zero_gives_zeros():
    x = numbers(2, 3, 4, 5)
    x[:, 1] = 7
    axes = (0, 2, 3)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(axes, keepdims=True)) / (
        wide.std(axes, keepdims=True) + 1e-9
    )
    (y,) = made("MeanVarianceNormalization", [x], [x])
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    assert not y[:, 1].any()


REFUSED = {
    "training": ("BatchNormalization", [(2, 3, 4), (3,), (3,), (3,), (3,)], {"training_mode": 1}, "inference would be accepted"),
    "statistics in 16 bits": ("LayerNormalization", [(2, 4), (4,)], {"stash_type": 16}, "float32"),
    "a scale of another size": ("LayerNormalization", [(2, 4), (3,)], {}, "does not broadcast"),
    "an axis outside": ("LayerNormalization", [(2, 4), (4,)], {"axis": 2}, "outside of rank 2"),
    "channels that do not divide": ("GroupNormalization", [(1, 3, 4), (3,), (3,)], {"num_groups": 2}, "do not divide"),
    "a scale for fewer channels": ("InstanceNormalization", [(1, 3, 4), (2,), (3,)], {}, "2 values for 3"),
    "a norm of order 3": ("LpNormalization", [(3, 4)], {"p": 3}, "1 and 2 would be accepted"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_says_what_would_be_accepted(what):
    op, sizes, attributes, why = REFUSED[what]
    inputs = [np.ones(s, np.float32) for s in sizes]
    names = [f"i{n}" for n in range(len(inputs))]
    node = onnx.helper.make_node(op, names, ["y"], **attributes)
    found = node_worked(node, inputs, inputs[:1])
    assert isinstance(found, Refusal)
    assert why in str(found)


@pytest.mark.parametrize("oracle", [None, peer])
def test_a_session_is_right_eager_and_recorded(oracle):
    text = """g (float[4,40] x, float[40] w, float[40] b) => (float[4,40] y)
        { t = LayerNormalization(x, w, b)  u = Mul(t, x)  y = LayerNormalization(u, w) }"""
    check(text, drawn(text), oracle=oracle, opset=17, rtol=1e-4)


def test_a_session_finds_the_types_of_the_skip_forms():
    text = """g (float[2,4,40] x, float[2,4,40] s, float[40] w) => (float[2,4,40] y, float[2,4,40] t)
        { y, , , t = com.microsoft.SkipSimplifiedLayerNormalization(x, s, w) }"""
    check(text, drawn(text), oracle=peer, more=', "com.microsoft" : 1', opset=21)
