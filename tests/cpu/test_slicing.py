"""Slice, Split, Concat, Trilu, ReverseSequence, Compress."""

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, agrees, give, gives, node_of

from seamline.axes import equal_parts

F = np.float32
LOW, HIGH = np.iinfo(np.int64).min, np.iinfo(np.int64).max
X = np.arange(12, dtype=np.int32).reshape(2, 6)


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps", "want"),
    [
        ([-1], [LOW], [1], [-1], X[:, ::-1]),
        ([5], [0], [1], [-1], X[:, [5, 4, 3, 2, 1]]),
        ([4], [0], [1], [-2], X[:, [4, 2]]),
        ([HIGH], [-7], [1], [-3], X[:, [5, 2]]),
        ([0], [6], [1], [-1], X[:, :0]),
        ([-1], [HIGH], [1], [-1], X[:, :0]),
        ([-2], [HIGH], [1], [1], X[:, 4:]),
        ([-100], [100], [-1], [4], X[:, [0, 4]]),
        ([1, 4], [LOW, 1], [0, 1], [-1, -1], X[::-1, [4, 3, 2]]),
        ([3], [3], [1], [1], X[:, :0]),
        ([0], [HIGH], [1], [LOW], X[:, :0]),
        ([5], [LOW], [1], [LOW], X[:, 5:]),
        ([-6], [LOW], [1], [-1], X[:, :1]),
        ([-7], [LOW], [1], [-1], X[:, :1]),
    ],
)
def test_slices_walk_both_ways_and_clamp(starts, ends, axes, steps, want):
    host = [ints(*v) for v in (starts, ends, axes, steps)]
    gives("Slice", [X, *host], np.ascontiguousarray(want), fixed=(1, 2, 3, 4))


def test_slice_defaults_its_axes_and_steps():
    gives("Slice", [X, ints(1, 2), ints(2, 4)], X[1:2, 2:4].copy(), fixed=(1, 2))
    gives("Slice", [X, ints(5), ints(0), ints(1), None], X[:, :0], fixed=(1, 2, 3))
    back = np.ascontiguousarray(X[::-1])
    gives("Slice", [X, ints(1), ints(LOW), None, ints(-1)], back, fixed=(1, 2, 4))
    narrow = [np.array(v, np.int32) for v in ([1], [9], [1])]
    gives("Slice", [X, *narrow], X[:, 1:].copy(), fixed=(1, 2, 3))


def test_slice_of_opset_1_has_attributes():
    gives("Slice", [X], X[:, 1:5].copy(), opset=9, starts=[1], ends=[-1], axes=[1])
    gives("Slice", [X], X[1:].copy(), opset=7, starts=[1], ends=[1000])


def test_slice_of_strings_and_of_nothing():
    words = np.array(["a", "", "Grüße"], object)
    gives("Slice", [words, ints(-1), ints(LOW), ints(0), ints(-1)], words[::-1].copy())
    gives("Slice", [X[:0], ints(-1), ints(9), ints(0)], X[:0], fixed=(1, 2, 3))


def test_a_step_of_zero_is_an_error():
    with pytest.raises(Exception, match="step of 0"):
        give("Slice", [X, ints(0), ints(1), ints(1), ints(0)], X[:, :1])


@pytest.mark.parametrize(
    ("size", "count", "parts"),
    [
        (10, 3, (4, 4, 2)),
        (9, 3, (3, 3, 3)),
        (7, 4, (2, 2, 2, 1)),
        (0, 2, (0, 0)),
        (3, 1, (3,)),
    ],
)
def test_split_rounds_parts_up_and_leaves_the_rest_to_the_last(size, count, parts):
    assert equal_parts(size, count, uneven=True) == parts
    x = np.arange(2 * size, dtype=F).reshape(size, 2)
    want = [
        x[a:b] for a, b in zip(np.cumsum((0, *parts)), np.cumsum(parts), strict=False)
    ]
    gives("Split", [x], want, opset=18, num_outputs=count)
    gives("Split", [x, None], want, opset=18, num_outputs=count)
    turned = [np.ascontiguousarray(part.T) for part in want]
    gives(
        "Split",
        [np.ascontiguousarray(x.T)],
        turned,
        opset=18,
        num_outputs=count,
        axis=-1,
    )


def test_split_takes_sizes_that_may_be_zero():
    x = np.arange(10, dtype=F).reshape(5, 2)
    gives("Split", [x, ints(0, 5, 0)], [x[:0], x, x[:0]], opset=18, fixed=(1,))
    gives("Split", [x, ints(1, 4)], [x[:1], x[1:]], opset=13, fixed=(1,))
    gives("Split", [x], [x[:4], x[4:]], opset=11, split=[4, 1])
    gives("Split", [x], [x[:, :1].copy(), x[:, 1:].copy()], opset=7, axis=1)
    gives("Split", [x, ints(1, 4)], [None, x[1:]], opset=18, fixed=(1,))


@pytest.mark.parametrize(
    ("sizes", "opset", "attributes"),
    [
        ([2, 2], 18, {}),
        ([3, 3], 18, {}),
        ([6, -1], 18, {}),
        ([5], 18, {}),
        (None, 13, {}),
        (None, 18, {"num_outputs": 3}),
    ],
)
def test_split_refuses_parts_that_do_not_add_up(sizes, opset, attributes):
    x = np.arange(5, dtype=F)
    inputs = [x] if sizes is None else [x, ints(*sizes)]
    with pytest.raises(Exception, match=r"it.*(parts|num_outputs)"):
        give("Split", inputs, [x[:3], x[3:]], opset=opset, constant=(1,), **attributes)
    with pytest.raises(ValueError, match="do not make 4 parts"):
        equal_parts(5, 4, uneven=True)


@pytest.mark.parametrize(
    "dtype", [F, ml_dtypes.bfloat16, ml_dtypes.uint4, bool, object]
)
def test_concat_joins_along_any_axis_with_empty_parts(dtype):
    x = np.arange(6).reshape(2, 3).astype(str if dtype is object else dtype)
    x = x.astype(dtype)
    gives("Concat", [x, x[:0], x[:1]], np.concatenate([x, x[:1]]), axis=0)
    gives("Concat", [x, x], np.concatenate([x, x], axis=-1), axis=-1)
    gives("Concat", [x], x, axis=1)


@pytest.mark.parametrize("k", [None, -9, -2, 0, 1, 9])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu_keeps_one_side_of_a_diagonal_even_beside_nan(k, upper):
    x = np.arange(24, dtype=F).reshape(2, 3, 4)
    x[0, 0, 0] = x[1, 2, 3] = np.nan
    keep = np.triu if upper else np.tril
    want = keep(x, k or 0)
    inputs = [x] if k is None else [x, np.array(k)]
    gives("Trilu", inputs, want, fixed=(1,) if k is not None else (), upper=upper)
    bound = Bound(
        node_of("Trilu", inputs, upper=upper), inputs, [want], 23, share=[(0, 0)]
    )
    np.testing.assert_array_equal(bound.run()[0], want)


def test_reverse_sequence_turns_each_batch_by_its_own_length():
    x = np.arange(16, dtype=F).reshape(4, 4)
    want = x.copy()
    for b, n in enumerate((4, 3, 0, 1)):
        want[:n, b] = x[:n, b][::-1]
    gives("ReverseSequence", [x, ints(4, 3, 0, 1)], want, opset=10)
    turned = np.ascontiguousarray(want.T)
    lengths = ints(4, 3, 0, 1)
    gives("ReverseSequence", [x.T.copy(), lengths], turned, time_axis=1, batch_axis=0)
    with pytest.raises(Exception, match="sequence_lens"):
        give("ReverseSequence", [x, ints(4, 3, 5, 1)], want)


def test_compress_keeps_what_the_condition_names():
    x = np.arange(6, dtype=F).reshape(3, 2)
    gives("Compress", [x, np.array([False, True])], x[1:2], axis=0)
    gives("Compress", [x, np.array([False, True, False, True])], np.array([1, 3], F))
    gives("Compress", [x, np.zeros(0, bool)], x[:, :0], axis=-1)
    agrees("Compress", [x, np.array([True, False, True])], axis=0)
    with pytest.raises(Exception, match="condition keeps element 2"):
        give("Compress", [x, np.array([False, True, True])], x[:, :1], axis=1)
