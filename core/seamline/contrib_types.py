"""
Output types of operators of onnxruntime's domain that several providers run.

A provider registers them with :meth:`seamline.kernel_table.KernelTable.infer`.
"""

from __future__ import annotations

from seamline.provider import NodeView
from seamline.tensors import TensorType, ValueType

__all__ = ["skip_normalization"]


def skip_normalization(node: NodeView) -> list[ValueType | None]:
    """Give the input's type for the result and the sum, one statistic for each row."""
    x = node.tensor(0)
    if x is None:
        return []
    rows = (*x.shape[:-1], 1) if x.shape else None
    statistic = TensorType("float32", rows)
    kinds: list[ValueType | None] = [x, statistic, statistic, x]
    return kinds[: len(node.node.outputs)]
