"""Long chains, wide fans and nested branches: loops, no recursion, near linear time."""

from __future__ import annotations

import time

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from tests.core.toy_kernels import definitions_table
from tests.core.toys import Toy, open_over, ran

from seamline.errors import ModelError

f32 = np.float32


def check(got, wanted):
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def _chain(length):
    nodes, last = [], "x"
    for index in range(length):
        op = ("Neg", "Neg", "Add")[index % 3]
        inputs = [last, "one"] if op == "Add" else [last]
        last = f"v{index}"
        nodes.append(h.make_node(op, inputs, [last]))
    info = h.make_tensor_value_info
    graph = h.make_graph(
        nodes,
        "g",
        [info("x", T.FLOAT, [2])],
        [info(last, T.FLOAT, [2])],
        [h.make_tensor("one", T.FLOAT, [], [1.0])],
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)


def _seconds(length):
    x = np.array([0.5, -2], f32)
    tables = [definitions_table(name, ops=("Neg", "Add")) for name in ("a", "b")]
    start = time.process_time()
    pipeline = open_over(
        _chain(length), *map(Toy, tables), pins={"Neg": "a", "Add": "b"}
    )
    check(pipeline.run({"x": x}), [x + f32(length // 3)])
    taken = time.process_time() - start
    pipeline.close()
    return taken


def test_four_times_as_long_a_chain_takes_no_more_than_seven_times_as_long():
    # A quadratic stage would take sixteen times as long; the chain alternates providers.
    assert _seconds(2400) < 7 * _seconds(600)


def test_a_fan_of_hundreds_of_branches_sums_them_all():
    table = definitions_table("a", ops=("Neg", "Concat"))
    nodes = [h.make_node("Neg", ["x"], [f"v{i}"]) for i in range(400)]
    nodes.append(h.make_node("Concat", [f"v{i}" for i in range(400)], ["y"], axis=0))
    info = h.make_tensor_value_info
    graph = h.make_graph(
        nodes, "g", [info("x", T.FLOAT, [2])], [info("y", T.FLOAT, [800])]
    )
    source = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)
    pipeline = open_over(source, Toy(table))
    got = pipeline.run({"x": np.array([0.5, -2], f32)})
    pipeline.close()
    check(got, [np.tile(np.array([-0.5, 2], f32), 400)])


def _nested(levels):
    """If in If; every level adds x of the outermost graph where c holds."""
    info = h.make_tensor_value_info

    def branch(k):
        out = [info(f"o{k}", T.FLOAT, [2])]
        if k == levels:
            inner = h.make_node("Identity", ["x"], [f"o{k}"])
            return h.make_graph([inner], f"t{k}", [], out)
        other = h.make_graph(
            [h.make_node("Neg", ["x"], [f"e{k}"])],
            f"f{k}",
            [],
            [info(f"e{k}", T.FLOAT, [2])],
        )
        nodes = [
            h.make_node(
                "If", ["c"], [f"i{k}"], then_branch=branch(k + 1), else_branch=other
            ),
            h.make_node("Add", [f"i{k}", "x"], [f"o{k}"]),
        ]
        return h.make_graph(nodes, f"t{k}", [], out)

    top = branch(0)
    graph = h.make_graph(
        list(top.node),
        "g",
        [info("c", T.BOOL, []), info("x", T.FLOAT, [2])],
        list(top.output),
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize(("holds", "times"), [(True, 26), (False, 0)])
def test_branches_25_deep_run(holds, times):
    x = np.array([0.5, -2], f32)
    got = ran(_nested(25), {"c": np.array(holds), "x": x}, {"Add": "a", "Neg": "far"})
    check(got, [x * f32(times)])


def _field(number, payload):
    """Write a length-delimited field of a protobuf message."""
    size, length = len(payload), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + payload


def test_branches_too_deep_for_protobuf_are_a_model_error():
    graph = b""
    for _ in range(60):  # graph, node, attribute: three messages to a level
        graph = _field(1, _field(5, _field(6, graph)))
    with pytest.raises(ModelError):
        ran(b"\x08\x0a" + _field(7, graph), {})
