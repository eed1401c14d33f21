"""Resize and Upsample: exact coordinates, every mode, peers, opsets."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, agrees, give, gives, node_of

from seamline.resized_axes import AxisPlan, coordinates, exact
from seamline_cpu.kernels.sampling import Filter, taps

F = np.float32
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
ROUNDS = {
    "round_prefer_floor": lambda c: math.ceil(c - Fraction(1, 2)),
    "round_prefer_ceil": lambda c: math.floor(c + Fraction(1, 2)),
    "floor": math.floor,
    "ceil": math.ceil,
}


def ints(*values):
    return np.array(values, np.int64)


def grid(*sizes, dtype=F):
    return np.random.default_rng(3).standard_normal(sizes).astype(dtype)


@pytest.mark.parametrize("mode", ROUNDS)
@pytest.mark.parametrize(
    ("n", "m"),
    [
        (28, 6),
        (18, 21),
        (24, 28),
        (30, 23),
        (36, 21),
        (9, 21),
        (12, 8),
        (5, 10),
        (4, 4),
    ],
)
def test_nearest_at_exact_halves_takes_the_neighbour_that_its_mode_names(n, m, mode):
    places = [
        Fraction(2 * i + 1, 2) * Fraction(n, m) - Fraction(1, 2) for i in range(m)
    ]
    index = [min(max(ROUNDS[mode](c), 0), n - 1) for c in places]
    x = np.arange(n, dtype=F).reshape(1, 1, 1, n)
    gives(
        "Resize", [x, None, None, ints(1, 1, 1, m)], x[..., index], fixed=(3,), opset=19,
        mode="nearest", nearest_mode=mode,
    )  # fmt: skip


def test_a_rounded_scale_stands_for_the_fraction_it_was_rounded_from():
    assert exact(F(0.6)) == Fraction(3, 5)
    assert exact(F(1 / 3)) == Fraction(1, 3)
    assert exact(F(2)) == 2
    odd = F(np.pi)
    assert exact(odd) == Fraction(float(odd)) or F(float(exact(odd))) == odd


def test_coordinates_follow_the_formulas_of_the_operators_text():
    axis = AxisPlan(4, 8, Fraction(2))
    half = [Fraction(2 * i + 1, 4) - Fraction(1, 2) for i in range(8)]
    assert coordinates(axis, "half_pixel") == half
    assert coordinates(axis, "half_pixel_symmetric") == half
    assert coordinates(axis, "asymmetric") == [Fraction(i, 2) for i in range(8)]
    assert coordinates(axis, "align_corners") == [Fraction(3 * i, 7) for i in range(8)]
    assert coordinates(AxisPlan(4, 1, Fraction(1, 4)), "pytorch_half_pixel") == [0]
    crop = AxisPlan(5, 3, Fraction(3, 5), Fraction(1, 4), Fraction(3, 4))
    assert coordinates(crop, "tf_crop_and_resize") == [1, 2, 3]
    with pytest.raises(ValueError, match="unknown coordinate"):
        coordinates(axis, "half")


@pytest.mark.parametrize("cubic", [False, True])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("exclude", [False, True])
def test_weights_sum_to_one_and_reproduce_a_constant(cubic, antialias, exclude):
    for n, m in ((10, 4), (4, 10), (5, 5), (7, 1)):
        axis = AxisPlan(n, m, Fraction(m, n))
        how = Filter(cubic, -0.5, antialias, exclude)
        index, weights = taps(coordinates(axis, "half_pixel"), axis, how)
        np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=1e-12)
        assert index.min() >= 0
        assert index.max() < n


MODES = [
    "half_pixel",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "half_pixel_symmetric",
]


@pytest.mark.parametrize("transform", MODES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(14, 10), (3, 4), (20, 13)])
def test_sizes_agree_with_onnxruntime(mode, transform, sizes):
    x = grid(2, 3, 7, 5)
    agrees(
        "Resize", [x, None, None, ints(2, 3, *sizes)], opset=19, fixed=(3,), **CLOSE,
        mode=mode, coordinate_transformation_mode=transform,
    )  # fmt: skip


@pytest.mark.parametrize("scales", [(2, 2), (1.5, 2.5), (0.6, 0.8), (3, 1)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales_agree_with_onnxruntime_at_every_opset(mode, scales):
    x, given = grid(2, 3, 7, 5), np.array([1, 1, *scales], F)
    agrees("Resize", [x, None, given], opset=19, fixed=(2,), **CLOSE, mode=mode)
    empty = np.zeros(0, F)
    agrees("Resize", [x, empty, given], opset=11, fixed=(1, 2), **CLOSE, mode=mode)
    if mode == "cubic":
        return
    agrees("Resize", [x, given], opset=10, fixed=(1,), **CLOSE, mode=mode)
    if min(scales) >= 1:
        agrees("Upsample", [x, given], opset=9, fixed=(1,), **CLOSE, mode=mode)
        agrees("Upsample", [x], opset=7, **CLOSE, mode=mode, scales=given.tolist())


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
def test_antialiased_insides_agree_with_onnxruntime(mode, exclude):
    x = grid(1, 2, 12, 10)
    agrees(
        "Resize", [x, None, None, ints(1, 2, 5, 3)], opset=19, fixed=(3,), **CLOSE,
        mode=mode, antialias=1, exclude_outside=1,
    )  # fmt: skip
    flat = np.full((1, 1, 12, 10), 3, F)
    gives(
        "Resize", [flat, None, None, ints(1, 1, 5, 3)], np.full((1, 1, 5, 3), 3, F),
        opset=19, **CLOSE, mode=mode, antialias=1, exclude_outside=exclude,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crops_extrapolate_with_their_value(mode):
    roi = np.array([0, 0, 0.2, 0.1, 1, 1, 0.8, 1.3], F)
    agrees(
        "Resize", [grid(2, 3, 7, 5), roi, None, ints(2, 3, 4, 6)], opset=19, fixed=(1, 3),
        **CLOSE, mode=mode, coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=9.0,
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_axes_and_aspect_ratios(policy):
    agrees(
        "Resize", [grid(2, 3, 7, 5), None, None, ints(5, 9)], opset=18, fixed=(3,), **CLOSE,
        mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy,
    )  # fmt: skip


@pytest.mark.parametrize(
    "dtype",
    [np.uint8, np.int32, np.float16, ml_dtypes.bfloat16, np.float64, bool, object],
)
def test_nearest_moves_every_type_and_rank(dtype):
    x = np.array([["a", "b"], ["c", ""]], object)
    if dtype is not object:
        x = np.arange(4).reshape(2, 2).astype(dtype)
    want = x.repeat(3, 0).repeat(2, 1)
    floor = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    gives("Resize", [x, None, np.array([3, 2], F)], want, fixed=(2,), opset=13, **floor)
    line = x[0]
    gives("Resize", [line, None, np.array([2], F)], line.repeat(2), opset=13, **floor)
    cube = np.ascontiguousarray(np.broadcast_to(x, (2, 2, 2)))
    want = cube.repeat(2, 0).repeat(2, 2)
    gives("Resize", [cube, None, np.array([2, 1, 2], F)], want, opset=13, **floor)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, F])
def test_linear_of_every_float_by_hand(dtype):
    x = np.array([[[[0, 4]]]], dtype)
    want = np.array([[[[0, 1, 3, 4]]]], dtype)
    gives("Resize", [x, None, np.array([1, 1, 1, 2], F)], want, opset=13, mode="linear")


def test_integers_are_cut_and_whole_results_stay_whole():
    x = np.array([0, 3], np.uint8)
    want = np.array([0, 0, 1, 2, 3, 3], np.uint8)
    gives("Resize", [x, None, np.array([3], F)], want, opset=13, mode="linear")
    ramp = np.array([0, 3, 6, 9], np.int32)
    up = [ramp, None, None, ints(10)]
    corners = {"coordinate_transformation_mode": "align_corners"}
    gives(
        "Resize", up, np.arange(10, dtype=np.int32), opset=13, mode="linear", **corners
    )
    edge = np.array([0, 255], np.uint8)
    (got,) = give(
        "Resize", [edge, None, None, ints(8)], np.zeros(8, np.uint8), mode="cubic"
    )
    assert got[0] == 0
    assert got[-1] == 255


def test_large_planes_are_shared_by_threads_and_agree():
    x = grid(1, 8, 60, 70)
    # onnxruntime works its coordinates out in float32.
    loose = {"rtol": 1e-3, "atol": 1e-4}
    for mode in ("nearest", "linear"):
        for scales in ((1, 1, 2, 2), (1, 1, 1.5, 2.3)):
            given = np.array(scales, F)
            agrees("Resize", [x, None, given], opset=13, **loose, mode=mode)


def test_the_same_sizes_and_no_elements():
    x = grid(1, 2, 3, 4)
    for mode in ("nearest", "linear", "cubic"):
        gives("Resize", [x, None, None, ints(1, 2, 3, 4)], x, opset=19, mode=mode)
        none = x[:0]
        want = np.zeros((0, 2, 6, 8), F)
        gives(
            "Resize", [none, None, np.array([1, 1, 2, 2], F)], want, opset=19, mode=mode
        )


def test_a_fed_scale_that_the_plan_does_not_know_is_an_error():
    x = grid(1, 1, 2, 2)
    inputs = [x, None, np.array([1, 1, 2, 2], F)]
    bound = Bound(node_of("Resize", inputs), inputs, [np.zeros((1, 1, 4, 4), F)], 19)
    bound.run()
    bound.views["x2"][2:] = 4
    with pytest.raises(Exception, match="does not lead from 2 to 4"):
        bound.run()
    with pytest.raises(Exception, match="neither scales nor sizes"):
        give("Resize", [x, None, None, None], x, opset=19)


def test_modes_without_meaning_are_refused():
    with pytest.raises(NotImplementedError, match="no meaning for string"):
        give(
            "Resize",
            [np.array(["a"], object), None, None, ints(2)],
            np.array(["a", "a"], object),
            mode="linear",
        )
    with pytest.raises(NotImplementedError, match="'area'"):
        give("Resize", [grid(2), None, None, ints(2)], grid(2), mode="area")
