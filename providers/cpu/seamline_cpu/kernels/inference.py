"""Output types of operators of onnxruntime's domain, by what their kernels here give."""

from __future__ import annotations

from collections.abc import Sequence

from seamline.attention_types import ATTENTION_TYPES
from seamline.contrib_types import skip_normalization
from seamline.product_types import fused_matmul
from seamline.provider import NodeView
from seamline.tensors import Dim, TensorType, ValueType
from seamline_cpu.table import TABLE

__all__: list[str] = []

CONTRIB = "com.microsoft"


def _shape_of(node: NodeView, index: int) -> tuple[Dim, ...] | None:
    kind = node.tensor(index)
    return None if kind is None else kind.shape


def _asked(node: NodeView, kinds: Sequence[ValueType | None]) -> list[ValueType | None]:
    return list(kinds[: len(node.node.outputs)])


@TABLE.infer("GatherBlockQuantized", domain=CONTRIB)
def gather_block_quantized(node: NodeView) -> list[ValueType | None]:
    """Replace the gathered axis by the indices' shape; uint8 data is packed."""
    data, indices, scales = node.tensor(0), node.tensor(1), node.tensor(2)
    if data is None or indices is None or scales is None:
        return [None]
    if not data.shape or indices.shape is None:
        return [TensorType(scales.dtype, None)]
    sizes = list(data.shape)
    last = sizes[-1]
    if data.dtype == "uint8" and isinstance(last, int):
        sizes[-1] = last * (8 // node.attributes.get("bits", 4))
    axis = node.attributes.get("gather_axis", 0) % len(sizes)
    sizes[axis : axis + 1] = indices.shape
    return [TensorType(scales.dtype, tuple(sizes))]


for _op, _types in ATTENTION_TYPES.items():
    TABLE.infer(_op, domain=CONTRIB)(_types)


for _op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
    TABLE.infer(_op, domain=CONTRIB)(skip_normalization)


@TABLE.infer("DynamicQuantizeLSTM", domain=CONTRIB)
def dynamic_quantize_lstm(node: NodeView) -> list[ValueType | None]:
    """Give LSTM's outputs; R is ``(directions, hidden, 4 hidden)``."""
    x, weights = _shape_of(node, 0), _shape_of(node, 2)
    if not x or not weights or len(x) != 3 or len(weights) != 3:
        return []
    ways, size, _ = weights
    state = TensorType("float32", (ways, x[1], size))
    every = TensorType("float32", (x[0], ways, x[1], size))
    return _asked(node, [every, state, state])


TABLE.infer("FusedMatMul", domain=CONTRIB)(fused_matmul)
