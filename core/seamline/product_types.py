"""Products that ONNX does not define: their types, and whether their operands fit."""

from __future__ import annotations

from seamline.provider import NodeView
from seamline.tensors import Dim, TensorType, ValueType

__all__ = ["fused_matmul", "sum_of_product", "unfit_sum_of_product"]


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


def sum_of_product(node: NodeView) -> list[ValueType | None]:
    """Give ``A``'s type with rows as long as ``B``'s."""
    a, b = node.tensor(0), node.tensor(1)
    if a is None:
        return [None]
    if not a.shape or b is None or b.shape is None or len(b.shape) != 2:
        return [TensorType(a.dtype, None)]
    width = b.shape[0 if node.attributes.get("transB", 0) else 1]
    return [TensorType(a.dtype, (*a.shape[:-1], width))]


def unfit_sum_of_product(view: NodeView) -> str | None:
    """Refuse operands of Seamline's FusedMatMul that do not fit one another."""
    b, bias = view.tensor(1), view.tensor(2)
    if b is None or b.shape is None or len(b.shape) != 2:
        return f"its B is {b}, and one matrix is multiplied with"
    width = b.shape[0 if view.attributes.get("transB", 0) else 1]
    if bias is not None and bias.is_sized and bias.shape != (width,):
        return f"its bias is {bias}, and its rows have {width} elements"
    more, kinds = view.tensor(3), view.outputs
    out = kinds[0] if kinds else None
    if more is None or not isinstance(out, TensorType):
        return None
    if more.is_sized and out.is_sized and more.shape != out.shape:
        return f"its residual is {more}, and its output {out}"
    return None
