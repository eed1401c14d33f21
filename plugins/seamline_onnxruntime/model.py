"""
A segment as an ONNX model: one graph, its constants, its imports.

Large constants are left out of the model's bytes and handed to onnxruntime as values over
the arrays themselves, so a weight exists once however it came into memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from seamline.errors import ContractError
from seamline.provider import Array, NodeView, SegmentSpec
from seamline.tensors import TensorType, ValueType, dtype_name, onnx_dtype

__all__ = [
    "PACKED",
    "SegmentModel",
    "ir_version_for",
    "model_of",
    "name_all_pieces",
    "value_info",
]

#: Types that ONNX packs several to a byte and that NumPy holds one to a byte.
PACKED = frozenset({"int4", "uint4", "int2", "uint2", "float4_e2m1fn"})
_INLINE_NBYTES = 4096  # below this, bytes in the model cost less than a value beside it


class SegmentModel:
    """
    A model, and the arrays that it leaves outside.

    Attributes
    ----------
    proto
        The model.
    outside
        Arrays of its external initializers, by name; C-contiguous. Whoever makes a
        session of the model keeps them for as long as the session.
    """

    def __init__(self, proto: onnx.ModelProto, outside: Mapping[str, Array]) -> None:
        self.proto = proto
        self.outside = dict(outside)


def model_of(segment: SegmentSpec, provider: str = "onnxruntime") -> SegmentModel:
    """
    Turn a segment into a model with the segment's inputs and outputs.

    Raises
    ------
    ContractError
        A value is read that is no input, no output of an earlier node and no constant.
    """
    types = _types(segment.nodes)
    made = set(segment.inputs)
    constants: dict[str, Array] = {}
    for node in segment.nodes:
        for name in node.node.inputs:
            if not name or name in made or name in constants:
                continue
            array = node.constants(name)
            if array is None:
                raise ContractError(
                    provider,
                    f"segment {segment.name!r}, node {node.name!r}: nothing gives {name!r}",
                )
            constants[name] = array
        made.update(node.node.writes)

    outside = {
        name: np.ascontiguousarray(array)
        for name, array in constants.items()
        if _stays_outside(array)
    }
    graph = helper.make_graph(
        [_named(node) for node in segment.nodes],
        segment.name,
        [value_info(name, types.get(name)) for name in segment.inputs],
        [value_info(name, types.get(name)) for name in segment.outputs],
        [_initializer(n, a, external=n in outside) for n, a in constants.items()],
    )
    return SegmentModel(_model(graph, _opsets(segment)), outside)


def value_info(
    name: str, kind: ValueType | None, *, sizes: bool = True
) -> onnx.ValueInfoProto:
    """Declare a value; ``sizes=False`` says only its element type."""
    if not isinstance(kind, TensorType):
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(
        name, int(onnx_dtype(kind.dtype)), kind.shape if sizes else None
    )


def ir_version_for(opsets: Mapping[str, int]) -> int:
    """Give the oldest IR version that allows these imports: older readers take it too."""
    imports = [helper.make_opsetid(d, v) for d, v in opsets.items()]
    return max(8, helper.find_min_ir_version_for(imports, ignore_unknown=True))


def _model(graph: onnx.GraphProto, opsets: Mapping[str, int]) -> onnx.ModelProto:
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()],
        ir_version=ir_version_for(opsets),
        producer_name="seamline",
    )


def _types(nodes: tuple[NodeView, ...]) -> dict[str, ValueType | None]:
    types: dict[str, ValueType | None] = {}
    for node in nodes:
        for names, kinds in (
            (node.node.inputs, node.inputs),
            (node.node.outputs, node.outputs),
        ):
            types.update((n, k) for n, k in zip(names, kinds, strict=False) if n)
    return types


def _named(node: NodeView) -> onnx.NodeProto:
    proto = node.to_proto()
    proto.name = node.name
    name_all_pieces(node, proto)
    return proto


def name_all_pieces(node: NodeView, proto: onnx.NodeProto) -> None:
    """
    Name the pieces of a ``Split`` that nobody reads.

    onnxruntime 1.32 counts an output that is left out differently in different places,
    and then finds too few for ``num_outputs`` or writes past the end. A name that nobody
    reads costs one piece.
    """
    if node.op_type != "Split" or node.domain:
        return
    sizes = node.attributes.get("split", node.constant(1))
    pieces = node.attributes.get("num_outputs", 0 if sizes is None else len(sizes))
    proto.output.extend([""] * (int(pieces) - len(proto.output)))
    for index, name in enumerate(proto.output):
        proto.output[index] = name or f"{proto.name}/left out {index}"


def _opsets(segment: SegmentSpec) -> dict[str, int]:
    """Give the imports of the domains used: the model's, else what the nodes allow."""
    opsets: dict[str, int] = {}
    for node in segment.nodes:
        known = segment.opsets.get(node.domain)
        opsets[node.domain] = known or max(
            opsets.get(node.domain, 1), node.since_version
        )
    return opsets


def _stays_outside(array: Array) -> bool:
    name = dtype_name(array.dtype)
    return array.nbytes >= _INLINE_NBYTES and name != "string" and name not in PACKED


def _initializer(name: str, array: Array, *, external: bool) -> onnx.TensorProto:
    if not external:
        return _inline(name, array)
    tensor = onnx.TensorProto(
        name=name,
        data_type=int(onnx_dtype(dtype_name(array.dtype))),
        dims=array.shape,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    # Replaced by the array before anything is read; onnxruntime asks for an entry.
    tensor.external_data.add(key="location", value=f"in-memory:{name}")
    return tensor


def _inline(name: str, array: Array) -> onnx.TensorProto:
    if dtype_name(array.dtype) == "string":
        flat = [str(item).encode("utf-8") for item in array.ravel()]
        return onnx.TensorProto(
            name=name,
            data_type=onnx.TensorProto.STRING,
            dims=array.shape,
            string_data=flat,
        )
    tensor = ir.Tensor(
        np.ascontiguousarray(array).reshape(array.shape),
        dtype=onnx_dtype(dtype_name(array.dtype)),
        name=name,
    )
    return ir.serde.serialize_tensor(tensor)
