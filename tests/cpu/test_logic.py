"""Comparisons, logic, shifts, Where and PRelu."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, gives, node_of

R = np.random.default_rng(4)
NAN, INF = np.nan, np.inf
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_by_all_bits_or_less_than_none_leave_the_sign(dtype):
    bits, signed = np.iinfo(dtype).bits, dtype.startswith("i")
    x = np.array([1, 5, 100, 100, 100], dtype)
    y = np.array([1, 2, bits - 1, bits, bits + 9], dtype)
    mask = (1 << bits) - 1
    left = [(int(v) << int(s)) & mask for v, s in zip(x[:2], y[:2], strict=True)] + [
        0,
        0,
        0,
    ]
    gives(
        "BitShift",
        [x, y],
        np.array(left, np.uint64).astype(dtype),
        opset=28,
        direction="LEFT",
    )
    gives(
        "BitShift",
        [x, y],
        np.array([0, 1, 0, 0, 0], dtype),
        opset=28,
        direction="RIGHT",
    )
    if signed:
        x, y = np.array([-8, -8, -8, 8], dtype), np.array([1, -1, bits, -1], dtype)
        gives(
            "BitShift",
            [x, y],
            np.array([-4, -1, -1, 0], dtype),
            opset=28,
            direction="RIGHT",
        )
        gives(
            "BitShift",
            [x, y],
            np.array([-16, 0, 0, 0], dtype),
            opset=28,
            direction="LEFT",
        )


@pytest.mark.parametrize(
    "operator", ["And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]
)
def test_logic_broadcasts(operator):
    ufunc = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}.get(
        operator
    )
    if ufunc is not None:
        a, b = np.array([[True], [False]]), np.array([True, False, True])
        gives(operator, [a, b], ufunc(a, b), opset=7)
        return
    a, b = np.array([[12], [200]], np.uint8), np.array([10, 255], np.uint8)
    python = {"BitwiseAnd": a & b, "BitwiseOr": a | b, "BitwiseXor": a ^ b}
    gives(operator, [a, b], python[operator], opset=18)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_comparisons_of_every_type_with_nan_false(dtype):
    a, b = np.array([1, 2, 3]).astype(of(dtype)), np.array([2, 2, 2]).astype(of(dtype))
    if dtype in FLOATS:
        b[1] = NAN
    nan = [False, dtype not in FLOATS, False]
    gives("Less", [a, b[:1]], np.array([True, False, False]), opset=13)
    gives("Greater", [a, b[2:]], np.array([False, False, True]), opset=13)
    for operator, first in (
        ("Equal", False),
        ("LessOrEqual", True),
        ("GreaterOrEqual", False),
    ):
        want = np.array([first, nan[1], operator == "GreaterOrEqual"])
        bound = Bound(node_of(operator, [a, b]), [a, b], [want], 19)
        np.testing.assert_array_equal(bound.run()[0], want)


def test_equal_compares_strings_and_large_integers_exactly():
    a, b = np.array(["a", "é", ""], object), np.array(["a", "e", ""], object)
    gives("Equal", [a, b], np.array([True, False, True]), opset=19)
    a, b = np.array([2**62, 2**62 + 1], np.int64), np.array([2**62 + 1], np.int64)
    gives("Equal", [a, b], np.array([False, True]), opset=13)


@pytest.mark.parametrize(
    "dtype", ["float32", "int64", "bool", "bfloat16", "complex64", "string", "uint8"]
)
def test_where_chooses_and_broadcasts_all_three(dtype):
    c = np.array([[True], [False]])
    if dtype == "string":
        x, y = np.array(["a", "b", "c"], object), np.array(["z"], object)
    else:
        x, y = np.array([1, 0, 1]).astype(of(dtype)), np.array([0]).astype(of(dtype))
    want = np.array([x, np.broadcast_to(y, (3,))])
    gives("Where", [c, x, y], want, opset=16)
    if dtype != "string":
        whole = np.broadcast_to(y, (2, 3)).copy()
        bound = Bound(
            node_of("Where", [c, x, whole]), [c, x, whole], [want], 16, share=[(0, 2)]
        )
        np.testing.assert_array_equal(bound.run()[0], want)


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "int64", "uint32"])
@pytest.mark.parametrize("shape", [(4, 3, 2), (3, 1), (1,), ()])
def test_prelu_scales_what_is_below_zero(dtype, shape):
    x = np.arange(-12, 12).reshape(4, 3, 2)
    x = (np.abs(x) if dtype.startswith("u") else x).astype(of(dtype))
    slope = np.full(shape, 2).astype(of(dtype))
    want = np.where(x.astype(float) < 0, x.astype(float) * 2, x.astype(float)).astype(
        of(dtype)
    )
    gives("PRelu", [x, slope], want, opset=16)


def test_prelu_keeps_nan_infinity_and_large_tensors():
    x = np.array([NAN, INF, -INF, -0.0, -2], np.float32)
    slope = np.array([0.5], np.float32)
    gives(
        "PRelu", [x, slope], np.array([NAN, INF, -INF, -0.0, -1], np.float32), opset=16
    )
    x = R.standard_normal((4, 50, 1000)).astype(np.float32)
    slope = R.uniform(-1, 2, (50, 1)).astype(np.float32)
    gives("PRelu", [x, slope], np.where(x < 0, x * slope, x), opset=16)
