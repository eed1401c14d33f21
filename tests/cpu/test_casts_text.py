"""Cast to and from text, and between integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, node_of

from seamline.tensors import numpy_dtype, onnx_dtype

NAN, INF = np.nan, np.inf
F32 = np.float32


def of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def cast(x, to, opset=28, **attributes):
    x = np.asarray(x)
    like = np.empty(x.shape, numpy_dtype(to))
    node = node_of("Cast", [x], to=int(onnx_dtype(to)), **attributes)
    return Bound(node, [x], [like], opset).run()[0]


def test_floats_are_cut_toward_zero():
    x = np.array([2.9, -2.9, -0.5, 2049, 65504], F32)
    for target in ("int32", "int64", "int16"):
        want = [2, -2, 0, 2049, 65504 if target != "int16" else -32]
        np.testing.assert_array_equal(cast(x, target), want)
    back = cast(cast(x, "float16"), "float32")
    np.testing.assert_array_equal(back, x.astype(np.float16).astype(F32))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_float_out_of_range_takes_the_end_and_nan_takes_zero(dtype):
    x = np.array(
        [1e30, -1e30, NAN, INF, -INF, 7.9, 2.0**31, -(2.0**31), 2.0**63]
    ).astype(dtype)
    for target in ("int32", "uint32", "int64", "uint64"):
        info = np.iinfo(target)
        want = [
            0 if v != v else int(min(max(v, info.min), info.max)) for v in x.tolist()
        ]
        np.testing.assert_array_equal(
            cast(x, target), np.array(want, object).astype(target)
        )
    got = cast(np.array([300, -1, 3e9, NAN], dtype), "uint8")
    np.testing.assert_array_equal(got, [44, 255, 255, 0])
    np.testing.assert_array_equal(
        cast(np.array([7, 8, -9, 1.9], dtype), "int4").astype(int), [7, -8, 7, 1]
    )


def test_integers_drop_their_high_bits():
    x = np.array([200, -200, 300, -1], np.int16)
    np.testing.assert_array_equal(cast(x, "int8"), [-56, 56, 44, -1])
    np.testing.assert_array_equal(cast(x, "uint8"), [200, 56, 44, 255])
    np.testing.assert_array_equal(cast(x, "uint4").astype(int), [8, 8, 12, 15])
    np.testing.assert_array_equal(cast(x, "int4").astype(int), [-8, -8, -4, -1])
    np.testing.assert_array_equal(
        cast(np.array([-1, 7]).astype(of("int4")), "uint4").astype(int), [15, 7]
    )
    np.testing.assert_array_equal(
        cast(np.array([70000, -70000]), "float16"), [INF, -INF]
    )
    np.testing.assert_array_equal(
        cast(np.array([2**63 + 1], np.uint64), "int64"), [-(2**63) + 1]
    )


def test_numbers_are_written_plainly():
    assert cast(np.array([314.15926, 1e-7, 1e20, 2, -0.5, NAN, INF, -INF]), "string").tolist() == [
        "314.15926", "0.0000001", "100000000000000000000", "2", "-0.5", "NaN", "INF", "-INF",
    ]  # fmt: skip
    assert cast(np.array([0.1, 1 / 3], F32), "string").tolist() == ["0.1", "0.33333334"]
    assert cast(np.array([-(2**63), 7]), "string").tolist() == [
        "-9223372036854775808",
        "7",
    ]
    assert cast(np.array([True, False]), "string").tolist() == ["1", "0"]
    assert cast(np.array([-8, 7]).astype(of("int4")), "string").tolist() == ["-8", "7"]


def test_text_is_read_in_plain_and_scientific_form():
    x = np.array(["3.14", "1000", "1e-5", "1E8", "+INF", "inf", "-Inf", "nan"], object)
    want = np.array([3.14, 1000, 1e-5, 1e8, INF, INF, -INF, NAN])
    for target in ("float32", "float64"):
        np.testing.assert_array_equal(cast(x, target), want.astype(target))
    x = np.array(["-9223372036854775807", "100.5", " 7 "], object)
    np.testing.assert_array_equal(cast(x, "int64"), [-(2**63) + 1, 100, 7])
    np.testing.assert_array_equal(
        cast(np.array(["18446744073709551615"], object), "uint64"), [2**64 - 1]
    )
    np.testing.assert_array_equal(
        cast(np.array(["0", "2"], object), "bool"), [False, True]
    )
    assert cast(np.array(["a", ""], object), "string").tolist() == ["a", ""]


def test_text_that_is_no_number_is_an_error_that_shows_it():
    for target in ("float32", "int32"):
        with pytest.raises(Exception, match=r"element 1 is 'seven'"):
            cast(np.array(["7", "seven"], object), target)
    with pytest.raises(Exception, match="99999999999999999999"):
        cast(np.array(["99999999999999999999"], object), "int64")
