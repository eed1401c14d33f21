"""Output types of operators of onnxruntime's domain, by what their kernels here give."""

from __future__ import annotations

from collections.abc import Sequence

from seamline.attention_types import ATTENTION_TYPES
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


@TABLE.infer("SkipLayerNormalization", domain=CONTRIB)
@TABLE.infer("SkipSimplifiedLayerNormalization", domain=CONTRIB)
def skip_layer_normalization(node: NodeView) -> list[ValueType | None]:
    """Give the input's type for the result and the sum, one statistic for each row."""
    x = node.tensor(0)
    if x is None:
        return []
    rows = (*x.shape[:-1], 1) if x.shape else None
    statistic = TensorType("float32", rows)
    return _asked(node, [x, statistic, statistic, x])


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


@TABLE.infer("FusedMatMul", domain=CONTRIB)
def fused_matmul(node: NodeView) -> list[ValueType | None]:
    """Give a matrix product's type once the operands are turned as asked."""
    a, b = node.tensor(0), node.tensor(1)
    if a is None:
        return []
    if a.shape is None or b is None or b.shape is None:
        return [TensorType(a.dtype, None)]
    one = _turned(node, a.shape, "A")
    other = _turned(node, b.shape, "B")
    if len(one) < 2 or len(other) < 2:
        return []
    batch = _broadcast(one[:-2], other[:-2])
    return [TensorType(a.dtype, (*batch, one[-2], other[-1]))]


def _turned(node: NodeView, shape: tuple[Dim, ...], side: str) -> tuple[Dim, ...]:
    """Move the first axis next to last for ``transBatch``, then swap the last two."""
    if node.attributes.get(f"transBatch{side}", 0) and len(shape) > 2:
        shape = (*shape[1:-1], shape[0], shape[-1])
    if node.attributes.get(f"trans{side}", 0) and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


def _broadcast(one: tuple[Dim, ...], other: tuple[Dim, ...]) -> list[Dim]:
    rank = max(len(one), len(other))
    pairs = zip(
        (1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True
    )
    return [b if a == 1 else a if b == 1 or a == b else _known(a, b) for a, b in pairs]


def _known(one: Dim, other: Dim) -> Dim:
    """Give the size that must hold where one of two is a symbol."""
    return one if isinstance(one, int) else other if isinstance(other, int) else None
