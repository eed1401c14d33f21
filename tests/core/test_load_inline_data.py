from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from seamline import inline_data, model_file
from seamline.errors import ModelError
from seamline.graph import load

WIDE = np.arange(400_000, dtype=np.float32)
PACKED = np.arange(10_000, dtype=np.uint8)


def model_of(*tensors):
    nodes = [helper.make_node("Identity", [t.name], [f"y_{t.name}"]) for t in tensors]
    outputs = [
        helper.make_tensor_value_info(f"y_{t.name}", t.data_type, list(t.dims))
        for t in tensors
    ]
    graph = helper.make_graph(nodes, "g", [], outputs, list(tensors))
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def int4(name):
    tensor = TensorProto(
        name=name, data_type=TensorProto.INT4, raw_data=PACKED.tobytes()
    )
    tensor.dims.extend([2, 10_000])
    return tensor


def large_model():
    return model_of(
        numpy_helper.from_array(WIDE, "wide"),
        numpy_helper.from_array(np.float32([1, 2]), "small"),
        int4("packed"),
        numpy_helper.from_array(WIDE.astype(np.float64), "double"),
    )


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(large_model().SerializeToString())
    return path


def test_large_initializers_stay_in_the_file_of_the_model(path):
    graph = load(path)
    assert len(graph.keep) == 1
    stored = path.read_bytes()
    for name in ("wide", "packed", "double"):
        tensor = graph.constants[name]
        assert tensor.stored.base is not None
        assert tensor.stored.tobytes() in stored
    assert not hasattr(graph.constants["small"], "stored")


def test_they_have_their_values_and_types(path):
    graph, plain = load(path), load(large_model())
    assert graph.types == plain.types
    for name in plain.constants:
        array, expected = graph.constant(name), plain.constant(name)
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)
        assert array.flags.aligned
        assert not array.flags.writeable


def test_the_file_is_mapped_only_if_something_lies_in_it(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(
        model_of(numpy_helper.from_array(WIDE[:8], "w")).SerializeToString()
    )
    assert len(load(path).keep) == 0


@pytest.mark.parametrize("dims", [[399_999], [400_001], [2, 200_001]])
def test_a_shape_that_the_bytes_do_not_fit_is_refused(tmp_path, dims):
    tensor = numpy_helper.from_array(WIDE, "wide")
    del tensor.dims[:]
    tensor.dims.extend(dims)
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(tensor).SerializeToString())
    with pytest.raises(ModelError, match=r"m\.onnx.*'wide'.*1600000 bytes"):
        load(path)


def test_a_mark_cannot_be_forged(tmp_path):
    tensor = numpy_helper.from_array(WIDE, "wide")
    tensor.doc_string = "0" * 32 + "-0"
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(tensor, int4("packed")).SerializeToString())
    graph = load(path)
    np.testing.assert_array_equal(graph.constant("wide"), WIDE)
    assert graph.constants["wide"].doc_string is None


def field(number, size):
    head = bytearray([number << 3 | 2])
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes([*head, size])


def test_a_model_of_more_than_two_gigabytes_loads(tmp_path):
    """Three GiB of zeros in a file with a hole: a view of them takes no memory."""
    size = 3 * 2**30
    tensor = TensorProto(name="huge", data_type=TensorProto.UINT8)
    tensor.dims.append(size)
    start = tensor.SerializeToString()
    raw = field(9, size)
    length = len(start) + len(raw) + size
    output = helper.make_tensor_value_info("huge", TensorProto.UINT8, [size])
    rest = onnx.GraphProto(name="g", output=[output]).SerializeToString()
    graph = rest + field(5, length) + start + raw
    opset = onnx.ModelProto(ir_version=10, opset_import=[helper.make_opsetid("", 18)])
    path = tmp_path / "huge.onnx"
    with path.open("wb") as handle:
        handle.write(field(7, len(graph) + size) + graph)
        handle.seek(size, 1)
        handle.write(opset.SerializeToString())
    loaded = load(path)
    array = loaded.constant("huge")
    assert array.shape == (size,)
    assert not array.flags.owndata
    assert (array[0], array[-1]) == (0, 0)


def test_cut_files_answer_as_protobuf_does(tmp_path, monkeypatch):
    """Whatever the bytes are, the two ways of reading them agree."""
    monkeypatch.setattr(model_file, "_LARGE", 0)
    monkeypatch.setattr(inline_data, "_SMALLEST", 4)
    data = model_of(
        numpy_helper.from_array(WIDE[:8], "wide"), int4_small("packed")
    ).SerializeToString()
    path = tmp_path / "m.onnx"
    chance = random.Random(3)
    outcomes = {True: 0, False: 0}
    for _ in range(150):
        broken = bytearray(data)
        broken[chance.randrange(len(broken))] = chance.randrange(256)
        path.write_bytes(broken)
        results = []
        for source in (path, bytes(broken)):
            try:
                graph = load(source)
                results.append(
                    {n: graph.constant(n).tobytes() for n in graph.constants}
                )
            except ModelError:
                results.append(None)
        assert results[0] == results[1]
        outcomes[results[0] is None] += 1
    assert min(outcomes.values()) > 10


def int4_small(name):
    tensor = TensorProto(
        name=name, data_type=TensorProto.INT4, raw_data=bytes(range(8))
    )
    tensor.dims.append(16)
    return tensor
