"""Reductions over rows: every team of threads, element type and form of axes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from tests.cuda.emulation import check, drawn, opened, peer
from tests.cuda.plain import nodes_of
from tests.cuda.worked import node_worked, worked

from seamline.errors import SeamlineError
from seamline.provider import Refusal
from seamline_cuda.folds import Folds
from seamline_cuda.row_teams import team_for

spread = np.random.default_rng(3)

#: By team: sizes, axes, and the (kind, blocks share a row) that they give.
TEAMS = {
    "a thread, neighbours in a row": ((5, 2), (1,), ("alone", False)),
    "a thread, rows side by side": ((7, 40), (0,), ("alone", False)),
    "threads of a warp": ((3, 40), (1,), ("warp", False)),
    "a block that holds its row": ((2, 700), (1,), ("block", False)),
    "a block that reads its row again": ((70, 4500), (1,), ("block", False)),
    "blocks that share a row": ((1, 8300), (1,), ("block", True)),
    "a block of rows side by side": ((90, 5), (0,), ("tall", False)),
    "blocks that share rows side by side": ((1100, 3), (0,), ("tall", True)),
    "two axes inside, two around": ((2, 3, 4, 5), (0, 2), ("alone", False)),
    "the innermost axis and one before": ((2, 3, 4, 5), (1, 3), ("warp", False)),
}
DEFINED = {
    "Sum": np.sum,
    "Mean": np.mean,
    "Max": np.max,
    "Min": np.min,
    "Prod": np.prod,
    "L1": lambda x, **k: np.abs(x).sum(**k),
    "L2": lambda x, **k: np.sqrt((x * x).sum(**k)),
    "LogSum": lambda x, **k: np.log(x.sum(**k)),
    "LogSumExp": lambda x, **k: np.log(np.exp(x).sum(**k)),
    "SumSquare": lambda x, **k: (x * x).sum(**k),
}


def reduced(op, x, axes, **attributes):
    """Reduce in emulation, ``axes`` a constant; None leaves the input out."""
    given = None if axes is None else np.array(axes, np.int64)
    node = onnx.helper.make_node(f"Reduce{op}", ["x", "a"] if axes is not None else ["x"], ["y"], **attributes)  # fmt: skip
    noop = attributes.get("noop_with_empty_axes", 0) and not axes
    over = () if noop else tuple(axes or range(x.ndim))
    like = np.zeros_like(x).sum(axis=over, keepdims=bool(attributes.get("keepdims", 1)))
    inputs = [x] if axes is None else [x, given]
    return node_worked(node, inputs, [np.asarray(like, x.dtype)], constant=(1,))


@pytest.mark.parametrize("name", TEAMS)
def test_each_team_is_chosen_by_sizes_and_adds_up_its_rows(name):
    sizes, axes, (kind, shared) = TEAMS[name]
    folds = Folds.of(sizes, axes)
    team = team_for(folds.rows, folds.length, folds.side_by_side)
    assert (team.kind, team.parts > 1) == (kind, shared)
    x = spread.standard_normal(sizes).astype(np.float32)
    if x.size > 100_000:
        x = x[:2]  # the team is told by the sizes; two rows show what it computes
    (found,) = reduced("Sum", x, axes)
    np.testing.assert_allclose(found, x.astype(np.float64).sum(axis=axes, keepdims=True), rtol=1e-5, atol=1e-4)  # fmt: skip


@pytest.mark.parametrize("op", DEFINED)
@pytest.mark.parametrize(
    "name", ["threads of a warp", "blocks that share rows side by side"]
)
def test_an_operator_is_what_its_name_says_alone_and_shared(op, name):
    sizes, axes, _ = TEAMS[name]
    x = (spread.random(sizes) + 0.5).astype(np.float32)
    if op == "Prod":
        x = x ** np.float32(0.02)
    (found,) = reduced(op, x, axes)
    want = DEFINED[op](x.astype(np.float64), axis=axes, keepdims=True)
    np.testing.assert_allclose(found, want, rtol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_sums_of_16_bits_are_made_in_32_and_doubles_stay_doubles(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.full((2, 3000), 1.0, kind)
    (found,) = reduced("Sum", x, (1,))
    # One after the other in 16 bits, the sum would stop at 2048, or at 256.
    assert found.ravel().tolist() == [float(np.array(3000, kind))] * 2
    tiny = np.array([[1.0, 1e-12]])
    if dtype == "float64":
        assert reduced("Sum", tiny, (1,))[0][0, 0] == 1.0 + 1e-12


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_integers_are_exact_and_wrap_around(dtype):
    top = np.iinfo(dtype).max
    x = np.array([[top, 1, 5], [top - 9, top, 2]], dtype)
    with np.errstate(over="ignore"):
        assert reduced("Sum", x, (1,))[0].tolist() == np.sum(x, 1, dtype, keepdims=True).tolist()  # fmt: skip
        assert reduced("Prod", x, (1,))[0].tolist() == np.prod(x, 1, dtype, keepdims=True).tolist()  # fmt: skip
        assert reduced("SumSquare", x, (1,))[0].tolist() == np.sum(x * x, 1, dtype, keepdims=True).tolist()  # fmt: skip
    assert reduced("Max", x, (1,))[0].tolist() == x.max(1, keepdims=True).tolist()
    assert reduced("Min", x, (1,))[0].tolist() == x.min(1, keepdims=True).tolist()


def test_a_mean_of_integers_goes_towards_zero():
    x = np.array([[-7, 0], [7, 0], [-1, -2]], np.int64)
    assert reduced("Mean", x, (1,))[0].ravel().tolist() == [-3, 3, -1]
    big = np.array([[2**63, 2**63 - 2, 0, 0]], np.uint64)
    assert reduced("Mean", big, (1,))[0].tolist() == [[(2**64 - 2) // 4]]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
def test_bytes_and_truth_values_have_a_greatest_and_a_least(dtype):
    x = np.array([[3, 0, 1], [0, 0, 0], [200, 7, 9]]).astype(dtype)
    assert reduced("Max", x, (1,))[0].tolist() == x.max(1, keepdims=True).tolist()
    assert reduced("Min", x, (1,))[0].tolist() == x.min(1, keepdims=True).tolist()


EMPTY = {"Sum": 0, "L1": 0, "L2": 0, "SumSquare": 0, "Prod": 1, "Max": -np.inf, "Min": np.inf,
         "LogSum": -np.inf, "LogSumExp": -np.inf}  # fmt: skip


@pytest.mark.parametrize("op", EMPTY)
def test_an_empty_row_gives_what_its_fold_starts_with(op):
    (found,) = reduced(op, np.zeros((2, 0, 3), np.float32), (1,))
    assert found.shape == (2, 1, 3)
    assert set(found.ravel()) == {np.float32(EMPTY[op])}


def test_an_empty_set_of_integers_has_the_bounds_of_its_type():
    x = np.zeros((1, 0), np.int32)
    assert reduced("Max", x, (1,))[0].tolist() == [[-(2**31)]]
    assert reduced("Min", x, (1,))[0].tolist() == [[2**31 - 1]]
    assert reduced("Max", x.astype(np.int64), (1,))[0].tolist() == [[-(2**63)]]


def test_no_rows_are_no_work_and_a_scalar_is_a_row_of_one():
    assert reduced("Sum", np.zeros((0, 3), np.float32), (1,))[0].shape == (0, 1)
    assert reduced("Sum", np.array(4.0, np.float32), None, keepdims=0)[0] == 4


def test_no_axes_are_all_axes_unless_the_node_says_none():
    x = np.array([[3.0, -4.0]], np.float32)
    assert reduced("L2", x, None)[0].tolist() == [[5.0]]
    assert reduced("L2", x, (), noop_with_empty_axes=1)[0].tolist() == [[3.0, 4.0]]
    assert reduced("SumSquare", x, (), noop_with_empty_axes=1)[0].tolist() == [
        [9.0, 16.0]
    ]
    assert reduced("Sum", x, (-1,), keepdims=0)[0].tolist() == [-1.0]


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "LogSumExp", "Mean"])
def test_a_nan_goes_through(op):
    x = np.ones((2, 40), np.float32)
    x[1, 17] = np.nan
    found = reduced(op, x, (1,))[0].ravel()
    assert np.isfinite(found[0])
    assert np.isnan(found[1])


def test_infinities_go_through_a_logarithm_of_exponentials():
    low, high = -np.inf, np.inf
    x = np.array([[low, low], [low, 2], [high, 1], [1e30, -1e30]], np.float32)
    found = reduced("LogSumExp", x, (1,))[0].ravel()
    assert found.tolist() == [low, 2, high, np.float32(1e30)]


@pytest.mark.parametrize("opset", [7, 11, 13])
def test_axes_are_an_attribute_of_older_opsets(opset):
    text = "g (float[3,4] x) => (float[3,1] y) { y = ReduceMean<axes = [-1]>(x) }"
    if opset < 11:
        text = text.replace("[-1]", "[1]")
    x = spread.standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(worked(text, {"x": x}, opset)["y"], x.mean(1, keepdims=True), rtol=1e-6)  # fmt: skip


@pytest.mark.parametrize("oracle", [None, peer])
def test_a_session_reduces_eager_and_recorded(oracle):
    text = """g (float[4,6,5] x) => (float[4,5] y, float z) <int64[1] a = {1}>
        { t = Mul(x, x)  y = ReduceSum<keepdims = 0>(t, a)  z = ReduceMax<keepdims = 0>(x) }"""
    check(text, drawn(text), oracle=oracle, opset=21)


def test_a_session_keeps_what_parts_leave_in_a_workspace():
    text = "g (float[1100,3] x) => (float[1,3] y) <int64[1] a = {0}> { y = ReduceMean(x, a) }"
    check(text, drawn(text), opset=21)


def ran(text, runs, want, rtol=1e-5):
    """Run a model in emulation for each feed; its placements are all the device's."""
    with opened(text) as pipeline:
        for feeds in runs:
            (found,) = pipeline.run(feeds)
            np.testing.assert_allclose(found, want(feeds), rtol, 1e-4, strict=True)
        places = pipeline.placement.choices.values()
        assert {one.provider for one in places} == {"cuda"}


def test_axes_that_come_with_a_run_are_read_anew_by_each():
    """One of them has blocks share rows: the scratch is that of whichever axes take most."""
    text = """g (float[1,8300] x, int64[n] a) => (float[p,q] y)
        { t = Neg(x)  y = ReduceSum(t, a) }"""
    x = spread.standard_normal((1, 8300)).astype(np.float32)
    runs = [{"x": x, "a": np.array(axes, np.int64)} for axes in ([1], [], [-1])]
    total = lambda x, axes: -x.sum(axis=tuple(axes) or None, keepdims=True)  # noqa: E731
    ran(text, runs, lambda feeds: total(feeds["x"], feeds["a"]))


def test_axes_may_be_computed_and_dropped():
    text = """g (float[3,4,5] x, int64[1] a) => (float[p,q] y) <int64[1] one = {1}>
        { b = Sub(a, one)  t = Neg(x)  u = ReduceMean<keepdims = 0>(t, b)  y = Neg(u) }"""
    x = spread.standard_normal((3, 4, 5)).astype(np.float32)
    runs = [{"x": x, "a": np.array([axis])} for axis in (1, 2, 3, 0, 0)]
    ran(text, runs, lambda feeds: feeds["x"].mean(axis=int(feeds["a"][0]) - 1))


def test_a_rank_that_is_found_by_running_is_reduced():
    text = """g (bool b, float[3,4] x) => (float y)
        { t = If(b) <then_branch = q () => (float[3,4] u) { u = Neg(x) },
            else_branch = e () => (float[4] w) <int64[1] k = {0}> { w = ReduceMax<keepdims = 0>(x, k) }>
          y = ReduceSum<keepdims = 0>(t) }"""
    x = spread.standard_normal((3, 4)).astype(np.float32)
    runs = [{"x": x, "b": np.array(b)} for b in (True, False, True)]
    with opened(text) as pipeline:
        for feeds in runs:
            want = -x.sum() if feeds["b"] else x.max(axis=0).sum()
            np.testing.assert_allclose(pipeline.run(feeds)[0], want, 1e-5)


def test_an_axis_that_comes_with_a_run_and_is_outside_is_an_error_that_names_the_node():
    text = "g (float[2,3] x, int64[1] a) => (float[p,q] y) { y = ReduceSum(x, a) }"
    x = np.ones((2, 3), np.float32)
    with opened(text) as pipeline:
        with pytest.raises(SeamlineError, match=r"ReduceSum.*5|axis 5"):
            pipeline.run({"x": x, "a": np.array([5])})
        (found,) = pipeline.run({"x": x, "a": np.array([1])})
        assert found.tolist() == [[3], [3]]


def test_truth_values_are_refused_by_what_is_accepted():
    with pytest.raises(AssertionError, match="is bool"):
        nodes_of("g (bool[3,4] x) => (bool[3,1] y) { y = ReduceSum(x) }")


def test_an_axis_outside_of_the_rank_is_refused():
    node = onnx.helper.make_node("ReduceSum", ["x", "a"], ["y"])
    x, y = np.ones((2, 3), np.float32), np.ones((2, 1), np.float32)
    found = node_worked(node, [x, np.array([5])], [y], constant=(1,))
    assert isinstance(found, Refusal)
    assert "outside of rank 2" in str(found)
