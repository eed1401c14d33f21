"""
Element types that a node's signature ties together, held against each other.

ONNX names element types by parameters: the inputs of ``Add`` are both ``T``. Kernels look
at one of them and read the bytes of the others as if they were of the same type, so a
node whose operands differ is refused before anyone is asked about it, on every provider
alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import onnx

from seamline.graph import Node
from seamline.tensors import TensorType, ValueType

__all__ = ["operands_differ"]

_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic


@lru_cache(maxsize=4096)
def _parameters(op_type: str, version: int, domain: str) -> tuple[tuple[str, ...], str]:
    """Give each input's type parameter, '' where it has none; and that of further ones."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return (), ""
    known = {one.type_param_str for one in schema.type_constraints}
    names = [
        one.type_str if one.type_str in known and one.is_homogeneous else ""
        for one in schema.inputs
    ]
    last = schema.inputs[-1] if schema.inputs else None
    more = names[-1] if last is not None and last.option == _VARIADIC else ""
    return tuple(names), more


def operands_differ(node: Node, types: Mapping[str, ValueType | None]) -> str:
    """
    Say which inputs are tied to one element type and are of two; empty if none are.

    Values of unknown type, and operators that ONNX does not define, are let pass.
    """
    names, more = _parameters(node.op_type, max(node.since_version, 1), node.domain)
    if not names or len(node.inputs) < 2:
        return ""
    first: dict[str, tuple[int, str]] = {}
    for index, value in enumerate(node.inputs):
        parameter = names[index] if index < len(names) else more
        kind = types.get(value) if value else None
        if not parameter or not isinstance(kind, TensorType):
            continue
        at, dtype = first.setdefault(parameter, (index, kind.dtype))
        if dtype != kind.dtype:
            return (
                f"input {at} is {dtype} and input {index} is {kind.dtype}; the operator "
                f"takes both of one type ({parameter}). To fix: put a Cast before one"
            )
    return ""
