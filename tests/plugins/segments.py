"""Turns a small ONNX model into the segment that a provider is asked to build."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from tests.node_cases import attributes_of

from seamline.graph import Node, read_only
from seamline.provider import NodeView, SegmentSpec
from seamline.tensors import TensorType, dtype_name, numpy_dtype


def segment_of(text, *, sizes=True):
    """
    Read a model in ONNX's text form; its initializers are the segment's constants.

    ``sizes=False`` leaves the types of inner values and outputs unknown.
    """
    model = onnx.parser.parse_model(text) if isinstance(text, str) else text
    if sizes:
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    graph = model.graph
    opsets = {o.domain: o.version for o in model.opset_import}
    constants = {t.name: read_only(ir.from_proto(t)) for t in graph.initializer}
    types = {v.name: _type(v) for v in (*graph.input, *graph.value_info, *graph.output)}
    types |= {n: TensorType(dtype_name(a.dtype), a.shape) for n, a in constants.items()}
    views = tuple(
        NodeView(
            _node(proto, index, opsets),
            tuple(types.get(n) if n else None for n in proto.input),
            tuple(types.get(n) if n else None for n in proto.output),
            constants.get,
        )
        for index, proto in enumerate(graph.node)
    )
    return SegmentSpec(
        "s0",
        views,
        tuple(i.name for i in graph.input if i.name not in constants),
        tuple(o.name for o in graph.output),
        opsets,
    )


def run_segment(executable, spec, feeds, *, runs=2):
    """Bind a segment to arrays, outputs poisoned, and run it; outputs by name."""
    views = {name: np.array(feeds[name]) for name in spec.inputs}
    for view in spec.nodes:
        known = {n: view.constants(n) for n in view.node.inputs if n}
        views |= {n: a for n, a in known.items() if a is not None}
    kinds = {
        n: k
        for view in spec.nodes
        for n, k in zip(view.node.outputs, view.outputs, strict=True)
    }
    for name in spec.outputs:
        if isinstance(kinds[name], TensorType) and kinds[name].is_sized:
            views[name] = _poisoned(kinds[name])
    executable.bind(views, {})
    for _ in range(runs):
        found = executable.run()
    return {**{n: views[n] for n in spec.outputs if n in views}, **(found or {})}


def _poisoned(kind):
    array = np.zeros(kind.sizes, numpy_dtype(kind.dtype))
    if array.dtype != object:
        array.reshape(-1).view(np.uint8)[...] = 0x5A
    return array


def _node(proto, index, opsets):
    proto = onnx.NodeProto.FromString(proto.SerializeToString())
    proto.name = proto.name or f"n{index}"
    source = ir.from_proto(proto)
    try:
        since = onnx.defs.get_schema(
            proto.op_type, opsets[proto.domain], proto.domain
        ).since_version
    except onnx.defs.SchemaError:
        since = opsets[proto.domain]
    return Node(
        proto.name,
        proto.op_type,
        proto.domain,
        since,
        tuple(proto.input),
        tuple(proto.output),
        attributes_of(source),
        source,
    )


def _type(info):
    tensor = info.type.tensor_type
    if not tensor.elem_type:
        return None
    dims = (
        tuple(
            d.dim_value if d.HasField("dim_value") else d.dim_param or None
            for d in tensor.shape.dim
        )
        if tensor.HasField("shape")
        else None
    )
    return TensorType(dtype_name(ir.DataType(tensor.elem_type)), dims)
