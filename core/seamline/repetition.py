"""
Output types of nodes that repeat: a model says the same few forms over and over.

The layers of a network differ in their weights, and inference does not look at those. A
form is an operator of a closed list, its attributes, and the types of its inputs; what
was inferred for one node of a form holds for all. The list has operators whose outputs'
sizes ONNX derives from the inputs' types and the attributes alone. A form is given only
where nothing else can enter: the first input is of floats, since small integers are
followed as values; every size is a number, since inference makes up symbols; and every
attribute is a plain value.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from seamline.graph import Node
from seamline.tensors import FLOATS, TensorType, ValueType

__all__ = ["form_of"]

_BY_TYPES = frozenset(
    [
        "Abs",
        "Add",
        "AveragePool",
        "BatchNormalization",
        "Ceil",
        "Clip",
        "Concat",
        "Conv",
        "ConvTranspose",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "Gemm",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "GroupNormalization",
        "HardSigmoid",
        "HardSwish",
        "InstanceNormalization",
        "LayerNormalization",
        "LeakyRelu",
        "Log",
        "LogSoftmax",
        "MatMul",
        "Max",
        "MaxPool",
        "Min",
        "Mish",
        "Mul",
        "Neg",
        "PRelu",
        "Pow",
        "RMSNormalization",
        "Reciprocal",
        "Relu",
        "Selu",
        "Sigmoid",
        "Softmax",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Sum",
        "Tanh",
        "ThresholdedRelu",
        "Transpose",
    ]
)


def form_of(
    node: Node,
    types: Mapping[str, ValueType | None],
    declared: Mapping[str, ValueType | None],
) -> Hashable | None:
    """
    Give what decides a node's output types, or None where more than that may.

    Parameters
    ----------
    types
        Types found so far.
    declared
        Types by the file, for values that inference has not met yet: initializers.
    """
    if node.op_type not in _BY_TYPES or node.domain or "" in node.outputs:
        return None
    kinds: list[TensorType | None] = []
    for name in node.inputs:
        kind = types[name] if name in types else declared.get(name)
        if not name:
            kinds.append(None)
        elif isinstance(kind, TensorType) and kind.is_sized:
            kinds.append(kind)
        else:
            return None
    if not kinds or kinds[0] is None or kinds[0].dtype not in FLOATS:
        return None
    attributes = tuple(node.attributes.items()) if node.attributes else ()
    if not all(isinstance(value, Hashable) for _, value in attributes):
        return None
    return (
        node.op_type,
        node.since_version,
        attributes,
        tuple(kinds),
        len(node.outputs),
    )
