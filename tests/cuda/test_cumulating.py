"""Running sums and products, by NumPy's, along every kind of axis."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import pytest
from tests.cuda.emulation import check, drawn, opened, peer
from tests.cuda.plain import nodes_of
from tests.cuda.worked import node_worked

from seamline.errors import KernelError
from seamline.provider import Refusal
from seamline_cuda.table import TABLE

spread = np.random.default_rng(8)
#: Sizes and an axis; the last two are shared by blocks.
FORMS = {
    "a vector": ((7,), 0), "a row of one": ((3, 1), 1), "a warp": ((3, 100), 1),
    "warps": ((2, 700), -1), "tiles": ((70, 2100), 1), "inside": ((2, 9, 4), 1),
    "nothing": ((0, 3), 0), "no elements": ((3, 0), 1),
    "shared": ((1, 8300), 1), "shared, side by side": ((1100, 3), 0),
}  # fmt: skip


def defined(x, axis, product, exclusive, reverse):
    turned = np.flip(x, axis) if reverse else x
    found = (np.cumprod if product else np.cumsum)(turned, axis, dtype=x.dtype)
    if exclusive and x.shape[axis]:
        found = np.roll(found, 1, axis)
        np.moveaxis(found, axis, 0)[0] = 1 if product else 0
    return np.flip(found, axis) if reverse else found


def made(x, axis, product=False, exclusive=0, reverse=0):
    op = "CumProd" if product else "CumSum"
    node = onnx.helper.make_node(
        op, ["x", "a"], ["y"], exclusive=exclusive, reverse=reverse
    )
    (found,) = node_worked(node, [x, np.array(axis)], [x], constant=(1,), opset=26)
    return found


@pytest.mark.parametrize(
    ("exclusive", "reverse"), [*itertools.product((0, 1), repeat=2)]
)
@pytest.mark.parametrize("form", FORMS)
def test_every_prefix_is_summed_and_multiplied(form, exclusive, reverse):
    sizes, axis = FORMS[form]
    if form == "tiles":
        sizes = (2, sizes[1])
    x = spread.standard_normal(sizes)
    want = defined(x, axis, False, exclusive, reverse)
    found = made(x.astype(np.float32), axis, False, exclusive, reverse)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    whole = spread.integers(-(2**62), 2**62, sizes)
    with np.errstate(over="ignore"):
        want = defined(whole, axis, True, exclusive, reverse)
    if form in ("warps", "shared, side by side"):
        np.testing.assert_array_equal(made(whole, axis, True, exclusive, reverse), want)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "uint64", "float64"])
def test_every_type_keeps_its_values(dtype):
    x = np.array([[2**31 - 1, 1, 5, 2], [3, 2**31 - 1, 9, 4]]).astype(dtype)
    with np.errstate(over="ignore"):
        want = defined(x, 1, False, 0, 0)
    assert made(x, 1).tolist() == want.tolist()


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_16_bits_are_summed_in_32(kind):
    x = np.full((1, 3000), 1, kind)
    want = np.arange(1, 3001).astype(kind)
    assert made(x, 1).view(np.uint16).tolist() == [want.view(np.uint16).tolist()]


def test_an_exclusive_sum_is_no_difference():
    x = np.array([1, np.inf, 2, 3], np.float32)
    assert made(x, 0, exclusive=1).tolist() == [0, 1, np.inf, np.inf]
    assert made(x, 0, exclusive=1, reverse=1).tolist() == [np.inf, 5, 3, 0]


def test_an_axis_that_is_not_there_is_refused():
    node = onnx.helper.make_node("CumSum", ["x", "a"], ["y"])
    x = np.ones((2, 2), np.float32)
    found = node_worked(node, [x, np.array(2)], [x], constant=(1,))
    assert isinstance(found, Refusal)
    assert "2 axes" in str(found)


@pytest.mark.parametrize("kind", ["int64", "int32[1]"])
def test_an_axis_that_comes_with_a_run_is_read_anew_by_each(kind):
    """A tensor of one element is taken as a scalar, as onnxruntime does."""
    text = f"""g (float[2,40] x, {kind} a) => (float[2,40] y)
        {{ t = Neg(x)  y = CumSum(t, a) }}"""
    x = np.random.default_rng(4).standard_normal((2, 40)).astype(np.float32)
    dtype, sizes = np.dtype(kind.partition("[")[0]), (1,) if "[" in kind else ()
    with opened(text) as pipeline:
        for axis in (1, 0, -1):
            (found,) = pipeline.run({"x": x, "a": np.full(sizes, axis, dtype)})
            want = -np.cumsum(x, axis, np.float64)
            np.testing.assert_allclose(found, want, 1e-5, 2e-3)
        with pytest.raises(KernelError, match="its input has 2 axes"):
            pipeline.run({"x": x, "a": np.full(sizes, 2, dtype)})


def test_the_scratch_of_an_axis_that_comes_with_a_run_is_that_of_whichever_takes_most():
    text = "g (float[1,8300] x, int64 a) => (float[1,8300] y) { y = CumSum(x, a) }"
    known = text.replace(", int64 a", "").replace("{ y", "<int64 a = {1}> { y")
    (fed,), (held,) = (nodes_of(given)[0] for given in (text, known))
    asked = [TABLE.find(node).workspace(node) for node in (fed, held)]
    assert asked[0] == asked[1] > 0


@pytest.mark.parametrize("oracle", [None, peer])
def test_a_session_is_right_eager_and_recorded(oracle):
    text = """g (float[4,6,5] x) => (float[4,6,5] y) <int64 a = {1}, int64 b = {2}>
        { t = CumSum<reverse = 1>(x, a)  u = Mul(t, x)  y = CumSum<exclusive = 1>(u, b) }"""
    check(text, drawn(text), oracle=oracle, opset=21, rtol=1e-4, atol=1e-5)
