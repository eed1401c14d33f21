"""Run a loaded graph by onnxruntime: what tests of loading compare values with."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import helper

from seamline.graph import Graph
from seamline.tensors import SequenceType, TensorType, onnx_dtype


def as_graph_proto(graph: Graph) -> onnx.GraphProto:
    """Write out what the Graph says: its order, its names, its constants, its bodies."""
    nodes = []
    for node in graph.nodes:
        proto = node.to_proto()
        proto.name = node.name
        assert tuple(proto.input) == node.inputs
        for attr in proto.attribute:
            if attr.type == onnx.AttributeProto.GRAPH:
                attr.g.CopyFrom(as_graph_proto(node.bodies[attr.name]))
        nodes.append(proto)
    stored = [_tensor(name, graph.constant(name)) for name in graph.constants]
    return helper.make_graph(
        nodes,
        graph.name or "g",
        [_info(graph, name) for name in graph.inputs],
        [_info(graph, name) for name in graph.outputs],
        stored,
    )


def _tensor(name, array):
    if array.dtype == object:
        flat = [item.encode() for item in array.ravel()]
        return helper.make_tensor(name, onnx.TensorProto.STRING, array.shape, flat)
    tensor = ir.to_proto(ir.Tensor(array))
    tensor.name = name
    return tensor


def _info(graph, name):
    kind = graph.types.get(name)
    if isinstance(kind, SequenceType):
        return ir.to_proto(graph.values[name])
    if not isinstance(kind, TensorType):
        return helper.make_empty_tensor_value_info(name)
    return helper.make_tensor_value_info(name, onnx_dtype(kind.dtype), kind.shape)


def run_by_onnxruntime(graph: Graph, feeds):
    opsets = [helper.make_opsetid(d, v) for d, v in graph.opsets.items()]
    model = helper.make_model(
        as_graph_proto(graph), opset_imports=opsets, ir_version=10
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(list(graph.outputs), feeds)


def f32(*items):
    return np.array(items, np.float32)


def all_names(graph: Graph):
    """Give every name that the model defines, with repeats."""
    names = []
    for each in graph.graphs():
        names += each.inputs
        names += [name for name in each.constants if name not in each.inputs]
        names += [name for node in each.nodes for name in node.writes]
    return names
