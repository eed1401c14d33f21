"""Sin and Cos of float32 against float64: near zero, over many turns, and without end."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.movement import give

R = np.random.default_rng(5)
EXACT = {"Sin": np.sin, "Cos": np.cos}


def error_of(op, x):
    """Give the error in ulp where the result is not small, and as it is where it is."""
    (got,) = give(op, [x], x, opset=22)
    want = EXACT[op](x.astype(np.float64))
    apart = np.abs(got - want)
    large = np.abs(want) > 2.0**-10
    ulp = apart[large] / np.spacing(np.abs(want[large]).astype(np.float32))
    return ulp.max(initial=0), apart[~large].max(initial=0)


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize("most", [0.01, 1.6, 40.0, 3000.0, 50_900.0])
def test_the_error_is_within_what_is_stated(op, most):
    ulp, small = error_of(op, R.uniform(-most, most, 40_001).astype(np.float32))
    assert ulp < 2.5
    assert small < 2.0**-33


@pytest.mark.parametrize("op", EXACT)
def test_large_arguments_are_as_exact(op):
    x = np.array([5.2e4, -1e6, 1e10, 3e38, 1.0, 0.5], np.float32)
    ulp, _ = error_of(op, x)
    assert ulp < 2.5


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize("size", [0, 1, 7, 4095, 4097, 70_001])
def test_every_size_is_written_to_its_end(op, size):
    ulp, _ = error_of(op, R.uniform(-9, 9, size).astype(np.float32))
    assert ulp < 2.5


def test_zeros_keep_their_sign_and_multiples_of_pi_are_almost_zero():
    x = np.array([0.0, -0.0, np.pi, -np.pi, 2 * np.pi, 1e-42], np.float32)
    (got,) = give("Sin", [x], x, opset=22)
    np.testing.assert_array_equal(np.signbit(got[:2]), [False, True])
    np.testing.assert_allclose(got, np.sin(x.astype(np.float64)), rtol=1e-4)
    (got,) = give("Cos", [x], x, opset=22)
    np.testing.assert_allclose(got, [1, 1, -1, -1, 1, 1], rtol=2e-7)


@pytest.mark.parametrize("op", EXACT)
def test_infinity_and_nan_give_nan_and_touch_nothing_else(op):
    x = np.full(9001, 2, np.float32)
    x[[3, 4500, 9000]] = np.inf, -np.inf, np.nan
    (got,) = give(op, [x], x, opset=22)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(got)), [3, 4500, 9000])
    np.testing.assert_allclose(got[5], EXACT[op](2.0), rtol=1e-6)
