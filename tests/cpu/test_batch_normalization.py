"""Batch, instance, group, local response and Lp normalization, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.movement import Bound, give, gives, node_of

R = np.random.default_rng(14)


def floats(*shape, dtype=np.float32):
    return R.standard_normal(shape).astype(dtype)


PARTS = [
    np.array(v, np.float32) for v in ([2, 0.5, 1], [1, -1, 0], [10, 20, 0], [4, 9, 1])
]


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


@pytest.mark.parametrize(
    "shape", [(2, 3), (2, 3, 5), (2, 3, 4, 5), (1, 3, 2, 3, 2), (0, 3, 2)]
)
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_inference_uses_the_statistics_given(shape, opset, dtype):
    x = floats(*shape).astype(dtype)
    parts = [p.astype(dtype) for p in PARTS]
    want = batch(x, parts)[0].astype(dtype)
    close = (
        {"rtol": 2e-2, "atol": 2e-2}
        if dtype == "float16"
        else {"rtol": 1e-5, "atol": 1e-6}
    )
    gives(
        "BatchNormalization",
        [x, *parts],
        want,
        opset=opset,
        fixed=(1, 2, 3, 4),
        epsilon=1e-3,
        **close,
    )


@pytest.mark.parametrize("opset", [14, 15])
@pytest.mark.parametrize("momentum", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_training_normalizes_by_the_batch_whatever_the_momentum(opset, momentum):
    x = floats(4, 3, 6) * 3 + 1
    want = [v.astype(np.float32) for v in batch(x, PARTS, momentum)]
    form = {
        "opset": opset,
        "epsilon": 1e-3,
        "training_mode": 1,
        "momentum": momentum,
        "rtol": 1e-5,
        "atol": 1e-5,
    }
    gives("BatchNormalization", [x, *PARTS], want, **form)
    gives("BatchNormalization", [x, *PARTS], want[:1], **form)


def test_one_tensor_may_be_scale_and_variance_at_once():
    x = np.array([[[1, 2, 3, 6]], [[2, 4, 4, 2]]], np.float32)
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    y = ((x - 3.0) / 1.5).astype(np.float32)
    want = [y, np.array([2.25], np.float32), np.array([0.25 + 2.25 * 0.75], np.float32)]
    node = node_of(
        "BatchNormalization",
        [x, 1, 1, 1, 1],
        3,
        training_mode=1,
        momentum=0.25,
        epsilon=0.0,
    )
    node.input[3], node.input[4] = node.input[2], node.input[1]
    bound = Bound(node, [x, one, zero, zero, one], want, 15)
    for _ in range(3):
        for got, expected in zip(bound.run(), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert bound.views["x1"] == 1
    assert bound.views["x2"] == 0


def test_mixed_types_are_allowed_from_opset_15():
    x = floats(2, 3, 4).astype(np.float16)
    want = batch(x, PARTS)[0].astype(np.float16)
    gives(
        "BatchNormalization",
        [x, *PARTS],
        want,
        opset=15,
        epsilon=1e-3,
        rtol=1e-2,
        atol=1e-2,
    )


def test_training_before_opset_14_is_refused_with_the_way_out():
    x = floats(2, 3, 4)
    with pytest.raises(NotImplementedError, match="convert the model to opset 15"):
        give("BatchNormalization", [x, *PARTS], [x, *PARTS[:2]], opset=9)


def test_opset_7_may_normalize_each_place_apart():
    x, parts = floats(2, 3, 4), [np.abs(floats(3, 4)) + 0.5 for _ in range(4)]
    s, b, m, v = parts
    want = (x - m) / np.sqrt(v + 1e-5) * s + b
    gives(
        "BatchNormalization",
        [x, *parts],
        want,
        opset=7,
        spatial=0,
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("opset", [7, 22])
def test_instances_are_normalized_channel_by_channel(dtype, opset):
    x, s, b = (
        (floats(2, 3, 5, 70) + 4).astype(dtype),
        floats(3, dtype=dtype),
        floats(3, dtype=dtype),
    )
    wide = x.astype(np.float64)
    mean, var = wide.mean((2, 3), keepdims=True), wide.var((2, 3), keepdims=True)
    want = (wide - mean) / np.sqrt(var + 1e-5) * along(s, x) + along(b, x)
    rtol = 2e-2 if dtype == "float16" else 1e-4
    gives(
        "InstanceNormalization",
        [x, s, b],
        want.astype(dtype),
        opset=opset,
        rtol=rtol,
        atol=rtol,
    )


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_group_parameters_are_by_group_and_by_channel_from_opset_21(
    groups, opset, dtype
):
    x = floats(2, 4, 3, 5).astype(dtype)
    count = groups if opset < 21 else 4
    s, b = floats(count, dtype=dtype), floats(count, dtype=dtype)
    wide = x.astype(np.float64).reshape(2, groups, -1)
    flat = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(
        wide.var(-1, keepdims=True) + 1e-5
    )
    each = 4 // groups if opset < 21 else 1
    want = flat.reshape(x.shape) * along(np.repeat(s, each), x) + along(
        np.repeat(b, each), x
    )
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
    form = {"size": size, "alpha": 0.5, "beta": 0.6, "bias": 2.0, "rtol": 1e-5}
    gives("LRN", [x], want.astype(np.float32), opset=13, **form)


def test_lp_normalization_leaves_a_zero_row_zero():
    x = np.array([[3, -4], [0, 0]], np.float32)
    gives(
        "LpNormalization", [x], np.array([[0.6, -0.8], [0, 0]], np.float32), rtol=1e-6
    )
    one = np.array([[1, -1], [0, 0]], np.float32)
    gives("LpNormalization", [x], one, p=1, axis=0, opset=7)


def test_mean_and_variance_are_taken_over_the_axes_named():
    x = floats(2, 3, 4, 5)
    for axes in ((0, 2, 3), (1,), (-1,)):
        wide = x.astype(np.float64)
        want = (wide - wide.mean(axes, keepdims=True)) / wide.std(axes, keepdims=True)
        attributes = {} if axes == (0, 2, 3) else {"axes": list(axes)}
        gives("MeanVarianceNormalization", [x], want.astype(np.float32), opset=13, rtol=1e-4,
              atol=1e-5, **attributes)  # fmt: skip
