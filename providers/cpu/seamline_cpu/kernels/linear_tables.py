"""
Functions of one byte, which a table of 256 holds: QLinearSigmoid, QLinearLeakyRelu.

QLinearConcat is one of them for each input: from its own scale and zero point to those of
the output. QLinearSoftmax takes its exponentials from a table of differences.
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seamline.fitting import all_of, dims, unlike
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import Dim, TensorType, ValueType
from seamline_cpu.atomics import bytes_at, floats
from seamline_cpu.binding import in_order, nothing
from seamline_cpu.commands import Native, bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels.linear_commands import point_of
from seamline_cpu.kernels.linear_elementwise import BYTES, single
from seamline_cpu.kernels.quantize_loops import code_of
from seamline_cpu.kernels.recorded import OF_BYTES, OF_FLOAT32
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.strides import portion
from seamline_cpu.table import TABLE

__all__: list[str] = []

_DOMAIN = "com.microsoft"
_SHARED_FROM = 131_072  # elements from which more threads pay
_SAME, _SIGMOID, _LEAKY = range(3)
f4, i4 = np.float32, np.int32


@jit
def _function(op: int, x: Any, alpha: Any) -> Any:
    if op == _SIGMOID:
        return f4(1.0 / (1.0 + math.exp(-np.float64(x))))
    if op == _LEAKY and x < f4(0.0):
        return f4(x * alpha)
    return f4(x)


@command
def _table(a: Any, share: int, shares: int) -> None:
    """Tabulate: operation, addresses of alpha, two scales and points, the table; sign."""
    op, sign, to = a[0], i4(a[7]), bytes_at(a[6])
    alpha, scale, last = floats(a[1])[0], floats(a[2])[0], floats(a[4])[0]
    less, zero = point_of(a[3], 0, a[7]), point_of(a[5], 0, a[7])
    for byte in range(256):
        x = f4(i4(i4(i4(byte) ^ sign) - sign) - less) * scale
        y = _function(op, x, alpha)
        to[byte] = code_of(y, last, zero, i4(-sign), i4(255 - sign))


@command
def _mapped(a: Any, share: int, shares: int) -> None:
    """Look up lines: how many, how long, addresses and pitches of both; the table."""
    table = bytes_at(a[6])
    first, end, low, high = portion(a[0], a[1], share, shares)
    for r in range(first, end):
        x, y = bytes_at(a[2] + r * a[3]), bytes_at(a[4] + r * a[5])
        for i in range(low, high):
            y[i] = table[x[i]]


def _bind_mapped(
    op: int, x: Array, out: int, lines: int, pitch: int, given: list[Array | None],
    alpha: float, threads: int,
) -> list[Native]:  # fmt: skip
    """Bind a table of ``given`` scales and zero points, and its use to address ``out``."""
    at = [0 if one is None else one.ctypes.data for one in given]
    sign = 128 if x.dtype == np.int8 else 0
    table, slope = np.zeros(256, np.uint8), np.array([alpha], np.float32)
    first = [op, slope.ctypes.data, *at, table.ctypes.data, sign]
    n = x.size // lines
    then = [lines, n, x.ctypes.data, n, out, pitch, table.ctypes.data]
    shares = threads if x.size >= _SHARED_FROM else 1
    return [
        bind(_table, first, 1, keep=(table, slope, given)),
        bind(_mapped, then, shares, keep=(table, x)),
    ]


def _bind_unary(call: Call, op: int, alpha: float = 0.0) -> Run:
    x, out = call.inputs[0], call.outputs[0]
    if not out.size:
        return nothing
    given = [call.input(i) for i in range(1, 5)]
    return in_order(
        _bind_mapped(
            op, x, out.ctypes.data, 1, x.size, given, alpha, threads_of(call.options)
        )
    )


@TABLE.kernel(
    "QLinearSigmoid", domain=_DOMAIN, dtypes=BYTES, when=single(1, 2, 3, 4, needed=(1, 3)),
    variant="commands", because="a table of all bytes", not_capturable=OF_BYTES,
)  # fmt: skip
def qlinear_sigmoid(call: Call) -> Run:
    """Bind the sigmoid of bytes."""
    return _bind_unary(call, _SIGMOID)


@TABLE.kernel(
    "QLinearLeakyRelu", domain=_DOMAIN, dtypes=BYTES, when=single(1, 2, 3, 4, needed=(1, 3)),
    variant="commands", because="a table of all bytes", not_capturable=OF_BYTES,
)  # fmt: skip
def qlinear_leaky_relu(call: Call) -> Run:
    """Bind x, or ``alpha`` x below 0, of bytes."""
    return _bind_unary(call, _LEAKY, float(call.attr("alpha", 0.01)))


def _unfit_concat(view: NodeView) -> str | None:
    count = len(view.node.inputs)
    if count < 5 or count % 3 != 2:
        return f"it has {count} inputs, not a scale, a point, and three for each tensor"
    kinds = [view.tensor(i) for i in range(2, count, 3)]
    if any(k is not None and k.dtype not in BYTES for k in kinds):
        return "a tensor of it is not of bytes"
    scales = [i for i in range(count) if i % 3 == 0]
    points = [i for i in range(count) if i % 3 == 1]
    if reason := single(*scales, *points, needed=tuple(scales))(view):
        return reason
    shapes = [dims(view, i) for i in range(2, count, 3)]
    known = [shape for shape in shapes if shape is not None]
    if not known:
        return None
    axis, rank = view.attributes.get("axis", 0), len(known[0])
    if not -rank <= axis < rank:
        return f"axis {axis} is outside of tensors of {rank} axes"
    form = tuple(None if i == axis % rank else n for i, n in enumerate(known[0]))
    for i in range(2, count, 3):
        if reason := unlike(view, i, f"input {i}", form):
            return reason
    return None


def _unfit_softmax(view: NodeView) -> str | None:
    shape, old = dims(view, 0), view.attributes.get("opset", 13) < 13
    axis = view.attributes.get("axis", 1 if old else -1)
    if shape is not None and not -len(shape) <= axis < len(shape):
        return f"axis {axis} is outside of a tensor of {len(shape)} axes"
    return None


@TABLE.kernel(
    "QLinearConcat", domain=_DOMAIN, dtypes={0: ("float32",), 1: BYTES}, when=_unfit_concat,
    variant="commands", because="a table of all bytes for each input",
    not_capturable=OF_FLOAT32,
)  # fmt: skip
def qlinear_concat(call: Call) -> Run:
    """Bind tensors of bytes one after the other, each brought to the output's scale."""
    out = call.outputs[0]
    axis = int(call.attr("axis")) % out.ndim
    lines, inner = math.prod(out.shape[:axis]), math.prod(out.shape[axis + 1 :])
    pitch, to, steps = out.shape[axis] * inner, out.ctypes.data, list[Run]()
    for i in range(2, len(call.view.node.inputs), 3):
        x = call.inputs[i]
        if x.size:
            given = [call.input(i + 1), call.input(i + 2), call.input(0), call.input(1)]
            steps += _bind_mapped(
                _SAME, x, to, lines, pitch, given, 0.0, threads_of(call.options)
            )
        to += x.shape[axis] * inner
    return in_order(steps)


@command
def _softmax(a: Any, share: int, shares: int) -> None:
    """
    Take exponentials of what lies below the greatest of each line from a table.

    Arguments: lines, elements of each, bytes between them, lines that interleave, then
    addresses of x, its scale, the output, its scale and zero point; sign; tables.
    """
    lines, n, step, inner, sign = a[0], a[1], a[2], a[3], i4(a[9])
    table = floats(a[10] + 1024 * share)
    scale, last = np.float64(floats(a[5])[0]), floats(a[7])[0]
    zero = point_of(a[8], 0, a[9])
    for d in range(256):
        table[d] = f4(math.exp(-scale * d))
    for r in range(lines * share // shares, lines * (share + 1) // shares):
        at = r // inner * inner * n + r % inner
        x, y = bytes_at(a[4] + at), bytes_at(a[6] + at)
        most = i4(0)
        for k in range(n):
            most = max(most, i4(i4(x[k * step]) ^ sign))
        total = f4(0.0)
        for k in range(n):
            total += table[most - i4(i4(x[k * step]) ^ sign)]
        for k in range(n):
            part = f4(table[most - i4(i4(x[k * step]) ^ sign)] / total)
            y[k * step] = code_of(part, last, zero, i4(-sign), i4(255 - sign))


@TABLE.kernel(
    "QLinearSoftmax", domain=_DOMAIN, dtypes=BYTES,
    when=all_of(_unfit_softmax, single(1, 2, 3, 4, needed=(1, 3))),
    variant="commands", because="exponentials of 256 differences are a table",
    not_capturable=OF_BYTES,
)  # fmt: skip
def qlinear_softmax(call: Call) -> Run:
    """Bind softmax along one axis, or before ``opset`` 13 over the flattened rest."""
    x, out = call.inputs[0], call.outputs[0]
    if not out.size:
        return nothing
    old = int(call.attr("opset")) < 13
    axis = int(call.attr("axis", 1 if old else -1)) % x.ndim
    n = math.prod(x.shape[axis:]) if old else x.shape[axis]
    inner = 1 if old else math.prod(x.shape[axis + 1 :])
    lines = x.size // n
    shares = min(threads_of(call.options), lines) if x.size >= _SHARED_FROM // 4 else 1
    tables = np.zeros((shares, 256), np.float32)
    given = [x, call.inputs[1], out, call.inputs[3], call.input(4)]
    at = [0 if one is None else one.ctypes.data for one in given]
    sign = 128 if x.dtype == np.int8 else 0
    arguments = [lines, n, inner, inner, *at, sign, tables.ctypes.data]
    return bind(_softmax, arguments, shares, keep=(given, tables))


for _op in ("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"):

    @TABLE.infer(_op, domain=_DOMAIN)
    def _alike(node: NodeView) -> list[ValueType | None]:
        return [node.tensor(0)]


@TABLE.infer("QLinearConcat", domain=_DOMAIN)
def infer_qlinear_concat(node: NodeView) -> list[ValueType | None]:
    """Give the tensors' sizes, added up along the axis."""
    kinds = [node.tensor(i) for i in range(2, len(node.node.inputs), 3)]
    zero = node.tensor(1)
    if zero is None or not kinds:
        return []
    shapes = [None if k is None else k.shape for k in kinds]
    first = shapes[0]
    if first is None or any(s is None or len(s) != len(first) for s in shapes):
        return [TensorType(zero.dtype, None)]
    axis = node.attributes.get("axis", 0) % len(first)
    sizes: list[Dim] = [s[axis] for s in shapes if s is not None]
    total = sum(s for s in sizes if isinstance(s, int))
    whole: Dim = total if all(isinstance(s, int) for s in sizes) else None
    return [TensorType(zero.dtype, (*first[:axis], whole, *first[axis + 1 :]))]
