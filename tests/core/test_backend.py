"""ONNX's backend interface, through it a slice of the standard's own cases."""

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import helper, numpy_helper

from seamline import backend
from seamline.errors import (
    FeedError,
    ModelError,
    ProviderError,
    UnclaimedNodeError,
    UnknownProviderError,
)
from seamline.settings import Settings

DATA = Path(onnx.backend.test.__file__).parent / "data"
KINDS = ("simple", "pytorch-operator", "pytorch-converted")
STORED = [
    f"{kind}/{folder.name}"
    for kind in KINDS
    for folder in sorted((DATA / kind).iterdir())
]
TRAINING = {"simple/test_gradient_of_add", "simple/test_gradient_of_add_and_mul"}


def read(path, kind):
    """Read a stored value of a tensor's, a sequence's or an optional's type."""
    content = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))


def stored(folder, word, values):
    return [
        read(folder / f"{word}_{i}.pb", value.type) for i, value in enumerate(values)
    ]


def fed(graph):
    """Give the inputs that have no value in the model."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def is_too_old(model):
    """Tell whether opset 7, the oldest that is read, changed an operator that it uses."""
    version = model.opset_import[0].version
    return version < 7 and any(
        onnx.defs.get_schema(node.op_type, version).since_version
        != onnx.defs.get_schema(node.op_type, 7).since_version
        for node in model.graph.node
    )


def same(got, want):
    if isinstance(want, list):
        assert len(got) == len(want)
        for mine, theirs in zip(got, want, strict=True):
            same(mine, theirs)
    elif want is None:
        assert got is None
    elif want.dtype.kind in "OUS":
        assert [str(x) for x in got.ravel()] == [
            x.decode() if isinstance(x, bytes) else str(x) for x in want.ravel()
        ]
    else:
        assert got.dtype == want.dtype
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=1e-3, atol=1e-7
        )


@pytest.mark.parametrize("case", [case for case in STORED if case not in TRAINING])
def test_a_case_of_the_standard_passes_or_is_too_old_by_its_opset(case):
    model = onnx.load(DATA / case / "model.onnx")
    folder = DATA / case / "test_data_set_0"
    if is_too_old(model):
        with pytest.raises(ModelError, match="the oldest that is read"):
            backend.prepare(model, "CPU")
        return
    prepared = backend.prepare(model, "CPU")
    with prepared.session:
        results = prepared.run(stored(folder, "input", fed(model.graph)))
    for got, want in zip(
        results, stored(folder, "output", model.graph.output), strict=True
    ):
        same(got, want)


def test_most_cases_of_the_standard_are_read():
    models = [onnx.load(DATA / case / "model.onnx") for case in STORED]
    assert len(models) > 100
    assert sum(map(is_too_old, models)) < 0.4 * len(models)


@pytest.mark.parametrize("case", sorted(TRAINING))
def test_training_operators_are_refused_by_name(case):
    with pytest.raises(UnclaimedNodeError, match="training::Gradient"):
        backend.prepare(onnx.load(DATA / case / "model.onnx"))


ADD = helper.make_node("Add", ["x", "y"], ["z"])
X = np.array([1, 2, 3], np.float32)


def test_one_node_runs_alone():
    (z,) = backend.run_node(ADD, [X, X * 2])
    assert z.tolist() == [3, 6, 9]


def test_one_node_runs_with_the_outputs_that_are_told():
    (z,) = backend.run_node(ADD, (X, X), outputs_info=[(np.float32, (3,))])
    assert z.tolist() == [2, 4, 6]


def test_one_node_of_one_input_takes_a_bare_array():
    node = helper.make_node("Identity", ["x"], ["y"])
    assert backend.run_node(node, X)[0].tolist() == X.tolist()


def test_a_node_runs_in_the_opset_that_is_asked_for():
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    x = np.zeros((1, 2, 2), np.float32)
    assert backend.run_node(node, x, opset_version=12)[0].tolist() == [[[0.25] * 2] * 2]
    assert backend.run_node(node, x, opset_version=13)[0].tolist() == [[[0.5] * 2] * 2]


def test_one_node_with_the_wrong_number_of_inputs_is_refused():
    with pytest.raises(FeedError, match="1 inputs were given"):
        backend.run_node(ADD, [X])


def model_of_add():
    info = [helper.make_tensor_value_info(n, 1, [3]) for n in "xyz"]
    graph = helper.make_graph([ADD], "g", info[:2], info[2:])
    return helper.make_model(
        graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]
    )


def test_a_model_runs_from_a_list_and_from_a_mapping():
    model = model_of_add()
    assert backend.run_model(model, [X, X])[0].tolist() == [2, 4, 6]
    prepared = backend.prepare(model)
    assert prepared.run({"x": X, "y": X})[0].tolist() == [2, 4, 6]
    with pytest.raises(FeedError, match="3 inputs were given"):
        prepared.run([X, X, X])
    with pytest.raises(TypeError, match="no keyword 'nothing'"):
        prepared.run([X, X], nothing=1)


def test_a_model_is_compatible_where_it_opens():
    good, bad = model_of_add(), model_of_add()
    bad.graph.node[0].op_type, bad.graph.node[0].domain = "Nonsense", "org.nowhere"
    bad.opset_import.append(helper.make_opsetid("org.nowhere", 1))
    assert backend.is_compatible(good)
    assert not backend.is_compatible(bad)


def test_devices_are_the_providers_of_their_names():
    assert backend.supports_device("CPU")
    assert not backend.supports_device("ABACUS")
    assert not backend.supports_device("CPU:7")
    with pytest.raises(UnknownProviderError, match="abacus"):
        backend.prepare(model_of_add(), "ABACUS")
    with pytest.raises(ProviderError, match="no device 'CUDA:x'; an example: CUDA:1"):
        backend.prepare(model_of_add(), "CUDA:x")


def test_a_blocked_provider_is_no_device():
    with pytest.raises(UnknownProviderError, match="blocked"):
        backend.prepare(model_of_add(), "CPU", settings=Settings(block=("cpu",)))
