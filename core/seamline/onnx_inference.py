"""
ONNX's own shape inference for one node, and where it has to be asked.

onnx-shape-inference follows symbols and values, which ONNX's inference of one node does
not; but it lacks operators, and for some forms it gives a size that is wrong or leaves
one open that ONNX finds. :func:`guesses` names the former; the latter shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from seamline.graph import Graph, Node
from seamline.provider import Array
from seamline.tensors import (
    OptionalType,
    SequenceType,
    Shape,
    TensorType,
    ValueType,
    dtype_name,
    numpy_dtype,
    onnx_dtype,
)

__all__ = [
    "FOLLOWED",
    "guesses",
    "infer_by_onnx",
    "ir_type",
    "is_defined",
    "refined",
    "strays",
    "value_type",
]

#: Operators whose followed values may be wrong; see :func:`strays`.
FOLLOWED = frozenset({"Cast", "Div"})

#: Elements of a value that may decide sizes; larger ones never do.
_DATA_LIMIT = 4096
_MEANT = 1 << 24  #: bounds past it are longer than an axis that is sliced to them
_FAR = 2**31 - 2  #: bounds past it say "to the end", in 32 bits or 64


def guesses(node: Node, known: Callable[[str], Array | None]) -> bool:
    """
    Tell whether onnx-shape-inference (0.4) gives sizes that may be wrong for a node.

    ``Split`` and ``Squeeze`` whose parts or axes come from a value that is not known are
    sized as if they were left out; an aspect ratio that ``Resize`` keeps is measured over
    axes that it does not resize; ``Slice`` backwards from before the first element, which
    starts at the first, is taken for empty or whole, and so is one backwards from far
    behind the last, or forwards to far before the first; forwards to a number that no size
    has, which is meant for the end, it makes that the size of an axis without one; ``Unique`` along an axis becomes
    a vector; and ``MelWeightMatrix`` reads another layout.
    """
    if node.domain:
        return False
    if node.op_type in {"Split", "Squeeze"}:
        given = node.inputs[1] if len(node.inputs) > 1 else ""
        return bool(given) and known(given) is None
    if node.op_type == "Resize":
        return "keep_aspect_ratio_policy" in node.attributes
    if node.op_type == "Slice":
        return _guesses_slice(node, known)
    if node.op_type == "Unique":
        return "axis" in node.attributes
    return node.op_type == "MelWeightMatrix"


def _guesses_slice(node: Node, known: Callable[[str], Array | None]) -> bool:
    starts, ends, _, steps = (
        known(node.inputs[i]) if len(node.inputs) > i and node.inputs[i] else None
        for i in (1, 2, 3, 4)
    )
    if len(node.inputs) > 4 and node.inputs[4] and steps is None:
        return False
    back = np.zeros((), np.bool_) if steps is None else steps < 0
    early = starts is not None and (back & ((starts < -1) | (starts > _FAR))).any()
    if early or ends is None:
        return bool(early)
    far = (ends < -_FAR) | ((ends > _MEANT) & (ends <= _FAR))
    return bool((~back & far).any())


def strays(
    node: Node, given: Sequence[Sequence[Any] | None], kind: ValueType | None
) -> bool:
    """
    Tell whether onnx-shape-inference would follow values to what a node does not give.

    It casts without regard to the type's range, and divides floats as if they were
    integers.

    Parameters
    ----------
    node
        One of the operators in ``FOLLOWED``.
    given
        The inputs' values as it follows them: integers and symbols; None where unknown.
    kind
        Type of the first input.
    """
    known = [one for one in given if one is not None]
    if len(known) != len(given):
        return False
    numbers = [item for one in known for item in one if isinstance(item, int)]
    if node.op_type == "Cast":
        dtype = numpy_dtype(dtype_name(ir.DataType(node.attributes["to"])))
        if dtype.kind not in "iu":
            return False
        span = np.iinfo(dtype)
        return any(not span.min <= item <= span.max for item in numbers)
    if isinstance(kind, TensorType) and numpy_dtype(kind.dtype).kind in "iu":
        return False
    if len(numbers) != sum(map(len, known)):
        return True
    top, bottom = (np.array(one) for one in known)
    return bool((bottom == 0).any() or (top % np.where(bottom, bottom, 1)).any())


def is_defined(node: Node) -> bool:
    """Tell whether ONNX defines the operator."""
    return _schema(node) is not None


def infer_by_onnx(
    graph: Graph,
    node: Node,
    types: Mapping[str, ValueType | None],
    known: Callable[[str], Array | None],
) -> list[ValueType | None]:
    """Give the outputs' types; where ONNX finds no shapes, what its signature says."""
    if node.op_type == "Slice" and node.since_version == 1 and not node.domain:
        return [_sliced(node, types.get(node.inputs[0]))]
    if node.op_type == "GroupNormalization" and not node.domain:
        return [types.get(node.inputs[0])]  # version 18 has no inference
    schema = _schema(node)
    given: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for name in filter(None, node.inputs):
        kind = types.get(name)
        if kind is None:
            continue
        given[name] = _type_proto(kind)
        array = known(name)
        if array is not None and array.size <= _DATA_LIMIT and array.dtype != object:
            data[name] = onnx.numpy_helper.from_array(np.asarray(array), name)
    imports = [onnx.helper.make_opsetid(d, v) for d, v in graph.opsets.items()]
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema, node.to_proto(), given, data, opset_imports=imports
        )
    except Exception:  # the operator has no inference, or needs more than is known
        found = {}
    kinds = [_from_proto(found.get(name)) for name in node.outputs]
    return [
        _by_signature(schema, node, index, types) if kind is None else kind
        for index, kind in enumerate(kinds)
    ]


def _sliced(node: Node, kind: ValueType | None) -> ValueType | None:
    """Size the oldest ``Slice``: ONNX leaves a part open that ends before it starts."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    sizes = list(kind.shape)
    starts, ends = node.attributes["starts"], node.attributes["ends"]
    axes = node.attributes.get("axes", range(len(starts)))
    for axis, start, end in zip(axes, starts, ends, strict=True):
        size = sizes[axis]
        sizes[axis] = len(range(size)[start:end]) if isinstance(size, int) else None
    return TensorType(kind.dtype, tuple(sizes))


def _by_signature(
    schema: Any, node: Node, index: int, types: Mapping[str, ValueType | None]
) -> ValueType | None:
    """Give an output the element type of an input that the signature ties it to."""
    formal = schema.outputs[min(index, len(schema.outputs) - 1)]
    for at, name in enumerate(node.inputs):
        tied = schema.inputs[min(at, len(schema.inputs) - 1)]
        kind = types.get(name)
        if tied.type_str != formal.type_str or not isinstance(kind, TensorType):
            continue
        if all(said.startswith("tensor(") for said in formal.types):
            return TensorType(kind.dtype, None)
    return None


def refined(
    found: Sequence[ValueType | None], more: Sequence[ValueType | None]
) -> list[ValueType | None]:
    """Fill the sizes that ``found`` leaves open from ``more``."""
    kinds = list(found)
    for index, other in enumerate(more[: len(kinds)]):
        kinds[index] = _refined(kinds[index], other)
    return kinds


def _refined(found: ValueType | None, more: ValueType | None) -> ValueType | None:
    if found is None:
        return more
    if not isinstance(found, TensorType) or not isinstance(more, TensorType):
        return found
    if found.shape is None or more.shape is None:
        return TensorType(
            found.dtype, found.shape if more.shape is None else more.shape
        )
    if len(found.shape) != len(more.shape):
        return found
    pairs = zip(found.shape, more.shape, strict=True)
    return TensorType(
        found.dtype, tuple(b if isinstance(b, int) else a for a, b in pairs)
    )


def _schema(node: Node) -> Any:
    return _schema_of(node.op_type, max(node.since_version, 1), node.domain)


@lru_cache(maxsize=4096)
def _schema_of(op_type: str, version: int, domain: str) -> Any:
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def _type_proto(kind: ValueType) -> onnx.TypeProto:
    if isinstance(kind, TensorType):
        return onnx.helper.make_tensor_type_proto(onnx_dtype(kind.dtype), kind.shape)
    inner = _type_proto(kind.element or TensorType("float32", None))
    if isinstance(kind, SequenceType):
        return onnx.helper.make_sequence_type_proto(inner)
    return onnx.helper.make_optional_type_proto(inner)


def ir_type(kind: ValueType) -> Any:
    """Give onnx-ir's type of a value; it says nothing of sizes."""
    if isinstance(kind, TensorType):
        return ir.TensorType(onnx_dtype(kind.dtype))
    inner = ir_type(kind.element or TensorType("float32", None))
    if isinstance(kind, SequenceType):
        return ir.SequenceType(inner)
    return ir.OptionalType(inner)


def value_type(kind: Any, shape: Shape | None) -> ValueType | None:
    """Give our type from onnx-ir's, and a shape if it is a tensor's."""
    if kind is None:
        return None
    if type(kind) is ir.TensorType:  # isinstance is slow: these classes are protocols
        known = kind.dtype != ir.DataType.UNDEFINED
        return TensorType(dtype_name(kind.dtype), shape) if known else None
    if isinstance(kind, ir.SequenceType):
        return SequenceType(value_type(kind.elem_type, None))
    if isinstance(kind, ir.OptionalType):
        inner = value_type(kind.elem_type, None)
        return OptionalType(None if isinstance(inner, OptionalType) else inner)
    if kind.dtype == ir.DataType.UNDEFINED:
        return None
    return TensorType(dtype_name(kind.dtype), shape)


def _from_proto(proto: onnx.TypeProto | None) -> ValueType | None:
    if proto is None or not proto.WhichOneof("value"):
        return None
    found = ir.serde.deserialize_type_proto_for_type(proto)
    shape = ir.serde.deserialize_type_proto_for_shape(proto)
    sizes = None
    if shape is not None:
        sizes = tuple(d if isinstance(d, int) else d.value for d in shape)
    return value_type(found, sizes)
