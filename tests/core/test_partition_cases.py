"""Models that have broken partitioners elsewhere, over every way of splitting them in two."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from onnx import parser
from tests.core.toys import FAR, Toy, open_over, toys

from seamline.kernels import KernelTable
from seamline.verify import verify

OPSET = '<ir_version: 10, opset_import: ["" : 18]>'
f32 = np.float32


def model(text):
    return parser.parse_model(f"{OPSET}\n{text}")


def splits(operators):
    """Give every way of placing operators on two hosts and a far device."""
    wheres = itertools.product(("a", "b", "far"), repeat=len(operators))
    return [dict(zip(operators, where, strict=True)) for where in wheres]


def results(source, feeds, pins=None, runs=1):
    made = toys()
    pipeline = open_over(source, made["a"], made["b"], made["far"], pins=pins or {})
    try:
        found = [pipeline.run(feeds) for _ in range(runs)]
        assert verify(pipeline.plan(), pipeline.claims) == ()
    finally:
        pipeline.close()
    assert made["far"].own.content == 0
    return found[0] if runs == 1 else found


def check(got, wanted):
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


MUTUAL = """g (float[4] u) => (float[4] out, float[4] lift, float[4] down, float[4] both)
<float[1] one = {1}, float[1] three = {3}> {
    lift    = Add(u, one)
    scaled  = Mul(u, three)
    down    = Mul(lift, three)
    up      = Add(scaled, one)
    both    = Add(down, up)
    tripled = Mul(both, three)
    out     = Add(tripled, lift)
}"""


@pytest.mark.parametrize("pins", splits(("Add", "Mul")), ids=str)
def test_groups_of_two_providers_that_need_each_other_are_split_until_they_can_run(
    pins,
):
    u = np.array([1, -2, 0.5, 4], f32)
    wanted = [19 * u + 13, u + 1, 3 * u + 3, 6 * u + 4]
    check(results(model(MUTUAL), {"u": u}, pins), wanted)


def test_the_mutual_cycle_needs_no_more_segments_than_its_paths_alternate():
    made = toys()
    pins = {"Add": "a", "Mul": "b"}
    pipeline = open_over(model(MUTUAL), made["a"], made["b"], pins=pins)
    # The longest alternation is Add, Mul, Add, Mul, Add; scaled joins the first Mul or
    # stands alone before up.
    assert 5 <= len(pipeline.plan().segments) <= 6
    pipeline.close()


NESTED = """g (bool flag, float[2] x) => (float[2] y)
<float[2] gain = {10, 20}, float[2] bias = {0.5, -0.5}, float zero = {0}> {
    total = ReduceSum<keepdims = 0>(x)
    y = If(flag) <
        then_branch = outer_then () => (float[2] ty) {
            positive = Greater(total, zero)
            ty = If(positive) <
                then_branch = inner_then () => (float[2] a) { a = Mul(x, gain) },
                else_branch = inner_else () => (float[2] b) { b = Sub(gain, bias) }
            >
        },
        else_branch = outer_else () => (float[2] ey) { ey = Identity(bias) }
    >
}"""


@pytest.mark.parametrize("pins", splits(("Mul", "Sub")), ids=str)
@pytest.mark.parametrize(
    ("flag", "x", "wanted"),
    [
        (True, [1, 2], [10, 40]),
        (True, [-3, 1], [9.5, 20.5]),
        (False, [7, 7], [0.5, -0.5]),
    ],
)
def test_an_initializer_that_only_an_if_inside_an_if_reads_is_found(
    pins, flag, x, wanted
):
    feeds = {"flag": np.array(flag), "x": np.array(x, f32)}
    check(results(model(NESTED), feeds, pins), [np.array(wanted, f32)])


@pytest.mark.parametrize("where", ["a", "far"])
def test_an_input_that_is_an_output_is_kept_over_many_runs(where):
    source = model(
        "g (float[3] x) => (float[3] y, float[3] x) <float[1] ten = {10}> { y = Add(x, ten) }"
    )
    made = toys()
    pipeline = open_over(source, made["a"], made["far"], pins={"Add": where})
    kept = []
    for turn in range(5):
        kept.append(pipeline.run({"x": np.full(3, turn, f32)}))
        gc.collect()
    pipeline.close()
    for turn, got in enumerate(kept):
        check(got, [np.full(3, turn + 10, f32), np.full(3, turn, f32)])


@pytest.mark.parametrize("pins", splits(("Mul", "Add")), ids=str)
def test_outputs_that_no_node_computes_are_given_and_are_the_callers_own(pins):
    source = model(
        """g (float[2] x) => (float[2] w, int64[3] c, float[2] f, float[2] y)
        <float[2] w = {3, 4}> {
            c = Constant<value_ints = [7, 8, 9]>()
            f = Mul(w, w)
            y = Add(x, f)
        }"""
    )
    wanted = [
        np.array([3, 4], f32),
        np.array([7, 8, 9]),
        np.array([9, 16], f32),
        np.array([10, 17], f32),
    ]
    made = toys()
    pipeline = open_over(source, made["a"], made["b"], made["far"], pins=pins)
    feeds = {"x": np.ones(2, f32)}
    first = pipeline.run(feeds)
    check(first, wanted)
    for array in first:
        array[...] = 0
    check(pipeline.run(feeds), wanted)
    pipeline.close()


def test_a_model_of_constants_alone_gives_them():
    source = model(
        "g () => (float[2] w, float[2] f) <float[2] w = {3, 4}> { f = Mul(w, w) }"
    )
    check(results(source, {}), [np.array([3, 4], f32), np.array([9, 16], f32)])


def _optional_table(name):
    table = KernelTable(name)

    @table.simple("Clip")
    def clip(x, low=None, high=None):
        return np.clip(x, low, high)

    @table.simple("Pad")
    def pad(x, pads, value=None, axes=None):
        axes = range(x.ndim) if axes is None else axes
        widths = [(0, 0)] * x.ndim
        for i, axis in enumerate(axes):
            widths[axis] = (pads[i], pads[i + len(axes)])
        return np.pad(x, widths, constant_values=0 if value is None else value)

    @table.simple("Split")
    def split(x, sizes=None, *, axis=0, num_outputs=None):
        assert sizes is None
        return tuple(np.array_split(x, num_outputs, axis))

    @table.simple("ReduceSum")
    def reduce_sum(x, axes=None, *, keepdims=1):
        return np.sum(x, axes, keepdims=bool(keepdims))

    return table


@pytest.mark.parametrize("pins", splits(("Split", "Clip", "Pad")), ids=str)
def test_an_empty_name_is_an_input_that_is_not_given_wherever_it_stands(pins):
    nodes = [
        h.make_node("Split", ["x", ""], ["head", "tail"], axis=0, num_outputs=2),
        h.make_node("Clip", ["x", "", "high"], ["capped"]),
        h.make_node("ReduceSum", ["x", ""], ["total"]),
        h.make_node("Pad", ["x", "pads", "", "axes"], ["wide"]),
    ]
    info = h.make_tensor_value_info
    stored = [
        nh.from_array(np.array(5, f32), "high"),
        nh.from_array(np.array([1, 2], np.int64), "pads"),
        nh.from_array(np.array([-1], np.int64), "axes"),
    ]
    names = ("head", "tail", "capped", "total", "wide")
    graph = h.make_graph(
        nodes,
        "g",
        [info("x", T.FLOAT, [5])],
        [h.make_empty_tensor_value_info(name) for name in names],
        stored,
    )
    source = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)
    made = [Toy(_optional_table(name)) for name in ("a", "b")]
    made.append(Toy(_optional_table("far"), device=FAR))
    pipeline = open_over(source, *made, pins=pins)
    got = pipeline.run({"x": np.array([4, -1, 9, 2, 7], f32)})
    pipeline.close()
    wanted = [[4, -1, 9], [2, 7], [4, -1, 5, 2, 5], [21], [0, 4, -1, 9, 2, 7, 0, 0]]
    check(got, [np.array(values, f32) for values in wanted])


LOOP = """g (int64 most, bool start, float[2] init)
=> (float[2] last, float[k,2] rows, float[p,2] joined)
<float[2] step = {1, 2}, float[1] two = {2}, float limit = {10}> {
    last, rows = Loop(most, start, init) <
        body = body (int64 i, bool c, float[2] s) => (bool go, float[2] s_next, float[2] row) {
            s_next = Add(s, step)
            row = Mul(s_next, two)
            total = ReduceSum<keepdims = 0>(s_next)
            go = Less(total, limit)
        }>
    axes = Constant<value_ints = [0]>()
    init2d = Unsqueeze(init, axes)
    joined = Concat<axis = 0>(rows, init2d)
}"""
ROWS = np.array([[2, 6], [4, 10], [6, 14]], f32)


@pytest.mark.parametrize("pins", splits(("Add", "Mul")), ids=str)
@pytest.mark.parametrize(
    ("most", "start", "turns"),
    [(0, True, 0), (5, False, 0), (2, True, 2), (9, True, 3)],
)
def test_a_loop_gives_a_row_for_each_turn_that_ran(pins, most, start, turns):
    feeds = {
        "most": np.array(most, np.int64),
        "start": np.array(start),
        "init": np.array([0, 1], f32),
    }
    last = np.array([0, 1], f32) + turns * np.array([1, 2], f32)
    joined = np.vstack([ROWS[:turns], [[0, 1]]]).astype(f32)
    check(results(model(LOOP), feeds, pins), [last, ROWS[:turns], joined])


@pytest.mark.parametrize("pins", splits(("MatMul", "Transpose", "Add")), ids=str)
def test_values_inside_patterns_may_be_asked_for(pins):
    source = model(
        """g (float[2,3] x) => (float[2,2] product, float[2,2] act, float[3,2] turned,
                               float[2,3] back, double[2,2] wide)
        <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {-10, 10}> {
            product = MatMul(x, w)
            sum = Add(product, b)
            act = Relu(sum)
            turned = Transpose<perm = [1, 0]>(x)
            back = Transpose<perm = [1, 0]>(turned)
            wide = Cast<to = 11>(product)
        }"""
    )
    x = np.array([[1, 0, -1], [0.5, 2, 0]], f32)
    product = x @ np.array([[1, 2], [3, 4], [5, 6]], f32)
    act = np.maximum(product + np.array([-10, 10], f32), 0)
    wanted = [product, act, x.T, x, product.astype(np.float64)]
    check(results(source, {"x": x}, pins), wanted)


def _updating_table(name):
    """A kernel that offers to write its running statistics over what it reads."""
    table = KernelTable(name)

    @table.kernel("BatchNormalization", aliases=[(1, 3), (2, 4)])
    def normalise(call):
        x, scale, bias, mean, variance = call.inputs
        y, mean_out, variance_out = call.outputs
        momentum = call.attr("momentum", 0.9)

        def run():
            now, spread = x.mean(), x.var()
            kept_mean, kept_variance = mean.copy(), variance.copy()
            mean_out[...] = kept_mean * momentum + now * (1 - momentum)
            variance_out[...] = kept_variance * momentum + spread * (1 - momentum)
            y[...] = (x - now) / np.sqrt(spread) * scale + bias

        return run

    return table


@pytest.mark.parametrize("device", ["a", "far"])
@pytest.mark.parametrize("momentum", [0.25, 0.9, 1.0])
def test_an_initializer_read_twice_by_a_node_is_never_written(device, momentum):
    node = h.make_node(
        "BatchNormalization",
        ["X", "ones", "zeros", "zeros", "ones"],
        ["Y", "mean", "variance"],
        training_mode=1,
        momentum=momentum,
        epsilon=0.0,
    )
    info = h.make_tensor_value_info
    graph = h.make_graph(
        [node],
        "g",
        [info("X", T.FLOAT, [2, 1, 4])],
        [
            info("Y", T.FLOAT, [2, 1, 4]),
            info("mean", T.FLOAT, [1]),
            info("variance", T.FLOAT, [1]),
        ],
        [
            nh.from_array(np.ones(1, f32), "ones"),
            nh.from_array(np.zeros(1, f32), "zeros"),
        ],
    )
    source = h.make_model(graph, opset_imports=[h.make_opsetid("", 15)], ir_version=8)
    toy = Toy(_updating_table(device), **({"device": FAR} if device == "far" else {}))
    pipeline = open_over(source, toy)
    x = np.array([[[1, 2, 3, 6]], [[2, 4, 4, 2]]], f32)  # mean 3, variance 2.25
    wanted = [
        (x - 3) / f32(1.5),
        np.array([3 * (1 - momentum)], f32),
        np.array([momentum + 2.25 * (1 - momentum)], f32),
    ]
    for _ in range(3):
        for one, other in zip(pipeline.run({"X": x}), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)
    pipeline.close()
