"""
Operators by their definitions, in float64 or exact integers: the kit's first oracle.

Each is written from the text of the standard and from nothing else, for clarity and not
for speed. What they leave out, they refuse, and another oracle is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from seamline.provider import Array
from seamline.tensors import numpy_dtype
from seamline_testing import (
    definitions_elementwise,
    definitions_moves,
    definitions_reductions,
    definitions_sums,
)
from seamline_testing.operands import DEFINITIONS, NotDefinedError, Operands
from seamline_testing.suites import onnx_dtype_of
from seamline_testing.values import plain, strings_of

__all__ = ["DEFINITIONS", "NotDefinedError", "defined"]

# imported for what they register
_SETS = (
    definitions_elementwise,
    definitions_moves,
    definitions_reductions,
    definitions_sums,
)


def defined(
    model: onnx.ModelProto, feeds: Mapping[str, Any], like: Sequence[Any] = ()
) -> list[Any]:
    """
    Give the outputs of a one-node model by the operator's definition.

    Parameters
    ----------
    like
        Values that tell the outputs' types where the model does not declare them.

    Raises
    ------
    NotDefinedError
        It has another number of nodes, or its operator, type or form is not defined here.
    """
    op, node = operands_of(model, feeds)
    try:
        with np.errstate(all="ignore"):
            found = DEFINITIONS[op.op_type](op)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise NotDefinedError(f"{op.op_type}: {error}") from error
    results = list(found) if isinstance(found, (list, tuple)) else [found]
    names = [value.name for value in model.graph.output]
    by_name = dict(zip(node.output, results, strict=False))
    if not set(names) <= by_name.keys():
        raise NotDefinedError(f"{op.op_type} gives more than is defined here")
    return [
        _typed(by_name[value.name], value, like[index] if like else None)
        for index, value in enumerate(model.graph.output)
    ]


def operands_of(
    model: onnx.ModelProto, feeds: Mapping[str, Any]
) -> tuple[Operands, onnx.NodeProto]:
    """Read the only node of a model."""
    nodes = model.graph.node
    if len(nodes) != 1 or nodes[0].domain or model.functions:
        raise NotDefinedError("it is no single node of ONNX's own domain")
    node = nodes[0]
    if node.op_type not in DEFINITIONS:
        raise NotDefinedError(f"no definition of {node.op_type}")
    if any(a.HasField("g") for a in node.attribute):
        raise NotDefinedError("it has a body")
    held = {t.name: plain(t) for t in model.graph.initializer} | dict(feeds)
    raw = tuple(held[name] if name else None for name in node.input)
    if not all(value is None or isinstance(value, np.ndarray) for value in raw):
        raise NotDefinedError("it takes a sequence")
    opset = next(e.version for e in model.opset_import if not e.domain)
    since = onnx.defs.get_schema(node.op_type, opset).since_version
    return (
        Operands(node.op_type, raw, _attributes(node), since, len(node.output)),
        node,
    )


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    found = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        found[attribute.name] = value.decode() if isinstance(value, bytes) else value
    return found


def _is_text(value: Any) -> bool:
    """Tell whether it is text, which NumPy turns into arrays of fixed width."""
    return np.asarray(value).dtype.kind in "OUS"


def _typed(value: Any, proto: onnx.ValueInfoProto, like: Any) -> Array:
    """Round once, to the type that the model declares."""
    array = strings_of(np.asarray(value)) if _is_text(value) else np.asarray(value)
    kind = proto.type.tensor_type.elem_type
    if kind:
        dtype = (
            numpy_dtype(onnx_dtype_of(kind).numpy().name) if kind != 8 else array.dtype
        )
    elif isinstance(like, np.ndarray):
        dtype = like.dtype
    else:
        raise NotDefinedError(f"the type of {proto.name!r} is not declared")
    with np.errstate(all="ignore"):
        return array.astype(dtype)
