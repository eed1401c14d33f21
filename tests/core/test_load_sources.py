from __future__ import annotations

import gc
import random

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser
from tests.core.loaded_graphs import f32

from seamline.errors import ModelError, UnsafeModelError
from seamline.graph import load
from seamline.limits import LoadLimits

TEXT = """
<ir_version: 10, opset_import: ["" : 18], producer_name: "maker",
 producer_version: "1.2", domain: "org.test", model_version: 7,
 doc_string: "what it does", metadata_props: ["key" : "value"]>
named (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
    m = Add(x, w)
    y = If(c) <
        then_branch = t () => (float[2] a) {a = Neg(m)},
        else_branch = e () => (float[2] b) {b = Abs(m)}>
}
"""


def model():
    return parser.parse_model(TEXT)


def test_path_text_bytes_proto_and_ir_give_the_same_graph(tmp_path):
    path = tmp_path / "m.onnx"
    data = model().SerializeToString()
    path.write_bytes(data)
    sources = [path, str(path), data, bytearray(data), model(), ir.from_proto(model())]
    for source in sources:
        graph = load(source)
        assert graph.inputs == ("c", "x")
        assert [str(node) for node in graph.walk()] == [
            str(node) for node in load(data).walk()
        ]
        np.testing.assert_array_equal(graph.constant("w"), f32(1, 2))


def test_messages_name_the_path_as_given(tmp_path):
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"\xff\xff\xff\xff")
    with pytest.raises(ModelError, match=r"bad\.onnx.*no ONNX model") as caught:
        load(path)
    assert caught.value.file == str(path)
    assert load(model()).file == "<ModelProto 'named'>"


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match="empty"):
        load(tmp_path / "empty.onnx")
    with pytest.raises(ModelError, match="not an ONNX model"):
        load(b"")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.onnx")
    with pytest.raises((ModelError, IsADirectoryError)):
        load(tmp_path)
    with pytest.raises(TypeError, match="not int"):
        load(3)


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    data = model().SerializeToString()
    for length in range(len(data)):
        try:
            graph = load(data[:length])
        except ModelError:
            continue
        # Only fields after the graph were cut.
        assert graph.outputs == ("y",)


def test_broken_bytes_give_a_model_error_or_a_model():
    data = model().SerializeToString()
    chance = random.Random(7)
    refused = 0
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            load(bytes(broken))
        except ModelError:
            refused += 1
    assert refused > 30


def test_metadata_is_reachable():
    graph = load(model())
    assert graph.name == "named"
    found = graph.model
    assert (found.producer_name, found.producer_version) == ("maker", "1.2")
    assert (found.domain, found.model_version) == ("org.test", 7)
    assert (found.doc_string, found.metadata_props) == (
        "what it does",
        {"key": "value"},
    )


def test_the_sources_are_not_changed():
    proto = model()
    before = proto.SerializeToString()
    load(proto)
    assert proto.SerializeToString() == before
    source = ir.from_proto(model())
    load(source)
    assert [node.op_type for node in source.graph] == ["Add", "If"]
    assert source.graph.node(0).name == ""


def test_an_ir_model_may_be_unsorted():
    source = ir.from_proto(model())
    first, last = source.graph
    source.graph.remove(first)
    source.graph.insert_after(last, first)
    assert [node.op_type for node in load(source).nodes] == ["Add", "If"]


def test_loading_leaves_the_collector_as_it_was():
    assert gc.isenabled()
    load(model())
    with pytest.raises(ModelError):
        load(b"\xff")
    assert gc.isenabled()
    gc.disable()
    try:
        load(model())
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("source", [model(), ir.from_proto(model())])
def test_nodes_are_counted_in_bodies_too_and_the_cap_can_be_raised(source):
    with pytest.raises(UnsafeModelError, match=r"4 nodes or more.*is 3.*max_nodes"):
        load(source, limits=LoadLimits(max_nodes=3))
    assert load(source, limits=LoadLimits(max_nodes=4)).nodes


def test_declared_bytes_are_capped_over_all_tensors():
    with pytest.raises(UnsafeModelError, match=r"'w'.*8 bytes.*limit is 7.*max_nbytes"):
        load(model(), limits=LoadLimits(max_nbytes=7))
    assert load(model(), limits=LoadLimits(max_nbytes=8)).constants


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(ValueError, match="max_nodes"):
        LoadLimits(max_nodes=0)


def test_every_graph_and_node_is_walked_owner_first():
    graph = load(model())
    assert [node.op_type for node in graph.walk()] == ["Add", "If", "Neg", "Abs"]
    assert [each.name for each in graph.graphs()] == ["named", "t", "e"]
