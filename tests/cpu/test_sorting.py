"""TopK, ArgMax, ArgMin, Hardmax, OneHot, NonZero, Unique, NonMaxSuppression."""

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import agrees, give, gives

from seamline_cpu.kernels.suppression import corners, overlaps

F = np.float32
I64 = np.iinfo(np.int64)


def ints(*values):
    return np.array(values, np.int64)


def ranked(x, k, axis, largest):
    """Sort by the definition: by value, NaN the largest, then by index."""
    rows = np.moveaxis(x, axis, -1)
    found = np.empty((*rows.shape[:-1], k), np.int64)
    for place in np.ndindex(rows.shape[:-1]):
        row = [float(v) if x.dtype.kind not in "iu" else int(v) for v in rows[place]]

        def key(j, row=row):
            value = float("inf") if row[j] != row[j] else row[j]
            after_inf = row[j] != row[j]
            return ((-value, -after_inf) if largest else (value, after_inf)) + (j,)

        found[place] = sorted(range(len(row)), key=key)[:k]
    found = np.ascontiguousarray(np.moveaxis(found, -1, axis))
    return [np.take_along_axis(x, found, axis), found]


DATA = [
    np.array([[2, 5, 5, 2, 5], [1, 1, 1, 1, 1]], F),
    np.array([[np.inf] * 4 + [1], [-np.inf, 3, np.inf, -np.inf, 3]], np.float64),
    np.array([[I64.min, 4, 4, I64.min, 0], [7, 7, 8, 8, 7]], np.int64),
    np.array([[0, 2**63, 2**63, 1, 0], [2**64 - 1, 0, 2**64 - 1, 0, 3]], np.uint64),
    np.array([[-128, 127, 0, -128, 127], [1, 2, 3, 2, 1]], np.int8),
    np.array([[-0.0, 0.0, 1, -1, 0.0], [2, 2, -2, -2, 9]], np.float16),
    np.array([[np.nan, 1, np.inf, np.nan, 5], [0, -np.nan, 0, 3, np.nan]], F),
    np.array([[1, 2, 2, 1, np.nan], [0, 0, 0, 0, 0]], ml_dtypes.bfloat16),
]


@pytest.mark.parametrize("x", DATA, ids=[f"{n}-{x.dtype}" for n, x in enumerate(DATA)])
@pytest.mark.parametrize("largest", [1, 0])
def test_of_equal_values_the_lower_index_comes_first(x, largest):
    for axis, k in ((1, 3), (0, 2), (-1, 0), (1, 5), (0, 1)):
        want = ranked(x, k, axis, largest)
        gives("TopK", [x, ints(k)], want, fixed=(1,), axis=axis, largest=largest)


def test_k_above_the_size_names_k_and_the_axis():
    x = DATA[0]
    for constant in ((), (1,)):
        with pytest.raises(Exception, match="k is 6, axis 1 has 5 elements"):
            give("TopK", [x, ints(6)], [x, x.astype(np.int64)], constant=constant)


def test_top_k_of_each_opset_and_of_one_output():
    x = DATA[0]
    want = ranked(x, 2, 1, True)
    gives("TopK", [x], want, opset=9, k=2, axis=-1)
    gives("TopK", [x, ints(2)], want, opset=10)
    gives("TopK", [x, ints(2)], [None, want[1]], opset=11, sorted=0)
    gives("TopK", [x, ints(2)], [want[0], None], opset=24)
    gives("TopK", [x[:, :0], ints(0)], [x[:, :0], np.zeros((2, 0), np.int64)])


@pytest.mark.parametrize("k", [1, 7, 300, 3000])
def test_long_rows_with_many_ties_agree_with_the_definition(k):
    x = np.random.default_rng(k).integers(0, 40, (2, 3000)).astype(F)
    for largest in (0, 1):
        gives("TopK", [x, ints(k)], ranked(x, k, 1, largest), largest=largest)


@pytest.mark.parametrize(
    "dtype", [F, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.int32]
)
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_arg_extremes_take_the_first_or_the_last_of_equals(op, axis, dtype):
    x = np.random.default_rng(0).integers(0, 4, (3, 4, 6)).astype(dtype)
    wide = x.astype(np.float64)
    sign = 1 if op == "ArgMax" else -1
    first = np.argmax(sign * wide, axis)
    last = x.shape[axis] - 1 - np.argmax(np.flip(sign * wide, axis), axis)
    for keep in (0, 1):
        shape = np.expand_dims(first, axis).shape if keep else first.shape
        settings = {"axis": axis, "keepdims": keep}
        gives(op, [x], first.reshape(shape), opset=11, **settings)
        gives(op, [x], last.reshape(shape), opset=13, select_last_index=1, **settings)


def test_arg_max_of_nothing():
    gives("ArgMax", [np.zeros((0, 3), F)], np.zeros((0, 1), np.int64), axis=1)
    with pytest.raises(Exception, match="axis 0 has no elements"):
        give("ArgMax", [np.zeros((0, 3), F)], np.zeros((1, 3), np.int64), axis=0)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_hardmax_marks_the_first_largest_of_the_opsets_rows(opset, axis):
    x = np.random.default_rng(1).integers(0, 3, (3, 4, 6)).astype(F)
    agrees("Hardmax", [x], opset=opset, axis=axis)
    gives("Hardmax", [x[:0]], x[:0], opset=opset, axis=axis)


def test_one_hot_counts_negative_indices_from_the_end_and_leaves_others_off():
    indices = ints(0, -1, 5, -4, 2)
    want = np.full((5, 3), 2, F)
    want[[0, 1, 4], [0, 2, 2]] = 7
    for depth in (np.array(3), ints(3), np.array(3, F)):
        for kind in (np.int64, F, np.int32):
            values = np.array([2, 7], F)
            gives("OneHot", [indices.astype(kind), depth, values], want, fixed=(1,))
    turned = np.ascontiguousarray(want.T)
    gives("OneHot", [indices, ints(3), np.array([2, 7], F)], turned, axis=0, fixed=(1,))
    words = np.array(["no", "yes"], object)
    want = np.array([["yes", "no"], ["no", "yes"]], object)
    gives("OneHot", [ints(0, 1), ints(2), words], want, opset=11)
    agrees("OneHot", [ints(1, 0).reshape(2, 1), ints(4), ints(0, 1)], opset=11, axis=-2)


def test_non_zero_of_matrices_scalars_and_nothing():
    x = np.array([[1, 0], [np.nan, -0.0]], F)
    gives("NonZero", [x], ints([0, 1], [0, 0]).reshape(2, 2))
    gives(
        "NonZero", [np.array([[True, False], [True, True]])], ints([0, 1, 1], [0, 0, 1])
    )
    gives("NonZero", [np.zeros((0, 3), F)], np.zeros((2, 0), np.int64))
    gives("NonZero", [np.array(4, F)], np.zeros((0, 1), np.int64))
    gives("NonZero", [np.array(["", "a"], object)], ints([1]))
    gives("NonZero", [np.array([0, 3], ml_dtypes.bfloat16)], ints([1]))


@pytest.mark.parametrize("dtype", [F, np.float16, ml_dtypes.bfloat16, np.int8, object])
def test_unique_gives_first_places_inverses_and_counts(dtype):
    x = np.array([2, 1, 1, 3, 4, 3]).astype(dtype)
    if dtype is object:
        x = np.array(["2", "1", "1", "3", "4", "3"], object)
    ordered = [
        x[[1, 0, 3, 4]],
        ints(1, 0, 3, 4),
        ints(1, 0, 0, 2, 3, 2),
        ints(2, 1, 2, 1),
    ]
    seen = [x[[0, 1, 3, 4]], ints(0, 1, 3, 4), ints(0, 1, 1, 2, 3, 2), ints(1, 2, 2, 1)]
    gives("Unique", [x], ordered)
    gives("Unique", [x.reshape(2, 3)], seen, sorted=0)
    gives("Unique", [x], [None, None, ordered[2], None])
    rows = np.stack([x[[0, 1]], x[[1, 1]], x[[0, 1]]])
    want = [rows[[1, 0]], ints(1, 0), ints(1, 0, 1), ints(1, 2)]
    gives("Unique", [rows], want, axis=0)
    turned = [np.ascontiguousarray(want[0].T), *want[1:]]
    gives("Unique", [np.ascontiguousarray(rows.T)], turned, axis=-1)


def test_unique_of_floats_agrees_with_onnxruntime():
    x = np.random.default_rng(2).integers(0, 3, (3, 2, 4)).astype(F)
    for settings in ({}, {"axis": 0}, {"axis": 1}, {"axis": 2}, {"sorted": 0}):
        agrees("Unique", [x], outputs=4, opset=11, **settings)


BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11],
                   [0, 10.1, 1, 11.1], [0, 100, 1, 101]]], F)  # fmt: skip
SCORES = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]]], F)


def limits(count, iou, score=None):
    given = [ints(count), np.array([iou], F)]
    return given if score is None else [*given, np.array([score], F)]


def test_boxes_that_overlap_a_better_one_go():
    want = ints([0, 0, 3], [0, 0, 0], [0, 0, 5])
    gives("NonMaxSuppression", [BOXES, SCORES, *limits(3, 0.5, 0)], want)
    gives("NonMaxSuppression", [BOXES, SCORES, *limits(9, 0.5, 0.4)], want[:2])
    gives("NonMaxSuppression", [BOXES, SCORES, *limits(1, 0.5)], want[:1])
    flipped = np.ascontiguousarray(BOXES[..., [2, 3, 0, 1]])
    gives("NonMaxSuppression", [flipped, SCORES, *limits(3, 0.5, 0)], want)
    none = np.zeros((0, 3), np.int64)
    gives("NonMaxSuppression", [BOXES, SCORES], none)
    gives("NonMaxSuppression", [BOXES, SCORES, None, np.array([0.5], F)], none)
    gives("NonMaxSuppression", [BOXES[:, :0], SCORES[..., :0], *limits(3, 0.5)], none)
    with pytest.raises(Exception, match=r"iou_threshold is 1\.5"):
        give("NonMaxSuppression", [BOXES, SCORES, *limits(3, 1.5)], none)


def test_boxes_given_by_centres_have_the_same_corners():
    edges = corners(BOXES[0], centered=False)
    middle = (edges[:, :2] + edges[:, 2:]) / 2
    by_centre = np.concatenate([middle, edges[:, 2:] - edges[:, :2]], axis=1)
    np.testing.assert_allclose(corners(by_centre, centered=True), edges, atol=1e-5)
    assert overlaps(edges[0], edges[:1]).tolist() == [1]
    point = np.zeros((1, 4), F)
    assert overlaps(point[0], point).tolist() == [0]


@pytest.mark.parametrize("centred", [0, 1])
def test_suppression_agrees_with_onnxruntime_ties_included(centred):
    rng = np.random.default_rng(centred)
    for n in (1, 5, 40):
        boxes = rng.random((2, n, 4)).astype(F)
        scores = (rng.integers(0, 8, (2, 3, n)) / 8).astype(F)
        given = [boxes, scores, *limits(4, 0.3, 0.2)]
        agrees("NonMaxSuppression", given, opset=11, center_point_box=centred)
