"""ScatterElements, ScatterND, TensorScatter: duplicates, reductions, bounds, sharing."""

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, agrees, give, gives, node_of

F = np.float32
DATA = np.array([[1, 2, 3, 4], [10, 20, 30, 40]], F)
AT = np.array([[0, 0, -1], [2, -2, 2]])
UP = np.array([[5, 7, 11], [1, 2, 3]], F)
ND = np.array([[0, -1], [1, 2], [-2, 3], [1, 2]])
ND_UP = np.array([-4, 6, 0.5, 8], F)


@pytest.mark.parametrize(
    ("reduction", "want"),
    [
        ("add", [[13, 2, 3, 15], [10, 20, 36, 40]]),
        ("mul", [[35, 2, 3, 44], [10, 20, 180, 40]]),
        ("max", [[7, 2, 3, 11], [10, 20, 30, 40]]),
        ("min", [[1, 2, 3, 4], [10, 20, 1, 40]]),
    ],
)
@pytest.mark.parametrize(
    "dtype", [F, np.float64, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8]
)
def test_every_update_of_a_repeated_index_counts(reduction, want, dtype):
    inputs = [DATA.astype(dtype), AT, UP.astype(dtype)]
    want = np.array(want).astype(dtype)
    gives(
        "ScatterElements",
        inputs,
        want,
        fixed=(1,),
        axis=-1,
        reduction=reduction,
        opset=18,
    )


def test_scatter_nd_counts_repeated_tuples_and_negative_ones_from_their_own_axis():
    gives(
        "ScatterND", [DATA, ND, ND_UP], np.array([[1, 2, 3, 0.5], [10, 20, 44, 40]], F),
        fixed=(1,), reduction="add",
    )  # fmt: skip
    gives(
        "ScatterND", [DATA, ND, ND_UP], np.array([[1, 2, 3, -4], [10, 20, 6, 40]], F),
        fixed=(1,), reduction="min",
    )  # fmt: skip
    rows = np.array([[-1], [0], [-1]])
    up = np.arange(12, dtype=F).reshape(3, 4)
    want = DATA + np.array([up[1], up[0] + up[2]])
    gives("ScatterND", [DATA, rows, up], want, fixed=(1,), reduction="add")


@pytest.mark.parametrize("opset", [11, 13, 16, 18])
@pytest.mark.parametrize("dtype", [F, ml_dtypes.bfloat16, bool, object])
def test_without_reduction_updates_replace(opset, dtype):
    names = np.array([["a", "b", "c"], ["d", "e", "f"]], object)
    x = names if dtype is object else np.arange(6).reshape(2, 3).astype(dtype)
    up = (
        np.array([["x", "y"]], object)
        if dtype is object
        else np.ones((1, 2)).astype(dtype)
    )
    want = x.copy()
    want[1, 0], want[0, 1] = up[0, 0], up[0, 1]
    gives(
        "ScatterElements", [x, np.array([[-1, 0]]), up], want, fixed=(1,), opset=opset
    )
    gives(
        "ScatterND",
        [x, np.array([[1, 0], [0, 1]]), up[0]],
        want,
        fixed=(1,),
        opset=opset,
    )
    if opset == 11:
        gives("Scatter", [x, np.array([[-1, 0]]), up], want, opset=9)


@pytest.mark.parametrize("fixed", [(), (1,)])
@pytest.mark.parametrize(
    ("op", "bad", "said"),
    [
        (
            "ScatterElements",
            np.array([[0, 0, 4], [2, -2, 2]]),
            "index 4 .* axis 1 with size 4",
        ),
        ("ScatterElements", np.array([[0, 0, -5], [2, -2, 2]]), "index -5 .* axis 1"),
        (
            "ScatterND",
            np.array([[0, -1], [2, 0], [-2, 3], [1, 2]]),
            "index 2 .* axis 0 with size 2",
        ),
    ],
)
def test_an_index_outside_is_an_error_before_any_write(op, bad, said, fixed):
    nd = op == "ScatterND"
    inputs = [DATA, bad, ND_UP if nd else UP]
    axis = {} if nd else {"axis": 1}
    node = node_of(op, inputs, **axis)
    with pytest.raises(Exception, match=said):
        give(op, inputs, DATA, constant=fixed, **axis)
    if not fixed:
        bound = Bound(node, inputs, [DATA], 18, share=[(0, 0)])
        with pytest.raises(Exception, match=said):
            bound.run()
        np.testing.assert_array_equal(bound.views["x0"], DATA)


def test_shared_memory_is_written_in_place_and_updates_that_are_the_data_are_read_first():
    node = node_of("ScatterElements", [DATA, AT, UP], axis=1, reduction="add")
    bound = Bound(node, [DATA, AT, UP], [DATA], 18, share=[(0, 0)])
    assert bound.run()[0].tolist() == [[13, 2, 3, 15], [10, 20, 36, 40]]
    x, swap = np.array([1, 2], F), np.array([1, 0])
    bound = Bound(
        node_of("ScatterElements", [x, swap, x]), [x, swap, x], [x], 18, share=[(0, 2)]
    )
    np.testing.assert_array_equal(bound.run()[0], [2, 1])


def test_nan_survives_max_and_min():
    up = np.array([np.nan, 9], F)
    at = np.array([0, 0])
    for reduction in ("max", "min", "add"):
        (got,) = give("ScatterElements", [up[1:], at, up], up[1:], reduction=reduction)
        assert np.isnan(got[0])


def test_no_updates_leave_the_data():
    none = np.zeros((0, 4), np.int64)
    gives("ScatterElements", [DATA, none, none.astype(F)], DATA, fixed=(1,))
    gives("ScatterND", [DATA, np.zeros((0, 1), np.int64), DATA[:0]], DATA, fixed=(1,))
    gives(
        "ScatterND",
        [DATA[:, :0], np.array([[1]]), DATA[:1, :0]],
        DATA[:, :0],
        fixed=(1,),
    )


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatters_agree_with_onnxruntime(op, reduction):
    rng = np.random.default_rng(5)
    x = rng.integers(0, 9, (3, 4, 5)).astype(F)
    if op == "ScatterND":
        at = np.array([[0, -1], [2, 1], [-2, 0]])
        up = rng.integers(1, 9, (3, 5)).astype(F)
        agrees(op, [x, at, up], fixed=(1,), reduction=reduction, opset=18)
        return
    at = np.tile(np.array([[[0], [-1], [2]]]), (2, 1, 5))
    up = rng.integers(1, 9, (2, 3, 5)).astype(F)
    agrees(op, [x, at, up], fixed=(1,), reduction=reduction, axis=1, opset=18)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter_writes_each_batch_at_its_own_place(mode):
    rng = np.random.default_rng(2)
    past = rng.standard_normal((2, 3, 5, 4)).astype(F)
    update = rng.standard_normal((2, 3, 2, 4)).astype(F)
    starts = np.array([3, 0]) if mode == "linear" else np.array([4, 7])
    want = past.copy()
    for b in range(2):
        for s in range(2):
            want[b, :, (starts[b] + s) % 5] = update[b, :, s]
    gives("TensorScatter", [past, update, starts], want, opset=24, mode=mode)
    bound = Bound(
        node_of("TensorScatter", [past, update, starts], mode=mode),
        [past, update, starts], [want], 24, share=[(0, 0)],
    )  # fmt: skip
    np.testing.assert_array_equal(bound.run()[0], want)


def test_tensor_scatter_starts_at_zero_and_does_not_run_over():
    past, update = np.zeros((1, 3, 2), F), np.ones((1, 2, 2), F)
    want = np.array([[[1, 1], [1, 1], [0, 0]]], F)
    gives("TensorScatter", [past, update], want, opset=24)
    with pytest.raises(
        Exception, match="write index 2 and 2 updates leave axis 1 with size 3"
    ):
        give("TensorScatter", [past, update, np.array([2])], want, opset=24)
