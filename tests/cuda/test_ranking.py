"""TopK by a total order: value, then index, NaN above all; each of its ways alone."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import onnx
import pytest
from tests.cuda.emulation import check, drawn, peer
from tests.cuda.worked import node_worked

from seamline.provider import Refusal
from seamline_cuda.ranking import split_of

spread = np.random.default_rng(10)
#: Sizes, an axis, k, and how it is ranked: one by one, whole, picked, or in parts.
FORMS = {
    "a vector": ((7,), 0, 3, "one by one"), "experts": ((5, 64), -1, 8, "one by one"),
    "side by side": ((40, 3), 0, 5, "one by one"), "all of a few": ((2, 9), 1, 9, "one by one"),
    "many of a row": ((2, 200), 1, 40, "whole"), "inside": ((2, 70, 3), 1, 40, "whole"),
    "few of a long row": ((1, 2100), 1, 5, "picked"),
    "more than shared memory holds": ((1, 2100), 1, 2060, "picked"),
    "parts": ((1, 8300), 1, 30, "parts"),
}  # fmt: skip


def way(split):
    if split.one_by_one:
        return "one by one"
    return "parts" if split.parts > 1 else "whole" if split.whole else "picked"


def before(a, b, largest):
    """Tell which of two (value, index) comes first."""
    if a[0] != a[0] or b[0] != b[0]:
        if a[0] != a[0] and b[0] != b[0]:
            return a[1] - b[1]
        return -1 if (a[0] != a[0]) == largest else 1
    if a[0] == b[0]:
        return a[1] - b[1]
    return -1 if (a[0] > b[0]) == largest else 1


def defined(x, axis, k, largest):
    moved = np.moveaxis(x, axis, -1)
    order = functools.cmp_to_key(lambda a, b: before(a, b, largest))
    places = np.empty((*moved.shape[:-1], k), np.int64)
    for at in np.ndindex(moved.shape[:-1]):
        row = [(v.item(), i) for i, v in enumerate(moved[at])]
        places[at] = [i for _, i in sorted(row, key=order)[:k]]
    values = np.take_along_axis(moved, places, -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)


def made(x, axis, k, largest, like, outputs=("v", "i")):
    node = onnx.helper.make_node(
        "TopK", ["x", "k"], list(outputs), axis=axis, largest=largest
    )
    return node_worked(node, [x, np.array([k])], like)


def numbers(sizes, kind):
    """Draw numbers with ties and, where there are such, NaN, infinities and both zeros."""
    x = spread.standard_normal(sizes) * 30
    if np.dtype(kind).kind == "u":
        return np.abs(x).astype(kind)
    x = x.round(0).astype(kind)
    if np.dtype(kind).kind != "i":
        for start, value in enumerate((np.nan, np.inf, -np.inf, -0.0, 0.0)):
            x.reshape(-1)[start :: 11 + 2 * start] = value
    return x


@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize("form", FORMS)
def test_each_way_gives_the_first_by_value_and_index(form, largest):
    sizes, axis, k, expected = FORMS[form]
    assert way(split_of(sizes, axis % len(sizes), k)) == expected
    x = numbers(sizes, np.float32)
    want = defined(x, axis, k, largest)
    values, places = made(x, axis, k, largest, want)
    np.testing.assert_array_equal(places, want[1])
    np.testing.assert_array_equal(values.view(np.uint32), want[0].view(np.uint32))


KINDS = ["float16", "bfloat16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32",
         "int64", "uint64"]  # fmt: skip


@pytest.mark.parametrize("form", ["experts", "many of a row", "few of a long row"])
@pytest.mark.parametrize("dtype", KINDS)
def test_every_type_is_ordered_by_its_bits(dtype, form):
    sizes, axis, k, _ = FORMS[form]
    x = numbers(sizes, getattr(ml_dtypes, dtype, None) or np.dtype(dtype))
    want = defined(x, axis, k, len(dtype) % 2)
    values, places = made(x, axis, k, len(dtype) % 2, want)
    np.testing.assert_array_equal(places, want[1])
    np.testing.assert_array_equal(values.view(np.uint8), want[0].view(np.uint8))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_the_ends_of_64_bits_are_in_order(dtype):
    bounds = np.iinfo(dtype)
    x = np.array([[5, bounds.max, bounds.min, bounds.max - 1, bounds.min + 1]], dtype)
    for largest in (0, 1):
        want = defined(x, 1, 5, largest)
        assert made(x, 1, 5, largest, want)[1].tolist() == want[1].tolist()


def test_rows_of_one_value_give_the_lowest_indices():
    x = np.zeros((2, 2300), np.float32)
    want = defined(x, 1, 20, 1)
    assert made(x, 1, 20, 1, want)[1].tolist() == [list(range(20))] * 2


def test_one_of_the_results_may_be_left_out():
    x = numbers((3, 20), np.float32)
    want = defined(x, 1, 4, 1)
    assert made(x, 1, 4, 1, [None, want[1]], ("", "i"))[1].tolist() == want[1].tolist()
    found = made(x, 1, 4, 1, [want[0]], ("v",))[0]
    np.testing.assert_array_equal(found, want[0])


def test_before_opset_10_k_is_an_attribute():
    x = numbers((3, 20), np.float32)
    want = defined(x, 0, 2, 1)
    node = onnx.helper.make_node("TopK", ["x"], ["v", "i"], axis=0, k=2)
    values, places = node_worked(node, [x], want, opset=9)
    np.testing.assert_array_equal(places, want[1])
    np.testing.assert_array_equal(values, want[0])


def test_none_of_a_row_and_a_row_of_none_are_no_work():
    x = np.zeros((2, 3), np.float32)
    found = made(x, 1, 0, 1, [x[:, :0], x[:, :0].astype(np.int64)])
    assert [f.shape for f in found] == [(2, 0)] * 2


def test_more_than_there_are_is_an_error():
    x, like = np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32)
    with pytest.raises(ValueError, match="k is 4, and its axis has 3"):
        made(x, 1, 4, 1, [like, like.astype(np.int64)])


def test_an_axis_outside_of_the_rank_is_refused():
    x = np.zeros((2, 3), np.float32)
    found = made(x, 2, 1, 1, [x, x.astype(np.int64)])
    assert isinstance(found, Refusal)
    assert "outside of rank 2" in str(found)


@pytest.mark.parametrize("oracle", [None, peer])
def test_a_session_is_right_eager_and_recorded(oracle):
    text = """g (float[3,40] x) => (float[3,4] v, int64[3,4] i) <int64[1] k = {4}>
        { t = Mul(x, x)  v, i = TopK(t, k) }"""
    check(text, drawn(text), oracle=oracle, opset=21)
