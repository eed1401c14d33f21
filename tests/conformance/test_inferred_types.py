"""What is said of a value before a run is true of what the run gives."""

import numpy as np
import onnx
import pytest
from tests.conformance.outcomes import plain
from tests.conformance.test_node_suite import by_operator

from seamline.constants import Constants
from seamline.graph import load
from seamline.shapes import resolve
from seamline.tensors import TensorType, dtype_name, numpy_dtype, type_of_array


def as_held(value):
    value = plain(value)
    strings = isinstance(value, np.ndarray) and value.dtype.kind in "US"
    return value.astype(object) if strings else value


def untruth(kind, value):
    """Say what is wrong with a type, which may leave sizes open."""
    if kind is None:
        return None
    if isinstance(value, np.ndarray) != isinstance(kind, TensorType):
        return f"{kind}, it is {type(value).__name__}"
    if not isinstance(value, np.ndarray):
        return None
    shape = kind.shape if kind.shape is not None else (None,) * value.ndim
    sizes = [b if isinstance(a, int) else a for a, b in zip(shape, value.shape, strict=False)]  # fmt: skip
    right = len(shape) == value.ndim and tuple(sizes) == shape
    if right and dtype_name(value.dtype) == kind.dtype:
        return None
    return f"{kind}, it is {value.dtype}{list(value.shape)}"


def untruths(case, *, values_known):
    graph = load(case.model)
    constants = Constants(graph)
    inputs, outputs = case.data[0]
    fed = {p.name: as_held(v) for p, v in zip(case.model.graph.input, inputs, strict=False)}  # fmt: skip
    given = {
        name: type_of_array(v) if isinstance(v, np.ndarray) else graph.types.get(name)
        for name, v in fed.items()
    }

    values = {
        n: v for n, v in fed.items() if values_known and isinstance(v, np.ndarray)
    }
    known = constants.with_known(
        {n: v for n, v in values.items() if n not in constants}
    )
    found = resolve(graph, graph.nodes, given, known, lambda node: None)
    for proto, output in zip(case.model.graph.output, outputs, strict=True):
        value = as_held(output)
        wrong = untruth(found.types.get(proto.name), value)
        if wrong:
            yield f"{case.id}: {proto.name} is said to be {wrong}"
        said = found.known.get(proto.name)
        if said is not None and not np.array_equal(said, value):
            yield f"{case.id}: {proto.name} is said to hold {said}"


@pytest.mark.parametrize("operator", by_operator())
def test_types_found_before_a_run_are_true(operator):
    problems = [
        problem
        for case in by_operator()[operator]
        for values_known in (False, True)
        for problem in untruths(case, values_known=values_known)
    ]
    assert not problems, "\n".join(problems)


def resolved(nodes, given, known=None, opset=20):
    """Resolve a graph made of nodes; ``given``: types by input."""
    inputs = [
        onnx.helper.make_tensor_value_info(
            name,
            onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(kind.dtype)),
            kind.shape,
        )
        for name, kind in given.items()
    ]
    outputs = [onnx.ValueInfoProto(name=nodes[-1].output[0])]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs)
    imports = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    made = load(model)
    return resolve(made, made.nodes, given, known or {}, lambda node: None).types


def test_sizes_from_onnx_are_seen_by_the_nodes_after():
    nodes = [
        onnx.helper.make_node("Unique", ["x"], ["u"], axis=1),
        onnx.helper.make_node("Transpose", ["u"], ["y"]),
    ]
    types = resolved(nodes, {"x": TensorType("float32", (2, 3))})
    assert types["y"] == TensorType("float32", (None, 2))


def test_unknown_parts_of_a_split_are_left_open():
    node = onnx.helper.make_node("Split", ["x", "parts"], ["a", "b"])
    given = {"x": TensorType("float32", (6,)), "parts": TensorType("int64", (2,))}
    assert not resolved([node], given)["a"].is_sized
    types = resolved([node], given, {"parts": np.array([2, 4])})
    assert (types["a"].sizes, types["b"].sizes) == ((2,), (4,))


def test_an_element_type_follows_from_the_signature_where_no_shape_does():
    # The new shape has an unknown length, so nobody can say the rank of the result.
    node = onnx.helper.make_node("Reshape", ["x", "to"], ["y"])
    given = {"x": TensorType("float16", (2, 3)), "to": TensorType("int64", ("N",))}
    assert resolved([node], given)["y"].dtype == "float16"


@pytest.mark.parametrize(
    ("starts", "ends", "sizes"),
    [((3,), (1,), (4, 0)), ((-2,), (100,), (4, 2)), ((0,), (-1,), (4, 4))],
)
def test_the_oldest_slice_is_sized_even_where_it_is_empty(starts, ends, sizes):
    node = onnx.helper.make_node(
        "Slice", ["x"], ["y"], axes=[1], starts=starts, ends=ends
    )
    types = resolved([node], {"x": TensorType("float32", (4, 5))}, opset=9)
    assert types["y"].sizes == sizes


def test_a_division_of_floats_is_not_followed_as_one_of_integers():
    nodes = [
        onnx.helper.make_node("Cast", ["n"], ["f"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("Div", ["f", "by"], ["q"]),
        onnx.helper.make_node("Ceil", ["q"], ["c"]),
        onnx.helper.make_node("Cast", ["c"], ["k"], to=onnx.TensorProto.INT64),
        onnx.helper.make_node("Expand", ["x", "k"], ["y"]),
    ]
    given = {
        "n": TensorType("int64", (1,)),
        "by": TensorType("float32", (1,)),
        "x": TensorType("float32", (1,)),
    }
    for number, wrong in ((4, 1), (7, 2)):
        known = {"n": np.array([number]), "by": np.float32([3])}
        assert resolved(nodes, given, known)["y"].shape != (wrong,)


def test_a_cast_that_wraps_around_is_not_followed():
    node = onnx.helper.make_node("Cast", ["n"], ["y"], to=onnx.TensorProto.INT8)
    types = resolved([node], {"n": TensorType("int64", (1,))}, {"n": np.array([300])})
    assert types["y"] == TensorType("int8", (1,))
