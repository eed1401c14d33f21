"""
Which claims say that their kernel is made of compiled commands, and which say why not.

A claim depends on the node alone: operator, element type, sizes, and which inputs are
constant. The layout of an array in memory is known only when a node is bound, so a kernel
that was claimed as commands may still be bound to NumPy; its segment's recording then
names it among those that were ``left``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from seamline.provider import NodeView
from seamline_cpu.instruction_sets import converts_half
from seamline_cpu.kernels import attention, attention_contrib
from seamline_cpu.kernels.activation_commands import FORMULAS
from seamline_cpu.kernels.attention_floats import KINDS
from seamline_cpu.kernels.broadcast_commands import BINARY, UNARY
from seamline_cpu.kernels.cast_commands import CAST
from seamline_cpu.kernels.gathering_quantized import TABLES
from seamline_cpu.kernels.typed_commands import COMPARED, COUNTED
from seamline_cpu.recording import IN_PYTHON

__all__ = ["not_capturable"]

_CONTRIB, _OWN = "com.microsoft::", "seamline::"
_ONLY_FLOAT = frozenset({"float32"})
_FLOATS = frozenset({"bfloat16", "float16", "float32"})
#: Operators whose float32 form is made of commands.
_FLOAT = (
    *BINARY, *UNARY, *FORMULAS, "AveragePool", "BatchNormalization", "Conv", "ConvTranspose",
    "Cos", "DynamicQuantizeLinear", "Gemm", "GlobalAveragePool", "GlobalMaxPool", "GRU", "IsNaN", "LRN", "LSTM",
    "LayerNormalization", "LogSoftmax", "MatMul", "Mean", "Pow",
    "RMSNormalization", "RNN", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceSum", "ReduceSumSquare", "SimplifiedLayerNormalization", "Sin", "Softmax", "Sum",
    f"{_CONTRIB}DynamicQuantizeLSTM", f"{_CONTRIB}DynamicQuantizeMatMul", f"{_CONTRIB}FusedConv", f"{_CONTRIB}FusedMatMul", f"{_CONTRIB}Gelu",
    f"{_CONTRIB}Attention", f"{_CONTRIB}MultiHeadAttention", f"{_CONTRIB}SkipLayerNormalization",
    f"{_CONTRIB}SkipSimplifiedLayerNormalization",
    f"{_CONTRIB}QuickGelu", f"{_CONTRIB}SimplifiedLayerNormalization", f"{_OWN}FusedConv",
    f"{_OWN}FusedMatMul", f"{_OWN}LayerNormalization",
)  # fmt: skip
_BYTES = frozenset({"int8", "uint8"})
#: Operators over bytes that are made of commands.
_OF_BYTES = (
    "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul",
    f"{_CONTRIB}MatMulIntegerToFloat", f"{_CONTRIB}QGemm", f"{_CONTRIB}QLinearAdd",
    f"{_CONTRIB}QLinearAveragePool", f"{_CONTRIB}QLinearConv",
    f"{_CONTRIB}QLinearGlobalAveragePool", f"{_CONTRIB}QLinearLeakyRelu",
    f"{_CONTRIB}QLinearMul", f"{_CONTRIB}QLinearSigmoid", f"{_CONTRIB}QLinearSoftmax",
    f"{_OWN}ConvIntegerToFloat", f"{_OWN}MatMulIntegerToFloat",
)  # fmt: skip
_COUNTED = ("Add", "Sub", "Mul", "Div", "Max", "Min")
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_LOGIC = ("And", "Or", "Xor", "Not")
#: Element types of input 0 that an operator has commands for.
_TYPES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_FLOAT, _ONLY_FLOAT),
    **dict.fromkeys(_COUNTED, _ONLY_FLOAT | COUNTED),
    **dict.fromkeys(_COMPARISONS, COMPARED),
    **dict.fromkeys(_LOGIC, frozenset({"bool"})),
    **dict.fromkeys(_OF_BYTES, _BYTES),
    "DequantizeLinear": _BYTES,
    "MaxPool": _ONLY_FLOAT | _BYTES,
    f"{_CONTRIB}QLinearConcat": _ONLY_FLOAT,
    "QuantizeLinear": _ONLY_FLOAT,
    **dict.fromkeys(
        (
            f"{_CONTRIB}MatMulNBits",
            f"{_CONTRIB}MatMulBnb4",
            f"{_CONTRIB}QMoE",
            f"{_OWN}DequantizedMatMul",
        ),
        _FLOATS,
    ),
    "Cast": CAST,
    f"{_CONTRIB}GatherBlockQuantized": TABLES,
    **dict.fromkeys(
        (
            "Attention",
            "RotaryEmbedding",
            f"{_CONTRIB}RotaryEmbedding",
            f"{_CONTRIB}GroupQueryAttention",
        ),
        frozenset(KINDS),
    ),
    "CumSum": frozenset({"float32", "int32", "int64", "uint32", "uint64"}),
    "ReduceSum": frozenset({"float32", "int32", "int64", "uint32", "uint64"}),
}
#: Operators that move elements of any type but text, or leave them where they are.
_MOVES = frozenset(
    [
        "Concat", "ConstantOfShape", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather",
        "Identity", "Pad", "Range", "Reshape", "Resize", "Shape", "Size", "Slice",
        "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Upsample", "Where",
    ]
)  # fmt: skip
#: Inputs of which a command needs the value when it is bound.
_KNOWN: Mapping[str, tuple[int, ...]] = {
    "Clip": (1, 2), "CumSum": (1,), "ConstantOfShape": (0,), "Expand": (1,), "Pad": (1, 3), "Pow": (1,),
    "Range": (0, 1, 2), "Reshape": (1,), "Resize": (1, 2, 3), "Slice": (1, 2, 3, 4),
    "Split": (1,), "Squeeze": (1,), "Tile": (1,), "Unsqueeze": (1,), "Upsample": (1,),
    **{f"Reduce{name}": (1,) for name in ("L1", "L2", "Max", "Mean", "Min", "Sum", "SumSquare")},
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3)),
}  # fmt: skip


def not_capturable(node: NodeView) -> str | None:
    """Say why a node's kernel cannot be recorded, or None where it is made of commands."""
    name = node.node.qualified_op
    check = _FORMS.get(name)
    return (
        _of_types(node, name)
        or _of_values(node, name)
        or (check(node) if check else None)
    )


def _of_types(node: NodeView, name: str) -> str | None:
    kind = node.tensor(0)
    if name in _MOVES:
        text = kind is not None and kind.dtype == "string"
        return f"{IN_PYTHON}: text is not moved by commands" if text else None
    accepted = _TYPES.get(name)
    if accepted is None:
        return IN_PYTHON
    if kind is None or kind.dtype not in accepted:
        return f"{IN_PYTHON}: only {', '.join(sorted(accepted))} has compiled commands"
    return None


def _of_values(node: NodeView, name: str) -> str | None:
    for index in _KNOWN.get(name, ()):
        if node.has_input(index) and node.constant(index) is None:
            return f"{IN_PYTHON}: input {index} is not known before it runs"
    return None


def _cast(node: NodeView) -> str | None:
    kind = node.outputs[0] if node.outputs else None
    target = getattr(kind, "dtype", None)
    if target in CAST:
        return None
    return f"{IN_PYTHON}: it casts to {target}"


def _resize(node: NodeView) -> str | None:
    mode, kind = node.attributes.get("mode", "nearest"), node.tensor(0)
    if mode != "nearest" and (kind is None or kind.dtype != "float32"):
        return f"{IN_PYTHON}: only float32 is blended by commands"
    return None


def _power(node: NodeView) -> str | None:
    known = node.constant(1)
    if known is not None and known.size == 1 and float(known.reshape(())) in _EXPONENTS:
        return None
    return f"{IN_PYTHON}: only exponents of {sorted(_EXPONENTS)} have compiled commands"


#: Weights and their zero points are packed when a node is bound; others in each run.
_WEIGHTS = {1: "weight", 3: "weights' zero point"}
_LINEAR = {3: "weight", 5: "weights' zero point"}


def _of_packed(node: NodeView) -> str | None:
    names = {1: "weight", 2: "scale", 3: "zero point", 4: "g_idx", 5: "bias"}
    return _of_known(names, node) or _of_halves(node)


def _of_codes(node: NodeView) -> str | None:
    names = {1: "weight", 2: "scale", 3: "zero point", 4: "bias"}
    return _of_known(names, node) or _of_halves(node)


def _of_experts(node: NodeView) -> str | None:
    names = {2: "fc1 weight", 3: "fc1 scale", 5: "fc2 weight", 6: "fc2 scale", 8: "fc3 weight",
             9: "fc3 scale", 4: "fc1 bias", 7: "fc2 bias", 10: "fc3 bias",
             11: "fc1 zero point", 12: "fc2 zero point", 13: "fc3 zero point",
             15: "fc1 global scale", 16: "fc2 global scale"}  # fmt: skip
    return _of_known(names, node) or _of_halves(node)


def _of_known(names: Mapping[int, str], node: NodeView) -> str | None:
    for index, what in names.items():
        if node.has_input(index) and node.constant(index) is None:
            return f"{IN_PYTHON}: its {what} is not constant"
    return None


def _linear(node: NodeView) -> str | None:
    """Say why QuantizeLinear or DequantizeLinear stays in Python."""
    kinds = [node.tensor(1), node.outputs[0] if node.outputs else None]
    scale, out = (getattr(kind, "dtype", None) for kind in kinds)
    wide, narrow = (
        (out, "int8") if node.node.op_type == "DequantizeLinear" else ("float32", out)
    )
    if node.attributes.get("block_size", 0) or scale != "float32" or wide != "float32":
        return (
            f"{IN_PYTHON}: its scale is {scale}, in blocks or not, and it gives {out}"
        )
    if narrow not in _BYTES or node.attributes.get("precision", 0) not in (0, 1):
        return f"{IN_PYTHON}: only codes of 8 bits have compiled commands"
    return None


def _product(a: int, b: int, node: NodeView) -> str | None:
    """Say why a product of bytes stays in Python: it broadcasts, or scales differ by row."""
    one, other = node.tensor(a), node.tensor(b)
    if node.node.op_type == "QLinearMatMul":
        out = node.tensor(6)
        if out is not None and out.is_sized and out.shape not in ((), (1,)):
            return f"{IN_PYTHON}: it has an output scale for each row"
    if one is None or other is None or one.shape is None or other.shape is None:
        return None
    if len(other.shape) > 2 and one.shape[:-2] != other.shape[:-2]:
        return f"{IN_PYTHON}: its matrices are {one} and {other}, which broadcast"
    return None


def _of_halves(node: NodeView, index: int = 0) -> str | None:
    kind = node.tensor(index)
    if kind is not None and kind.dtype == "float16" and not converts_half():
        return f"{IN_PYTHON}: this processor does not convert float16"
    return None


def _of_heads(node: NodeView) -> str | None:
    theirs = node.domain == "com.microsoft"
    reason = (attention_contrib if theirs else attention).in_python(node)
    return f"{IN_PYTHON}: {reason}" if reason else None


_EXPONENTS = frozenset({-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0})
_FORMS: Mapping[str, Callable[[NodeView], str | None]] = {
    "Cast": _cast, "DequantizeLinear": _linear, "QuantizeLinear": _linear, "Pow": _power,
    "MatMulInteger": functools.partial(_product, 0, 1),
    "QLinearMatMul": functools.partial(_product, 0, 3),
    **dict.fromkeys(
        ("ConvInteger", f"{_OWN}ConvIntegerToFloat"),
        functools.partial(_of_known, _WEIGHTS),
    ),
    **dict.fromkeys(
        ("QLinearConv", f"{_CONTRIB}QLinearConv"), functools.partial(_of_known, _LINEAR)
    ),
    "Resize": _resize, "Upsample": _resize, f"{_CONTRIB}MatMulNBits": _of_packed,
    f"{_CONTRIB}GatherBlockQuantized": lambda node: _of_halves(node, 2),
    f"{_CONTRIB}MatMulBnb4": _of_codes, f"{_CONTRIB}QMoE": _of_experts, f"{_OWN}DequantizedMatMul": _of_codes,
    "Attention": _of_heads, f"{_OWN}Attention": _of_heads, f"{_CONTRIB}Attention": _of_heads,
    f"{_CONTRIB}MultiHeadAttention": _of_heads,
}  # fmt: skip
