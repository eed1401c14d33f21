"""Attributes, constants and types of the IR as plain Python values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from seamline.errors import ModelError
from seamline.graph import read_only
from seamline.tensors import (
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
    dtype_name,
)

__all__ = ["constant_of", "python_value", "value_type"]

_KIND = ir.AttributeType
# How each attribute type of the IR becomes a Python value.
_VALUES: dict[ir.AttributeType, Callable[[Any], Any]] = {
    _KIND.INT: int,
    _KIND.FLOAT: float,
    _KIND.STRING: str,
    _KIND.INTS: tuple,
    _KIND.FLOATS: tuple,
    _KIND.STRINGS: tuple,
    _KIND.TENSOR: read_only,
    _KIND.TENSORS: lambda tensors: tuple([read_only(tensor) for tensor in tensors]),
    _KIND.TYPE_PROTO: lambda kind: kind,
    _KIND.TYPE_PROTOS: tuple,
}


def python_value(attr: ir.Attr, node: ir.Node, file: str) -> Any:
    """
    Give an attribute's value; tensors become read-only arrays, types stay the IR's.

    Raises
    ------
    ModelError
        The attribute has no value, is text of ONNX's own that is not UTF-8, or is a tensor
        of numbers that its element type does not have.
    """
    make = _check_given(attr, node, file)
    if attr.type == _KIND.STRING and not isinstance(attr.value, str):
        if not node.domain:
            raise ModelError(file, _where(attr, node), "it is text that is not UTF-8")
        return bytes(attr.value)  # vendors keep blobs in text attributes
    try:
        return make(attr.value)
    except ValueError as error:  # stored numbers that its element type does not have
        raise ModelError(file, _where(attr, node), str(error)) from error


def _where(attr: ir.Attr, node: ir.Node) -> str:
    return f"attribute {attr.name!r} of node {node.name!r}"


def _check_given(attr: ir.Attr, node: ir.Node, file: str) -> Callable[[Any], Any]:
    """Refuse an attribute that holds nothing; give what makes a Python value of it."""
    where = _where(attr, node)
    if attr.is_ref():
        raise ModelError(
            file, where, f"it refers to {attr.ref_attr_name!r} outside of a function"
        )
    make = _VALUES.get(attr.type)
    if make is None or attr.value is None:
        raise ModelError(file, where, f"its type is {attr.type.name}, without a value")
    return make


def _strings(items: Any) -> list[bytes]:
    return [item.encode() if isinstance(item, str) else item for item in items]


def _array(dtype: type, items: Any) -> ir.TensorProtocol:
    return ir.Tensor(np.array(items, dtype=dtype))


# Each form in which a Constant may carry its value.
_CONSTANTS: dict[str, Callable[[Any], ir.TensorProtocol]] = {
    "value": lambda tensor: tensor,
    "sparse_value": lambda tensor: tensor,
    "value_int": lambda item: _array(np.int64, item),
    "value_ints": lambda items: _array(np.int64, items),
    "value_float": lambda item: _array(np.float32, item),
    "value_floats": lambda items: _array(np.float32, items),
    "value_string": lambda item: ir.StringTensor(_strings([item]), shape=ir.Shape([])),
    "value_strings": lambda items: ir.StringTensor(
        _strings(items), shape=ir.Shape([len(items)])
    ),
}
_CONSTANT_KINDS = {
    "value": _KIND.TENSOR,
    "sparse_value": _KIND.TENSOR,  # made dense before
    "value_int": _KIND.INT,
    "value_ints": _KIND.INTS,
    "value_float": _KIND.FLOAT,
    "value_floats": _KIND.FLOATS,
    "value_string": _KIND.STRING,
    "value_strings": _KIND.STRINGS,
}


def constant_of(node: ir.Node, file: str) -> ir.TensorProtocol | None:
    """
    Give what a Constant holds, or None for another node.

    Raises
    ------
    ModelError
        It does not hold exactly one value.
    """
    if node.op_type != "Constant" or node.domain:
        return None
    given = [name for name in node.attributes if name in _CONSTANTS]
    if len(given) != 1 or len(node.outputs) != 1 or not node.outputs[0].name:
        raise ModelError(
            file,
            f"node {node.name!r}",
            f"a Constant has one value and one output; this one has the values "
            f"{given} and {len(node.outputs)} outputs",
        )
    attr = node.attributes[given[0]]
    _check_given(attr, node, file)
    if attr.type != _CONSTANT_KINDS[given[0]]:
        raise ModelError(
            file,
            f"node {node.name!r}",
            f"its {given[0]} is {attr.type.name}, not {_CONSTANT_KINDS[given[0]].name}",
        )
    return _CONSTANTS[given[0]](attr.value)


def value_type(value: ir.Value) -> ValueType | None:
    """Give the declared type of a value, or None."""
    return None if value.type is None else _type(value.type, value.shape)


def _type(kind: ir.TypeProtocol, shape: ir.Shape | None) -> ValueType | None:
    if type(kind) is not ir.TensorType:  # isinstance is slow: some are protocols
        if isinstance(kind, ir.SequenceType):
            return SequenceType(_type(kind.elem_type, shape))
        if isinstance(kind, ir.OptionalType):
            element = _type(kind.elem_type, shape)
            # ONNX has no optional of an optional.
            return OptionalType(None if isinstance(element, OptionalType) else element)
    if kind.dtype == ir.DataType.UNDEFINED:
        return None
    return TensorType(
        dtype_name(kind.dtype),
        None if shape is None else tuple([_dim(dim) for dim in shape]),
    )


def _dim(dim: Any) -> int | str | None:
    if isinstance(dim, int):
        # Some exporters write -1 or 0 dimensions for sizes that they do not know.
        return dim if dim >= 0 else None
    name = str(dim.value or "")
    # Some exporters write "?" for a size that they do not know: it names nothing.
    return name if any(letter.isalnum() for letter in name) else None
