"""
``SequenceMap`` written out as the loop that the standard defines it to be.

Its definition depends on the node, so it is no function of the model; onnx gives it for
one node once the types of its inputs are known.
"""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
from onnx_ir.serde import deserialize_function

from seamline.cloning import GraphCopier
from seamline.errors import ModelError
from seamline.inlining import replace_call
from seamline.naming import bodies_of, walk_graphs

__all__ = ["expand_sequence_maps"]


def expand_sequence_maps(graph: ir.Graph, file: str) -> bool:
    """
    Replace every ``SequenceMap`` of a model whose names are settled, and tell if any was.

    A node that has an input of undeclared type stays as it is, for a provider to claim.

    Raises
    ------
    ModelError
        onnx cannot make the loop: the body does not fit the inputs. Names the node.
    """
    found = [
        node
        for _, nodes in walk_graphs(graph)
        for node in nodes
        if node.op_type == "SequenceMap" and not node.domain
    ]
    changed = False
    for node in reversed(found):  # inner ones first: the outer takes their bodies along
        types = [_type_of(value) for value in node.inputs]
        if all(types):
            _expand(node, [kind for kind in types if kind is not None], file)
            changed = True
    return changed


def _type_of(value: ir.Value | None) -> bytes | None:
    if value is None or value.type is None:
        return None
    return bytes(ir.to_proto(value).type.SerializeToString())


def _expand(node: ir.Node, types: list[bytes], file: str) -> None:
    captured = _captured(node)
    try:
        function = _definition_of(node, types, list(captured))
    except Exception as error:  # whatever onnx's own code throws at a broken body
        said = str(error)[:300]
        raise ModelError(
            file, f"node {node.name!r}", f"not a SequenceMap: {said}"
        ) from error
    given = [*node.inputs, *captured.values()]
    if len(given) != len(function.inputs):
        raise ModelError(
            file,
            f"node {node.name!r}",
            f"it has {len(node.inputs)} inputs, which its body does not take",
        )
    values = dict(zip(function.inputs, given, strict=True))
    copier = GraphCopier(values, rename=lambda inner: f"{node.name}/{inner}")
    nodes = copier.nodes(function.graph)
    results = [values[formal] for formal in function.outputs]
    replace_call(node, nodes, [value for value in results if value is not None])


def _definition_of(
    node: ir.Node, types: list[bytes], captured: list[str]
) -> ir.Function:
    schema: Any = onnx.defs.get_schema("SequenceMap")
    made = schema.get_context_dependent_function_with_opset_version(
        schema.since_version, ir.to_proto(node).SerializeToString(), types
    )
    proto = onnx.FunctionProto()
    proto.ParseFromString(made)
    # A function sees no outer value; what the body captures becomes an input of it.
    proto.input.extend(captured)
    return deserialize_function(proto)


def _captured(node: ir.Node) -> dict[str, ir.Value]:
    """Give what the bodies of a node read from around it."""
    own: set[ir.Value] = set()
    read: dict[ir.Value, None] = {}
    for _, body in bodies_of(node):
        for graph, nodes in walk_graphs(body):
            own.update(graph.inputs, graph.initializers.values())
            for inner in nodes:
                own.update(inner.outputs)
                read.update(dict.fromkeys(v for v in inner.inputs if v is not None))
    return {value.name: value for value in read if value not in own and value.name}
