"""How closely values are held: classes, types, and what is off by more."""

import ml_dtypes
import numpy as np
import pytest

from seamline_testing.comparing import difference, differences
from seamline_testing.samples import far_from
from seamline_testing.tolerances import CLASSES, class_of, tolerance_for

EPS = 2.0**-23


def test_several_rounding_operators_are_composed_and_moves_add_nothing():
    assert class_of(["Exp", "Add"]) == "composed"
    assert class_of(["Transpose", "Reshape", "MatMul"]) == "sum"
    assert class_of(["Transpose", "Max"]) == "exact"
    assert class_of([]) == "bits"
    assert class_of(["NobodysOperator"]) == "composed"


@pytest.mark.parametrize("kind", CLASSES)
def test_integers_and_booleans_are_exact_in_every_class(kind):
    one, other = np.array([1, 2]), np.array([1, 3])
    assert not difference(one, one.copy(), kind)
    assert "1 of 2 elements" in difference(one, other, kind)
    assert difference(np.array([True]), np.array([False]), kind)


def test_a_later_class_allows_no_less_than_an_earlier_one():
    want = np.float32([1.0, 2.0, 3.0])
    got = want * np.float32(1 + 1e-6)
    said = [bool(difference(got, want, kind)) for kind in CLASSES]
    assert said == sorted(said, reverse=True)
    assert said[0]
    assert not said[-1]


def test_a_move_keeps_the_sign_of_zero_and_a_comparison_need_not():
    zero, negative = np.float32([0.0]), np.float32([-0.0])
    assert difference(zero, negative, "bits")
    assert not difference(zero, negative, "exact")


def test_nan_and_infinities_are_matched_by_kind_and_sign():
    want = np.float32([np.nan, np.inf, -np.inf, 1])
    for kind in CLASSES:
        assert not difference(want.copy(), want, kind)
        for place in range(3):
            got = want.copy()
            got[place] = -want[place] if place else 0
            assert difference(got, want, kind), (kind, place)


def test_one_rounded_operation_has_four_eps():
    want = np.float32([1.0])
    assert tolerance_for(want.dtype, "rounded").relative == 4 * EPS
    assert not difference(np.float32([1 + 4 * EPS]), want, "rounded")
    assert difference(np.float32([1 + 8 * EPS]), want, "rounded")


def test_a_small_element_of_a_sum_is_held_to_the_largest():
    want = np.float32([100.0, 1e-3])
    assert not difference(np.float32([100.0, 1e-3 + 1e-4]), want, "sum")
    assert difference(np.float32([100.0, 1e-3 + 1e-2]), want, "sum")


def test_many_elements_that_are_each_near_fail_by_the_normalised_error():
    want = np.full(1000, 1.0, np.float32)
    one = want.copy()
    one[0] += 60 * EPS  # within 64 eps of the largest
    assert not difference(one, want, "sum")
    assert "normalised error" in difference(want + np.float32(60 * EPS), want, "sum")


def test_narrow_floats_have_few_eps_and_float8_none():
    want = np.array([1.0], ml_dtypes.bfloat16)
    step = float(ml_dtypes.finfo(ml_dtypes.bfloat16).eps)
    near = np.array([1 + 2 * step], ml_dtypes.bfloat16)
    far = np.array([1 + 16 * step], ml_dtypes.bfloat16)
    assert not difference(near, want, "function")
    assert difference(far, want, "function")
    small = np.array([1.0, 2.0], ml_dtypes.float8_e4m3fn)
    other = np.array([1.0, 2.25], ml_dtypes.float8_e4m3fn)
    assert not difference(small, small.copy(), "sum")
    assert difference(other, small, "sum")


def test_another_type_shape_or_count_is_said():
    x = np.float32([1, 2])
    assert "float64[2], want float32[2]" in difference(x.astype(np.float64), x, "sum")
    assert "float32[2], want float32[1, 2]" in difference(x, x[None], "sum")
    assert differences([x], [x, x], "sum") == "1 values, want 2"
    assert "output 1" in differences([x, x + 1], [x, x], "sum")


def test_sequences_and_absent_values_are_compared_as_such():
    x = np.float32([1])
    assert not difference([x, x], [x, x], "bits")
    assert "output 1" in difference([x, x + 1], [x, x], "bits")
    assert "want list" in difference(x, [x], "bits")
    assert not difference(None, None, "bits")
    assert difference(None, x, "bits")


def test_text_is_compared_by_value():
    one = np.array(["a", "b\0"], object)
    assert not difference(one, np.array(["a", "b\0"], object), "exact")
    assert difference(one, np.array(["a", "b"], object), "exact")


def test_gross_errors_are_seen_beside_infinities_and_equal_infinities_are_none():
    want = np.array([np.inf, 1, -np.inf], np.float32)
    assert not far_from(want.copy(), want)
    assert "2 of 3" in far_from(np.array([np.inf, 2, np.inf], np.float32), want)
    assert "1 of 3" in far_from(np.array([1, 1, -np.inf], np.float32), want)
    assert "1 of 3" in far_from(np.array([np.nan, 1, -np.inf], np.float32), want)
