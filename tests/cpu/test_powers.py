"""Pow: constant exponents, the type of the base, integers."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, gives, node_of

R = np.random.default_rng(4)
NAN, INF = np.nan, np.inf


def of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def power(x, e):
    """Give C's pow, which Python raises for where C gives infinity or NaN."""
    try:
        return math.pow(x, e)
    except ValueError:
        return NAN if x else math.copysign(INF, x if e % 2 == 1 else 1.0)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 0.5, -1.0, -0.5, 1.7])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_constant_exponent_gives_what_pow_gives(exponent, dtype):
    points = [0.0, INF, NAN, 2.5, -2.5, 0.1, -0.0, -INF]
    # NumPy's power takes the square root for an exponent of 0.5, which differs at the last two.
    for fixed, values in (((), points[:6]), ((1,), points)):
        x, e = np.array(values).astype(of(dtype)), np.array(exponent).astype(of(dtype))
        want = np.array([power(v, float(e)) for v in x.tolist()]).astype(of(dtype))
        got = Bound(node_of("Pow", [x, e]), [x, e], [want], 15, constant=fixed).run()[0]
        near = {"float32": 1e-6, "float64": 1e-14}.get(dtype, 1e-2)
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=near)
        zero = got.astype(float) == 0
        np.testing.assert_array_equal(np.signbit(got)[zero], np.signbit(want)[zero])


@pytest.mark.parametrize("shared", [False, True])
def test_a_large_power_is_right_in_place_too(shared):
    x = R.uniform(0, 4, 150_000).astype(np.float32)
    for exponent in (2, 3, 0.5, -0.5):
        e = np.float32(exponent)
        bound = Bound(
            node_of("Pow", [x, e]),
            [x, e],
            [x],
            15,
            constant=(1,),
            share=[(0, 0)] if shared else (),
        )
        np.testing.assert_allclose(
            bound.run()[0], np.power(x.astype(float), exponent), rtol=1e-6
        )


def test_a_power_has_the_type_of_its_base():
    x, e = np.array([1.5, -2, 3], np.float32), np.array([2, 3, -1], np.int64)
    gives("Pow", [x, e], np.array([2.25, -8, 1 / 3], np.float32), opset=13, rtol=1e-6)
    h = np.array([1.5, -2, 3], np.float16)
    gives(
        "Pow",
        [h, e.astype(np.int32)],
        np.array([2.25, -8, 1 / 3], np.float16),
        opset=13,
    )
    i = np.array([4, 9, 2], np.int32)
    gives(
        "Pow",
        [i, np.array([0.5, 0.5, 3.5], np.float32)],
        np.array([2, 3, 11], np.int32),
        opset=13,
    )


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_powers_wrap_and_cut_negative_exponents(dtype):
    base = np.array([2, -3, 1, -1, -1, 5, 3], dtype)
    exponent = np.array([10, 3, -4, -3, -4, -1, 0], np.int64)
    gives(
        "Pow", [base, exponent], np.array([1024, -27, 1, -1, 1, 0, 1], dtype), opset=13
    )
    gives(
        "Pow",
        [np.array([3], np.int64), np.array([39], np.uint8)],
        np.array([3**39], np.int64),
        opset=13,
    )
