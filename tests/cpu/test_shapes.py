"""Shape, Reshape and their kin, Tile, Expand, Range, EyeLike, blocks of pixels, Transpose."""

import math

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, agrees, give, gives, node_of

from seamline_cpu.kernels.shapes import resolved
from seamline_cpu.kernels.transposing import merged

F = np.float32
WORDS = np.array([["a", "", "Grüße"], ["日本", "tab\t", "x" * 300]], object)


def ints(*values):
    return np.array(values, np.int64)


def numbers(*sizes, dtype=F):
    return np.arange(math.prod(sizes)).reshape(sizes).astype(dtype)


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        ({}, [2, 3, 4]),
        ({"start": 1}, [3, 4]),
        ({"start": -2, "end": -1}, [3]),
        ({"start": -9, "end": 9}, [2, 3, 4]),
        ({"start": 2, "end": 1}, []),
    ],
)
def test_shape_counts_start_and_end_from_both_sides_and_clamps_them(attributes, want):
    gives("Shape", [numbers(2, 3, 4)], ints(*want), **attributes)


def test_shape_and_size_of_scalars_and_of_nothing():
    gives("Shape", [np.array(3, F)], ints())
    gives("Size", [np.array(3, F)], np.array(1))
    gives("Size", [numbers(3, 0)], np.array(0))
    gives("Size", [WORDS], np.array(6))


@pytest.mark.parametrize(
    ("sizes", "wanted", "zero", "found"),
    [
        ((2, 3, 4), (0, -1), False, (2, 12)),
        ((2, 3, 4), (4, 0, 2), False, (4, 3, 2)),
        ((0, 3), (0, -1), False, (0, 3)),
        ((2, 3, 4), (2, -1, 2), False, (2, 6, 2)),
        ((2, 2, 3), (3, 2, 2, -1), False, (3, 2, 2, 1)),
        ((0, 3), (3, 0), True, (3, 0)),
        ((2, 0), (0, 5), True, (0, 5)),
        ((), (1, 1), False, (1, 1)),
        ((1,), (), False, ()),
    ],
)
def test_reshape_resolves_zero_and_minus_one(sizes, wanted, zero, found):
    assert resolved(sizes, wanted, zero) == found
    x = numbers(*sizes)
    gives(
        "Reshape", [x, ints(*wanted)], x.reshape(found), fixed=(1,), allowzero=int(zero)
    )


@pytest.mark.parametrize(
    ("sizes", "wanted", "zero"),
    [
        ((2, 3), (4, 2), False),
        ((2, 3), (-1, -1), False),
        ((2, 3), (-2, 3), False),
        ((2, 3), (4, -1), False),
        ((2, 3), (2, 3, 0), False),
        ((0, 3), (0, -1), True),
    ],
)
def test_reshape_refuses_shapes_that_hold_something_else(sizes, wanted, zero):
    with pytest.raises(ValueError, match="cannot reshape"):
        resolved(sizes, wanted, zero)


@pytest.mark.parametrize("dtype", [F, ml_dtypes.bfloat16, ml_dtypes.int4, bool, object])
def test_views_copy_where_memory_is_not_shared_and_do_nothing_where_it_is(dtype):
    x = WORDS if dtype is object else numbers(2, 3).astype(dtype)
    gives("Flatten", [x], x.reshape(1, 6), axis=0)
    gives("Identity", [x], x)
    gives("Squeeze", [x[None], ints(0)], x, fixed=(1,))
    bound = Bound(
        node_of("Flatten", [x], axis=0), [x], [x.reshape(1, 6)], 23, share=[(0, 0)]
    )
    assert bound.claim.views == ((0, 0),)
    np.testing.assert_array_equal(bound.run()[0], x.reshape(1, 6))


def test_squeeze_and_unsqueeze_take_axes_by_attribute_and_by_input():
    x = numbers(1, 3, 1, 2)
    gives("Squeeze", [x], x[0], opset=11, axes=[0])
    gives("Squeeze", [x], x[0, :, 0], opset=7)
    gives("Squeeze", [x], x[0, :, 0], opset=13)
    gives("Squeeze", [x, None], x[0, :, 0], opset=13)
    gives("Squeeze", [x, ints(-2)], x[:, :, 0], opset=13, fixed=(1,))
    gives("Unsqueeze", [x], x[None, ..., None], opset=11, axes=[0, 5])
    gives("Unsqueeze", [x, ints(-1, 0)], x[None, ..., None], opset=13, fixed=(1,))
    gives("Unsqueeze", [np.array(3, F), ints(0)], np.array([3], F), fixed=(1,))


def test_axes_that_do_not_fit_are_named():
    with pytest.raises(Exception, match=r"axes \[1\] do not lead"):
        give("Squeeze", [numbers(1, 3), ints(1)], numbers(3), constant=(1,))
    with pytest.raises(Exception, match="axis 4 is outside"):
        give("Unsqueeze", [numbers(3), ints(4)], numbers(1, 3))


def test_a_fed_shape_that_the_plan_does_not_know_is_an_error_and_not_a_wrong_result():
    with pytest.raises(Exception, match="the plan says"):
        give("Reshape", [numbers(2, 3), ints(3, 2)], numbers(6))
    with pytest.raises(Exception, match="the plan says"):
        give("Expand", [numbers(1, 3), ints(2, 3)], numbers(4, 3))


def test_fed_values_may_change_from_run_to_run():
    x = numbers(2, 2)
    bound = Bound(node_of("Slice", [x, x, x]), [x, ints(0), ints(1)], [x[:1]], 13)
    assert bound.run()[0].tolist() == [[0, 1]]
    bound.views["x1"][...], bound.views["x2"][...] = 1, 2
    assert bound.run()[0].tolist() == [[2, 3]]


@pytest.mark.parametrize(
    "dtype", [F, np.int64, np.float16, ml_dtypes.bfloat16, bool, object]
)
def test_expand_and_tile_repeat_every_type(dtype):
    x = WORDS if dtype is object else numbers(2, 3).astype(dtype)
    gives("Expand", [x[:, None], ints(2, 1)], x[:, None].repeat(2, 1), fixed=(1,))
    gives("Expand", [x[:1], ints(0, 3)], x[:0], fixed=(1,))
    gives("Tile", [x, ints(2, 3)], np.tile(x, (2, 3)), fixed=(1,))
    gives("Tile", [x, ints(1, 0)], x[:, :0], fixed=(1,))


def test_a_zero_and_a_one_make_zero_and_a_zero_against_two_is_an_error():
    gives("Expand", [numbers(1, 3)[:, :0], ints(4, 1)], numbers(4, 0), fixed=(1,))
    with pytest.raises(Exception, match="shape"):
        give("Expand", [numbers(0, 3), ints(2, 3)], numbers(2, 3))


def test_constant_of_shape_fills_with_its_value():
    one = np.array([2.5], F)
    from onnx import numpy_helper

    gives("ConstantOfShape", [ints(2, 0)], numbers(2, 0), fixed=(0,))
    gives("ConstantOfShape", [np.zeros(0, np.int64)], np.array(0, F))
    gives(
        "ConstantOfShape", [ints(3)], np.array([2.5] * 3, F), fixed=(0,),
        value=numpy_helper.from_array(one),
    )  # fmt: skip
    gives(
        "ConstantOfShape", [ints(2)], np.array([7, 7], np.int8),
        value=numpy_helper.from_array(np.array([7], np.int8)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("start", "limit", "delta", "want"),
    [
        (3, 9, 3, [3, 6]),
        (10, 4, -2, [10, 8, 6]),
        (5, 5, 1, []),
        (5, 0, 1, []),
        (-3, 4, 5, [-3, 2]),
    ],
)
def test_range_counts_up_and_down(start, limit, delta, want):
    for dtype in (np.int32, np.int64, np.int16, F, np.float64):
        scalars = [np.array(v, dtype) for v in (start, limit, delta)]
        gives("Range", scalars, np.array(want, dtype), fixed=(0, 1, 2), opset=11)


def test_range_is_start_plus_i_times_delta_and_halves_are_counted_in_float32():
    scalars = [np.array(v, np.float64) for v in (0.1, 1.0, 0.3)]
    gives("Range", scalars, 0.1 + np.arange(3) * 0.3, opset=11)
    # 2048 + 1 has no float16, so a sum in float16 would stand still.
    halves = [np.array(v, np.float16) for v in (2040, 2060, 1)]
    want = np.arange(2040, 2060).astype(np.float16)
    gives("Range", halves, want, opset=27)
    assert len(np.unique(want)) > 9


def test_range_without_end_is_an_error():
    with pytest.raises(Exception, match="delta is 0"):
        give("Range", [np.array(0), np.array(3), np.array(0)], ints(0, 1, 2))


@pytest.mark.parametrize("k", [-4, -1, 0, 1, 2, 4])
@pytest.mark.parametrize("sizes", [(3, 3), (2, 4), (4, 2), (0, 3)])
def test_eye_like_draws_one_diagonal(k, sizes):
    gives("EyeLike", [numbers(*sizes)], np.eye(*sizes, k=k, dtype=F), k=k)


@pytest.mark.parametrize("opset", [11, 13])
def test_depth_to_space_follows_onnxs_formula_in_both_modes(opset):
    x = numbers(2, 8, 2, 3)
    b, c, h, w = x.shape
    dcr = x.reshape(b, 2, 2, c // 4, h, w).transpose(0, 3, 4, 1, 5, 2)
    crd = x.reshape(b, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3)
    for mode, want in (("DCR", dcr), ("CRD", crd)):
        want = want.reshape(b, c // 4, h * 2, w * 2)
        gives("DepthToSpace", [x], want, opset=opset, blocksize=2, mode=mode)
        back = {"mode": mode} if mode == "CRD" else {}
        gives(
            "SpaceToDepth", [want], x, opset=28 if back else opset, blocksize=2, **back
        )


def test_transpose_of_units_is_a_view_and_others_are_not():
    x = numbers(1, 3, 1, 2)
    bound = Bound(
        node_of("Transpose", [x], perm=[1, 0, 3, 2]), [x], [x.reshape(3, 1, 2, 1)], 13
    )
    assert bound.claim.views == ((0, 0),)
    np.testing.assert_array_equal(bound.run()[0], x.transpose(1, 0, 3, 2))
    bound = Bound(node_of("Transpose", [x]), [x], [x.T], 13)
    assert bound.claim.views == ()


def test_merging_axes_keeps_the_move():
    assert merged((1, 128, 12, 64), (0, 2, 1, 3)) == ((128, 12, 64), (1, 0, 2))
    assert merged((2, 3, 4), (2, 0, 1)) == ((6, 4), (1, 0))
    assert merged((2, 1, 3), (2, 1, 0)) == ((2, 3), (1, 0))
    assert merged((4, 5), (0, 1)) == ((20,), (0,))


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.float16, F, np.float64, np.complex128, object]
)
@pytest.mark.parametrize("sizes", [(37, 41), (3, 16, 24), (5, 9, 8), (1, 700)])
def test_tiled_transposes_move_every_element(dtype, sizes):
    x = numbers(*sizes).astype(dtype)
    order = [*range(len(sizes) - 2), len(sizes) - 1, len(sizes) - 2]
    gives("Transpose", [x], np.ascontiguousarray(x.transpose(order)), perm=order)


def test_every_order_of_four_axes_agrees_with_numpy():
    from itertools import permutations

    x = numbers(2, 9, 4, 5)
    for order in permutations(range(4)):
        gives("Transpose", [x], np.ascontiguousarray(x.transpose(order)), perm=order)
    gives("Transpose", [x], np.ascontiguousarray(x.T), opset=1)
    gives("Transpose", [x[:, :0]], np.ascontiguousarray(x[:, :0].T))
    gives("Transpose", [np.array(4, F)], np.array(4, F))


def test_a_large_transpose_is_shared_by_threads():
    x = numbers(3, 300, 211)
    agrees("Transpose", [x], perm=[0, 2, 1])
