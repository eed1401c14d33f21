"""
QGemm of onnxruntime's domain: a product of bytes and an int32 bias, to floats or bytes.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import numpy as np

from seamline.fitting import dims, unlike
from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline.tensors import TensorType, ValueType
from seamline_cpu.binding import nothing
from seamline_cpu.kernels.byte_endings import Ending
from seamline_cpu.kernels.byte_panels import BytePanels
from seamline_cpu.kernels.byte_product import bind_bytes
from seamline_cpu.kernels.int8_choice import group_of, variant_for
from seamline_cpu.kernels.linear_elementwise import BYTES, single
from seamline_cpu.kernels.recorded import OF_BYTES
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

_DOMAIN = "com.microsoft"
_PACKED = {3: "B", 5: "the zero point of B"}


_singles = single(1, 2, 7, 8, needed=(1,))


def _unfit(view: NodeView) -> str | None:
    for index, name in _PACKED.items():
        if view.has_input(index) and view.constant(index) is None:
            return f"{name} (input {index}) is not constant: it is packed when the session is built"
    if view.attributes.get("transA", 0):
        return "its transA is 1, and rows of A are multiplied as they lie"
    if not view.has_input(4) or view.has_input(8) > view.has_input(7):
        return "the scale of B is left out, or that of Y while its zero point is there"
    alpha = view.attributes.get("alpha", 1.0)
    if alpha != 1.0 and view.constant(1) is None:
        return f"its alpha is {alpha}, and the scale of A is not constant"
    a, b = dims(view, 0), dims(view, 3)
    if a is None or b is None:
        return _singles(view)
    if len(a) != 2 or len(b) != 2:
        return f"A has {len(a)} axes and B has {len(b)}, not 2"
    depth, wide = b[::-1] if view.attributes.get("transB", 0) else b
    every = ((), (1,), (wide,))
    return (
        unlike(view, 0, "A", (a[0], depth))
        or _singles(view)
        or unlike(view, 4, "scale of B", *every)
        or unlike(view, 5, "zero point of B", *every)
        or unlike(view, 6, "C", (wide,), (1, wide))
    )


def _nbytes(view: NodeView) -> int:
    b = view.constant(3)
    return 0 if b is None else b.nbytes


@TABLE.kernel(
    "QGemm", domain=_DOMAIN, dtypes={0: BYTES, 3: BYTES}, when=_unfit, resident=_nbytes,
    variant="packed", because="sums end in floats or bytes while they are in the cache",
    not_capturable=OF_BYTES,
)  # fmt: skip
def qgemm(call: Call) -> Run:
    """Bind ``alpha (A - a_zero) (B - b_zero) + C``, scaled, and where asked rounded to bytes."""
    a, out = call.inputs[0], call.outputs[0]
    if not out.size:
        return nothing
    variant = variant_for(call.options)
    group, turned = group_of(variant), call.attr("transB", 0)
    known, point = (
        call.constant(3),
        call.constant(5) if call.input(5) is not None else None,
    )
    b = np.asarray(known).T if turned else np.asarray(known)
    panels = call.resident(
        f"bytes of {b.shape} by {group}", {3}, lambda: BytePanels.of(b, group)
    )
    alpha, rows = np.float32(call.attr("alpha", 1.0)), call.inputs[1]
    if alpha != 1.0:
        rows = np.asarray(rows * alpha, np.float32)
    added = None if call.input(6) is None else call.inputs[6].reshape(-1)
    ending = Ending(
        out, rows, call.inputs[4], added=added, last=call.input(7), zero=call.input(8)
    )
    return bind_bytes(
        a, call.input(2), panels, panels.zeros(point), ending, threads_of(call.options),
        variant,
    )  # fmt: skip


@TABLE.infer("QGemm", domain=_DOMAIN)
def infer_qgemm(node: NodeView) -> list[ValueType | None]:
    """Give a product's sizes: of floats, or of the last zero point's type."""
    a, b, zero = node.tensor(0), node.tensor(3), node.tensor(8)
    dtype = "float32"
    if node.has_input(7):
        if zero is None:
            return []
        dtype = zero.dtype
    if a is None or b is None or not a.shape or b.shape is None or len(b.shape) != 2:
        return [TensorType(dtype, None)]
    wide = b.shape[0 if node.attributes.get("transB", 0) else 1]
    return [TensorType(dtype, (a.shape[0], wide))]
