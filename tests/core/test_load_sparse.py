from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.core.loaded_graphs import run_by_onnxruntime

from seamline.errors import ModelError, UnsafeModelError
from seamline.graph import load
from seamline.limits import LoadLimits

DENSE = np.zeros((3, 4), np.float32)
DENSE[0, 1], DENSE[2, 0], DENSE[2, 3] = 5, -6, 7
X = np.array([[1], [10], [100], [1000]], np.float32)


def sparse(indices, values=(5, -6, 7), dims=(3, 4), dtype=np.float32):
    proto = onnx.SparseTensorProto()
    stored = numpy_helper.from_array(np.array(values, dtype), "weights_s")
    proto.values.CopyFrom(stored)
    places = np.array(indices, np.int64)
    proto.indices.CopyFrom(numpy_helper.from_array(places, "at"))
    proto.dims.extend(dims)
    return proto


def model_of(*args, **kwargs):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["weights_s", "x"], ["y"])],
        "g",
        [info("x", TensorProto.FLOAT, [4, 1])],
        [info("y", TensorProto.FLOAT, [3, 1])],
    )
    graph.sparse_initializer.append(sparse(*args, **kwargs))
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("indices", [[1, 8, 11], [[0, 1], [2, 0], [2, 3]]])
def test_both_forms_of_indices_give_the_dense_tensor(indices):
    graph = load(model_of(indices))
    assert str(graph.types["weights_s"]) == "float32[3, 4]"
    np.testing.assert_array_equal(graph.constant("weights_s"), DENSE)
    (got,) = run_by_onnxruntime(graph, {"x": X})
    np.testing.assert_array_equal(got, DENSE @ X)


@pytest.mark.parametrize(
    ("indices", "why"),
    [
        ([1, 8, 12], "outside"),
        ([-1, 8, 11], "outside"),
        ([[0, 1], [2, 0], [2, 4]], "outside"),
        ([[0, 1], [-1, 0], [2, 3]], "outside"),
        ([1, 8], r"shape \(2,\) for 3 values"),
        ([[0, 0, 1], [0, 2, 0], [0, 2, 3]], r"shape \(3, 3\)"),
        ([8, 1, 11], "ascending"),
        ([1, 1, 11], "ascending"),
        ([[2, 0], [0, 1], [2, 3]], "ascending"),
    ],
)
def test_indices_that_do_not_fit_are_refused_by_name(indices, why):
    with pytest.raises(ModelError, match=rf"weights_s.*{why}"):
        load(model_of(indices))


def test_indices_of_another_type_are_refused():
    model = model_of([1, 8, 11])
    places = numpy_helper.from_array(np.array([1, 8, 11], np.int32), "at")
    model.graph.sparse_initializer[0].indices.CopyFrom(places)
    with pytest.raises(ModelError, match=r"weights_s.*not int64"):
        load(model)


def test_stored_values_and_their_shape_must_agree():
    model = model_of([1, 8, 11])
    model.graph.sparse_initializer[0].values.dims[0] = 4
    with pytest.raises(ModelError, match=r"weights_s.*needs 16 bytes"):
        load(model)


def test_a_dense_size_out_of_proportion_is_refused_before_it_is_made():
    with pytest.raises(UnsafeModelError, match=r"weights_s.*out of proportion"):
        load(model_of([1, 8, 11], dims=(2**30, 2**31)))
    model = model_of([1, 8, 11], dims=(1024, 1024))
    with pytest.raises(UnsafeModelError, match="max_sparse_expansion"):
        load(model)
    graph = load(model, limits=LoadLimits(max_sparse_expansion=2**20))
    assert np.count_nonzero(graph.constant("weights_s")) == 3


def test_a_sparse_constant_becomes_a_constant():
    node = helper.make_node("Constant", [], ["c"], sparse_value=sparse([1, 8, 11]))
    out = helper.make_tensor_value_info("c", TensorProto.FLOAT, [3, 4])
    graph = load(helper.make_model(helper.make_graph([node], "g", [], [out])))
    assert graph.nodes == ()
    np.testing.assert_array_equal(graph.constant("c"), DENSE)


def test_a_sparse_initializer_of_a_body_is_read():
    info = helper.make_tensor_value_info
    inner = helper.make_graph(
        [helper.make_node("Identity", ["weights_s"], ["r"])],
        "t",
        [],
        [info("r", TensorProto.FLOAT, [3, 4])],
    )
    inner.sparse_initializer.append(sparse([1, 8, 11]))
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    graph = helper.make_graph(
        [node],
        "g",
        [info("c", TensorProto.BOOL, [])],
        [info("y", TensorProto.FLOAT, [3, 4])],
    )
    (owner,) = load(helper.make_model(graph)).nodes
    for body in owner.bodies.values():
        (name,) = body.constants
        np.testing.assert_array_equal(body.constant(name), DENSE)


def test_the_callers_model_keeps_its_sparse_tensors():
    model = model_of([1, 8, 11])
    before = model.SerializeToString()
    load(model)
    assert model.SerializeToString() == before


def test_a_sparse_and_a_dense_initializer_of_one_name_are_an_error():
    model = model_of([1, 8, 11])
    model.graph.initializer.append(numpy_helper.from_array(DENSE, "weights_s"))
    with pytest.raises(ModelError, match="two initializers have the name 'weights_s'"):
        load(model)


def test_sparse_integers_are_read():
    model = model_of([1, 8, 11], dtype=np.int64)
    np.testing.assert_array_equal(
        load(model).constant("weights_s"), DENSE.astype(np.int64)
    )
