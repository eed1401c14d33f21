"""
Which claims say that their kernel is made of compiled commands, and which say why not.

A claim depends on the node alone: operator, element type, sizes, and which inputs are
constant. The layout of an array in memory is known only when a node is bound, so a kernel
that was claimed as commands may still be bound to NumPy; its segment's recording then
names it among those that were ``left``.
"""

from __future__ import annotations

from seamline.provider import NodeView
from seamline_cpu.kernels.broadcast_commands import BINARY, UNARY
from seamline_cpu.recording import IN_PYTHON

__all__ = ["not_capturable"]

_CONTRIB, _OWN = "com.microsoft::", "seamline::"
#: Operators whose float32 form is made of commands.
_NATIVE = frozenset(
    [
        *BINARY,
        *UNARY,
        "BatchNormalization",
        "Conv",
        "LayerNormalization",
        "LogSoftmax",
        "RMSNormalization",
        "SimplifiedLayerNormalization",
        "Softmax",
        "Sum",
        f"{_CONTRIB}FusedConv",
        f"{_OWN}FusedConv",
        f"{_OWN}LayerNormalization",
        f"{_CONTRIB}SimplifiedLayerNormalization",
    ]
)
#: Operators that give their input's bytes, and usually do nothing at all.
_VIEWS = frozenset(["Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"])


def not_capturable(node: NodeView) -> str | None:
    """Say why a node's kernel cannot be recorded, or None where it is made of commands."""
    name = node.node.qualified_op
    kind = node.tensor(0)
    if name in _VIEWS:
        return None
    if name in ("MatMul", f"{_OWN}FusedMatMul"):
        return _of_product(node)
    if name not in _NATIVE:
        return IN_PYTHON
    if kind is None or kind.dtype != "float32":
        return f"{IN_PYTHON}: only float32 has compiled commands"
    return None


def _of_product(node: NodeView) -> str | None:
    left, right = node.tensor(0), node.tensor(1)
    if left is None or right is None or left.dtype != "float32":
        return f"{IN_PYTHON}: only float32 has compiled commands"
    if node.constant(1) is None:
        return f"{IN_PYTHON}: only a constant right side is packed for commands"
    return None
