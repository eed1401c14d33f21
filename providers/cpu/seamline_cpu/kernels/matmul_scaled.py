"""
DynamicQuantizeMatMul and MatMulIntegerToFloat of onnxruntime's domain.

Both are exact sums of bytes, brought to float32 by one scale of the left side and one, or
one a column, of the right, plus a bias. Seamline's own form of the second may add a
residual, and activate.
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seamline.fitting import Check, all_of, dims, unlike
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import Dim, TensorType, ValueType
from seamline_cpu.binding import in_order, nothing
from seamline_cpu.kernels.byte_endings import Ending
from seamline_cpu.kernels.byte_panels import BytePanels
from seamline_cpu.kernels.byte_product import bind_bytes
from seamline_cpu.kernels.convolution_fused import unlike_output
from seamline_cpu.kernels.epilogues import (
    PLAIN,
    Epilogue,
    epilogue_of,
    unknown_activation,
)
from seamline_cpu.kernels.int8_choice import group_of, variant_for
from seamline_cpu.kernels.quantize_commands import bind_dynamic
from seamline_cpu.kernels.recorded import OF_BYTES, OF_FLOAT32
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

_DOMAIN, _OWN = "com.microsoft", "seamline"
_BYTES = ("int8", "uint8")
_BECAUSE = "scaled to floats while the sums are in the cache"


def _unfit(
    zero: int, right: tuple[int, ...], bias: int, singles: Sequence[int]
) -> Check:
    """Give the check of B (input 1), its zero point and scales, the bias, and the rest."""

    def check(view: NodeView) -> str | None:
        a, b = dims(view, 0), dims(view, 1)
        for index in (1, zero):
            if view.has_input(index) and view.constant(index) is None:
                return f"input {index} is not constant: it is packed when the session is built"
        if a is not None and len(a) < 1:
            return "its input 0 has no axis"
        if b is None:
            return None
        if len(b) != 2:
            return f"its input 1 has {len(b)} axes, not 2"
        if a is not None and isinstance(a[-1], int) and a[-1] != b[0]:
            return f"its input 0 is {list(a)}, and input 1 {list(b)}"
        forms: list[tuple[int, tuple[tuple[Dim, ...], ...]]] = [
            (i, ((), (1,), (b[1],))) for i in right
        ]
        forms += [(i, ((), (1,))) for i in singles]
        forms.append((bias, ((b[1],),)))
        for index, allowed in forms:
            if reason := unlike(view, index, f"input {index}", *allowed):
                return reason
        return None

    return check


def _inferred(node: NodeView) -> list[ValueType | None]:
    a, b = node.tensor(0), node.tensor(1)
    if a is None or b is None:
        return []
    known = a.shape is not None and b.shape is not None and len(b.shape) == 2
    shape = (*a.shape[:-1], b.shape[1]) if known else None  # type: ignore[index]
    return [TensorType("float32", shape)]


def _nbytes(view: NodeView) -> int:
    b = view.constant(1)
    return 0 if b is None else b.nbytes


def _bind(
    call: Call, rows: Array, zero: Array | None, scales: tuple[Array, Array],
    points: int, bias: Array | None, epilogue: Epilogue = PLAIN,
) -> Run:  # fmt: skip
    b = call.constant(1)
    if b is None:
        raise ValueError("input 1 is not constant")
    variant = variant_for(call.options)
    group = group_of(variant)
    panels = call.resident(
        f"bytes of {b.shape} by {group}", {1}, lambda: BytePanels.of(b, group)
    )
    point = None if call.input(points) is None else call.constant(points)
    out = call.outputs[0].reshape(len(rows), panels.columns)
    return bind_bytes(
        rows, zero, panels, panels.zeros(point),
        Ending(out, *scales, bias, epilogue=epilogue), threads_of(call.options), variant,
    )  # fmt: skip


@TABLE.kernel(
    "MatMulIntegerToFloat", domain=_OWN, dtypes={0: _BYTES, 1: _BYTES, 2: ("float32",)},
    when=all_of(_unfit(5, (3, 5), 6, (2, 4)), unknown_activation, unlike_output(7)),
    resident=_nbytes, variant="packed", because=_BECAUSE, not_capturable=OF_BYTES,
)  # fmt: skip
@TABLE.kernel(
    "MatMulIntegerToFloat", domain=_DOMAIN, dtypes={0: _BYTES, 1: _BYTES, 2: ("float32",)},
    when=_unfit(5, (3, 5), 6, (2, 4)), resident=_nbytes, variant="packed",
    because=_BECAUSE, not_capturable=OF_BYTES,
)  # fmt: skip
def matmul_integer_to_float(call: Call) -> Run:
    """
    Bind the product of bytes, scaled to float32.

    In Seamline's domain input 7 is a residual of the output's shape, and ``activation`` and
    ``activation_params`` are those of its FusedConv.
    """
    a, out = call.inputs[0], call.outputs[0]
    if not out.size:
        return nothing
    rows = (
        a.reshape(-1, a.shape[-1])
        if a.size
        else np.zeros((out.size // out.shape[-1], 0), a.dtype)
    )
    scales = (call.inputs[2], call.inputs[3])
    return _bind(
        call, rows, call.input(4), scales, 5, call.input(6), epilogue_of(call, 7)
    )


@TABLE.kernel(
    "DynamicQuantizeMatMul", domain=_DOMAIN, dtypes={0: ("float32",), 1: _BYTES},
    when=_unfit(3, (2, 3), 4, ()), resident=_nbytes, variant="packed",
    because=_BECAUSE, not_capturable=OF_FLOAT32,
)  # fmt: skip
def dynamic_quantize_matmul(call: Call) -> Run:
    """Bind the quantisation of A by its own range, and the product of bytes."""
    a, out = call.inputs[0], call.outputs[0]
    if not out.size:
        return nothing
    codes = np.zeros((out.size // out.shape[-1], a.shape[-1]), np.uint8)
    scale, zero = np.ones(1, np.float32), np.zeros(1, np.uint8)
    quantise = bind_dynamic(a, codes, scale, zero, threads_of(call.options))
    scales = (scale, call.inputs[2])
    return in_order([quantise, _bind(call, codes, zero, scales, 3, call.input(4))])


for _op in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
    TABLE.infer(_op, domain=_DOMAIN)(_inferred)
TABLE.infer("MatMulIntegerToFloat", domain=_OWN)(_inferred)
