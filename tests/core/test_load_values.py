from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, parser
from tests.core.loaded_graphs import f32, run_by_onnxruntime

from seamline.errors import ModelError
from seamline.graph import load
from seamline.tensors import OptionalType, SequenceType, TensorType

HEAD = '<ir_version: 10, opset_import: ["" : 18]>\n'


def parsed(text):
    return load(parser.parse_model(HEAD + text))


def test_outputs_without_a_computing_node_are_kept_in_order():
    graph = parsed(
        """g (float[2] x) => (float[2] w, int64[3] c, float[2] f, float[2] x, float[2] y)
        <float[2] w = {3, 4}> {
            c = Constant<value_ints = [7, 8, 9]>()
            f = Mul(w, w)
            y = Add(x, f)
        }"""
    )
    assert graph.outputs == ("w", "c", "f", "x", "y")
    assert graph.inputs == ("x",)
    assert [node.op_type for node in graph.nodes] == ["Mul", "Add"]
    assert set(graph.constants) == {"w", "c"}
    np.testing.assert_array_equal(graph.constant("c"), np.array([7, 8, 9], np.int64))
    np.testing.assert_array_equal(graph.constant("w"), f32(3, 4))
    assert graph.constant("f") is None


def test_a_graph_may_have_no_input_and_no_node():
    graph = parsed("g () => (float[2] w) <float[2] w = {3, 4}> { }")
    assert (graph.inputs, graph.nodes, graph.outputs) == ((), (), ("w",))


def test_values_in_the_middle_that_are_outputs_stay_outputs():
    graph = parsed(
        """g (float[2,3] x) => (float[2,2] product, float[2,2] act, double[2,2] wide)
        <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {-10, 10}> {
            product = MatMul(x, w)
            sum = Add(product, b)
            act = Relu(sum)
            wide = Cast<to = 11>(product)
        }"""
    )
    x = np.array([[1, 0, -1], [0.5, 2, 0]], np.float32)
    product = x @ np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    got = run_by_onnxruntime(graph, {"x": x})
    expected = [product, np.maximum(product + f32(-10, 10), 0), product.astype(float)]
    for g, w in zip(got, expected, strict=True):
        np.testing.assert_array_equal(g, w)


def test_an_output_may_be_named_twice():
    model = parser.parse_model(HEAD + "g (float x) => (float y) {y = Neg(x)}")
    model.graph.output.append(model.graph.output[0])
    assert load(model).outputs == ("y", "y")


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("value = float[2] {1, 2}", f32(1, 2)),
        ("value_int = 7", np.array(7, np.int64)),
        ("value_ints = [7, -8]", np.array([7, -8], np.int64)),
        ("value_float = 0.5", np.array(0.5, np.float32)),
        ("value_floats = [0.5, 2.0]", f32(0.5, 2)),
    ],
)
def test_each_form_of_constant_becomes_a_constant_with_a_type(attribute, expected):
    graph = parsed(f"g () => (y) {{ y = Constant<{attribute}>() }}")
    array = graph.constant("y")
    assert graph.nodes == ()
    assert array.dtype == expected.dtype
    assert graph.types["y"] == TensorType(expected.dtype.name, expected.shape)
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("attributes", ["", "<value_int = 1, value_float = 2.0>"])
def test_a_constant_without_exactly_one_value_is_an_error(attributes):
    with pytest.raises(ModelError, match=r"Constant_0.*one value"):
        parsed(f"g () => (y) {{ y = Constant{attributes}() }}")


def test_an_input_with_a_default_is_both_and_is_named_overridable():
    graph = parsed("g (float x, float w = {2}) => (float y) {y = Mul(x, w)}")
    assert graph.inputs == ("x", "w")
    assert graph.overridable == ("w",)
    assert graph.constant("w") == 2


def test_optional_inputs_and_outputs_that_are_left_out_are_empty_names():
    graph = parsed(
        """g (float[4] x, float high) => (float[4] y, int64[4] i) {
            y = Clip(x, , high)
            , i, , = Unique(x)
        }"""
    )
    clip, unique = graph.nodes
    assert clip.inputs == ("x", "", "high")
    assert clip.reads == ("x", "high")
    assert unique.outputs[:2] == ("", "i")
    assert unique.writes == ("i",)


def test_types_keep_symbols_unknowns_sequences_and_optionals():
    info = helper.make_tensor_value_info
    tensor = helper.make_tensor_type_proto(TensorProto.INT64, ["n", None, 3])
    sequence = helper.make_sequence_type_proto(tensor)
    optional = helper.make_optional_type_proto(sequence)
    inputs = [
        info("free", TensorProto.FLOAT, None),
        info("scalar", TensorProto.FLOAT, []),
        helper.make_value_info("tensor", tensor),
        helper.make_value_info("sequence", sequence),
        helper.make_value_info("optional", optional),
    ]
    nodes = [helper.make_node("Neg", ["free"], ["y"])]
    outputs = [helper.make_empty_tensor_value_info("y")]
    graph = load(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs)))
    element = TensorType("int64", ("n", None, 3))
    assert graph.types == {
        "free": TensorType("float32", None),
        "scalar": TensorType("float32", ()),
        "tensor": element,
        "sequence": SequenceType(element),
        "optional": OptionalType(SequenceType(element)),
    }


def test_attributes_are_python_values():
    graph = parsed(
        """g (int64[1] s, float[1,1,4,4] x) => (float[n] y, float[1,1,2,2] z) {
            y = ConstantOfShape<value = float[1] {2.5}>(s)
            z = MaxPool<kernel_shape = [2, 2], strides = [2, 2], auto_pad = "VALID">(x)
        }"""
    )
    fill, pool = graph.nodes
    assert fill.attributes["value"].tolist() == [2.5]
    assert not fill.attributes["value"].flags.writeable
    assert pool.attributes == {
        "kernel_shape": (2, 2),
        "strides": (2, 2),
        "auto_pad": "VALID",
    }


def test_a_type_attribute_stays_the_irs_own():
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    node = helper.make_node("Optional", [], ["y"], type=kind)
    out = helper.make_value_info("y", helper.make_optional_type_proto(kind))
    graph = load(helper.make_model(helper.make_graph([node], "g", [], [out])))
    assert isinstance(graph.nodes[0].attributes["type"], ir.TypeAndShape)


def test_two_attributes_of_one_name_are_an_error():
    model = parser.parse_model(
        HEAD + "g (float x) => (float y) {y = Elu<alpha = 1.0>(x)}"
    )
    model.graph.node[0].attribute.append(model.graph.node[0].attribute[0])
    with pytest.raises(ModelError, match="two attributes 'alpha'"):
        load(model)


def test_a_reference_to_an_attribute_outside_of_a_function_is_an_error():
    model = parser.parse_model(
        HEAD + "g (float x) => (float y) {y = Elu<alpha = 1.0>(x)}"
    )
    model.graph.node[0].attribute[0].ref_attr_name = "other"
    with pytest.raises(ModelError, match=r"'alpha' of node 'Elu_0'.*'other'"):
        load(model)
