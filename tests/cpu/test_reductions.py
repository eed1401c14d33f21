"""The Reduce operators, CumSum and CumProd, at every version."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, agrees, give, gives, node_of

from seamline.errors import BuildError, KernelError

R = np.random.default_rng(5)
DEFINITIONS = {
    "Sum": lambda x, **k: np.sum(x, **k),
    "Mean": lambda x, **k: np.mean(x, **k),
    "Max": lambda x, **k: np.max(x, **k),
    "Min": lambda x, **k: np.min(x, **k),
    "Prod": lambda x, **k: np.prod(x, **k),
    "L1": lambda x, **k: np.sum(np.abs(x), **k),
    "L2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "LogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "LogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
    "SumSquare": lambda x, **k: np.sum(x * x, **k),
}
AXES = [None, (1,), (-1,), (0, 2), (1, 2), (0, 1, 2), (2, 0)]


def ask(name, x, axes, opset, **attributes):
    """Give inputs and attributes of a node, by where its version keeps the axes."""
    if opset >= (13 if name == "Sum" else 18):
        return [x] if axes is None else [x, np.array(axes, np.int64)], attributes
    return [x], attributes if axes is None else dict(attributes, axes=list(axes))


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("opset", [7, 11, 13, 18, 20])
def test_axes_are_an_attribute_and_later_an_input(name, axes, opset):
    x = R.uniform(0.5, 2, (3, 4, 5)).astype(np.float32)
    for keep in (0, 1):
        want = DEFINITIONS[name](x.astype(np.float64), axis=axes, keepdims=bool(keep))
        inputs, attributes = ask(name, x, axes, opset, keepdims=keep)
        fixed = (1,) if len(inputs) > 1 else ()
        gives(
            f"Reduce{name}", inputs, np.asarray(want, np.float32), opset=opset, fixed=fixed,
            rtol=1e-5, atol=1e-6, **attributes,
        )  # fmt: skip


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize(
    "shape", [(40, 129), (4, 16, 7, 11), (3, 1, 1000), (5000,), (2, 90, 40)]
)
def test_compiled_kernels_agree_with_the_definition(name, shape):
    x = R.uniform(-1, 1, shape).astype(np.float32)
    x = np.abs(x) + 0.1 if name == "LogSum" else x
    for axes in [
        (-1,),
        (len(shape) - 2, len(shape) - 1)[-len(shape) :],
        (0,),
        (max(0, len(shape) - 2),),
    ]:
        axes = tuple(sorted({a % len(shape) for a in axes}))
        want = DEFINITIONS[name](x.astype(np.float64), axis=axes, keepdims=True)
        inputs, attributes = ask(name, x, axes, 18)
        gives(
            f"Reduce{name}", inputs, np.asarray(want, np.float32), opset=18, fixed=(1,),
            rtol=2e-5, atol=2e-5, **attributes,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("Sum", 0), ("Mean", np.nan), ("Max", -np.inf), ("Min", np.inf), ("Prod", 1), ("L1", 0),
        ("L2", 0), ("LogSum", -np.inf), ("LogSumExp", -np.inf), ("SumSquare", 0),
    ],
)  # fmt: skip
def test_an_empty_set_gives_the_identity(name, want):
    x, axes = np.zeros((2, 0, 3), np.float32), np.array([1])
    gives(f"Reduce{name}", [x, axes], np.full((2, 1, 3), want, np.float32), opset=20)
    x = np.zeros((0, 3), np.float32)
    gives(f"Reduce{name}", [x, axes], np.zeros((0, 1), np.float32), opset=20)


def test_an_empty_set_of_integers_gives_the_ends_of_their_range():
    x, axes = np.zeros((2, 0), np.int8), np.array([1])
    gives("ReduceMax", [x, axes], np.full((2, 1), -128, np.int8), opset=20)
    gives("ReduceMin", [x, axes], np.full((2, 1), 127, np.int8), opset=20)
    x = np.zeros((2, 0), bool)
    gives("ReduceMax", [x, axes], np.zeros((2, 1), bool), opset=20)
    gives("ReduceMin", [x, axes], np.ones((2, 1), bool), opset=20)


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("axes", [None, ()])
def test_no_axes_means_all_of_them_or_none(name, axes):
    x = R.uniform(0.5, 2, (2, 3)).astype(np.float32)
    inputs = [x] if axes is None else [x, np.array(axes, np.int64)]
    every = np.asarray(DEFINITIONS[name](x.astype(float), keepdims=True), np.float32)
    gives(f"Reduce{name}", inputs, every, opset=18, rtol=1e-5)
    one = DEFINITIONS[name](x.astype(float)[..., None], axis=-1).astype(np.float32)
    gives(
        f"Reduce{name}",
        inputs,
        one,
        opset=18,
        rtol=1e-5,
        atol=1e-7,
        noop_with_empty_axes=1,
    )


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", ["Max", "Min", "Sum", "Mean", "L2"])
def test_nan_of_either_sign_survives(name, sign):
    x = R.standard_normal((50, 100)).astype(np.float32)
    x[3, 7] = np.copysign(np.float32(np.nan), sign)
    x[4, 1], x[5, 2] = np.inf, -np.inf
    bound = Bound(node_of(f"Reduce{name}", [x, 1]), [x, np.array([1])], [x[:, :1]], 18)
    (y,) = bound.run()
    assert np.isnan(y[3, 0])
    assert not np.isnan(np.delete(y, 3)).any()
    want = DEFINITIONS[name](x.astype(float), axis=1, keepdims=True)
    np.testing.assert_allclose(
        np.delete(y, 3), np.delete(want, 3), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_integers_stay_exact_and_means_go_toward_zero(dtype):
    x = np.array([[2**24 + 1, 2, 5], [7, 0, 1]], dtype)
    x[1, 0] = 7 if dtype[0] == "u" else np.array(-7, dtype)
    axes = np.array([1])
    gives("ReduceSum", [x, axes], x.sum(1, dtype=dtype, keepdims=True), opset=13)
    want = np.array([[(2**24 + 8) // 3], [2 if dtype[0] == "u" else -2]], dtype)
    gives("ReduceMean", [x, axes], want, opset=18)
    big = (
        np.array([[2**53 + 1, 1]]).astype(dtype) if dtype.endswith("64") else x[:1, :2]
    )
    gives("ReduceMax", [big, axes], big.max(1, keepdims=True), opset=20)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "SumSquare", "L2", "LogSumExp"])
def test_half_precision_is_reduced_in_float32(dtype, name):
    x = np.ones((2, 5000), np.float32).astype(dtype)
    want = DEFINITIONS[name](x.astype(np.float64), axis=1, keepdims=True)
    gives(f"Reduce{name}", [x, np.array([1])], np.asarray(want, np.float32).astype(dtype), opset=20,
          rtol=1e-2)  # fmt: skip


def test_the_logarithm_of_a_sum_of_exponentials_does_not_overflow():
    x = np.array(
        [[1e4, 1e4], [-1e4, -np.inf], [np.inf, 0], [-np.inf, -np.inf]], np.float32
    )
    want = np.array([[1e4 + np.log(2)], [-1e4], [np.inf], [-np.inf]], np.float32)
    gives("ReduceLogSumExp", [x, np.array([1])], want, opset=18, rtol=1e-6)


def test_axes_may_change_between_runs():
    x = R.standard_normal((3, 3, 2)).astype(np.float32)
    bound = Bound(
        node_of("ReduceSum", [x, 1], keepdims=0), [x, np.array([0])], [x[0]], 13
    )
    np.testing.assert_allclose(bound.run()[0], x.sum(0), rtol=1e-6)
    bound.views["x1"][...] = 1
    np.testing.assert_allclose(bound.run()[0], x.sum(1), rtol=1e-6)
    bound.views["x1"][...] = 3
    with pytest.raises(KernelError, match="axis 3 is outside rank 3"):
        bound.run()


def test_an_axis_outside_the_rank_is_named_at_build():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(BuildError, match="axis -3 is outside rank 2"):
        give("ReduceMean", [x], x, opset=11, axes=[-3])


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min"])
def test_onnxruntime_agrees_over_spatial_axes(name):
    x = R.standard_normal((2, 16, 14, 14)).astype(np.float32)
    inputs = [x, np.array([2, 3])]
    agrees(f"Reduce{name}", inputs, opset=18, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint64", "float16"])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumulative_sums_and_products(dtype, exclusive, reverse, axis):
    x = R.integers(1, 4, (2, 3, 4)).astype(dtype)
    line = np.flip(x, axis) if reverse else x
    for operator, ufunc, first, opset in (
        ("CumSum", np.add, 0, 14),
        ("CumProd", np.multiply, 1, 26),
    ):
        total = ufunc.accumulate(line.astype(np.float64), axis=axis)
        if exclusive:
            total = np.roll(total, 1, axis)
            np.moveaxis(total, axis, 0)[0] = first
        total = np.flip(total, axis) if reverse else total
        gives(
            operator, [x, np.array(axis)], total.astype(dtype), opset=opset, fixed=(1,),
            exclusive=exclusive, reverse=reverse,
        )  # fmt: skip


def test_a_cumulative_sum_of_nothing_is_nothing():
    x = np.zeros((0, 3), np.float32)
    gives("CumSum", [x, np.array([0], np.int32)], x, opset=11, exclusive=1)
    with pytest.raises(KernelError, match="axis 2 is outside rank 2"):
        give("CumSum", [x, np.array(2)], x, opset=11)


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("value", [-3, 0])
def test_the_logarithm_of_no_positive_integer_is_some_integer_at_any_rank(shape, value):
    x = np.full(shape, value, np.int32)
    (found,) = give("ReduceLogSum", [x], np.zeros((), x.dtype), opset=18, keepdims=0)
    assert (found.dtype, found.shape) == (np.dtype("int32"), ())
