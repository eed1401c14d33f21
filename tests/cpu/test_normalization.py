"""Layer, RMS, batch, instance, group, local and Lp normalization, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.cpu.movement import Bound, agrees, give, gives, node_of

R = np.random.default_rng(32)
CONTRIB = "com.microsoft"


def floats(*shape, dtype=np.float32):
    return R.standard_normal(shape).astype(dtype)


def layer(x, w, b, axis, eps=1e-5):
    x = x.astype(np.float64)
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = x.mean(axis=axes, keepdims=True)
    inv = 1 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + eps)
    y = (x - mean) * inv * w.astype(np.float64)
    return (y if b is None else y + b.astype(np.float64)), mean, inv


def rms(x, w, axis=-1, eps=1e-5):
    x = x.astype(np.float64)
    axes = tuple(range(axis % x.ndim, x.ndim))
    inv = 1 / np.sqrt((x * x).mean(axis=axes, keepdims=True) + eps)
    return x * inv * w.astype(np.float64), inv


@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 3, 2, 4), 1), ((2, 3, 4), -2), ((3, 5), -1), ((9, 8, 600), 2),
                        ((7,), 0), ((2, 3), 0), ((4, 1), -1), ((0, 5), -1)]
)  # fmt: skip
@pytest.mark.parametrize("bias", [True, False])
def test_statistics_are_over_every_axis_from_axis_on(shape, axis, bias):
    x, w = floats(*shape) * 2 + 1, floats(*shape[axis:])
    b = floats(*shape[axis:]) if bias else None
    want = [v.astype(np.float32) for v in layer(x, w, b, axis)]
    inputs = [x, w] + ([b] if bias else [])
    gives("LayerNormalization", inputs, want, axis=axis, rtol=1e-4, atol=1e-5, opset=17)
    gives("LayerNormalization", inputs, want[:1], axis=axis, rtol=1e-4, atol=1e-5, opset=17)
    skipped = [want[0], None, want[2]]
    gives("LayerNormalization", inputs, skipped, axis=axis, rtol=1e-4, atol=1e-5, opset=17)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sums_are_made_in_float32_so_large_half_values_do_not_overflow(dtype):
    x, w = (floats(2, 64) * 300 + 2).astype(dtype), R.uniform(0.5, 2, 64).astype(dtype)
    y, mean, inv = layer(x, w, None, -1)
    stash = [mean.astype(np.float32), inv.astype(np.float32)]
    want = [y.astype(dtype), *stash]
    gives("LayerNormalization", [x, w], want, rtol=1e-2, atol=1e-2, opset=17)
    gives("RMSNormalization", [x, w], rms(x, w)[0].astype(dtype), rtol=1e-2, atol=1e-2)


def test_a_large_mean_does_not_drown_the_variance():
    x = (10_000 + R.integers(-3, 4, (4, 256))).astype(np.float32)
    want = layer(x, np.ones(256), None, -1)[0].astype(np.float32)
    gives("LayerNormalization", [x, np.ones(256, np.float32)], want, rtol=1e-3, atol=1e-3)


def test_a_scale_broadcasts_over_the_normalized_axes():
    x, w, b = floats(2, 3, 4), floats(4), floats(3, 1)
    want = layer(x, w, b, 1)[0].astype(np.float32)
    gives("LayerNormalization", [x, w, b], want, axis=1, rtol=1e-4, atol=1e-5)


def test_nan_stays_in_its_row():
    x = floats(3, 40)
    x[1, 3] = np.nan
    w = np.ones(40, np.float32)
    (y,) = Bound(node_of("LayerNormalization", [x, w]), [x, w], [x], 17).run()
    assert np.isnan(y[1]).all() and np.isfinite(y[[0, 2]]).all()


def test_many_rows_in_threads_agree_with_onnxruntime():
    x, w, b = floats(8, 100, 384), floats(384), floats(384)
    agrees("LayerNormalization", [x, w, b], opset=17, rtol=1e-4, atol=1e-5, epsilon=1e-12)


@pytest.mark.parametrize("axis", [-1, 1])
def test_rms_normalization_and_onnxruntimes_names_for_it(axis):
    x = floats(2, 3, 40)
    w = floats(*x.shape[axis:])
    y, inv = rms(x, w, axis, 1e-6)
    want = [y.astype(np.float32), inv.astype(np.float32)]
    form = dict(axis=axis, epsilon=1e-6, rtol=1e-5, atol=1e-6)
    gives("RMSNormalization", [x, w], want[:1], opset=23, **form)
    gives("SimplifiedLayerNormalization", [x, w], want, opset=17, **form)
    gives("SimplifiedLayerNormalization", [x, w], want[:1], opset=17, domain=CONTRIB, **form)


@pytest.mark.parametrize("skip", [(2, 3, 40), (3, 40), (1, 3, 40)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_skip_connection_is_added_first_and_given_back(skip, bias):
    x, s, w, b = floats(2, 3, 40), floats(*skip), floats(40), floats(40)
    extra = floats(40) if bias else None
    total = x.astype(np.float64) + s + (extra if bias else 0)
    y, _, _ = layer(total, w, b, -1, 1e-12)
    want = [y.astype(np.float32), None, None, total.astype(np.float32)]
    inputs = [x, s, w, b] + ([extra] if bias else [])
    form = dict(domain=CONTRIB, rtol=1e-4, atol=1e-5)
    gives("SkipLayerNormalization", inputs, want, **form)
    gives("SkipLayerNormalization", [*inputs[:3], None, *inputs[4:]],
          layer(total, w, None, -1, 1e-12)[0].astype(np.float32), **form)  # fmt: skip
    simple = [rms(total, w, eps=1e-12)[0].astype(np.float32), None, None, want[3]]
    gives("SkipSimplifiedLayerNormalization", [x, s, w, *inputs[4:]], simple, **form)


def test_onnxruntime_agrees_on_skips():
    x, s, w, b, extra = floats(2, 3, 64), floats(2, 3, 64), *(floats(64) for _ in range(3))
    form = dict(domain=CONTRIB, rtol=1e-4, atol=1e-5, outputs=(0, 3), epsilon=1e-5)
    agrees("SkipLayerNormalization", [x, s, w, b, extra], **form)
    agrees("SkipSimplifiedLayerNormalization", [x, s, w, extra], **form)


# --- batch ---------------------------------------------------------------------------

PARTS = [np.array(v, np.float32) for v in ([2, 0.5, 1], [1, -1, 0], [10, 20, 0], [4, 9, 1])]


def along(v, x):
    return v.astype(np.float64).reshape(1, -1, *(1,) * (x.ndim - 2))


def batch(x, parts, momentum=None, eps=1e-3):
    x = x.astype(np.float64)
    s, b, m, v = parts
    if momentum is None:
        y = (x - along(m, x)) / np.sqrt(along(v, x) + eps) * along(s, x) + along(b, x)
        return [y]
    axes = (0, *range(2, x.ndim))
    mean, var = x.mean(axis=axes), x.var(axis=axes)
    y = (x - along(mean, x)) / np.sqrt(along(var, x) + eps) * along(s, x) + along(b, x)
    keep = 1 - momentum
    return [y, m * momentum + mean * keep, v * momentum + var * keep]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 3, 4, 5), (1, 3, 2, 3, 2), (0, 3, 2)])
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_inference_uses_the_statistics_given(shape, opset, dtype):
    x = floats(*shape).astype(dtype)
    parts = [p.astype(dtype) for p in PARTS]
    want = batch(x, parts)[0].astype(dtype)
    close = dict(rtol=2e-2, atol=2e-2) if dtype == "float16" else dict(rtol=1e-5, atol=1e-6)
    gives("BatchNormalization", [x, *parts], want, opset=opset, fixed=(1, 2, 3, 4), epsilon=1e-3, **close)


@pytest.mark.parametrize("opset", [14, 15])
@pytest.mark.parametrize("momentum", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_training_normalizes_by_the_batch_whatever_the_momentum(opset, momentum):
    x = floats(4, 3, 6) * 3 + 1
    want = [v.astype(np.float32) for v in batch(x, PARTS, momentum)]
    form = dict(opset=opset, epsilon=1e-3, training_mode=1, momentum=momentum, rtol=1e-5, atol=1e-5)
    gives("BatchNormalization", [x, *PARTS], want, **form)
    gives("BatchNormalization", [x, *PARTS], want[:1], **form)


def test_one_tensor_may_be_scale_and_variance_at_once():
    x = np.array([[[1, 2, 3, 6]], [[2, 4, 4, 2]]], np.float32)
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    y = ((x - 3.0) / 1.5).astype(np.float32)
    want = [y, np.array([2.25], np.float32), np.array([0.25 + 2.25 * 0.75], np.float32)]
    node = node_of("BatchNormalization", [x, 1, 1, 1, 1], 3, training_mode=1, momentum=0.25, epsilon=0.0)
    node.input[3], node.input[4] = node.input[2], node.input[1]
    bound = Bound(node, [x, one, zero, zero, one], want, 15)
    for _ in range(3):
        for got, expected in zip(bound.run(), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert bound.views["x1"] == 1 and bound.views["x2"] == 0


def test_mixed_types_are_allowed_from_opset_15():
    x = floats(2, 3, 4).astype(np.float16)
    want = batch(x, PARTS)[0].astype(np.float16)
    gives("BatchNormalization", [x, *PARTS], want, opset=15, epsilon=1e-3, rtol=1e-2, atol=1e-2)


def test_training_before_opset_14_is_refused_with_the_way_out():
    x = floats(2, 3, 4)
    with pytest.raises(NotImplementedError, match="convert the model to opset 15"):
        give("BatchNormalization", [x, *PARTS], [x, *PARTS[:2]], opset=9)


def test_opset_7_may_normalize_each_place_apart():
    x, parts = floats(2, 3, 4), [np.abs(floats(3, 4)) + 0.5 for _ in range(4)]
    s, b, m, v = parts
    want = (x - m) / np.sqrt(v + 1e-5) * s + b
    gives("BatchNormalization", [x, *parts], want, opset=7, spatial=0, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("opset", [7, 22])
def test_instances_are_normalized_channel_by_channel(dtype, opset):
    x, s, b = (floats(2, 3, 5, 70) + 4).astype(dtype), floats(3, dtype=dtype), floats(3, dtype=dtype)
    wide = x.astype(np.float64)
    mean, var = wide.mean((2, 3), keepdims=True), wide.var((2, 3), keepdims=True)
    want = (wide - mean) / np.sqrt(var + 1e-5) * along(s, x) + along(b, x)
    rtol = 2e-2 if dtype == "float16" else 1e-4
    gives("InstanceNormalization", [x, s, b], want.astype(dtype), opset=opset, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_group_parameters_are_by_group_and_by_channel_from_opset_21(groups, opset, dtype):
    x = floats(2, 4, 3, 5).astype(dtype)
    count = groups if opset < 21 else 4
    s, b = floats(count, dtype=dtype), floats(count, dtype=dtype)
    wide = x.astype(np.float64).reshape(2, groups, -1)
    flat = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    each = 4 // groups if opset < 21 else 1
    want = flat.reshape(x.shape) * along(np.repeat(s, each), x) + along(np.repeat(b, each), x)
    rtol = 1e-2 if dtype == "float16" else 1e-4
    gives("GroupNormalization", [x, s, b], want.astype(dtype), opset=opset, num_groups=groups,
          rtol=rtol, atol=rtol)  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 5, 12])
def test_local_response_sums_the_channels_around_and_stops_at_the_ends(size):
    x = floats(2, 7, 3)
    want = np.empty(x.shape)
    for c in range(7):
        near = x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1].astype(np.float64)
        want[:, c] = x[:, c] / (2 + 0.5 / size * (near**2).sum(1)) ** 0.6
    form = dict(size=size, alpha=0.5, beta=0.6, bias=2.0, rtol=1e-5)
    gives("LRN", [x], want.astype(np.float32), opset=13, **form)


def test_lp_normalization_leaves_a_zero_row_zero():
    x = np.array([[3, -4], [0, 0]], np.float32)
    gives("LpNormalization", [x], np.array([[0.6, -0.8], [0, 0]], np.float32), rtol=1e-6)
    one = np.array([[1, -1], [0, 0]], np.float32)
    gives("LpNormalization", [x], one, p=1, axis=0, opset=7)


def test_mean_and_variance_are_taken_over_the_axes_named():
    x = floats(2, 3, 4, 5)
    for axes in ((0, 2, 3), (1,), (-1,)):
        wide = x.astype(np.float64)
        want = (wide - wide.mean(axes, keepdims=True)) / wide.std(axes, keepdims=True)
        attributes = {} if axes == (0, 2, 3) else dict(axes=list(axes))
        gives("MeanVarianceNormalization", [x], want.astype(np.float32), opset=13, rtol=1e-4,
              atol=1e-5, **attributes)  # fmt: skip
