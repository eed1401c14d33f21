"""
Which claims say that their kernel is made of compiled commands, and which say why not.

A claim depends on the node alone: operator, element type, sizes, and which inputs are
constant. The layout of an array in memory is known only when a node is bound, so a kernel
that was claimed as commands may still be bound to NumPy; its segment's recording then
names it among those that were ``left``.
"""

from __future__ import annotations

from seamline.provider import NodeView
from seamline_cpu.instruction_sets import converts_half
from seamline_cpu.kernels.broadcast_commands import BINARY, UNARY
from seamline_cpu.recording import IN_PYTHON

__all__ = ["not_capturable"]

_CONTRIB = "com.microsoft::"
#: Operators whose float32 form is made of commands.
_NATIVE = frozenset(
    [
        *BINARY,
        *UNARY,
        "BatchNormalization",
        "Conv",
        "Cos",
        "DynamicQuantizeLinear",
        "LayerNormalization",
        "LogSoftmax",
        "RMSNormalization",
        "SimplifiedLayerNormalization",
        "Sin",
        "Softmax",
        "Sum",
        f"{_CONTRIB}DynamicQuantizeLSTM",
        f"{_CONTRIB}FusedConv",
        f"{_CONTRIB}SimplifiedLayerNormalization",
    ]
)
#: Integer products, whose weights and zero points are inputs 1 and 3.
_INTEGER = frozenset(["ConvInteger", "MatMulInteger"])
#: Operators that give their input's bytes, and usually do nothing at all.
_VIEWS = frozenset(["Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"])


def not_capturable(node: NodeView) -> str | None:
    """Say why a node's kernel cannot be recorded, or None where it is made of commands."""
    name = node.node.qualified_op
    kind = node.tensor(0)
    if name in _VIEWS:
        return None
    if name == "MatMul":
        return _of_product(node)
    if name == f"{_CONTRIB}MatMulNBits":
        return _of_packed(node)
    if name in _INTEGER:
        return _of_integers(node)
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


def _of_integers(node: NodeView) -> str | None:
    for index, what in {1: "weight", 3: "weights' zero point"}.items():
        if node.has_input(index) and node.constant(index) is None:
            return f"{IN_PYTHON}: its {what} is not constant"
    return None


def _of_packed(node: NodeView) -> str | None:
    names = {1: "weight", 2: "scale", 3: "zero point", 4: "g_idx", 5: "bias"}
    for index, what in names.items():
        if node.has_input(index) and node.constant(index) is None:
            return f"{IN_PYTHON}: its {what} is not constant"
    kind = node.tensor(0)
    if kind is not None and kind.dtype == "float16" and not converts_half():
        return f"{IN_PYTHON}: this processor does not convert float16"
    return None
