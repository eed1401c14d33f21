"""
What a session tells of its model: inputs, outputs, who wrote it, who runs which node.

Names and meanings are those of ONNX Runtime's Python interface.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from seamline.graph import Graph, Node
from seamline.tensors import Dim, OptionalType, TensorType, ValueType, ort_type

__all__ = [
    "ModelMetadata",
    "NodeArg",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "assigned_subgraphs",
    "model_metadata",
]


@attrs.frozen
class NodeArg:
    """
    An input or output of a model.

    Attributes
    ----------
    name
        Its name.
    type
        Its type as ONNX Runtime spells it, such as ``tensor(float)``.
    dims
        Sizes, symbols and unknowns; None where the rank is unknown or there is no shape.

    Examples
    --------
    >>> arg = NodeArg.of("x", TensorType("float32", ("N", 3)))
    >>> arg.name, arg.type, arg.shape
    ('x', 'tensor(float)', ['N', 3])
    """

    name: str
    type: str
    dims: tuple[Dim, ...] | None = None

    @classmethod
    def of(cls, name: str, kind: ValueType | None) -> NodeArg:
        """Describe a value by its type."""
        inner = kind.element if isinstance(kind, OptionalType) else kind
        return cls(
            name, ort_type(kind), inner.shape if isinstance(inner, TensorType) else None
        )

    @property
    def shape(self) -> list[Dim]:
        """Give the shape as a list; empty for a scalar, and where the rank is unknown."""
        return list(self.dims or ())


@attrs.frozen
class ModelMetadata:
    """
    What a model file says of itself; texts are empty and ``version`` is 0 where it does not.

    Attributes
    ----------
    custom_metadata_map
        The model's own keys and values.
    """

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class OrtEpAssignedNode:
    """A node that a provider runs."""

    name: str
    op_type: str
    domain: str


@attrs.frozen
class OrtEpAssignedSubgraph:
    """
    Nodes next to each other in the order of execution that one provider runs.

    Attributes
    ----------
    ep_name
        The provider.
    nodes
        Its nodes; :meth:`get_nodes` gives them as ONNX Runtime does.
    """

    ep_name: str
    nodes: tuple[OrtEpAssignedNode, ...]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """Give the nodes in the order of execution."""
        return list(self.nodes)


def model_metadata(graph: Graph) -> ModelMetadata:
    """Gather what the model file says of itself."""
    model = graph.model
    return ModelMetadata(
        producer_name=model.producer_name or "",
        graph_name=model.graph.name or "",
        domain=model.domain or "",
        description=model.doc_string or "",
        graph_description=model.graph.doc_string or "",
        version=model.model_version or 0,
        custom_metadata_map=dict(model.metadata_props),
    )


def assigned_subgraphs(
    nodes: Iterable[Node], assignments: Mapping[str, str]
) -> list[OrtEpAssignedSubgraph]:
    """
    Group nodes by who runs them.

    Parameters
    ----------
    nodes
        In the order of execution.
    assignments
        Provider by node name; a node that is not in it was folded away and is left out.
    """
    groups: list[tuple[str, list[OrtEpAssignedNode]]] = []
    for node in nodes:
        provider = assignments.get(node.name)
        if provider is None:
            continue
        if not groups or groups[-1][0] != provider:
            groups.append((provider, []))
        groups[-1][1].append(OrtEpAssignedNode(node.name, node.op_type, node.domain))
    return [OrtEpAssignedSubgraph(name, tuple(group)) for name, group in groups]
