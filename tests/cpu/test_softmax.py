"""Softmax and LogSoftmax at every version, against float64 and onnxruntime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, agrees, gives, node_of

R = np.random.default_rng(21)


def soft(x, axes):
    x = x.astype(np.float64)
    e = np.exp(x - x.max(axis=axes, keepdims=True))
    return e / e.sum(axis=axes, keepdims=True)


@pytest.mark.parametrize(
    ("opset", "attributes", "axes"),
    [
        (7, {}, (1, 2)), (11, {}, (1, 2)), (11, {"axis": 0}, (0, 1, 2)),
        (12, {"axis": 2}, (2,)), (11, {"axis": -2}, (1, 2)), (13, {}, (2,)),
        (13, {"axis": 1}, (1,)), (23, {"axis": -3}, (0,)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_the_opset_decides_between_flattening_and_one_axis(
    opset, attributes, axes, dtype
):
    x = R.standard_normal((2, 3, 4)).astype(dtype)
    want = soft(x, axes)
    tolerance = {"rtol": 2e-3 if dtype == "float16" else 2e-6, "atol": 1e-6}
    gives("Softmax", [x], want.astype(dtype), opset=opset, **tolerance, **attributes)
    gives(
        "LogSoftmax",
        [x],
        np.log(want).astype(dtype),
        opset=opset,
        **tolerance,
        **attributes,
    )


def test_rows_of_bfloat16_are_made_in_float32():
    x = R.standard_normal((3, 300)).astype(ml_dtypes.bfloat16)
    want = soft(x, (1,)).astype(ml_dtypes.bfloat16)
    gives("Softmax", [x], want, opset=13, rtol=8e-3, atol=1e-9)


def test_large_arguments_do_not_overflow_and_far_ones_are_zero():
    x = np.array([[1e30, 1e30, -1e30], [700, 0, -700], [-88, 0, -87]], np.float32)
    gives(
        "Softmax",
        [x],
        soft(x, (1,)).astype(np.float32),
        opset=13,
        rtol=1e-6,
        atol=1e-37,
    )
    low = np.array([[0, -200, -1e4], [1e4, 0, 5]], np.float32)
    want = np.array([[0, -200, -1e4], [0, -1e4, -9995]], np.float32)
    gives("LogSoftmax", [low], want, opset=13, rtol=1e-6)


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nan_fills_its_row_whatever_its_sign_and_no_other(operator, sign):
    x = np.zeros((3, 9), np.float32)
    x[1, 4] = np.copysign(np.nan, sign)
    x[2, :4] = -np.inf
    bound = Bound(node_of(operator, [x]), [x], [x], 13)
    (y,) = bound.run()
    assert np.isnan(y[1]).all()
    assert np.isfinite(y[0]).all()
    assert not np.isnan(y[2]).any()
    share = soft(x, (1,))[2].astype(np.float32)
    np.testing.assert_allclose(y[2] if operator == "Softmax" else np.exp(y[2]), share)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 1), (1,)])
def test_empty_and_single_rows(shape):
    x = np.zeros(shape, np.float32)
    gives("Softmax", [x], np.ones(shape, np.float32), opset=13)
    gives("LogSoftmax", [x], np.zeros(shape, np.float32), opset=13)


@pytest.mark.parametrize("n", [33, 200])
def test_a_row_may_be_replaced_in_place(n):
    x = R.standard_normal((64, n)).astype(np.float32)
    for operator in ("Softmax", "LogSoftmax"):
        bound = Bound(node_of(operator, [x]), [x], [x], 13, share=((0, 0),))
        want = soft(x, (1,)) if operator == "Softmax" else np.log(soft(x, (1,)))
        np.testing.assert_allclose(bound.run()[0], want, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 127, 1000])
def test_many_rows_shared_by_threads_agree_with_onnxruntime(n):
    x = (R.standard_normal((4, 40_000 // n // 4 + 1, n)) * 8).astype(np.float32)
    agrees("Softmax", [x], opset=13, rtol=2e-5, atol=1e-37)
    agrees("LogSoftmax", [x], opset=13, rtol=1e-5, atol=1e-5)


def test_the_exponential_is_right_to_the_last_places_over_its_whole_range():
    x = np.stack([np.zeros(5000), -np.linspace(0, 87.3, 5000)], axis=1).astype(
        np.float32
    )
    got = Bound(node_of("Softmax", [x]), [x], [x], 13).run()[0][:, 1]
    np.testing.assert_allclose(got, soft(x, (1,))[:, 1], rtol=5e-7)
