"""Output types of operators that ONNX itself does not define."""

from __future__ import annotations

from seamline.provider import NodeView
from seamline.tensors import TensorType, ValueType
from seamline_cpu.table import TABLE

__all__: list[str] = []


@TABLE.infer("GatherBlockQuantized", domain="com.microsoft")
def gather_block_quantized(node: NodeView) -> list[ValueType | None]:
    """Replace the gathered axis by the indices' shape; uint8 data is packed."""
    data, indices, scales = node.tensor(0), node.tensor(1), node.tensor(2)
    if data is None or indices is None or scales is None:
        return [None]
    if data.shape is None or indices.shape is None:
        return [TensorType(scales.dtype, None)]
    sizes = list(data.shape)
    last = sizes[-1]
    if data.dtype == "uint8" and isinstance(last, int):
        sizes[-1] = last * (8 // node.attributes.get("bits", 4))
    axis = node.attributes.get("gather_axis", 0) % len(sizes)
    sizes[axis : axis + 1] = indices.shape
    return [TensorType(scales.dtype, tuple(sizes))]
