"""What is known of types and values before anything runs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import Toy, model

from seamline.claims import infer_with
from seamline.constants import Constants
from seamline.errors import PlanError
from seamline.graph import load
from seamline.kernels import KernelTable
from seamline.shapes import resolve, resolve_static
from seamline.tensors import SequenceType, TensorType


def static(text, providers=(), **chosen):
    graph = load(model(text, **chosen))
    return resolve_static(graph, Constants(graph), infer_with(providers)).types


def sized(text, providers=(), more="", **shapes):
    graph = load(model(text, more=more))
    given = {
        name: TensorType(graph.types[name].dtype, shapes.get(name, ()))
        for name in graph.inputs
    }
    known = Constants(graph)
    return resolve(graph, graph.nodes, given, known, infer_with(providers))


def f32(*shape):
    return TensorType("float32", shape)


def test_symbols_of_the_file_are_kept_before_any_feed():
    types = static("g (float[N, 3] x) => (y) { a = Neg(x) y = Add(a, x) }")
    assert types["a"] == types["y"] == f32("N", 3)


def test_sizes_replace_symbols():
    found = sized("g (float[N, 3] x) => (y) { y = Neg(x) }", x=(7, 3))
    assert found.types["y"] == f32(7, 3)


def test_an_operator_without_inference_has_the_type_of_what_it_normalizes():
    text = """g (float[N, 6, L] x, float[2] w) => (y)
        { y = GroupNormalization<num_groups = 2>(x, w, w) }"""
    assert sized(text, x=(3, 6, 5), w=(2,)).types["y"] == f32(3, 6, 5)


def test_a_declared_size_of_a_value_inside_is_not_believed():
    text = "g (float[N, 3] x) => (float[5, 3] y) { y = Neg(x) }"
    assert sized(text, x=(2, 3)).types["y"] == f32(2, 3)


def test_a_symbol_that_is_no_identifier_means_any_size():
    types = static('g (float["?", 3] x, float["a b", 3] z) => (y) { y = Add(x, z) }')
    assert types["y"].dtype == "float32"
    assert types["y"].shape[1] == 3
    found = sized(
        'g (float["?", 3] x, float["?", 3] z) => (y) { y = Add(x, z) }',
        x=(4, 3),
        z=(1, 3),
    )
    assert found.types["y"] == f32(4, 3)


def test_arithmetic_on_shapes_is_known_once_sizes_are():
    found = sized(
        """g (float[N, M, K] x) => (y) <int64[1] zero = {0}, int64[1] minus = {-1}> {
            s = Shape(x)
            n = Gather(s, zero)
            t = Concat<axis = 0>(n, minus)
            y = Reshape(x, t)
        }""",
        x=(2, 3, 4),
    )
    assert found.known["t"].tolist() == [2, -1]
    assert found.types["y"] == f32(2, 12)


def test_a_products_value_sizes_what_is_made_of_it():
    found = sized(
        """g (float[N] x) => (y) <int64[1] two = {2}> {
            s = Shape(x) d = Mul(s, two) y = ConstantOfShape(d) }""",
        x=(5,),
    )
    assert found.known["d"].tolist() == [10]
    assert found.types["y"].shape == (10,)


def test_known_values_cannot_be_written():
    found = sized("g (float[N] x) => (s) { s = Shape(x) }", x=(5,))
    with pytest.raises(ValueError, match="read-only"):
        found.known["s"][0] = 1


def test_a_size_of_zero_is_a_size():
    found = sized("g (float[N, 3] x) => (y) { y = Transpose(x) }", x=(0, 3))
    assert found.types["y"] == f32(3, 0)


def test_a_shape_from_a_feed_is_not_known():
    found = sized(
        "g (float[N] x, int64[1] s) => (y) { y = Reshape(x, s) }", x=(4,), s=(1,)
    )
    assert not found.types["y"].is_sized
    assert found.types["y"].dtype == "float32"


def test_what_running_alone_can_size_keeps_its_element_type():
    found = sized("g (float[N] x) => (y) { y = NonZero(x) }", x=(4,))
    assert found.types["y"].dtype == "int64"
    assert not found.types["y"].is_sized


def test_inputs_that_cannot_go_together_name_the_node_and_what_it_reads():
    with pytest.raises(PlanError, match=r"'joined' \(MatMul\).*float32\[2, 3\]"):
        sized("g (float[a, b] x) => (y) { [joined] y = MatMul(x, x) }", x=(2, 3))


def test_an_operator_outside_onnx_gets_its_types_from_a_provider():
    table = KernelTable("mine")

    @table.infer("Twice", domain="mine")
    def twice(node):
        kind = node.tensor(0)
        return [TensorType(kind.dtype, (2, *kind.shape))]

    found = sized(
        "g (float[N] x) => (y) { t = mine.Twice(x) y = Neg(t) }",
        [Toy(KernelTable("none")), Toy(table)],
        more=', "mine" : 1',
        x=(3,),
    )
    assert found.types["y"] == f32(2, 3)


def test_an_operator_that_nobody_knows_has_the_type_that_the_file_declares():
    types = static(
        "g (float[N] x) => (float[N] y) { y = mine.Odd(x) }", more=', "mine" : 1'
    )
    assert types["y"] == f32(None)


def test_bodies_are_resolved_with_what_their_owner_brings():
    types = static(
        """g (float[4] x, int64 n) => (y) {
            y = Loop(n, "", x) <body = b (int64 i, bool c, s) => (d, t) {
                d = Identity(c) t = Neg(s) }>
        }"""
    )
    assert types["t"].dtype == "float32"
    assert types["i"] == TensorType("int64", ())


def test_sequences_keep_the_type_of_their_elements():
    types = static("g (float[4] x) => (y) { y = SequenceConstruct(x, x) }")
    assert isinstance(types["y"], SequenceType)
    assert types["y"].element.dtype == "float32"


def test_resolving_again_for_other_sizes_keeps_nothing_of_the_first():
    graph = load(model("g (float[N] x) => (y) { s = Shape(x) y = ConstantOfShape(s) }"))
    known = Constants(graph)
    for size in (3, 5, 3, 0):
        found = resolve(graph, graph.nodes, {"x": f32(size)}, known, lambda node: None)
        assert found.types["y"].shape == (size,)
        np.testing.assert_array_equal(found.known["s"], [size])


def test_what_is_settled_before_any_feed_is_found_again_where_an_input_differs():
    text = (
        "g (float[3] x, float[n] z) => (y, v) { y = Neg(x) w = Neg(z) v = Add(y, w) }"
    )
    graph = load(model(text))
    known = Constants(graph)
    before = resolve_static(graph, known, lambda node: None)
    assert [one.outputs for one in before.settled.values()] == [(f32(3),)] * 2
    for x, z in ((3, 3), (3, 1), (5, 5)):
        given = {"x": f32(x), "z": f32(z)}
        found = resolve(
            graph, graph.nodes, given, known, lambda node: None, before.settled
        )
        assert found.types["v"] == f32(x)
        assert (
            found.types
            == resolve(graph, graph.nodes, given, known, lambda node: None).types
        )


def test_a_constant_that_is_fed_is_no_longer_settled():
    text = "g (float[6] x) => (y) <int64[2] shape = {2, 3}> { y = Reshape(x, shape) }"
    graph = load(model(text))
    known = Constants(graph)
    before = resolve_static(graph, known, lambda node: None)
    assert before.settled
    given = {"x": f32(6), "shape": TensorType("int64", (2,))}
    found = resolve(graph, graph.nodes, given, {}, lambda node: None, before.settled)
    assert found.types["y"] == TensorType("float32", (None, None))


@pytest.mark.parametrize(
    ("start", "end", "size"),
    [
        (-(2**63), -(2**63), 1),
        (2**63 - 1, -(2**63), 2),
        (-5, -9, 1),
        (-2, -9, 1),
        (-1, -9, 2),
        (5, -9, 2),
    ],
)
def test_a_slice_backwards_from_before_the_first_element_starts_at_the_first(
    start, end, size
):
    text = f"""g (float[2] x) => (y)
        <int64[1] s = {{{start}}}, int64[1] e = {{{end}}}, int64[1] a = {{0}}, int64[1] d = {{-1}}>
        {{ y = Slice(x, s, e, a, d) }}"""
    assert sized(text, x=(2,)).types["y"] == f32(size)
    assert static(text)["y"] == f32(size)


def test_a_number_that_no_size_has_is_meant_for_the_end():
    text = """g (float[n,4] x) => (y)
        <int64[2] s = {0, 1}, int64[2] e = {1000000000, 1000000000}>
        { y = Slice(x, s, e) }"""
    first, second = static(text)["y"].shape
    assert not isinstance(first, int)
    assert second == 3
    assert sized(text, x=(7, 4)).types["y"] == f32(7, 3)
