"""Chains of small nodes, to measure what a node costs beside its arithmetic."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 21


def chain(length, *, size=4):
    """Give a model of ``length`` nodes, each of which reads the one before."""
    nodes, constants, value = [], [], "x"
    for index in range(length):
        op = ("Add", "Neg", "Mul", "Abs")[index % 4]
        inputs = [value]
        if op in ("Add", "Mul"):
            name = f"c{index}"
            array = np.full(size, 1 + index / length, np.float32)
            constants.append(numpy_helper.from_array(array, name))
            inputs.append(name)
        value = f"v{index}" if index < length - 1 else "y"
        nodes.append(helper.make_node(op, inputs, [value], name=f"n{index}"))
    kind = [size]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, kind)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, kind)],
        constants,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10
    )
