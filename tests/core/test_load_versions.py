from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.core.loaded_graphs import f32, run_by_onnxruntime

from seamline.errors import ModelError
from seamline.graph import load

NEWEST = onnx.defs.onnx_opset_version()


def model_of(ir_version=10, opsets=(("", 18),), domain="", op="Neg"):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], name="node_17", domain=domain)],
        "g",
        [info("x", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, ir_version=ir_version)
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(d, v) for d, v in opsets)
    return model


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"ir_version": 999}, ["IR version is 999", str(onnx.IR_VERSION)]),
        ({"opsets": [("", 9999)]}, ["opset 9999", str(NEWEST)]),
        ({"opsets": [("", NEWEST + 1)]}, [f"opset {NEWEST + 1}", str(NEWEST)]),
        ({"opsets": [("", 0)]}, ["opset 0"]),
        (
            {"opsets": [("", 6)], "op": "Upsample"},
            ["node_17", "Upsample of opset 6", "opset 7", "version_converter"],
        ),
        ({"opsets": [("", 18), ("ai.onnx.ml", 99)]}, ["opset 99 of ai.onnx.ml"]),
        ({"opsets": []}, ["node_17", "no opset import", "ai.onnx"]),
        ({"opsets": [("", 18), ("ai.onnx", 17)]}, ["twice", "18", "17"]),
        ({"domain": "my.domain", "op": "Thing"}, ["node_17", "my.domain", "Thing"]),
    ],
)
def test_a_version_that_is_not_known_is_named_with_what_is(kwargs, said):
    with pytest.raises(ModelError) as caught:
        load(model_of(**kwargs))
    for text in said:
        assert text in str(caught.value)


def test_a_model_without_an_ir_version_is_refused():
    model = model_of()
    model.ClearField("ir_version")
    with pytest.raises(ModelError, match="no IR version"):
        load(model)


def test_a_domain_that_is_imported_and_not_used_is_no_error():
    graph = load(model_of(opsets=[("", 18), ("not.used", 7)]))
    (got,) = run_by_onnxruntime(graph, {"x": f32(1, -2)})
    np.testing.assert_array_equal(got, f32(-1, 2))


def test_onnx_own_domain_may_be_spelt_out():
    graph = load(model_of(opsets=[("ai.onnx", 18)], domain="ai.onnx"))
    assert graph.opsets == {"": 18}
    assert graph.nodes[0].domain == ""
    (got,) = run_by_onnxruntime(graph, {"x": f32(1, -2)})
    np.testing.assert_array_equal(got, f32(-1, 2))


@pytest.mark.parametrize("opset", range(7, NEWEST + 1))
def test_every_opset_from_seven_to_the_newest_loads(opset):
    (node,) = load(model_of(opsets=[("", opset)])).nodes
    assert node.since_version == (6 if opset < 13 else 13)


def test_since_version_follows_the_import():
    for opset, since in ((11, 11), (12, 11), (13, 13), (18, 13)):
        (node,) = load(model_of(opsets=[("", opset)], op="Softmax")).nodes
        assert node.since_version == since


def test_an_operator_that_onnx_does_not_define_is_left_to_the_providers():
    (node,) = load(model_of(op="SimplifiedLayerNormalization")).nodes
    assert (node.domain, node.since_version) == ("", 18)
    opsets = [("", 18), ("com.microsoft", 1)]
    (node,) = load(model_of(opsets=opsets, domain="com.microsoft", op="Gelu")).nodes
    assert (node.domain, node.since_version) == ("com.microsoft", 1)
    assert node.qualified_op == "com.microsoft::Gelu"


def test_an_older_opset_loads_where_its_operators_mean_the_same():
    (node,) = load(model_of(opsets=[("", 1)], op="Not")).nodes
    assert node.since_version == 1
    with pytest.raises(ModelError, match=r"node_17.*Neg of opset 5"):
        load(model_of(opsets=[("", 5)]))
