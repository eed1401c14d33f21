"""Softmax and its kin, and where extremes stand: by definition, alone and shared by blocks."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from tests.cuda.emulation import check, drawn, peer
from tests.cuda.worked import node_worked

from seamline.provider import Refusal

spread = np.random.default_rng(4)
#: Sizes and an axis for each team of threads; the last two are shared by blocks.
FORMS = {
    "a warp": ((3, 40), 1), "a thread": ((3, 40), 0), "a block": ((2, 700), -1),
    "inside": ((2, 9, 4), 1), "a row of one": ((3, 1), 1), "nothing": ((0, 3), 1),
    "no elements": ((3, 0), 1),
    "shared, side by side": ((1100, 3), 0), "shared": ((1, 8300), 1),
}  # fmt: skip


def made(op, x, **attributes):
    node = onnx.helper.make_node(op, ["x"], ["y"], **attributes)
    return node_worked(node, [x], [x])[0]


def defined(op, x, axis):
    wide = x.astype(np.float64)
    if op == "Hardmax":
        return np.arange(x.shape[axis]).reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]) == wide.argmax(axis, keepdims=True)  # fmt: skip
    shifted = wide - wide.max(axis, keepdims=True)
    total = np.exp(shifted).sum(axis, keepdims=True)
    return np.exp(shifted) / total if op == "Softmax" else shifted - np.log(total)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("form", FORMS)
def test_a_maximum_is_what_its_name_says_along_any_axis(op, form):
    sizes, axis = FORMS[form]
    x = (spread.standard_normal(sizes) * 5).astype(np.float32)
    found = made(op, x, axis=axis)
    assert found.shape == x.shape
    if x.size:
        np.testing.assert_allclose(found, defined(op, x, axis), rtol=3e-6, atol=2e-6)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_before_opset_13_a_row_is_all_that_follows_the_axis(axis):
    x = spread.standard_normal((2, 3, 4)).astype(np.float32)
    node = onnx.helper.make_node("Softmax", ["x"], ["y"], axis=axis)
    if axis < 0:
        axis += 3
    flat = x.reshape(int(np.prod(x.shape[:axis])), -1)
    (found,) = node_worked(node, [x], [x], opset=11)
    np.testing.assert_allclose(found.reshape(flat.shape), defined("Softmax", flat, 1), rtol=2e-6)  # fmt: skip


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_16_bits_are_computed_in_32_and_rounded_once(kind):
    x = (spread.standard_normal((4, 300)) * 3).astype(kind)
    want = defined("Softmax", x, 1).astype(kind)
    found = made("Softmax", x)
    assert found.dtype == x.dtype
    if np.dtype(kind).itemsize == 2:
        apart = np.abs(found.view(np.int16).astype(int) - want.view(np.int16))
        assert apart.max() <= 1
    else:
        np.testing.assert_allclose(found, want, rtol=1e-14)


def test_large_and_infinite_values_are_as_the_definition_has_them():
    x = np.array([[1e4, 1e4, -1e4], [-np.inf, 0, -np.inf], [np.nan, 0, 1]], np.float32)
    found = made("Softmax", x)
    np.testing.assert_array_equal(found[:2], [[0.5, 0.5, 0], [0, 1, 0]])
    assert np.isnan(found[2]).all()
    assert np.isnan(made("Softmax", np.full((1, 3), -np.inf, np.float32))).all()


ARGUMENTS = {
    "ties": [[3, 7, 7, 1], [2, 2, 2, 2]],
    "all the least": [[-(2**31)] * 4, [-(2**31), 5, -(2**31), 5]],
}


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_of_equals_the_first_is_found_or_the_last(op, last, name):
    x = np.array(ARGUMENTS[name], np.int32)
    node = onnx.helper.make_node(
        op, ["x"], ["y"], axis=1, keepdims=0, select_last_index=last
    )
    (found,) = node_worked(node, [x], [np.zeros(2, np.int64)])
    best = np.argmax if op == "ArgMax" else np.argmin
    want = 3 - best(x[:, ::-1], axis=1) if last else best(x, axis=1)
    assert found.tolist() == want.tolist()


@pytest.mark.parametrize("form", ["shared", "shared, side by side", "a block"])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_an_extreme_is_found_by_threads_and_blocks_together(op, form):
    sizes, axis = FORMS[form]
    x = spread.integers(-9, 9, sizes).astype(np.float32)
    node = onnx.helper.make_node(op, ["x"], ["y"], axis=axis)
    want = getattr(np, op.lower())(x, axis, keepdims=True)
    (found,) = node_worked(node, [x], [want])
    assert found.tolist() == want.tolist()


def test_nan_is_the_extreme_and_infinities_are_values():
    x = np.array(
        [[1, np.nan, 5, np.nan], [-np.inf, -np.inf, -np.inf, -np.inf]], np.float32
    )
    for op in ("ArgMax", "ArgMin"):
        node = onnx.helper.make_node(op, ["x"], ["y"], axis=1, keepdims=0)
        assert node_worked(node, [x], [np.zeros(2, np.int64)])[0].tolist() == [1, 0]


def test_an_extreme_of_no_elements_is_an_error():
    node = onnx.helper.make_node("ArgMax", ["x"], ["y"], axis=1)
    with pytest.raises(ValueError, match="no elements"):
        node_worked(node, [np.zeros((2, 0), np.float32)], [np.zeros((2, 1), np.int64)])


def test_an_axis_outside_of_the_rank_is_refused():
    node = onnx.helper.make_node("Softmax", ["x"], ["y"], axis=2)
    found = node_worked(
        node, [np.zeros((2, 2), np.float32)], [np.zeros((2, 2), np.float32)]
    )
    assert isinstance(found, Refusal)
    assert "outside of rank 2" in str(found)


@pytest.mark.parametrize("oracle", [None, peer])
def test_a_session_is_right_eager_and_recorded(oracle):
    text = """g (float[4,6,5] x) => (float[4,6,5] y, float[4,6,5] z, int64[4,6,1] i)
        { y = Softmax(x)  t = Relu(x)  z = LogSoftmax<axis = 1>(t)  i = ArgMax<axis = 2>(y) }"""
    check(text, drawn(text), oracle=oracle, opset=21)
