"""
What the IR is told of types, and what it says of them.

onnx-shape-inference reads and writes types, sizes and small values on the IR's own
values; between two passes over a graph they have to be taken away again.
"""

from __future__ import annotations

from typing import Any

import attrs
import onnx_ir as ir

from seamline.onnx_inference import ir_type, value_type
from seamline.tensors import Dim, Shape, TensorType, ValueType

__all__ = ["IrTypes", "forget"]

_SYMBOLS = "pkg.onnx_shape_inference.sym_data"


@attrs.frozen(eq=False)
class IrTypes:
    """
    Types of the IR's values, to and from ours.

    Attributes
    ----------
    context
        The library's context of one pass, which makes up symbols and knows its own.
    """

    context: Any

    def tell(self, value: ir.Value, kind: ValueType | None) -> None:
        """Tell the IR a type that did not come from the library."""
        if kind is not None:
            value.type = ir_type(kind)
        if isinstance(kind, TensorType) and kind.shape is not None:
            value.shape = ir.Shape([_symbol(dim) for dim in kind.shape])
            self.context.name_anonymous_dims(value)

    def read(self, value: ir.Value) -> ValueType | None:
        """Give what the library found; a size that it made up is unknown."""
        return value_type(value.type, self._shape(value.shape))

    def _shape(self, shape: ir.Shape | None) -> Shape | None:
        if shape is None:
            return None
        dims: list[Dim] = []
        for dim in shape:
            size = dim if isinstance(dim, int) else dim.value
            made_up = isinstance(size, str) and self.context.is_generated_symbol(size)
            dims.append(None if made_up else size)
        return tuple(dims)


def _symbol(dim: Dim) -> Dim:
    """Drop a symbol that is no identifier, such as ``?``: nothing can be said with it."""
    return None if isinstance(dim, str) and not dim.isidentifier() else dim


def forget(value: ir.Value) -> None:
    """Take away what an earlier pass left on a value."""
    value.shape = None
    value.type = None
    value.const_value = None
    value.metadata_props.pop(_SYMBOLS, None)
