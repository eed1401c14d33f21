from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.core.loaded_graphs import run_by_onnxruntime

from seamline.errors import ModelError
from seamline.graph import load
from seamline.tensors import TensorType

WORDS = [
    "",
    "a",
    "Grüße",
    "日本",
    "🙂 long " + "x" * 300,
    "tab\tand\nline",
    "end\0",
    "\0",
]


def model_of(items, dims, *nodes):
    tensor = TensorProto(name="words", data_type=TensorProto.STRING)
    tensor.dims.extend(dims)
    tensor.string_data.extend(items)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes) or [helper.make_node("Identity", ["words"], ["y"])],
        "g",
        [],
        [info("y", TensorProto.STRING, list(dims))],
        [tensor],
    )
    opsets = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_strings_keep_every_character_trailing_nuls_too():
    graph = load(model_of([w.encode() for w in WORDS], [2, 4]))
    array = graph.constant("words")
    assert array.dtype == object
    assert array.shape == (2, 4)
    assert array.ravel().tolist() == WORDS
    assert graph.types["words"] == TensorType("string", (2, 4))
    assert not array.flags.writeable


def test_strings_come_out_of_onnxruntime_as_they_went_in():
    words = [word for word in WORDS if "\0" not in word]
    graph = load(model_of([w.encode() for w in words], [len(words)]))
    assert run_by_onnxruntime(graph, {})[0].tolist() == words


def test_an_empty_tensor_of_strings_is_good():
    assert load(model_of([], [0, 2])).constant("words").shape == (0, 2)


def test_a_scalar_string_is_good():
    array = load(model_of([b"one"], [])).constant("words")
    assert array.shape == ()
    assert array.item() == "one"


def test_a_wrong_number_of_strings_is_refused():
    with pytest.raises(ModelError, match=r"words.*needs 3 strings; it has 2"):
        load(model_of([b"a", b"b"], [3]))


def test_bytes_that_are_not_utf8_are_refused_by_name():
    with pytest.raises(ModelError, match=r"words.*string 1 is not UTF-8"):
        load(model_of([b"a", b"\xff\xfe"], [2]))


def test_strings_cannot_be_external():
    model = model_of([], [2])
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    with pytest.raises(ModelError, match=r"words.*strings cannot be external"):
        load(model)


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("value_string", "Grüße\0", np.array("Grüße\0", object)),
        ("value_strings", ["a", "", "b\0"], np.array(["a", "", "b\0"], object)),
    ],
)
def test_constants_of_strings_become_constants(attribute, value, expected):
    node = helper.make_node("Constant", [], ["y"], **{attribute: value})
    graph = load(model_of([], [0], node))
    array = graph.constant("y")
    assert array.shape == expected.shape
    assert array.tolist() == expected.tolist()


def test_an_attribute_of_text_is_text():
    node = helper.make_node("Identity", ["words"], ["y"], note="Grüße", many=["a", "ü"])
    (loaded,) = load(model_of([b"x"], [1], node)).nodes
    assert loaded.attributes == {"note": "Grüße", "many": ("a", "ü")}


def test_an_attribute_that_is_not_utf8_is_refused_in_onnx_own_domain():
    node = helper.make_node("Identity", ["words"], ["y"], name="broken")
    node.attribute.append(onnx.AttributeProto(name="note", type=3, s=b"\xff"))
    with pytest.raises(ModelError, match=r"'note' of node 'broken'.*UTF-8"):
        load(model_of([b"x"], [1], node))


def test_an_attribute_of_another_domain_may_hold_bytes():
    node = helper.make_node("Cache", ["words"], ["y"], domain="vendor")
    node.attribute.append(onnx.AttributeProto(name="blob", type=3, s=b"\xff\0"))
    model = model_of([b"x"], [1], node)
    model.opset_import.append(helper.make_opsetid("vendor", 1))
    assert load(model).nodes[0].attributes == {"blob": b"\xff\0"}
