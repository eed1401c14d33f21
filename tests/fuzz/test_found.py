"""What the fuzzer found, each as small as it was made: refused with an error that says why."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from seamline.errors import ModelError, PlanError
from seamline.graph import load
from seamline.pipeline import Pipeline

HEAD = '<ir_version: 10, opset_import: ["" : {opset}]>'


def written(body, inputs="float[2] x", outputs="float[N] y", opset=21):
    text = f"{HEAD.format(opset=opset)} g ({inputs}) => ({outputs}) {{ {body} }}"
    return parser.parse_model(text)


def refused(model, why, error=ModelError):
    with pytest.raises(error, match=why) as caught:
        planned(model)
    assert type(caught.value) is error
    return str(caught.value)


def planned(model):
    pipeline = Pipeline.open(model)
    try:
        return pipeline.plan()
    finally:
        pipeline.close()


@pytest.mark.parametrize("attribute", ["", "<to = 0>", "<to = 99>", "<to = 1.5>"])
def test_a_cast_to_no_element_type_is_refused_by_name(attribute):
    said = refused(written(f"y = Cast{attribute}(x)"), "'to'")
    assert "Cast_0" in said


def test_a_cast_of_nothing_is_refused():
    model = written("y = Cast<to = 1>(x)")
    del model.graph.node[0].input[:]
    refused(model, "0 inputs; the operator has 1")


def test_a_required_input_that_is_left_out_is_refused():
    refused(written("y = Add(, x)"), "leaves out input 0")


def test_an_optional_input_may_be_left_out():
    model = written("y = Clip(x, , x)", outputs="float[2] y", inputs="float x")
    assert load(model).nodes[0].inputs == ("x", "", "x")


def test_an_operator_written_before_its_opset_is_held_to_its_definition():
    refused(written("y = BitCast(x)", opset=21), "lacks the attribute 'to'")
    assert load(written("y = BitCast<to = 6>(x)", opset=21)).nodes


def test_attributes_that_onnx_does_not_know_are_let_pass():
    assert load(written('y = Relu<note = "by an exporter", axis = 9>(x)')).nodes


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("y = AveragePool<kernel_shape = [0, 0], pads = [2, 2, 2, 2]>(x)", "kernel_shape"),
        ("y = MaxPool<kernel_shape = [2, 2], strides = [0, 1]>(x)", "strides"),
        ("y = Conv<group = 0>(x, x)", "group"),
        ("y = DepthToSpace<blocksize = 0>(x)", "blocksize"),
    ],
)  # fmt: skip
def test_a_size_below_one_never_reaches_a_kernel(body, name):
    refused(written(body, inputs="float[1, 1, 5, 5] x"), f"'{name}' is .*below 1")


def test_a_constant_of_several_sparse_tensors_is_refused():
    model = written("y = Constant<value = float {1}>()")
    attribute = model.graph.node[0].attribute[0]
    attribute.ClearField("t")
    attribute.type = onnx.AttributeProto.SPARSE_TENSORS
    refused(model, "'value' is TENSORS; the operator has it as TENSOR")


def test_a_constant_whose_strings_are_a_number_is_refused_in_any_opset():
    body = "y = Constant<value_strings = 7>()"
    refused(written(body), "'value_strings' is INT")
    refused(written(body, opset=11), "value_strings is INT, not STRINGS")
    refused(written(body, opset=9), "lacks the attribute 'value'")


def test_a_constant_without_its_value_is_refused():
    model = written("y = Constant<value_ints = [1]>()", opset=11)
    model.graph.node[0].attribute[0].type = onnx.AttributeProto.UNDEFINED
    refused(model, "without a value")


def test_an_input_that_no_array_can_hold_is_refused():
    refused(written("y = Neg(x)", inputs=f"float[{1 << 62}] x"), r"more than 2\*\*63")
    many = ", ".join(["1"] * 70)
    refused(written("y = Neg(x)", inputs=f"float[{many}] x"), "70 dimensions")


def test_an_output_that_no_array_can_hold_is_refused_by_node():
    model = written("y = Tile(w, p)")
    for name, value in (("w", np.float32([[1, 2, 3]])), ("p", np.int64([1, 1 << 62]))):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    assert "Tile_0" in refused(model, r"more than 2\*\*63", PlanError)


def test_an_opset_past_32_bits_is_refused_for_any_domain():
    model = written("y = Neg(x)")
    model.opset_import.add(domain="ai.onnx.preview.training", version=1 << 32)
    refused(model, "imports opset 4294967296")


def test_a_domain_that_is_not_utf_8_is_refused():
    model = written("y = Neg(x)")
    model.opset_import.add(domain="DOMAIN", version=1)
    data = model.SerializeToString().replace(b"DOMAIN", b"DOM\xffIN")
    refused(data, "opset imports: a name in it is not UTF-8")


def test_six_bit_numbers_past_their_range_are_refused_by_tensor():
    model = written("y = Identity(w)")
    tensor = TensorProto(name="w", dims=[2], data_type=28, int32_data=[15360, 1])
    if tensor.data_type not in TensorProto.DataType.values():
        pytest.fail("onnx has no longer a six-bit type of number 28")
    model.graph.initializer.append(tensor)
    refused(model, "tensor 'w'.*6-bit")


def test_inputs_that_are_whole_are_planned():
    assert planned(written("y = Neg(x)", outputs="float[2] y")).segments


def test_a_node_without_the_outputs_of_its_operator_is_refused():
    model = written("y = Relu(x)")
    model.graph.node.append(helper.make_node("Cast", ["x"], [], to=1))
    refused(model, "0 outputs; the operator has 1")


def test_weights_of_another_rank_or_shape_never_reach_a_compiled_convolution():
    for x, w, bias in (
        ((1, 1, 5, 5), (1, 1, 3, 3, 3), None),
        ((1, 4, 5, 5), (2, 3, 3, 3), None),
        ((1, 1, 5, 5), (1, 1, 2, 2), None),
        ((1, 1, 5, 5), (4, 1, 3, 3), 2),
    ):
        inputs = f"float{list(x)} x, float{list(w)} w"
        inputs += f", float[{bias}] b" if bias else ""
        given = "x, w, b" if bias else "x, w"
        body = f"y = Conv<kernel_shape = [3, 3]>({given})"
        with pytest.raises(PlanError, match="Conv_0"):
            planned(written(body, inputs=inputs))


def test_a_sequence_map_with_more_inputs_than_its_body_is_refused():
    body = """s = SequenceConstruct(x)  y = SequenceMap(t, n) <body = b (float[2] p)
              => (float[2] q) { q = Neg(p) }>"""
    inputs = "float[2] x, seq(float[2]) t, int64[1] n"
    refused(written(body, inputs, "seq(float[2]) y"), "SequenceMap")


def test_a_convolution_whose_window_is_one_larger_than_its_input_gives_nothing():
    model = written("y = Conv(x, w)", "float[1, 1, 3, 2] x, float[1, 1, 4, 2] w")
    plan = planned(model)
    assert [segment.provider for segment in plan.segments] == ["cpu"]
