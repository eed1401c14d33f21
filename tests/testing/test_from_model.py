"""A user's model as cases."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from seamline_testing.from_model import ModelCasesError, cases_of, model_checks
from seamline_testing.results import Outcome
from seamline_testing.subject import Subject


@pytest.fixture
def saved(tmp_path):
    def save(nodes, outputs, *, weights=(), inputs=(("x", 1, ["N", 4]),)):
        graph = helper.make_graph(
            nodes, "g",
            [helper.make_tensor_value_info(*one) for one in inputs],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in weights],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 18)]
        path = tmp_path / "mine.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
        return path

    return save


@pytest.fixture
def small(saved):
    weights = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="fc/1"),
        helper.make_node("Softmax", ["a"], ["y"]),
    ]
    return saved(nodes, ["y"], weights=[("w", weights)])


def test_each_node_is_a_case_with_its_real_shapes_and_weights(small):
    first, second = cases_of(small)
    assert [case.id for case in (first, second)] == [
        "model/mine/0000_fc_1",
        "model/mine/0001_Softmax_1",
    ]
    assert (first.operator, first.opset, first.dtype) == ("MatMul", 18, "float32")
    assert [tensor.name for tensor in first.model.graph.initializer] == ["w"]
    assert first.feeds()["x"].shape == (2, 4)  # an open size counts as 2
    assert second.feeds()["a"].shape == (2, 5)
    x, w = first.feeds()["x"], numpy_helper.to_array(first.model.graph.initializer[0])
    np.testing.assert_allclose(second.feeds()["a"], x @ w, rtol=1e-5, atol=1e-6)


def test_a_right_provider_passes_each_and_zeros_none(small):
    for check in model_checks(small):
        assert check.run(Subject("cpu", {"num_threads": 1})).outcome is Outcome.PASS
        zeros = Subject("zeros", plugins=("tests.testing.liars.zeros",))
        assert check.run(zeros).outcome is Outcome.MISMATCH


def test_control_flow_and_constants_are_no_cases_but_what_reads_them_is(saved):
    value = numpy_helper.from_array(np.float32([2]), "two")
    nodes = [
        helper.make_node("Constant", [], ["two"], value=value),
        helper.make_node("Mul", ["x", "two"], ["y"]),
    ]
    (case,) = cases_of(saved(nodes, ["y"]))
    assert case.operator == "Mul"


def test_a_model_that_nothing_runs_gives_inferred_types_and_made_up_values(saved):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Mystery", ["a"], ["b"], domain="nobodys"),
        helper.make_node("Neg", ["x"], ["y"]),
    ]
    path = saved(nodes, ["y"])
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("nobodys", 1))
    onnx.save(model, path)
    found = {case.operator: case for case in cases_of(path)}
    assert "nobodys::Mystery" not in found
    assert found["Relu"].stored() == []
    finding = {c.operator: c for c in model_checks(path)}["Relu"].run(Subject("cpu"))
    assert finding.outcome is Outcome.PASS
    assert finding.judge == "definition"


def test_a_file_that_is_no_model_is_refused_by_name(tmp_path):
    path = tmp_path / "text.onnx"
    path.write_text("no model")
    with pytest.raises(ModelCasesError, match=r"text\.onnx"):
        cases_of(path)
