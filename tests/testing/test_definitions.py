"""The kit's definitions against values worked out by hand, and against ONNX's suite."""

import numpy as np
import onnx
import pytest
from onnx import helper

from seamline.tensors import dtype_name, onnx_dtype
from seamline_testing.comparing import differences
from seamline_testing.definitions import DEFINITIONS, NotDefinedError, defined
from seamline_testing.suites import node_cases
from seamline_testing.tolerances import class_of

LOWEST = np.iinfo(np.int64).min


def by_definition(operator, *inputs, outputs=1, opset=None, **attributes):
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    feeds = {n: np.asarray(x) for n, x in zip(names, inputs, strict=True) if n}
    made = [f"y{i}" for i in range(outputs)]
    infos = [
        helper.make_tensor_value_info(n, int(onnx_dtype(dtype_name(x.dtype))), x.shape)
        for n, x in feeds.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(operator, names, made, **attributes)], "one", infos,
        [onnx.ValueInfoProto(name=name) for name in made],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset or onnx.defs.onnx_opset_version())]
    model = helper.make_model(graph, opset_imports=opsets)
    found = defined(onnx.shape_inference.infer_shapes(model), feeds)
    return found if outputs > 1 else found[0]


def ints(*values):
    return np.array(values, np.int64)


def test_integers_divide_toward_zero_and_mod_takes_either_sign():
    a, b = np.int32([-7, 7, -7, 7]), np.int32([3, -3, -3, 3])
    np.testing.assert_array_equal(by_definition("Div", a, b), [-2, -2, 2, 2])
    np.testing.assert_array_equal(by_definition("Mod", a, b), [2, -2, -1, 1])
    np.testing.assert_array_equal(by_definition("Mod", a, b, fmod=1), [-1, 1, -1, 1])


@pytest.mark.parametrize(
    ("start", "end", "step", "want"),
    [
        (-1, LOWEST, -1, [3, 2, 1, 0]),
        (2, 0, -1, [2, 1]),
        (LOWEST, LOWEST, -1, [0]),  # clamped to 0, and before the one before it
        (1, 100, 2, [1, 3]),
        (3, 1, 1, []),
    ],
)
def test_a_slice_walks_from_start_while_before_end(start, end, step, want):
    x = np.arange(4, dtype=np.float32)
    got = by_definition("Slice", x, ints(start), ints(end), ints(0), ints(step))
    np.testing.assert_array_equal(got, want)


def test_ties_of_topk_go_by_index_upwards_both_ways():
    x = np.float32([2, 1, 2, 1])
    values, places = by_definition("TopK", x, ints(3), outputs=2)
    np.testing.assert_array_equal(places, [0, 2, 1])
    np.testing.assert_array_equal(values, [2, 2, 1])
    _, places = by_definition("TopK", x, ints(3), outputs=2, largest=0)
    np.testing.assert_array_equal(places, [1, 3, 0])
    lowest = np.array([0, 255, 255], np.uint8)
    _, places = by_definition("TopK", lowest, ints(2), outputs=2)
    np.testing.assert_array_equal(places, [1, 2])


def test_softmax_before_opset_13_takes_all_axes_from_its_own_on():
    x = np.zeros((2, 2, 2), np.float32)
    assert by_definition("Softmax", x, opset=11)[0, 0, 0] == 0.25
    assert by_definition("Softmax", x, opset=13)[0, 0, 0] == 0.5


def test_nan_wins_in_max_and_min_whatever_the_order():
    x, y = np.float32([np.nan, 1]), np.float32([1, np.nan])
    for operator in ("Max", "Min"):
        assert np.isnan(by_definition(operator, x, y)).all()


def test_a_cumulative_sum_may_be_exclusive_and_run_backwards():
    x, axis = np.float32([1, 2, 3]), np.asarray(0, np.int64)
    cases = {(0, 0): [1, 3, 6], (1, 0): [0, 1, 3], (0, 1): [6, 5, 3], (1, 1): [5, 3, 0]}
    for (exclusive, reverse), want in cases.items():
        got = by_definition("CumSum", x, axis, exclusive=exclusive, reverse=reverse)
        np.testing.assert_array_equal(got, want)


def test_a_split_into_parts_gives_the_last_what_is_left():
    x = np.arange(10, dtype=np.float32)
    sizes = [len(part) for part in by_definition("Split", x, outputs=3, num_outputs=3)]
    assert sizes == [4, 4, 2]
    with pytest.raises(NotDefinedError, match="negative"):
        by_definition("Split", x[:5], outputs=4, num_outputs=4)


def test_the_last_of_equal_largest_may_be_asked_for():
    x = np.int32([3, 1, 3])
    assert by_definition("ArgMax", x, keepdims=0) == 0
    assert by_definition("ArgMax", x, keepdims=0, select_last_index=1) == 2


def test_functions_neither_overflow_nor_lose_infinities():
    x = np.float32([-np.inf, -1e4, 1e4, np.inf])
    np.testing.assert_array_equal(by_definition("Sigmoid", x), [0, 0, 1, 1])
    np.testing.assert_array_equal(by_definition("Softplus", x), [0, 0, 1e4, np.inf])


def test_what_is_not_defined_is_refused_and_not_guessed():
    with pytest.raises(NotDefinedError, match="divided by zero"):
        by_definition("Div", np.int32([1]), np.int32([0]))
    with pytest.raises(NotDefinedError, match="no definition of Det"):
        by_definition("Det", np.eye(2, dtype=np.float32))


@pytest.mark.parametrize("operator", sorted(DEFINITIONS))
def test_a_definition_agrees_with_what_onnx_stores(operator):
    compared = 0
    for case in node_cases():
        node = case.only_node
        if node is None or node.op_type != operator:
            continue
        try:
            found = defined(case.model, case.feeds(), case.stored())
        except NotDefinedError:
            continue
        compared += 1
        wrong = differences(found, case.stored(), class_of([operator]))
        assert not wrong, f"{case.id}: {wrong}"
    assert compared, "no case of the suite holds this definition to anything"
