"""LRN by its definition in float64, then by onnxruntime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from tests.cuda.emulation import check, drawn, peer
from tests.cuda.test_formulas import refusal
from tests.cuda.worked import node_worked

spread = np.random.default_rng(23)
NAMES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}  # fmt: skip
LOOSE = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-12}


def defined(x, size, alpha=1e-4, beta=0.75, bias=1.0):
    x = x.astype(float)
    total = np.zeros_like(x)
    for channel in range(x.shape[1]):
        first = max(0, channel - (size - 1) // 2)
        last = min(x.shape[1], channel + size // 2 + 1)
        total[:, channel] = (x[:, first:last] ** 2).sum(1)
    return x / (bias + alpha / size * total) ** beta


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("sizes", [(2, 5, 3, 4), (1, 1, 7), (3, 6), (0, 4, 2)])
def test_a_window_of_channels_is_cut_where_there_are_no_more(size, sizes):
    x = spread.standard_normal(sizes).astype(np.float32) * 30
    node = onnx.helper.make_node("LRN", ["x"], ["y"], size=size)
    (got,) = node_worked(node, [x], [x])
    np.testing.assert_allclose(got, defined(x, size), 2e-6)


@pytest.mark.parametrize("dtype", NAMES)
def test_each_type_is_computed_and_rounded_once(dtype):
    x = (spread.standard_normal((2, 7, 5)) * 3).astype(NAMES[dtype])
    given = {"alpha": 0.5, "beta": 0.625, "bias": 2.0}
    node = onnx.helper.make_node("LRN", ["x"], ["y"], size=5, **given)
    (got,) = node_worked(node, [x], [x])
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got.astype(float), defined(x, 5, **given), LOOSE[dtype])


def test_what_is_no_number_spoils_its_window_and_nothing_else():
    x = np.ones((1, 6, 1), np.float32)
    x[0, 2] = np.nan
    node = onnx.helper.make_node("LRN", ["x"], ["y"], size=3)
    (got,) = node_worked(node, [x], [x])
    assert np.isnan(got[0, :, 0]).tolist() == [False, True, True, True, False, False]


def by_definition(source, feeds):
    """Stand for onnx.reference, which takes sums of a batch's first channels only."""
    return [defined(np.maximum(feeds["x"], 0), 5, alpha=0.5).astype(np.float32)]


@pytest.mark.parametrize("oracle", [by_definition, peer])
def test_a_session_is_right_eager_and_recorded(oracle):
    text = """g (float[1,8,5,5] x) => (float[1,8,5,5] y)
        { t = Relu(x)  y = LRN<size = 5, alpha = 0.5>(t) }"""
    check(text, drawn(text), oracle=oracle, opset=21)


def test_a_vector_has_no_channels():
    assert "channels are the second" in refusal("g (float[4] x) => (float[4] y) { y = LRN<size = 3>(x) }")  # fmt: skip
