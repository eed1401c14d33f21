"""LayerNormalization, RMSNormalization and the fusions of both, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, agrees, gives, node_of

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
    gives(
        "LayerNormalization",
        inputs,
        want[:1],
        axis=axis,
        rtol=1e-4,
        atol=1e-5,
        opset=17,
    )
    skipped = [want[0], None, want[2]]
    gives(
        "LayerNormalization", inputs, skipped, axis=axis, rtol=1e-4, atol=1e-5, opset=17
    )


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
    gives(
        "LayerNormalization", [x, np.ones(256, np.float32)], want, rtol=1e-3, atol=1e-3
    )


def test_a_scale_broadcasts_over_the_normalized_axes():
    x, w, b = floats(2, 3, 4), floats(4), floats(3, 1)
    want = layer(x, w, b, 1)[0].astype(np.float32)
    gives("LayerNormalization", [x, w, b], want, axis=1, rtol=1e-4, atol=1e-5)


def test_nan_stays_in_its_row():
    x = floats(3, 40)
    x[1, 3] = np.nan
    w = np.ones(40, np.float32)
    (y,) = Bound(node_of("LayerNormalization", [x, w]), [x, w], [x], 17).run()
    assert np.isnan(y[1]).all()
    assert np.isfinite(y[[0, 2]]).all()


def test_many_rows_in_threads_agree_with_onnxruntime():
    x, w, b = floats(8, 100, 384), floats(384), floats(384)
    agrees(
        "LayerNormalization", [x, w, b], opset=17, rtol=1e-4, atol=1e-5, epsilon=1e-12
    )


@pytest.mark.parametrize("axis", [-1, 1])
def test_rms_normalization_and_onnxruntimes_names_for_it(axis):
    x = floats(2, 3, 40)
    w = floats(*x.shape[axis:])
    y, inv = rms(x, w, axis, 1e-6)
    want = [y.astype(np.float32), inv.astype(np.float32)]
    form = {"axis": axis, "epsilon": 1e-6, "rtol": 1e-5, "atol": 1e-6}
    gives("RMSNormalization", [x, w], want[:1], opset=23, **form)
    gives("SimplifiedLayerNormalization", [x, w], want, opset=17, **form)
    gives(
        "SimplifiedLayerNormalization",
        [x, w],
        want[:1],
        opset=17,
        domain=CONTRIB,
        **form,
    )


@pytest.mark.parametrize("skip", [(2, 3, 40), (3, 40), (1, 3, 40)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_skip_connection_is_added_first_and_given_back(skip, bias):
    x, s, w, b = floats(2, 3, 40), floats(*skip), floats(40), floats(40)
    extra = floats(40) if bias else None
    total = x.astype(np.float64) + s + (extra if bias else 0)
    y, _, _ = layer(total, w, b, -1, 1e-12)
    want = [y.astype(np.float32), None, None, total.astype(np.float32)]
    inputs = [x, s, w, b] + ([extra] if bias else [])
    form = {"domain": CONTRIB, "rtol": 1e-4, "atol": 1e-5}
    gives("SkipLayerNormalization", inputs, want, **form)
    gives("SkipLayerNormalization", [*inputs[:3], None, *inputs[4:]],
          layer(total, w, None, -1, 1e-12)[0].astype(np.float32), **form)  # fmt: skip
    simple = [rms(total, w, eps=1e-12)[0].astype(np.float32), None, None, want[3]]
    gives("SkipSimplifiedLayerNormalization", [x, s, w, *inputs[4:]], simple, **form)


def test_onnxruntime_agrees_on_skips():
    x, s, w, b, extra = (
        floats(2, 3, 64),
        floats(2, 3, 64),
        *(floats(64) for _ in range(3)),
    )
    form = {
        "domain": CONTRIB,
        "rtol": 1e-4,
        "atol": 1e-5,
        "outputs": (0, 3),
        "epsilon": 1e-5,
    }
    agrees("SkipLayerNormalization", [x, s, w, b, extra], **form)
    agrees("SkipSimplifiedLayerNormalization", [x, s, w, extra], **form)
