"""Integers, truth values, comparisons and casts by commands, against NumPy's definitions."""

from __future__ import annotations

import numpy as np
import pytest

from seamline_cpu.kernels import cast_commands, formulas, typed_commands
from seamline_cpu.kernels import float32_math as f32
from seamline_cpu.kernels.cast_commands import bind_cast, bind_nan, bind_not
from seamline_cpu.kernels.conversions import converter
from seamline_cpu.kernels.local_response import _bind as bind_lrn
from seamline_cpu.kernels.local_response import lrn_by_numpy
from seamline_cpu.kernels.panels import bind_packing, empty_panels, pack_panels
from seamline_cpu.kernels.typed_commands import (
    bind_arithmetic,
    bind_comparison,
    bind_where,
)


class Call:
    options = {"num_threads": 2}  # noqa: RUF012


@pytest.fixture(params=[False, True], ids=["alone", "shared"])
def call(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(typed_commands, "_SHARED_FROM", 1)
        monkeypatch.setattr(cast_commands, "_SHARED_FROM", 1)
    return Call


SHAPES = [
    ((), ()), ((7,), ()), ((), (200,)), ((3, 130), (130,)), ((3, 1), (3, 5)), ((4, 1), (1, 6)),
    ((2, 3, 4), (3, 1)), ((9, 2, 7), (9, 2, 7)), ((3, 1, 15, 15), (3, 12, 15, 15)),
]  # fmt: skip
COMPARE = {
    "Equal": np.equal, "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}  # fmt: skip
LOGIC = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}


def pairs(one, other, dtype, seed=3):
    rng = np.random.default_rng(seed)
    for a, b in ((one, other), (other, one)):
        x, y = (np.asarray(rng.integers(-3, 4, size=s)).astype(dtype) for s in (a, b))
        if dtype == np.float32 and x.size and y.size:
            x.reshape(-1)[0], y.reshape(-1)[-1] = np.nan, -0.0
        yield x, y, np.broadcast_shapes(a, b)


@pytest.mark.parametrize("op", COMPARE)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize(("one", "other"), SHAPES, ids=str)
def test_comparisons_hold_where_numpy_says(op, dtype, one, other, call):
    for x, y, shape in pairs(one, other, dtype):
        out = np.full(shape, True)
        run = bind_comparison(op, call, x, y, out)
        if run is None:
            assert 1 in x.shape + y.shape
            continue
        run()
        np.testing.assert_array_equal(out, COMPARE[op](x, y))


@pytest.mark.parametrize("op", LOGIC)
@pytest.mark.parametrize(("one", "other"), SHAPES, ids=str)
def test_junctions_of_truth_values(op, one, other, call):
    for x, y, shape in pairs(one, other, np.int64):
        x, y, out = np.asarray(x > 0), np.asarray(y > 0), np.full(shape, True)
        bind_comparison(op, call, x, y, out)()
        np.testing.assert_array_equal(out, LOGIC[op](x, y))


def cut(x, y):
    """Divide toward zero; by zero gives 0, and what does not fit wraps."""
    exact = [
        0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        for a, b in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)
    ]
    wide = [v % 2 ** (8 * x.itemsize) for v in exact]
    unsigned = np.array(wide, f"u{x.itemsize}").view(x.dtype)
    return unsigned.reshape(x.shape)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("one", "other"), SHAPES, ids=str)
def test_integers_wrap_and_are_divided_toward_zero(op, dtype, one, other, call):
    what = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum,
            "Min": np.minimum}.get(op)  # fmt: skip
    info = np.iinfo(dtype)
    for x, y, shape in pairs(one, other, dtype):
        x.reshape(-1)[-1], y.reshape(-1)[-1] = info.min, -1
        x.reshape(-1)[0] = info.max
        wide = [np.ascontiguousarray(np.broadcast_to(v, shape)) for v in (x, y)]
        with np.errstate(over="ignore"):
            want = cut(*wide) if op == "Div" else what(*wide)
        out = np.empty(shape, dtype)
        run = bind_arithmetic(op, call, x, y, out)
        if run is None:
            assert 1 in x.shape + y.shape
            continue
        run()
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.float32, np.int64])
@pytest.mark.parametrize(
    "shapes", [((5,), (5,), ()), ((3, 1), (), (3, 4)), ((1,), (2, 70), (70,)), ((4,), (1,), (1,)),
               ((2, 1, 3, 3), (), (2, 4, 3, 3))],
)  # fmt: skip
def test_where_takes_one_or_the_other(dtype, shapes, call):
    rng = np.random.default_rng(1)
    c, x, y = (np.asarray(rng.integers(0, 2, size=s)) for s in shapes)
    c = np.asarray(c > 0)
    x, y = (np.asarray(v * 5 - 7).astype(dtype) for v in (x, y))
    want = np.where(c, x, y)
    out = np.empty_like(want)
    bind_where(call, c, x, y, out)()
    np.testing.assert_array_equal(out, want)


CAST = ["float32", "int32", "int64", "bool"]
EDGES = [0, -0.0, 1, -1, 0.9, -0.9, 2.5, 16777217, 2**31 - 65, 2**31, -(2.0**31), -(2.0**31) - 300,
         2.0**63, -(2.0**63), 2.0**62, 1e30, -1e30, np.inf, -np.inf, np.nan]  # fmt: skip


@pytest.mark.parametrize("source", CAST)
@pytest.mark.parametrize("target", CAST)
@pytest.mark.parametrize("size", [1, 9, 700])
def test_casts_have_the_values_of_the_conversions(source, target, size, call):
    if source == "float32":
        x = np.resize(np.array(EDGES, np.float32), size)
    else:
        rng = np.random.default_rng(size)
        x = rng.integers(-(2**62), 2**62, size=size) >> rng.integers(0, 62, size=size)
        x = x.astype(source)
    out = np.empty(size, target)
    run = bind_cast(call, x, out)
    if source == target:
        assert run is None
        return
    run()
    want = np.empty(size, target)
    converter(source, target, True, "up")(x, want)
    np.testing.assert_array_equal(out, want)


def test_not_and_nan(call):
    x = np.array([True, False] * 70)
    out = np.empty_like(x)
    bind_not(call, x, out)()
    np.testing.assert_array_equal(out, ~x)
    y = np.resize(np.array([1, np.nan, np.inf, -np.nan], np.float32), 130)
    out = np.empty(130, bool)
    bind_nan(call, y, out)()
    np.testing.assert_array_equal(out, np.isnan(y))


def test_the_logarithm_is_within_two_ulp_everywhere():
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(-103, 88, 200_000)).astype(np.float32)
    x = np.concatenate([x, rng.uniform(0.5, 1.5, 200_000).astype(np.float32)])
    x = x[x > 0]
    got = np.empty_like(x)
    formulas.LOG.loop(x, got, np.float32(0), np.float32(0))
    want = np.log(x.astype(np.float64))
    ulp = np.spacing(np.abs(want.astype(np.float32))).astype(np.float64)
    assert np.abs((got - want) / np.maximum(ulp, 2.0**-149)).max() <= 2


def test_the_logarithm_of_what_has_none():
    x = np.array([0, -0.0, -1, -np.inf, np.inf, np.nan, 1, 1e-45], np.float32)
    want = [
        -np.inf,
        -np.inf,
        np.nan,
        np.nan,
        np.inf,
        np.nan,
        0,
        np.log(1.401298464324817e-45),
    ]
    got = np.array([f32.log(v) for v in x])
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (2, 6, 40, 40)])
def test_lrn_divides_by_a_power_of_neighbouring_channels(size, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 30
    out = np.empty_like(x)
    numbers = {"alpha": 0.02, "beta": 0.75, "bias": 1.5}
    bind_lrn(x, out, size, *numbers.values(), 2)()
    want = lrn_by_numpy(x.astype(np.float64), size=size, **numbers)
    np.testing.assert_allclose(out, want, rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (5, 16), (7, 50), (300, 257)])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_matrix_packed_by_command_lies_as_one_packed_once(shape, threads):
    for b in (np.random.default_rng(0).standard_normal(shape).astype(np.float32),
              np.random.default_rng(0).standard_normal(shape[::-1]).astype(np.float32).T):  # fmt: skip
        panels = empty_panels(shape)
        panels.fill(np.nan)
        bind_packing(b, panels, threads)()
        np.testing.assert_array_equal(panels, pack_panels(b))
