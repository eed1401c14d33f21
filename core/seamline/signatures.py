"""
A node held against what ONNX says of its operator, once, when a model is loaded.

Inference, planning and kernels read required inputs and attributes without asking, so a
node that lacks one, or has an attribute of another type, must not get as far as them.
What ONNX does not define is left to the provider that claims it. An operator that came after
the imported opset is held to its first definition: exporters did write some early.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import attrs
import onnx
import onnx_ir as ir

from seamline.errors import ModelError

__all__ = ["check_signature"]

_KIND = ir.AttributeType
#: Attributes that name an element type; in the second set 0 stands for a default.
_ELEMENT_TYPES = frozenset({"to", "dtype"})
_DEFAULTED = frozenset(
    {"output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type"}
)
_DTYPES = frozenset(int(member) for member in ir.DataType) - {0}
#: Attributes that count or measure, by the text of every operator that has one: kernels
#: divide by them, and walk memory in steps of them.
_POSITIVE = frozenset(
    {
        "blocksize",
        "dilations",
        "group",
        "hidden_size",
        "kernel_shape",
        "num_groups",
        "num_outputs",
        "offset_group",
        "strides",
    }
)
#: A sparse attribute has become a dense one when nodes are looked at.
_DENSE = {_KIND.SPARSE_TENSOR: _KIND.TENSOR, _KIND.SPARSE_TENSORS: _KIND.TENSORS}


@attrs.frozen
class _Signature:
    """
    What ONNX says of an operator.

    Attributes
    ----------
    inputs, outputs
        The least and the most of them.
    required
        Places of inputs that may not be left out.
    attributes
        Type of each attribute.
    needed
        Attributes without a default that a node must carry.
    """

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    required: tuple[int, ...]
    attributes: Mapping[str, int]
    needed: frozenset[str]


def check_signature(node: ir.Node, opset: int, file: str) -> None:
    """
    Check a node of an operator that ONNX defines; another one is let pass.

    Attributes that ONNX does not know are let pass too: exporters leave notes in them.

    Parameters
    ----------
    opset
        The imported version of the node's domain.

    Raises
    ------
    ModelError
        It has too many or too few inputs or outputs, lacks a required input or attribute,
        or an attribute is of another type or has a value that none may have. Names the
        node.
    """
    signature = _signature(node.op_type, opset, node.domain)
    if signature is None:
        return
    reason = _count_wrong(node, signature) or _attribute_wrong(node, signature)
    if reason:
        raise ModelError(
            file, f"node {node.name or node.op_type!r} ({node.op_type})", reason
        )


def _count_wrong(node: ir.Node, signature: _Signature) -> str:
    for what, count, (least, most) in (
        ("inputs", len(node.inputs), signature.inputs),
        ("outputs", len(node.outputs), signature.outputs),
    ):
        if not least <= count <= most:
            number = str(least) if least == most else f"{least} to {most}"
            return f"it has {count} {what}; the operator has {number}"
    for place in signature.required:
        if place < len(node.inputs) and node.inputs[place] is None:
            return f"it leaves out input {place}, which the operator requires"
    return ""


def _attribute_wrong(node: ir.Node, signature: _Signature) -> str:
    attributes = node.attributes
    if missing := [name for name in signature.needed if name not in attributes]:
        return f"it lacks the attribute {min(missing)!r}, which the operator requires"
    for name, attr in attributes.items():
        wanted = signature.attributes.get(name)
        if wanted is None or attr.is_ref():
            continue
        if attr.type != wanted or attr.value is None:
            return (
                f"its attribute {name!r} is {attr.type.name}; the operator has it as "
                f"{_KIND(wanted).name}"
            )
        if reason := _value_wrong(name, attr.value):
            return reason
    return ""


def _value_wrong(name: str, value: Any) -> str:
    if (
        name in _POSITIVE
        and (value if type(value) is int else min(value, default=1)) < 1
    ):
        return f"its attribute {name!r} is {value}; below 1 it means nothing"
    named = name in _ELEMENT_TYPES or (name in _DEFAULTED and value)
    if named and isinstance(value, int) and value not in _DTYPES:
        return f"its attribute {name!r} is {value}, which is no element type"
    return ""


@lru_cache(maxsize=4096)
def _signature(op_type: str, opset: int, domain: str) -> _Signature | None:
    schema = _schema(op_type, opset, domain)
    if schema is None:
        return None
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    kinds = {name: _KIND(int(a.type.value)) for name, a in schema.attributes.items()}
    return _Signature(
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        tuple(i for i, one in enumerate(schema.inputs) if one.option == single),
        {name: _DENSE.get(kind, kind) for name, kind in kinds.items()},
        frozenset(name for name, a in schema.attributes.items() if a.required),
    )


def _schema(op_type: str, opset: int, domain: str) -> Any:
    """Give the operator's definition: this opset's, or the first if it came later."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return _first_schemas().get((domain, op_type))


@lru_cache(maxsize=1)
def _first_schemas() -> Mapping[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        key = (schema.domain, schema.name)
        if key not in found or schema.since_version < found[key].since_version:
            found[key] = schema
    return found
